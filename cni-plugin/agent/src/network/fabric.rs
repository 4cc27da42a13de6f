//! Traffic between nodes: compares the kernel with the cluster, and changes the kernel.

use super::changes::{Change, Thing, changes, handed_over};
use super::drift::{Judged, Settled};
use super::kernel::{Families, Kernel, Uplink};
use super::mark;
use super::peers::{self, Situation, Target, Unrouted};
use super::probe::Prober;
use super::routes::{Desired, Dev, Present, Route, Table};
use super::vxlan::{self, Name, Vxlan};
use crate::cluster::config::{Config, Mode};
use crate::cluster::index::Index;
use crate::cluster::node::Node;
use crate::cluster::ranges::{self, Accepted, Ignored, Reserved};
use crate::error::Error;
use crate::repair::Repairs;
use braid_node::sys::sysctl;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time for which a VXLAN link stays after a change to a mode without it.
const GRACE: Duration = Duration::from_secs(30);

/// The kernel's socket, and the probes of direct paths.
#[derive(Debug)]
pub struct Fabric {
    pub(super) kernel: Kernel,
    /// Runs in mode `auto`.
    prober: Option<Prober>,
    /// Time since when the mode needs no VXLAN link; `None` while it does.
    unneeded: Option<Instant>,
    /// Objects of each link's traffic.
    settled: BTreeMap<Name, Settled>,
    /// The VXLAN links with their indices, as of the last comparison.
    pub(super) links: BTreeMap<Name, Option<u32>>,
}

/// Values of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// All nodes.
    pub index: &'a Index,
    /// This node.
    pub own: &'a Node,
    /// Mode, and settings of VXLAN.
    pub config: &'a Config,
    /// The link of the node's own address.
    pub uplink: &'a Uplink,
    /// Ranges of Services.
    pub services: &'a [IpNet],
    /// Address of the API server, if it is known.
    pub server: Option<IpAddr>,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Ranges of other nodes.
    pub accepted: Vec<IpNet>,
    /// Ranges that no route may lead to.
    pub ignored: Vec<Ignored>,
    /// Accepted ranges without a route.
    pub unrouted: Vec<Unrouted>,
    /// Error of a change. The others were made.
    pub failed: Option<Error>,
}

impl Fabric {
    /// Opens the socket.
    pub fn open() -> Result<Self, Error> {
        let kernel = Kernel::open()?;
        Ok(Self {
            kernel,
            prober: None,
            unneeded: None,
            settled: BTreeMap::new(),
            links: BTreeMap::new(),
        })
    }

    /// Returns the link of the node's own address; `None` if no link has one of its addresses.
    pub async fn uplink(&mut self, own: &Node) -> Result<Option<Uplink>, Error> {
        if self.kernel.is_dead() {
            tracing::info!("opened the netlink socket again");
            self.kernel = Kernel::open()?;
        }
        self.kernel.uplink(&own.addresses).await
    }

    /// True if the kernel did not answer a request. The next comparison opens another socket.
    pub fn is_dead(&self) -> bool {
        self.kernel.is_dead()
    }

