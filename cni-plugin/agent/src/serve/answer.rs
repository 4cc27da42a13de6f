//! Answers to calls: objects from the caches, or from the API if the caches lack them.

use super::reports::Reports;
use super::store::{Look, Store};
use super::turns::Turns;
use crate::cluster::networks::{ClaimObject, NetworkObject, claim_resource, network_resource};
use crate::cluster::objects::{Entry, Kept};
use crate::cluster::pods::{self, PodObject};
use crate::dra::{Claims, Objects};
use braid_core::k8s::ObjectName;
use braid_node::source::agent::protocol::{
    ASKED_WITHIN, AgentRequest, AnswerLine, END, SEEN_WITHIN,
};
use futures_util::stream::{StreamExt, iter};
use kube::core::{ApiResource, DynamicResourceScope};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Networks of one answer that are asked of the API. An annotation may name thousands that do not
/// exist; the call asks for the rest.
const ASKED: usize = 64;
/// Longest time in which a status counts as a request at work. A call waits less.
const WRITTEN_WITHIN: Duration = Duration::from_millis(500);
/// Requests to the API at a time for one answer.
pub(super) const CONCURRENT: usize = 8;

/// Caches, and the API behind them.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) store: Arc<Store>,
    pub(super) reports: Reports,
    pub(super) turns: Turns,
    /// Reader of resource claims.
    pub(super) objects: Objects,
    /// Prepared resource claims.
    pub(super) prepared: Claims,
}

/// Returns the line about a status that `work` writes. The work returns false if the pod is gone. It
/// goes on if it takes longer than a call waits.
async fn written(work: impl Future<Output = Result<bool, String>> + Send + 'static) -> String {
    let done = match timeout(WRITTEN_WITHIN, tokio::spawn(work)).await {
        Ok(done) => done.unwrap_or_else(|err| Err(err.to_string())),
        Err(_) => Err(format!("not written within {WRITTEN_WITHIN:?}")),
    };
    match done {
        Ok(true) => AnswerLine::Published.to_string(),
        Ok(false) => AnswerLine::NoPod.to_string(),
        Err(why) => AnswerLine::Unknown(&why).to_string(),
    }
}

impl Server {
    /// Returns the answer to a request, without the acknowledgement.
    pub(super) async fn answer(self: Arc<Self>, request: AgentRequest) -> String {
        let mut answer = String::new();
        match request {
            AgentRequest::Objects {
                pod,
                uid,
                mut networks,
            } => {
                networks.extend(self.pod(&pod, &uid, &mut answer).await);
                self.networks(networks, &mut answer).await;
            }
            AgentRequest::Networks(networks) => self.networks(networks, &mut answer).await,
            AgentRequest::Claim(claim) => self.claim(&claim, &mut answer).await,
            AgentRequest::ResourceClaims { pod, uid } => {
                let line = self.resource_claims(&pod, &uid).await;
                answer.push_str(&line);
            }
            AgentRequest::Publish(publication) => {
                self.reports.publish(&publication);
                if publication.status.is_some() {
                    self.store.look(Look::Attached(publication.pod.clone()));
                }
                answer.push_str(&match publication.status.clone() {
                    Some(status) => {
                        let turn = self.turns.next(&publication.uid);
                        let server = Arc::clone(&self);
                        let work = async move { server.publish(publication, status, turn).await };
                        written(work).await
                    }
                    None => AnswerLine::Published.to_string(),
                });
            }
            AgentRequest::Withdraw(withdrawal) => {
                let turn = self.turns.next(&withdrawal.uid);
                let server = Arc::clone(&self);
                let work = async move { server.withdraw(withdrawal, turn).await };
                answer.push_str(&written(work).await);
            }
        }
        answer.push_str(END);
        answer
    }

    /// Adds the pod to the answer, and returns the networks that its annotations name.
    async fn pod(&self, name: &ObjectName, uid: &str, answer: &mut String) -> Vec<ObjectName> {
        let entry = match self.store.pod(name, uid, SEEN_WITHIN).await {
            Some(entry) => Ok(Some(entry)),
            None => self.get::<PodObject>(name, &pods::resource()).await,
        };
        match entry {
            Ok(Some(entry)) => {
                answer.push_str(&AnswerLine::Pod(&entry.text).to_string());
                return pods::networks_of(&entry, &name.namespace);
            }
            Ok(None) => answer.push_str(&AnswerLine::NoPod.to_string()),
            Err(why) => answer.push_str(&AnswerLine::Unknown(&why).to_string()),
        }
        Vec::new()
    }

    /// Adds these networks to the answer.
    async fn networks(&self, mut names: Vec<ObjectName>, answer: &mut String) {
        names.sort_unstable();
        names.dedup();
        let mut missing = Vec::new();
        {
            let caches = self.store.caches();
            for name in names {
                match caches.networks.get(&name) {
                    Some(entry) => {
                        answer.push_str(&AnswerLine::Network(name, &entry.text).to_string());
                    }
                    None => missing.push(name),
                }
            }
        }
        missing.truncate(ASKED);
        let asked = missing.into_iter().map(|name| async move {
            let found = self.get::<NetworkObject>(&name, &network_resource()).await;
            (name, found)
        });
        let asked: Vec<_> = iter(asked).buffered(CONCURRENT).collect().await;
        for (name, found) in asked {
            let line = match &found {
                Ok(Some(entry)) => AnswerLine::Network(name, &entry.text),
                Ok(None) => AnswerLine::NoNetwork(name),
                Err(why) => AnswerLine::Unknown(why),
            };
            answer.push_str(&line.to_string());
        }
    }

    /// Adds a claim to the answer.
    async fn claim(&self, name: &ObjectName, answer: &mut String) {
        let known = self.store.caches().claims.get(name).cloned();
        let found = match known {
            Some(entry) => Ok(Some(entry)),
            None => self.get::<ClaimObject>(name, &claim_resource()).await,
        };
        let line = match &found {
            Ok(Some(entry)) => AnswerLine::Claim(&entry.text),
            Ok(None) => AnswerLine::NoClaim,
            Err(why) => AnswerLine::Unknown(why),
        };
        answer.push_str(&line.to_string());
    }

    /// Asks the API for an object, once. `None` if the API has none.
    pub(super) async fn get<K>(
        &self,
        name: &ObjectName,
        kind: &ApiResource,
    ) -> Result<Option<Entry>, String>
    where
        K: Kept + Clone + DeserializeOwned + Debug,
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let api: Api<K> = Api::namespaced_with(self.client.clone(), &name.namespace, kind);
        let doing = format!("get {} {name}", kind.kind);
        match timeout(ASKED_WITHIN, api.get_opt(&name.name)).await {
            Ok(Ok(found)) => Ok(found.map(|object| object.entry())),
            Ok(Err(err)) => Err(format!("{doing}: {err}")),
            Err(_) => Err(format!("{doing}: no response within {ASKED_WITHIN:?}")),
        }
    }
}
