//! Networks on devices of a pod's resource claims.

use super::{Finder, of_source};
use crate::store::prepared::PreparedClaims;
use braid_core::cni::Error;
use braid_core::dra::attachments::{self, Attachment, of_claims};
use braid_core::dra::claim::{Claim, Share};
use braid_core::dra::device;
use braid_core::k8s::nad::Found;
use braid_core::k8s::select::Choice;
use braid_core::k8s::{Nad, ObjectName, Pod};

impl Finder<'_> {
    /// Returns the networks on devices of the pod's resource claims, in the order of the claims. Fails if
    /// a claim can't be read: a pod must not start without its interface.
    pub(super) fn claimed(&mut self, pod: &Pod) -> Result<Vec<(Choice, Found)>, Error> {
        let claims = self.resource_claims(pod)?;
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        for claim in &claims {
            claim.refuse_second(&pod.uid)?;
        }
        let links = self.machine.links().map_err(Error::from)?;
        let is_here = |share: &Share| pod.node.is_empty() || share.pool == pod.node;
        let attachments = of_claims(&claims, |share| {
            let found = device::link(&share.device, &links).filter(|_| is_here(share))?;
            Some((found.0.clone(), found.1))
        })?;
        attachments::refuse_taken_names(&attachments)?;
        let nads = self.nads_of(&attachments, &pod.name.namespace)?;
        let mut networks = Vec::new();
        for attachment in &attachments {
            let network = attachment.network(&nads, |name| self.of_conf_dir(name, None))?;
            networks.push(network);
        }
        Ok(networks)
    }

    /// Returns the pod's resource claims with devices of braid. While none is prepared on this node, no
    /// pod has any: the kubelet prepares a claim before it creates the pod's sandbox.
    fn resource_claims(&mut self, pod: &Pod) -> Result<Vec<Claim>, Error> {
        // A pod that the runtime describes has no node, and may have claims.
        let has_none = pod.resource_claims.is_empty() && !pod.node.is_empty();
        if has_none || self.settings.kubeconfig.is_none() {
            return Ok(Vec::new());
        }
        let prepared = PreparedClaims::of(self.machine.root());
        let is_any = !self.cluster.prepares_claims()
            || prepared.is_any().map_err(|err| {
                Error::internal(format!("read the prepared resource claims: {err}"))
            })?;
        if !is_any {
            return Ok(Vec::new());
        }
        let claims = self.ask()?.resource_claims(&pod.name, &pod.uid);
        claims.map_err(|err| of_source(&err))
    }

    /// Returns the NetworkAttachmentDefinitions that attachments name. Refuses one that pods of the
    /// namespace may not use, unless an administrator's class names it.
    fn nads_of(&mut self, attachments: &[Attachment], namespace: &str) -> Result<Vec<Nad>, Error> {
        let mut objects: Vec<ObjectName> = Vec::new();
        for attachment in attachments {
            let Some(object) = attachment.nad() else {
                continue;
            };
            if attachment.is_nad_of_claim() {
                let allowed = self.settings.allow(namespace, &object, false);
                allowed.map_err(|err| attachment.about(err))?;
            }
            objects.push(object);
        }
        objects.sort_unstable();
        objects.dedup();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let nads = self.ask()?.nads(&objects);
        nads.map_err(|err| of_source(&err))
    }
}