    /// Waits until a probe changes a path. Then a comparison is due.
    pub async fn changed(&self) {
        match &self.prober {
            Some(prober) => prober.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the names of the VXLAN links with their indices, as of the last comparison.
    pub fn links(&self) -> Vec<(String, Option<u32>)> {
        let links = self.links.iter();
        links
            .map(|(name, index)| (name.to_string(), *index))
            .collect()
    }

    /// Compares the kernel with the cluster, and changes the kernel. `is_flapping` is true if the
    /// uplink has changed since the last comparison.
    pub async fn compare(
        &mut self,
        wanted: Wanted<'_>,
        is_flapping: bool,
        repairs: &mut Repairs,
    ) -> Result<Outcome, Error> {
        let Wanted { own, config, .. } = wanted;
        let ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
        let reserved = reserved(&wanted, &ranges);
        let (accepted, ignored) = ranges::judge(wanted.index.nodes(), &own.name, &reserved);
        let lookups = match config.mode {
            // Mode `flannel` has comparisons of its own.
            Mode::None | Mode::Flannel => peers::Lookups::new(),
            Mode::Auto | Mode::Direct | Mode::Vxlan => {
                self.kernel.lookups(&peers::addresses(&accepted)).await?
            }
        };
        let present = self.kernel.present(Name::Braid, Families::Both).await?;
        let (link, refused) = link(&wanted, &present);
        let situation = Situation {
            mode: config.mode,
            own,
            ranges: &ranges,
            link,
            mac: |node| Some(vxlan::mac(&node.name)),
            accepted: &accepted,
            lookups: &lookups,
        };
        let passing = self.passing(&situation, &present);
        let (mut desired, unrouted) = peers::desired(&situation, &passing);
        if desired.link.is_some() {
            self.unneeded = None;
        } else {
            let since = *self.unneeded.get_or_insert_with(Instant::now);
            desired.link = left(&wanted, &present, since.elapsed());
        }
        let mut outcome = Outcome {
            accepted: accepted.iter().map(|accepted| accepted.range).collect(),
            ignored,
            unrouted,
            failed: refused,
        };
        self.links.clear();
        let both = (&present, &desired);
        let drift = (is_flapping, repairs);
        self.repair(Name::Braid, both, &accepted, &mut outcome, drift)
            .await;
        if let Some(prober) = &self.prober {
            prober.send_from(&desired.state.addresses);
        }
        Ok(outcome)
    }

    /// Returns the time until a link that is no longer needed is to be deleted, if that time is
    /// limited.
    pub fn due(&self) -> Option<Duration> {
        let left = GRACE.checked_sub(self.unneeded?.elapsed())?;
        Some(left + Duration::from_millis(1))
    }

    /// Deletes all that the agent has in the kernel.
    pub async fn clear(&mut self) -> Result<(), Error> {
        self.stop_probes();
        let present = self.kernel.present(Name::Braid, Families::Both).await?;
        // flanneld keeps routes that it finds.
        let mut changes = if mark::is_set() {
            handed_over(&present)
        } else {
            Vec::new()
        };
        if changes.is_empty() {
            changes = self::changes(&present, &Desired::default());
        }
        for change in changes {
            self.kernel.change(&change).await?;
            let command = self.kernel.command(&change);
            tracing::info!(change = %command, "changed a {}", change.noun());
        }
        mark::delete()
    }

    /// Ends the probes of mode `auto`.
    pub(super) fn stop_probes(&mut self) {
        self.prober = None;
    }

    /// Deletes the bridge of pods if no pod is attached to it.
    pub async fn delete_unused_bridge(&self, name: &str) -> Result<(), Error> {
        self.kernel.delete_unused_bridge(name).await
    }

    /// Returns the direct paths that pass. The prober runs only in mode `auto`.
    fn passing(&mut self, situation: &Situation<'_>, present: &Present) -> BTreeSet<Target> {
        if situation.mode != Mode::Auto {
            self.stop_probes();
            return BTreeSet::new();
        }
        let targets = peers::targets(situation);
        let routed = routed(&targets, &present.state.routes);
        let prober = self.prober.get_or_insert_with(Prober::start);
        prober.assign(&targets, &routed)
    }

    /// Makes the kernel's objects of a link's traffic the desired ones. Changes that restore what the
    /// agent had set are repairs. `drift` is true if the uplink has changed since the last comparison.
    pub(super) async fn repair(
        &mut self,
        link: Name,
        (present, desired): (&Present, &Desired),
        accepted: &[Accepted<'_>],
        outcome: &mut Outcome,
        (is_flapping, repairs): (bool, &mut Repairs),
    ) {
        let mut settled = self.settled.remove(&link).unwrap_or_default();
        let judged = settled.judge(changes(present, desired), desired, is_flapping);
        let judged = self.without_pauses(link, judged, repairs);
        let done = self.apply(judged, accepted, outcome, repairs).await;
        set_reverse_path_filter(desired, outcome);
        let ranges = accepted.iter().map(|accepted| accepted.range).collect();
        settled.settle(desired, (&done.unset, &done.deleted), &ranges);
        self.settled.insert(link, settled);
        self.links.insert(link, self.kernel.vxlan_index());
    }

    /// Returns the changes without the repairs that wait for the end of a pause.
    fn without_pauses(
        &self,
        link: Name,
        mut changes: Vec<Judged>,
        repairs: &mut Repairs,
    ) -> Vec<Judged> {
        let now = Instant::now();
        let is_broken = changes
            .iter()
            .any(|judged| judged.change.is_of_link() && judged.is_counted);
        if is_broken && !repairs.may_restore(&format!("link {link}"), now) {
            changes.retain(|judged| match judged.change.thing() {
                None => false,
                Some(thing) => !thing.is_on_link(),
            });
        }
        changes.retain(|judged| {
            let Some(thing) = judged.change.thing().filter(|_| judged.is_counted) else {
                return true;
            };
            let name = self
                .kernel
                .command(&Change::Replace(thing.clone()))
                .to_string();
            repairs.may_restore(&name, now)
        });
        changes
    }

    /// Makes the kernel's objects the desired ones. Nothing counts as a repair.
    pub(super) async fn make(
        &self,
        present: &Present,
        desired: &Desired,
        accepted: &[Accepted<'_>],
        outcome: &mut Outcome,
    ) {
        let unjudged = |change| Judged {
            change,
            repair: None,
            is_counted: false,
        };
        let changes = changes(present, desired)
            .into_iter()
            .map(unjudged)
            .collect();
        self.apply(changes, accepted, outcome, &mut Repairs::default())
            .await;
        set_reverse_path_filter(desired, outcome);
    }

    /// Carries out the changes. A failed one blocks none of the others.
    async fn apply(
        &self,
        changes: Vec<Judged>,
        accepted: &[Accepted<'_>],
        outcome: &mut Outcome,
        repairs: &mut Repairs,
    ) -> Done {
        let mut done = Done::default();
        for Judged { change, repair, .. } in changes {
            let is_deleted = matches!(change, Change::Delete(_));
            let thing = change.thing().cloned();
            match self.kernel.change(&change).await {
                Ok(true) => {
                    let command = self.kernel.command(&change);
                    tracing::info!(change = %command, "changed the {}", change.noun());
                    if let Some(kind) = repair {
                        repairs.made(kind, || command.to_string());
                    }
                    done.deleted.extend(thing.filter(|_| is_deleted));
                }
                Ok(false) => {
                    outcome.unrouted.extend(taken(&change, accepted));
                    done.unset.extend(thing);
                }
                // The first error is the cause of others.
                Err(err) => {
                    outcome.failed.get_or_insert(err);
                    done.unset.extend(thing.filter(|_| !is_deleted));
                    // Each further request would wait until its time limit.
                    if self.kernel.is_dead() {
                        return done;
                    }
                }
            }
        }
        done
    }
}

/// Objects of a comparison that were not set, and that were deleted.
#[derive(Debug, Default)]
struct Done {
    unset: Vec<Thing>,
    deleted: Vec<Thing>,
}

/// Accepts packets of a node that arrive through VXLAN while this node sends to it directly.
fn set_reverse_path_filter(desired: &Desired, outcome: &mut Outcome) {
    let Some(link) = desired.link else { return };
    let key = format!("net/ipv4/conf/{}/rp_filter", link.name);
    if let Err(err) = sysctl::ensure(&key, "0") {
        let err = Error::new(format_args!("set {key} to 0"), err);
        outcome.failed.get_or_insert(err);
    }
}

/// Returns the ranges and addresses that no other node's pods may have. A local network around the
/// node's own pods, such as 10.0.0.0/8, is not reserved, since it is around all of the cluster's.
pub(super) fn reserved(wanted: &Wanted<'_>, own: &[IpNet]) -> Reserved {
    let mut addresses: BTreeSet<IpAddr> = wanted.server.into_iter().collect();
    addresses.extend(&wanted.own.addresses);
    let mut local = wanted.uplink.others.clone();
    local.retain(|network| own.iter().all(|own| !ranges::overlap(network, own)));
    Reserved {
        own: own.to_vec(),
        links: wanted.uplink.networks.clone(),
        local,
        services: wanted.services.to_vec(),
        addresses,
    }
}

/// Returns the desired VXLAN link, and an error if another program has a link of its name.
fn link(wanted: &Wanted<'_>, present: &Present) -> (Option<Vxlan>, Option<Error>) {
    let Wanted {
        own,
        config,
        uplink,
        ..
    } = wanted;
    let link = match config.mode {
        Mode::Auto | Mode::Vxlan => Vxlan::of(own, config.vxlan, uplink.mtu),
        Mode::Direct | Mode::Flannel | Mode::None => None,
    };
    match (&link, &present.link) {
        (Some(_), Some(found)) if found.is_foreign() => {
            let kind = match found.kind.as_str() {
                "" => "device",
                kind => kind,
            };
            let why = format!("another program has a link of this name, a {kind}");
            (
                None,
                Some(Error::new(format_args!("create link {}", vxlan::NAME), why)),
            )
        }
        _ => (link, None),
    }
}

/// Returns the VXLAN link that stays although the mode does not need it. Nodes change their mode one
/// after the other, and those that are later still send through VXLAN.
fn left(wanted: &Wanted<'_>, present: &Present, unneeded: Duration) -> Option<Vxlan> {
    let link = Vxlan::of(wanted.own, wanted.config.vxlan, wanted.uplink.mtu)?;
    let found = present.link.as_ref()?;
    let is_same = !found.is_foreign() && found.settings == Some(link.settings);
    (is_same && unneeded < GRACE).then_some(link)
}

/// Returns the targets that have a direct route to their range.
fn routed(targets: &BTreeSet<Target>, present: &BTreeSet<Route>) -> BTreeSet<Target> {
    let mut routed = BTreeSet::new();
    for route in present {
        if let (Table::Main, Dev::Index(link)) = (route.table, route.dev) {
            let target = Target {
                address: route.dst.network(),
                via: route.via,
                link,
            };
            routed.extend(targets.get(&target).copied());
        }
    }
    routed
}

/// Returns the range of an added route that another program has; `None` for other changes.
fn taken(change: &Change, accepted: &[Accepted<'_>]) -> Option<Unrouted> {
    let Change::Add(Thing::Route(route)) = change else {
        return None;
    };
    let owner = accepted
        .iter()
        .find(|accepted| accepted.range == route.dst)?;
    Some(Unrouted {
        node: owner.node.name.clone(),
        range: route.dst,
        reason: "another program has a route to the range",
    })
}
