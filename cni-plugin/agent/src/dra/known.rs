//! Prepared claims as the API server last had them, and when they are read again.
//!
//! A claim is read when its file is new, when another pod has an interface on its devices, before a later
//! write, and after a failed one. Otherwise it is read every ten minutes, as another client may change its
//! status: there is no cheaper way, because the API server selects claims by namespace and name alone.

use super::interfaces::Interfaces;
use braid_core::dra::claim::{Claim, ClaimingPod, Share};
use braid_core::dra::device_status::{DeviceStatus, statuses};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// Time between two comparisons of claims with their interfaces.
pub(super) const RESYNC: Duration = Duration::from_mins(1);
/// Time between two readings of a claim without a reason.
const REREAD: Duration = Duration::from_mins(10);
/// Age from which a reading does not suffice for a write.
const OLD: Duration = Duration::from_secs(10);
/// Time after which a device without an interface gets a status: most pods start before.
const LATE: Duration = Duration::from_secs(10);

/// State of a prepared claim. Other pods or shares in the claim's file begin another state.
pub(super) struct Known {
    pods: Vec<ClaimingPod>,
    shares: Vec<Share>,
    first_seen: Instant,
    /// Last reading; `None` before the first one.
    last: Option<Reading>,
    /// Time of the next reading.
    due: Instant,
}

/// A claim at the API server.
struct Reading {
    at: Instant,
    /// The claim without its parameters, and the status of its devices; `None` if it is not allocated on
    /// this node.
    found: Option<(Claim, Vec<DeviceStatus>)>,
    /// Uids of the pods that had interfaces on the claim's devices.
    pods: BTreeSet<String>,
}

/// Status that a claim should have.
pub(super) struct Wanted {
    pub(super) status: Vec<DeviceStatus>,
    /// True if each device has its interface.
    pub(super) is_ready: bool,
    /// True if no interface is expected soon: each device has its own, or none for a while.
    pub(super) is_settled: bool,
    /// True if the claim has another status.
    pub(super) is_new: bool,
}

impl Known {
    /// Returns the state of a claim that was not read yet. `claim` is from its file.
    pub(super) fn new(claim: &Claim, now: Instant) -> Self {
        Self {
            pods: claim.pods.clone(),
            shares: claim.shares.clone(),
            first_seen: now,
            last: None,
            due: now,
        }
    }

    /// True if the file still has the same pods and shares.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        (&self.pods, &self.shares) == (&claim.pods, &claim.shares)
    }

    /// True if it is time to read the claim.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// True if the last reading is too old for a write.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| now.duration_since(last.at) >= OLD)
    }

    /// True if a pod has an interface on the claim's devices, and had neither the claim nor an interface at
    /// the last reading.
    pub(super) fn has_stranger(&self, uid: &str, interfaces: &Interfaces) -> bool {
        let last = self.last.as_ref();
        let found = last.and_then(|last| last.found.as_ref());
        let first = found.map_or(&self.pods, |(claim, _)| &claim.pods).first();
        let is_known = |pod: &str| {
            first.is_some_and(|first| first.uid == pod)
                || last.is_some_and(|last| last.pods.contains(pod))
        };
        !interfaces.pods(uid).all(is_known)
    }

    /// Remembers a reading. `found` is `None` if the claim is not allocated on this node. `interfaces` are
    /// those before the reading.
    pub(super) fn read(
        &mut self,
        uid: &str,
        found: Option<(Claim, Vec<DeviceStatus>)>,
        interfaces: &Interfaces,
        now: Instant,
    ) {
        let pause = if self.last.is_some() {
            REREAD
        } else {
            spread(uid)
        };
        self.due = now + pause;
        let found = found.map(|(mut claim, status)| {
            claim.configs = Vec::new();
            (claim, status)
        });
        self.last = Some(Reading {
            at: now,
            found,
            pods: interfaces.pods(uid).map(str::to_owned).collect(),
        });
    }

    /// Lets the claim be read again after this time.
    pub(super) fn read_in(&mut self, pause: Duration, now: Instant) {
        self.due = self.due.min(now + pause);
    }

    /// Returns the status that the claim should have. `time` is `now` as the API server writes times.
    pub(super) fn wanted(&self, interfaces: &Interfaces, now: Instant, time: &str) -> Wanted {
        let last = self.last.as_ref();
        let Some((claim, before)) = last.and_then(|last| last.found.as_ref()) else {
            // The kubelet ends it soon, or another pod gets it.
            return Wanted {
                status: Vec::new(),
                is_ready: true,
                is_settled: true,
                is_new: false,
            };
        };
        let status = statuses(claim, &interfaces.of(claim), before, time);
        let is_ready = status.iter().all(DeviceStatus::is_ready);
        let is_late = now.duration_since(self.first_seen) >= LATE;
        let is_time = is_ready || !before.is_empty() || is_late;
        Wanted {
            is_new: is_time && status != *before,
            is_settled: is_ready || is_late,
            is_ready,
            status,
        }
    }

    /// Remembers the status that was written.
    pub(super) fn wrote(&mut self, status: Vec<DeviceStatus>) {
        let last = self.last.as_mut();
        if let Some((_, before)) = last.and_then(|last| last.found.as_mut()) {
            *before = status;
        }
    }
}

