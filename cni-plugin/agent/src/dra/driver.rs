//! Requests of the kubelet: preparation of claims, and its end.
//!
//! The kubelet tries a failed preparation again after more than a minute, and waits for the answer of one
//! for 45 seconds. So faults that may pass are tried again here.

use super::claims::Claims;
use super::facts;
use super::fault::{Fault, Part};
use super::health;
use super::objects::Objects;
use super::state::{State, keep_speeds};
use super::traffic;
use crate::kubelet::{ClaimRef, Device, Driver, Health};
use crate::metrics::Metrics;
use crate::serve::reports::Reports;
use braid_core::dra::claim::{self, Claim};
use braid_core::dra::nic::Nic;
use braid_core::dra::pod_claims::PodClaims;
use braid_core::dra::prepare::{self, Node, prepare, refuse_unallocated};
use braid_core::dra::prepared::Prepared;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::{Event, Severity};
use braid_core::k8s::{Nad, ObjectName, names};
use braid_node::attach::call_conf;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt, iter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

/// Longest time of a preparation. The kubelet waits for 45 seconds.
const LONGEST: Duration = Duration::from_secs(40);
/// Preparations that work at the same time.
pub(super) const TURNS: usize = 8;
/// Prepared claims that are read from the API server at the same time.
const CONCURRENT: usize = 8;
/// First and longest pause before another attempt.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// Reason of the event about a refused claim.
const REFUSED: &str = "ClaimRefused";

/// The driver. A clone is the same driver.
#[derive(Clone)]
pub(super) struct ClaimDriver(pub(super) Arc<Parts>);

/// Dependencies of the driver.
pub(super) struct Parts {
    pub(super) objects: Objects,
    pub(super) claims: Claims,
    pub(super) state: watch::Receiver<State>,
    /// The node's conflist, with the settings of calls.
    pub(super) conflist: PathBuf,
    pub(super) reports: Reports,
    pub(super) metrics: Metrics,
    /// Notified of each claim that is prepared or ended.
    pub(super) prepared: Notify,
    /// Attempts at a time, or a burst of pods would take much memory.
    pub(super) turns: Semaphore,
}

impl Driver for ClaimDriver {
    async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<Device>, String> {
        let mut seen = None;
        let name = ObjectName {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
        };
        match self.0.persist(&name, &claim.uid, &mut seen).await {
            Ok(prepared) => {
                tracing::info!(claim = %name, uid = claim.uid, "prepared a claim");
                self.0.show_traffic().await;
                self.0.prepared.notify_one();
                Ok(devices(&prepared))
            }
            Err(fault) => {
                tracing::warn!(claim = %name, uid = claim.uid, error = %fault, "prepare a claim");
                self.0.count(seen.as_ref(), &fault);
                Err(fault.message)
            }
        }
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), String> {
        // Other uids are in no file.
        if claim::is_uid(&claim.uid) {
            let removed = self.0.claims.remove(claim.uid.clone()).await;
            removed.map_err(|fault| fault.message)?;
            self.0.prepared.notify_one();
            self.0.show_traffic().await;
        }
        Ok(())
    }

    fn health(&self) -> BoxStream<'static, Vec<Health>> {
        health::watch(self.0.state.clone()).boxed()
    }
}

impl Parts {
    /// Prepares a claim. Tries again after faults that may pass. `seen` is set to the claim.
    async fn persist(
        &self,
        name: &ObjectName,
        uid: &str,
        seen: &mut Option<Claim>,
    ) -> Result<Prepared, Fault> {
        let end = Instant::now() + LONGEST;
        let mut pause = SHORT_PAUSE;
        let mut last = Fault::passing(Part::Api, format_args!("no answer within {LONGEST:?}"));
        loop {
            match timeout_at(end, self.attempt(name, uid, Cause::Kubelet, seen)).await {
                Ok(Err(fault)) if fault.is_passing => last = fault,
                Ok(done) => return done,
                Err(_) => return Err(last),
            }
            tracing::debug!(claim = %name, error = %last, "prepare the claim again");
            if Instant::now() + pause >= end {
                return Err(last);
            }
            sleep(pause).await;
            pause = LONG_PAUSE.min(pause * 2);
        }
    }

    /// Prepares a claim again that another pod got since. `in_pod` are the devices that this pod has alone
    /// already. If the preparation fails, the file of the claim stays. Returns false if it may succeed
    /// later.
    pub(super) async fn renew(&self, claim: &Claim, in_pod: Vec<String>) -> bool {
        let mut seen = Some(claim.clone());
        let (name, uid) = (&claim.name, &claim.uid);
        match self.follow(claim, in_pod, &mut seen).await {
            Ok(()) => {
                tracing::info!(claim = %name, uid, "prepared a claim for its next pod");
                self.show_traffic().await;
                true
            }
            Err(fault) => {
                tracing::warn!(claim = %name, uid, error = %fault, "prepare a claim for its next pod");
                self.count(seen.as_ref(), &fault);
                !fault.is_passing
            }
        }
    }

