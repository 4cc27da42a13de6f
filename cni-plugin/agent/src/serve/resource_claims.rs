//! Answers about the resource claims of a pod.

use super::answer::{CONCURRENT, Server};
use crate::cluster::pods::{self, PodObject};
use braid_core::dra::claim::Claim;
use braid_core::dra::pod_claims::PodClaims;
use braid_core::k8s::ObjectName;
use braid_node::source::agent::protocol::{ASKED_WITHIN, AnswerLine, SEEN_WITHIN};
use braid_node::store::prepared::PreparedClaims;
use braid_node::store::root::NODE;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use http::Request;
use tokio::task::spawn_blocking;
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
        let prepared = prepared_for(pod.uid).await;
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

    /// Asks the API for a claim: one of another driver, or one whose file can't be read.
    async fn resource_claim(&self, name: &ObjectName) -> Result<Claim, String> {
        let doing = format!("get ResourceClaim {name}");
        let url = format!(
            "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
            name.namespace, name.name
        );
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(|err| format!("{doing}: {err}"))?;
        match timeout(ASKED_WITHIN, self.client.request_text(request)).await {
            Ok(Ok(body)) => Claim::parse(body.as_bytes()).map_err(|err| err.msg),
            Ok(Err(err)) => Err(format!("{doing}: {err}")),
            Err(_) => Err(format!("{doing}: no response within {ASKED_WITHIN:?}")),
        }
    }
}

/// Returns the prepared claims of the pod with this uid. A claim's allocation does not change while it is
/// reserved for a pod.
async fn prepared_for(pod: String) -> Vec<Claim> {
    let read = spawn_blocking(|| PreparedClaims::of(&NODE).read());
    let Ok(Ok((prepared, _))) = read.await else {
        return Vec::new();
    };
    let claims = prepared.into_iter().map(|one| one.claim);
    let is_of_pod = |claim: &Claim| claim.pods.first().is_some_and(|first| first.uid == pod);
    claims.filter(is_of_pod).collect()
}