/// Returns the time between the first two readings of a claim. It differs between claims: an agent reads
/// all of them at its start, and later a few at a time.
fn spread(uid: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let range = REREAD.saturating_sub(RESYNC).as_secs();
    RESYNC + Duration::from_secs(hasher.finish() % range)
}

#[cfg(test)]
mod tests {
    use super::super::interfaces::Attached;
    use super::*;
    use braid_core::cni::{AddResult, Json, Version};
    use braid_core::dra::device_status::Interface;
    use braid_core::k8s::ObjectName;
    use braid_core::name::IfName;

    /// Returns a claim with a share, for a pod with this uid.
    fn claim(share: &str, pod: &str) -> Claim {
        let share = Share {
            request: "nic".to_owned(),
            pool: "n1".to_owned(),
            device: "eth1".to_owned(),
            share_id: Some(share.to_owned()),
            bandwidth: Some(1_000_000),
        };
        let pod = ClaimingPod {
            name: "web".to_owned(),
            uid: pod.to_owned(),
        };
        Claim {
            name: ObjectName {
                namespace: "web".to_owned(),
                name: "nic".to_owned(),
            },
            uid: "u".to_owned(),
            shares: vec![share],
            configs: Vec::new(),
            pods: vec![pod],
        }
    }

    /// Returns the interface of a pod on the share of a claim.
    fn interfaces(claim: &Claim, pod: &str) -> Interfaces {
        let result = br#"{"cniVersion":"1.1.0","ips":[{"address":"192.0.2.5/24"}]}"#;
        let result = Json::parse(result, "test").expect("JSON");
        let result = AddResult::parse(&result, Version::NEWEST).expect("a result");
        let device = claim.shares[0].claimed(&claim.name, &claim.uid);
        let name = IfName::parse("net1").expect("a name");
        Interfaces {
            attached: vec![Attached {
                pod: Some(pod.to_owned()),
                device,
                interface: Interface::of(&name, &result),
            }],
            ..Interfaces::default()
        }
    }

    #[test]
    fn a_status_that_somebody_removed_is_written_again() {
        let claim = claim("s1", "a");
        let interfaces = interfaces(&claim, "a");
        let mut now = Instant::now();
        let mut known = Known::new(&claim, now);
        assert!(known.is_due(now) && known.is_old(now));
        known.read("u", Some((claim.clone(), Vec::new())), &interfaces, now);
        assert!(!known.is_due(now) && !known.is_old(now));
        let wanted = known.wanted(&interfaces, now, "T1");
        assert!(wanted.is_new && wanted.is_ready);
        known.wrote(wanted.status);
        assert!(!known.wanted(&interfaces, now, "T2").is_new);
        for _ in 0..2 {
            now += REREAD;
            assert!(known.is_due(now) && known.is_old(now));
            known.read("u", Some((claim.clone(), Vec::new())), &interfaces, now);
            assert!(known.wanted(&interfaces, now, "T3").is_new);
        }
    }