    async fn follow(
        &self,
        claim: &Claim,
        in_pod: Vec<String>,
        seen: &mut Option<Claim>,
    ) -> Result<(), Fault> {
        // A link that the pod has alone may already be in its namespace.
        if !self.claims.hand_over(claim.clone()).await? {
            let (name, uid) = (&claim.name, &claim.uid);
            let cause = Cause::Allocation { in_pod };
            self.attempt(name, uid, cause, seen).await?;
        }
        Ok(())
    }

    async fn attempt(
        &self,
        name: &ObjectName,
        uid: &str,
        cause: Cause,
        seen: &mut Option<Claim>,
    ) -> Result<Prepared, Fault> {
        let _turn = self.turns.acquire().await;
        if !names::is_namespace(&name.namespace) || !names::is_object(&name.name) {
            let fault = format_args!("claim {:?}: not a name", name.to_string());
            return Err(Fault::lasting(Part::Claim, fault));
        }
        let claim = self.objects.claim(name).await?;
        let claim = claim.ok_or_else(|| {
            Fault::lasting(Part::Claim, format_args!("claim {name} does not exist"))
        })?;
        refuse_unallocated(&claim, uid)?;
        *seen = Some(claim.clone());
        let state = self.state.borrow().clone();
        let nics = links(&state).await?;
        let asked = Asked::read(&self.objects, cause, claim).await?;
        let node = Arc::new((asked, state, nics, self.conflist.clone()));
        let decide = || {
            let node = Arc::clone(&node);
            move |prepared: &[Prepared]| {
                let (asked, state, nics, conflist) = &*node;
                asked.cause.refuse_ended(&asked.claim, prepared)?;
                asked.decide(state, nics, conflist, prepared)
            }
        };
        match self.claims.prepare(decide()).await {
            Err(fault) if fault.part == Part::Link && self.release_ended(uid).await? => {
                self.claims.prepare(decide()).await
            }
            done => done,
        }
    }

    /// Releases the links of other claims that the API server no longer allocates here: the kubelet ends
    /// the claims of a pod that was deleted by force later, and may have forgotten them. Returns true if
    /// any were released.
    async fn release_ended(&self, uid: &str) -> Result<bool, Fault> {
        let mut others = self.claims.read().await?.whole;
        others.retain(|one| one.claim.uid != uid && !one.uses.is_empty());
        let ended = others.into_iter().map(|one| self.if_ended(one.claim));
        let ended = iter(ended).buffer_unordered(CONCURRENT);
        let ended: Vec<Option<Claim>> = ended.try_collect().await?;
        let ended: Vec<Claim> = ended.into_iter().flatten().collect();
        for claim in &ended {
            tracing::info!(claim = %claim.name, uid = claim.uid, "released the links of a claim");
        }
        let is_any = !ended.is_empty();
        self.claims.release(ended).await?;
        Ok(is_any)
    }

    /// Returns a prepared claim if the API server no longer allocates it here.
    async fn if_ended(&self, claim: Claim) -> Result<Option<Claim>, Fault> {
        let now = self.objects.claim(&claim.name).await?;
        let is_here = |now: Claim| now.uid == claim.uid && now.shares == claim.shares;
        Ok((!now.is_some_and(is_here)).then_some(claim))
    }

    /// Counts a failed preparation. Publishes an event if it lasts.
    fn count(&self, claim: Option<&Claim>, fault: &Fault) {
        self.metrics.claim_failed(fault.part.word());
        if !fault.is_passing {
            self.tell(claim, fault);
        }
    }

    /// Publishes an event about a refused claim on its pod.
    fn tell(&self, claim: Option<&Claim>, fault: &Fault) {
        let Some((claim, pod)) = claim.and_then(|claim| Some((claim, claim.pods.first()?))) else {
            return;
        };
        let name = ObjectName {
            namespace: claim.name.namespace.clone(),
            name: pod.name.clone(),
        };
        let event = Event {
            severity: Severity::Warning,
            reason: REFUSED.into(),
            message: fault.message.clone(),
            trace: None,
        };
        self.reports.post(&name, &pod.uid, &[event]);
    }

    /// Shows claims and bandwidths in the metrics.
    pub(super) async fn show_traffic(&self) {
        let (state, metrics) = (self.state.clone(), self.metrics.clone());
        // In turn, or the claims of an earlier moment would be shown last.
        let show = move |prepared: &[Prepared]| {
            metrics.claims(traffic::of(prepared, &state.borrow()));
        };
        if let Err(fault) = self.claims.show(show).await {
            tracing::debug!(error = %fault, "show prepared claims");
        }
    }
}

