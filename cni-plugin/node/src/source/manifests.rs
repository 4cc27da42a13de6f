//! A cluster made of manifests. Writes to it are recorded, for display.

use super::cluster::{Cluster, Kubernetes};
use braid_core::cni::Error;
use braid_core::dra::claim::Claim;
use braid_core::k8s::dynamic::{Given, Offered};
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::{Edit, Event, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod};
use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Objects of the cluster.
#[derive(Debug, Default)]
pub struct Objects {
    /// Pods, and pod templates of workloads.
    pub pods: Vec<Pod>,
    /// `NetworkAttachmentDefinition`s.
    pub nads: Vec<Nad>,
    /// `IPAMClaim`s.
    pub claims: Vec<IpamClaim>,
    /// Resource claims with devices of braid, and their pods. Claims of a pod are in its order.
    pub resource_claims: Vec<Claim>,
}

/// Recorded writes to the cluster.
#[derive(Debug, Default)]
pub struct Written {
    /// Annotations written to pods: key and value.
    pub annotations: Vec<(String, String)>,
    /// Events written about pods.
    pub events: Vec<Event>,
    /// Addresses written to claims.
    pub claims: Vec<(ObjectName, Vec<String>)>,
}

/// A cluster made of manifests. Clones share the recorded writes.
#[derive(Debug, Clone, Default)]
pub struct Manifests {
    objects: Rc<Objects>,
    written: Rc<RefCell<Written>>,
}

impl Manifests {
    /// Creates a cluster of these objects.
    pub fn new(objects: Objects) -> Self {
        Self {
            objects: Rc::new(objects),
            written: Rc::default(),
        }
    }

    /// Returns the objects.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the writes so far.
    pub fn written(&self) -> Ref<'_, Written> {
        self.written.borrow()
    }
}

/// Objects come from the manifests. Devices come from this node, because no manifest has them.
impl Cluster for Manifests {
    fn source(
        &self,
        _settings: &Settings,
        _limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn devices(&self, settings: &Settings, pod: &ObjectName) -> Result<Given, Error> {
        Kubernetes.devices(settings, pod)
    }

    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, Error> {
        Kubernetes.device_info(resource, device)
    }

    fn prepares_claims(&self) -> bool {
        false
    }
}

impl Source for Manifests {
    fn pod(
        &mut self,
        pod: &ObjectName,
        _uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError> {
        let found = self
            .objects
            .pods
            .iter()
            .find(|there| there.name == *pod)
            .cloned();
        let found = found.ok_or_else(|| SourceError::NotFound {
            what: format!("pod {pod}"),
        })?;
        Ok((found, self.nads(nads)?))
    }

    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        let mut found = Vec::new();
        for name in names {
            let mut nads = self.objects.nads.iter();
            found.extend(nads.find(|nad| nad.name == *name).cloned());
        }
        Ok(found)
    }

    fn annotate(
        &mut self,
        pod: &ObjectName,
        _uid: &str,
        edit: &Edit<'_>,
    ) -> Result<(), SourceError> {
        let mut now = None;
        if let Some(pod) = self.objects.pods.iter().find(|there| there.name == *pod) {
            now = pod.annotations.get(edit.key).map(String::as_str);
        }
        if let Some(value) = (edit.value)(now) {
            self.written
                .borrow_mut()
                .annotations
                .push((edit.key.to_owned(), value));
        }
        Ok(())
    }

    fn tell(&mut self, _pod: &ObjectName, _uid: &str, event: &Event) -> Result<(), SourceError> {
        self.written.borrow_mut().events.push(event.clone());
        Ok(())
    }

    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError> {
        let found = self
            .objects
            .claims
            .iter()
            .find(|claim| claim.name == *name)
            .cloned();
        found.ok_or_else(|| SourceError::NotFound {
            what: format!("IPAMClaim {name}"),
        })
    }

    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError> {
        Ok(self
            .objects
            .claims
            .iter()
            .map(|claim| claim.uid.clone())
            .collect())
    }

    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError> {
        self.written
            .borrow_mut()
            .claims
            .push((claim.name.clone(), claim.ips.clone()));
        Ok(())
    }

    fn resource_claims(&mut self, pod: &ObjectName, _uid: &str) -> Result<Vec<Claim>, SourceError> {
        let mut claims = self.objects.resource_claims.clone();
        claims.retain(|claim| {
            let is_of_namespace = claim.name.namespace == pod.namespace;
            is_of_namespace && claim.pods.iter().any(|of| of.name == pod.name)
        });
        Ok(claims)
    }

    fn offered(&mut self, _node: &str, _driver: &str) -> Result<Vec<Offered>, SourceError> {
        Ok(Vec::new())
    }
}