    #[test]
    fn a_device_without_an_interface_is_waited_for_a_while() {
        let claim = claim("s1", "a");
        let interfaces = Interfaces::default();
        let mut now = Instant::now();
        let mut known = Known::new(&claim, now);
        known.read("u", Some((claim, Vec::new())), &interfaces, now);
        let wanted = known.wanted(&interfaces, now, "T1");
        assert!(!wanted.is_new && !wanted.is_settled);
        now += LATE;
        let wanted = known.wanted(&interfaces, now, "T2");
        assert!(wanted.is_new && wanted.is_settled && !wanted.is_ready);
        known.wrote(wanted.status);
        let wanted = known.wanted(&interfaces, now, "T3");
        assert!(!wanted.is_new && wanted.is_settled);
    }

    #[test]
    fn the_interface_of_another_pod_lets_a_claim_be_read_once() {
        let (first, next) = (claim("s1", "a"), claim("s2", "b"));
        let now = Instant::now();
        let mut known = Known::new(&first, now);
        let before = interfaces(&first, "a");
        known.read("u", Some((first, Vec::new())), &before, now);
        assert!(!known.has_stranger("u", &before));
        let interfaces = interfaces(&next, "b");
        assert!(known.has_stranger("u", &interfaces));
        assert!(!known.wanted(&interfaces, now, "T1").is_ready);
        known.read("u", None, &interfaces, now);
        assert!(!known.has_stranger("u", &interfaces));
        known.read("u", Some((next, Vec::new())), &interfaces, now);
        assert!(!known.has_stranger("u", &interfaces));
        assert!(known.wanted(&interfaces, now, "T1").is_ready);
    }

    #[test]
    fn interfaces_of_two_former_pods_let_a_claim_be_read_once() {
        let claim = claim("s1", "c");
        let mut former = interfaces(&claim, "a");
        former.attached.extend(interfaces(&claim, "b").attached);
        let now = Instant::now();
        let mut known = Known::new(&claim, now);
        assert!(known.has_stranger("u", &former));
        known.read("u", Some((claim, Vec::new())), &former, now);
        assert!(!known.has_stranger("u", &former));
    }

    #[test]
    fn the_interface_of_the_last_pod_is_not_that_of_the_next_one() {
        // A device that a request has alone has no share's id.
        let [mut last, mut next] = [claim("", "a"), claim("", "b")];
        for claim in [&mut last, &mut next] {
            claim.shares[0].share_id = None;
        }
        let now = Instant::now();
        let mut known = Known::new(&last, now);
        let none = Interfaces::default();
        known.read("u", Some((next.clone(), Vec::new())), &none, now);
        let is_ready = |pod| known.wanted(&interfaces(&last, pod), now, "T1").is_ready;
        assert_eq!(["a", "b"].map(is_ready), [false, true]);
    }

    #[test]
    fn other_pods_or_shares_in_the_file_begin_another_state() {
        let known = Known::new(&claim("s1", "a"), Instant::now());
        let is_of = |share, pod| known.is_of(&claim(share, pod));
        assert!(is_of("s1", "a"));
        assert!(!is_of("s2", "a") && !is_of("s1", "b"));
    }

    #[test]
    fn claims_of_one_start_are_read_again_a_few_at_a_time() {
        let mut minutes = [0; 10];
        for number in 0..200 {
            let uid = format!("aed5bbdc-6a0b-4a0a-8e3e-{number:012}");
            let pause = spread(&uid);
            assert!(pause >= RESYNC && pause < REREAD, "{pause:?}");
            minutes[usize::try_from(pause.as_secs() / 60).expect("a minute")] += 1;
        }
        assert!(minutes.iter().all(|claims| *claims < 40), "{minutes:?}");
    }
}
