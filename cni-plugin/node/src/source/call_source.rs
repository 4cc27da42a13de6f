//! Source of one call: the agent, then the API server, then the copies of networks on disk.

use super::agent::protocol::{Publication, Withdrawal};
use super::agent::{Agent, Answer, Answered, Begun};
use super::client::Client;
use super::network_cache;
use super::trace::of_process;
use braid_core::cni::Json;
use braid_core::cni::trace::TraceId;
use braid_core::dra::claim::Claim;
use braid_core::k8s::dynamic::Offered;
use braid_core::k8s::source::{Edit, Event, News, Source, SourceError};
use braid_core::k8s::{IpamClaim, NETWORK_STATUS, Nad, ObjectName, Pod};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::slice;
use std::time::Duration;

/// Longest time to ask the API for networks that are also on disk, or for a status if nothing else
/// was asked of it. After a failed ADD, longest time to wait for its status, and to withdraw it.
const SHORT: Duration = Duration::from_secs(2);

/// Source of one call.
pub(super) struct CallSource {
    agent: Agent,
    api: Client,
    /// Folder of the copies of networks.
    copies: PathBuf,
    /// Networks that the agent has answered; `None` if the API has none of this name.
    known: BTreeMap<ObjectName, Option<Nad>>,
    /// State of the API, as far as the call has asked it.
    asked: Asked,
    /// Writer of the status beside this call.
    writer: Option<Writer>,
    /// Trace of the call, for its events.
    trace: Option<TraceId>,
}

/// Writer of a status that has begun.
enum Writer {
    Agent(Begun),
    Api,
}

/// Requests of a call to the API so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Answered,
    Silent,
}

impl CallSource {
    pub(super) fn new(api: Client) -> Self {
        Self {
            agent: Agent::default(),
            api,
            copies: PathBuf::from(network_cache::FOLDER),
            known: BTreeMap::new(),
            asked: Asked::Nothing,
            writer: None,
            trace: of_process(),
        }
    }

    /// Returns the events with the trace of the call.
    fn traced(&self, events: &[Event]) -> Vec<Event> {
        let mut events = events.to_vec();
        for event in &mut events {
            event.trace.clone_from(&self.trace);
        }
        events
    }

    /// Limits requests to the API if this call has not asked it. Returns false if it does not
    /// answer.
    fn may_ask(&mut self) -> bool {
        if self.asked == Asked::Nothing {
            self.api.limit_to(SHORT);
        }
        self.asked != Asked::Silent
    }

    /// Remembers if the API answered.
    fn noted<T>(&mut self, answer: Result<T, SourceError>) -> Result<T, SourceError> {
        self.asked = match &answer {
            Err(SourceError::Passing { .. }) => Asked::Silent,
            Ok(_) | Err(SourceError::NotFound { .. } | SourceError::Lasting { .. }) => {
                Asked::Answered
            }
        };
        answer
    }

    /// Reads the mirror pod of a static pod, which has another uid than the runtime's pod.
    fn mirror(&mut self, pod: &Pod, limit: Option<Duration>) -> Result<Pod, SourceError> {
        let found = self.api.pod_within(&pod.name, limit)?;
        if found.is_of(&pod.uid) {
            return Ok(found);
        }
        Err(SourceError::NotFound {
            what: format!("pod {} with uid {}", pod.name, pod.uid),
        })
    }

    /// Asks the API for networks, and takes them from disk if it does not answer.
    fn nads_without_agent(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        let copies: Option<Vec<Nad>> = names
            .iter()
            .map(|name| network_cache::read(&self.copies, name))
            .collect();
        let limit = copies.as_ref().map(|_| SHORT);
        let answer = self.api.nads_within(names, limit);
        match (self.noted(answer), copies) {
            (Ok(nads), _) => Ok(nads),
            (Err(_), Some(copies)) => Ok(copies),
            (Err(err), None) => Err(err),
        }
    }
}

impl Source for CallSource {
    fn pod(
        &mut self,
        pod: &ObjectName,
        uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError> {
        let answer = uid.and_then(|uid| self.agent.objects(pod, uid, nads));
        let Answer {
            pod: found,
            networks,
            ..
        } = answer.unwrap_or_default();
        self.known.extend(networks);
        match found {
            Answered::Present(found) => Ok((found, self.nads(nads)?)),
            Answered::Absent => Err(SourceError::NotFound {
                what: format!("pod {pod}"),
            }),
            Answered::Unknown => {
                let answer = self.api.pod(pod, uid, nads);
                self.noted(answer)
            }
        }
    }

    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        let mut missing = names.to_vec();
        missing.retain(|name| !self.known.contains_key(name));
        if let Some(Answer { networks, .. }) = self.agent.networks(&missing) {
            self.known.extend(networks);
            missing.retain(|name| !self.known.contains_key(name));
        }
        let mut found = Vec::new();
        if !missing.is_empty() {
            found = self.nads_without_agent(&missing)?;
        }
        let mut all = Vec::new();
        for name in names {
            let of_agent = self.known.get(name).and_then(Option::as_ref);
            let nad = of_agent.or_else(|| found.iter().find(|nad| nad.name == *name));
            all.extend(nad.cloned());
        }
        Ok(all)
    }