/// Cause of a preparation.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// A request of the kubelet.
    Kubelet,
    /// Another allocation of a prepared claim, with the devices that its pod has alone already.
    Allocation { in_pod: Vec<String> },
}

impl Cause {
    /// Refuses another allocation of a claim that the kubelet has ended: nothing would remove its file.
    fn refuse_ended(&self, claim: &Claim, prepared: &[Prepared]) -> Result<(), Fault> {
        let is_prepared = prepared.iter().any(|one| one.claim.uid == claim.uid);
        if *self == Self::Kubelet || is_prepared {
            return Ok(());
        }
        let ended = format_args!("claim {}: the kubelet has ended it", claim.name);
        Err(Fault::passing(Part::Claim, ended))
    }

    fn in_pod(&self) -> &[String] {
        match self {
            Self::Kubelet => &[],
            Self::Allocation { in_pod } => in_pod,
        }
    }
}

/// Reads the links of the node.
async fn links(state: &State) -> Result<Vec<Nic>, Fault> {
    let unknown =
        |why: &str| Fault::passing(Part::Node, format_args!("devices of the node: {why}"));
    let wish = &state.wish;
    if !wish.settings.is_enabled {
        return Err(Fault::lasting(
            Part::Node,
            "devices of the node: not offered",
        ));
    }
    if let Some(why) = &wish.obstacle {
        return Err(unknown(why));
    }
    let (Some((known, _)), Some(_)) = (&state.links, &wish.node) else {
        return Err(unknown("not known yet"));
    };
    let nics = facts::of_node(wish.settings.clone()).await;
    let mut nics = nics.map_err(|err| Fault::passing(Part::Node, err))?;
    keep_speeds(&mut nics, known);
    Ok(nics)
}

/// A claim with the objects that it depends on.
struct Asked {
    cause: Cause,
    claim: Claim,
    pod: PodClaims,
    others: Vec<Claim>,
    nads: Vec<Nad>,
}

impl Asked {
    async fn read(objects: &Objects, cause: Cause, claim: Claim) -> Result<Self, Fault> {
        let Some(pod) = claim.pods.first() else {
            claim.refuse_second("")?;
            return Err(Fault::passing(Part::Claim, "no pod"));
        };
        let namespace = &claim.name.namespace;
        let pod = objects.pod(namespace, pod).await?;
        let mut others = pod.names.clone();
        others.retain(|name| *name != claim.name.name);
        Ok(Self {
            cause,
            others: objects.claims(namespace, others).await,
            nads: objects.nads(prepare::nads(&claim)?).await?,
            pod,
            claim,
        })
    }

    /// Decides, with settings of calls that are read now.
    fn decide(
        &self,
        state: &State,
        nics: &[Nic],
        conflist: &Path,
        prepared: &[Prepared],
    ) -> Result<Prepared, Fault> {
        let node = state.wish.node.as_ref();
        let calls = call_settings(conflist)?;
        let objects = prepare::Objects {
            claim: &self.claim,
            pod: &self.pod,
            others: &self.others,
            nads: &self.nads,
        };
        let node = Node {
            name: node.map_or("", |node| &node.name),
            nics,
            settings: &state.wish.settings,
            calls: &calls,
            prepared,
            in_pod: self.cause.in_pod(),
        };
        let alone = Node {
            prepared: &[],
            ..node
        };
        prepare(objects, node).map_err(|error| {
            if prepare(objects, alone).is_ok() {
                Fault::lasting(Part::Link, error.msg)
            } else {
                error.into()
            }
        })
    }
}

/// Reads the settings of calls.
fn call_settings(conflist: &Path) -> Result<Settings, Fault> {
    let unknown = |why: &str| {
        let conflist = conflist.display();
        Fault::passing(Part::Node, format_args!("read {conflist}: {why}"))
    };
    let conf = call_conf::read(conflist).map_err(|err| unknown(&err.msg))?;
    let conf = conf.ok_or_else(|| unknown("it has no network of braid"))?;
    let settings = Settings::of(&conf).map_err(|err| unknown(&err.msg))?;
    settings.ok_or_else(|| unknown("it attaches no pods"))
}

/// Returns the answer for the kubelet.
fn devices(prepared: &Prepared) -> Vec<Device> {
    let shares = prepared.claim.shares.iter();
    let device = |share: &claim::Share| Device {
        request: share.main_request().to_owned(),
        pool: share.pool.clone(),
        device: share.device.clone(),
        share_id: share.share_id.clone(),
    };
    shares.map(device).collect()
}
