//! Answers about the resource claims of a pod.

use super::answer::{CONCURRENT, Server};
use crate::cluster::pods::{self, PodObject};
use braid_core::dra::claim::Claim;
use braid_core::dra::pod_claims::PodClaims;
use braid_core::k8s::ObjectName;
use braid_node::source::agent::protocol::{ASKED_WITHIN, AnswerLine, SEEN_WITHIN};
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use tokio::time::timeout;

impl Server {
    /// Returns the line about the resource claims of the pod with this uid.
    pub(super) async fn resource_claims(&self, pod: &ObjectName, uid: &str) -> String {
        match self.claims_of(pod, uid).await {
            Ok(Some(claims)) => match serde_json::to_string(&claims) {
                Ok(json) => AnswerLine::ResourceClaims(&json).to_string(),
                Err(err) => AnswerLine::Unknown(&err.to_string()).to_string(),
            },
            Ok(None) => AnswerLine::NoPod.to_string(),
            Err(why) => AnswerLine::Unknown(&why).to_string(),
        }
    }

    /// Returns the claims with devices of braid; `None` if the API has no such pod.
    async fn claims_of(&self, name: &ObjectName, uid: &str) -> Result<Option<Vec<Claim>>, String> {
        let known = self.store.pod(name, uid, SEEN_WITHIN).await;
        let pod = match known {
            Some(entry) => entry,
            None => match self.get::<PodObject>(name, &pods::resource()).await? {
                Some(entry) if pods::is_of(&entry, uid) => entry,
                Some(_) | None => return Ok(None),
            },
        };
        let pod = PodClaims::parse(pod.text.as_bytes()).map_err(|err| err.msg)?;
        if pod.names.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let prepared = self.prepared.of_pod(pod.uid).await;
        let each = pod.names.into_iter().map(async |claim: String| {
            let claim = ObjectName {
                namespace: name.namespace.clone(),
                name: claim,
            };
            match prepared.iter().find(|one| one.name == claim) {
                Some(prepared) => Ok(prepared.clone()),
                None => self.resource_claim(&claim).await,
            }
        });
        let mut claims: Vec<Claim> = iter(each).buffered(CONCURRENT).try_collect().await?;
        claims.retain(|claim| !claim.shares.is_empty());
        Ok(Some(claims))
    }

    /// Asks the API for a claim: one of another driver, or one with a damaged file.
    async fn resource_claim(&self, name: &ObjectName) -> Result<Claim, String> {
        match timeout(ASKED_WITHIN, self.objects.claim(name)).await {
            Ok(Ok(Some(claim))) => Ok(claim),
            Ok(Ok(None)) => Err(format!("ResourceClaim {name} does not exist")),
            Ok(Err(fault)) => Err(fault.to_string()),
            Err(_) => Err(format!(
                "get ResourceClaim {name}: no response within {ASKED_WITHIN:?}"
            )),
        }
    }
}
