//! Objects of a claim: from the agent's caches, or from the API server if the caches lack them.

use super::fault::{Fault, Part};
use crate::cluster::networks::{NetworkObject, network_resource};
use crate::cluster::objects::Kept;
use crate::cluster::pods;
use crate::serve::store::Store;
use braid_core::cni::Kind;
use braid_core::dra::claim::{Claim, ClaimingPod};
use braid_core::dra::device_status::{self, DeviceStatus};
use braid_core::dra::pod_claims::PodClaims;
use braid_core::dra::slice::API_VERSION;
use braid_core::k8s::{Nad, ObjectName, object};
use futures_util::future::{join_all, try_join_all};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time for the other claims of a pod, which a preparation can do without.
const OTHERS: Duration = Duration::from_secs(2);
/// Answers of the API server that a later request may not get: no rights yet, a conflict, too many
/// requests.
const PASSING: [u16; 5] = [401, 403, 408, 409, 429];

/// Reader of the objects.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Client,
    store: Arc<Store>,
}

impl Objects {
    pub(crate) fn new(client: Client, store: Arc<Store>) -> Self {
        Self { client, store }
    }

    /// Reads a claim from the API server; `None` if there is none.
    pub(crate) async fn claim(&self, name: &ObjectName) -> Result<Option<Claim>, Fault> {
        let Some(body) = self.get(name, &claims()).await? else {
            return Ok(None);
        };
        Ok(Some(Claim::parse(&body)?))
    }

    /// Reads a claim and the status of this driver's devices in it; `None` if there is none.
    pub(super) async fn status(
        &self,
        name: &ObjectName,
    ) -> Result<Option<(Claim, Vec<DeviceStatus>)>, Fault> {
        let Some(body) = self.get(name, &claims()).await? else {
            return Ok(None);
        };
        let object: Value = serde_json::from_slice(&body).map_err(|err| unreadable(name, &err))?;
        Ok(Some((
            Claim::parse(&body)?,
            device_status::of_object(&object),
        )))
    }

    /// Applies the status of devices to a claim. Returns false if the claim is gone.
    pub(super) async fn apply_status(
        &self,
        claim: &Claim,
        statuses: &[DeviceStatus],
        manager: &str,
    ) -> Result<bool, String> {
        let namespace = &claim.name.namespace;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &claims());
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(device_status::patch(claim, statuses));
        let applied = api.patch_subresource("status", &claim.name.name, &params, &patch);
        match applied.await {
            // 409: a claim of this name has another uid.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
            applied => applied.map(|_| true).map_err(|err| err.to_string()),
        }
    }

    /// Reads claims of a namespace, as far as they can be had.
    pub(super) async fn claims(&self, namespace: &str, names: Vec<String>) -> Vec<Claim> {
        let read = names.into_iter().map(async |name| {
            let namespace = namespace.to_owned();
            self.claim(&ObjectName { namespace, name }).await
        });
        let read = timeout(OTHERS, join_all(read)).await;
        let read = read.unwrap_or_default().into_iter();
        read.filter_map(|claim| claim.ok().flatten()).collect()
    }

    /// Reads the pod of a claim.
    pub(super) async fn pod(&self, namespace: &str, pod: &ClaimingPod) -> Result<PodClaims, Fault> {
        let name = ObjectName {
            namespace: namespace.to_owned(),
            name: pod.name.clone(),
        };
        let known = self.store.caches().pods.get(&name).cloned();
        if let Some(entry) = known.filter(|entry| entry.uid == pod.uid) {
            match PodClaims::parse(entry.text.as_bytes()) {
                // The cache may lack a claim that was just created.
                Err(error) if error.kind == Kind::TryAgain => {}
                parsed => return Ok(parsed?),
            }
        }
        match self.get(&name, &pods::resource()).await? {
            Some(body) => Ok(PodClaims::parse(&body)?),
            None => Err(Fault::lasting(
                Part::Claim,
                format_args!("pod {name} does not exist"),
            )),
        }
    }

    /// Reads networks, without those that do not exist.
    pub(super) async fn nads(&self, names: Vec<ObjectName>) -> Result<Vec<Nad>, Fault> {
        let read = names.into_iter().map(async |name| self.nad(&name).await);
        let read = try_join_all(read).await?;
        Ok(read.into_iter().flatten().collect())
    }

    async fn nad(&self, name: &ObjectName) -> Result<Option<Nad>, Fault> {
        let known = self.store.caches().networks.get(name).cloned();
        let text = match known {
            Some(entry) => entry.text,
            None => match self.get(name, &network_resource()).await? {
                Some(body) => {
                    let parsed: Result<NetworkObject, _> = serde_json::from_slice(&body);
                    parsed.map_err(|err| unreadable(name, &err))?.entry().text
                }
                None => return Ok(None),
            },
        };
        let nad = object::nad(name, text.as_bytes());
        nad.map(Some).map_err(|err| unreadable(name, &err))
    }

    /// Reads an object as JSON; `None` if there is none.
    async fn get(&self, name: &ObjectName, kind: &ApiResource) -> Result<Option<Vec<u8>>, Fault> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &name.namespace, kind);
        let doing = format!("get {} {name}", kind.kind);
        match api.get_opt(&name.name).await {
            Ok(None) => Ok(None),
            Ok(Some(object)) => {
                let body = serde_json::to_vec(&object);
                body.map(Some).map_err(|err| unreadable(name, &err))
            }
            Err(err) if is_passing(&err) => {
                Err(Fault::passing(Part::Api, format_args!("{doing}: {err}")))
            }
            Err(err) => Err(Fault::lasting(Part::Api, format_args!("{doing}: {err}"))),
        }
    }
}

fn unreadable(name: &ObjectName, err: &serde_json::Error) -> Fault {
    Fault::lasting(Part::Api, format_args!("read {name}: {err}"))
}

/// True if a later request may succeed. The API server learns late that a claim is for this node, and
/// then refuses it first.
fn is_passing(err: &kube::Error) -> bool {
    if let kube::Error::Api(status) = err {
        return status.code >= 500 || PASSING.contains(&status.code);
    }
    !matches!(err, kube::Error::SerdeError(_))
}

fn claims() -> ApiResource {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: API_VERSION.to_owned(),
        kind: "ResourceClaim".to_owned(),
        plural: "resourceclaims".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn faults_of_the_server_pass_and_refused_requests_do_not() {
        let is_passing = |code| {
            let status = Status::failure("x", "x").with_code(code);
            is_passing(&kube::Error::Api(Box::new(status)))
        };
        for code in [401, 403, 408, 409, 429, 500, 503, 504] {
            assert!(is_passing(code), "{code}");
        }
        for code in [400, 405, 422] {
            assert!(!is_passing(code), "{code}");
        }
        assert!(super::is_passing(
            &kube::Error::LinesCodecMaxLineLengthExceeded
        ));
    }
}