    fn annotate(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        edit: &Edit<'_>,
    ) -> Result<(), SourceError> {
        let answer = self.api.annotate(pod, uid, edit);
        self.noted(answer)
    }

    fn begin(&mut self, pod: &Pod, entries: &[Json]) -> bool {
        self.writer = match self.agent.begin(awaited(pod, entries)) {
            Some(begun) => Some(Writer::Agent(begun)),
            // The API has another uid of a static pod than the runtime.
            None if !pod.is_static() && self.may_ask() => {
                self.api.begin(pod, entries);
                Some(Writer::Api)
            }
            None => None,
        };
        self.writer.is_some()
    }

    fn publish(&mut self, pod: &Pod, news: &News<'_>) -> Result<(), SourceError> {
        let events = self.traced(news.events);
        let news = &News {
            events: &events,
            ..*news
        };
        let published = match self.writer.take() {
            Some(Writer::Api) => return self.api.publish(pod, news),
            Some(Writer::Agent(begun)) => {
                let published = self.agent.finish(begun);
                if published.is_some() {
                    self.report(&pod.name, &pod.uid, news.events);
                }
                published
            }
            None => self.agent.publish(Publication {
                events: news.events.to_vec(),
                is_awaited: news.is_urgent,
                ..awaited(pod, news.entries)
            }),
        };
        if let Some(published) = published {
            return published;
        }
        if !self.may_ask() {
            return Err(SourceError::Passing {
                why: "agent and API server do not answer".to_owned(),
            });
        }
        if pod.is_static() {
            let mirror = self.mirror(pod, None)?;
            return self.api.publish(&mirror, news);
        }
        self.api.publish(pod, news)
    }

    fn withdraw(&mut self, pod: &Pod, container_id: &str) -> Result<(), SourceError> {
        // A writer that has begun removes the status after it has written it.
        self.writer = None;
        let withdrawn = self.agent.withdraw(Withdrawal {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            container_id: container_id.to_owned(),
            seen: pod.annotations.get(NETWORK_STATUS).cloned(),
        });
        match withdrawn {
            Some(withdrawn) => withdrawn,
            None if pod.is_static() => {
                let uid = self.mirror(pod, Some(SHORT))?.uid;
                let pod = Pod { uid, ..pod.clone() };
                self.api.withdraw_within(SHORT, &pod, container_id)
            }
            None => self.api.withdraw_within(SHORT, pod, container_id),
        }
    }

    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError> {
        let event = Event {
            trace: self.trace.clone(),
            ..event.clone()
        };
        match self.agent.publish(only(pod, uid, slice::from_ref(&event))) {
            Some(told) => told,
            None => self.api.tell(pod, uid, &event),
        }
    }

    fn report(&mut self, pod: &ObjectName, uid: &str, events: &[Event]) {
        let events = self.traced(events);
        self.agent.report(only(pod, uid, &events));
    }

    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError> {
        match self.agent.claim(name).unwrap_or_default().claim {
            Answered::Present(claim) => Ok(claim),
            Answered::Absent => Err(SourceError::NotFound {
                what: format!("IPAMClaim {name}"),
            }),
            Answered::Unknown => {
                let answer = self.api.claim(name);
                self.noted(answer)
            }
        }
    }

    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError> {
        self.api.claim_uids()
    }

    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError> {
        self.api.fill_claim(claim)
    }

    fn resource_claims(&mut self, pod: &ObjectName, uid: &str) -> Result<Vec<Claim>, SourceError> {
        let answer = self.agent.resource_claims(pod, uid).unwrap_or_default();
        if let Some(claims) = answer.resource_claims {
            return Ok(claims);
        }
        if let Answered::Absent = answer.pod {
            return Err(SourceError::NotFound {
                what: format!("pod {pod}"),
            });
        }
        let answer = self.api.resource_claims(pod, uid);
        self.noted(answer)
    }

    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError> {
        self.api.offered(node, driver)
    }
}

/// Returns a publication of a status for which the call waits.
fn awaited(pod: &Pod, entries: &[Json]) -> Publication {
    Publication {
        status: Some(Json::Array(entries.to_vec()).to_string()),
        seen: pod.annotations.get(NETWORK_STATUS).cloned(),
        is_awaited: true,
        ..only(&pod.name, &pod.uid, &[])
    }
}

/// Returns a publication of events without a status.
fn only(pod: &ObjectName, uid: &str, events: &[Event]) -> Publication {
    Publication {
        pod: pod.clone(),
        uid: uid.to_owned(),
        status: None,
        seen: None,
        events: events.to_vec(),
        is_awaited: false,
    }
}
