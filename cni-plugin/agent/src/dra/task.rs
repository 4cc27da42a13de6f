//! The task that keeps the node's ResourceSlices right.

use super::claims::Claims;
use super::driver::{ClaimDriver, Parts, TURNS};
use super::facts;
use super::objects::Objects;
use super::plugin::KubeletPlugin;
use super::slices::Slices;
use super::state::State;
use super::statuses;
use super::wish::{Wish, Wishes};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::repair::watch::Watch;
use crate::serve::reports::Reports;
use crate::serve::store::Store;
use braid_core::dra::device::{self, Form};
use braid_core::dra::nic::{Nic, Refusal, offers};
use braid_core::dra::slice::{self, Change, Owner, Slice};
use braid_core::name::IfName;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Time after a change in which others arrive.
const SETTLE: Duration = Duration::from_millis(500);
/// Time after which the links are compared without a change: a driver may report another speed.
const RESYNC: Duration = Duration::from_mins(1);
/// Pause after a failed change.
const RETRY: Duration = Duration::from_secs(2);
/// Usual folder of the kubelet.
const KUBELET: &str = "/var/lib/kubelet";

/// Starts the task. It does nothing before a wish enables it. `attached` changes after each ADD.
pub(crate) fn start(
    client: &Client,
    options: &Options,
    store: &Arc<Store>,
    metrics: Metrics,
    claims: Claims,
    attached: Receiver<()>,
) -> Wishes {
    let (wishes, received) = Wishes::channel();
    let (state, seen) = watch::channel(State::default());
    let driver = ClaimDriver(Arc::new(Parts {
        objects: Objects::new(client.clone(), Arc::clone(store)),
        claims,
        state: seen,
        conflist: options.conflist.clone(),
        reports: Reports::start(client.clone(), &options.node_name),
        metrics,
        prepared: Notify::new(),
        turns: Semaphore::new(TURNS),
    }));
    statuses::start(Arc::clone(&driver.0), &options.node_name, attached);
    let kubelet = options.kubelet_root_dir.clone();
    let task = Task {
        client: client.clone(),
        wishes: received,
        wish: Wish::default(),
        state,
        plugin: KubeletPlugin::new(kubelet.unwrap_or_else(|| PathBuf::from(KUBELET)), driver),
        open: None,
        speeds: BTreeMap::new(),
        cut: None,
        reported: BTreeSet::new(),
    };
    tokio::spawn(task.run());
    wishes
}

struct Task {
    client: Client,
    wishes: Receiver<Wish>,
    wish: Wish,
    /// State for requests of the kubelet.
    state: Sender<State>,
    plugin: KubeletPlugin,
    open: Option<Open>,
    /// Last speeds that drivers have reported, in Mbit/s, by index of the link. Without a carrier they
    /// report none.
    speeds: BTreeMap<u32, u32>,
    /// Contents that the API server has stored incompletely, and its slices then.
    cut: Option<(Vec<Value>, Vec<Slice>)>,
    /// Links that are not offered, and errors, as they were logged.
    reported: BTreeSet<String>,
}

/// Watches of an enabled task.
struct Open {
    links: Watch,
    slices: Slices,
}

impl Open {
    /// Waits for a change of links or slices.
    async fn changed(&mut self) {
        tokio::select! {
            _ = self.links.next() => {}
            () = self.slices.changed() => {}
        }
    }
}

/// Waits for a change while there are watches.
async fn changed(open: &mut Option<Open>) {
    match open {
        Some(open) => open.changed().await,
        None => std::future::pending().await,
    }
}

impl Task {
    async fn run(mut self) {
        let mut due = Instant::now() + RESYNC;
        self.plugin.report_damaged().await;
        loop {
            tokio::select! {
                received = self.wishes.changed() => {
                    if received.is_err() {
                        return;
                    }
                    self.wish = self.wishes.borrow_and_update().clone();
                    self.state.send_modify(|state| state.wish = self.wish.clone());
                    due = Instant::now();
                }
                () = changed(&mut self.open) => due = due.min(Instant::now() + SETTLE),
                () = sleep_until(due) => {
                    let done = self.compare().await;
                    due = Instant::now() + if done.is_ok() { RESYNC } else { RETRY };
                    self.report(done.unwrap_or_else(|err| BTreeSet::from([err.to_string()])));
                }
            }
        }
    }

    /// Compares the slices with the links, and changes the slices. Returns sentences for the log.
    async fn compare(&mut self) -> Result<BTreeSet<String>, Error> {
        // Without the plugin, pods with devices would not start.
        let refused = self.plugin.keep(&self.wish).await?;
        let mut sentences = self.compare_slices().await?;
        sentences.extend(refused);
        self.plugin.show_traffic().await;
        Ok(sentences)
    }

    async fn compare_slices(&mut self) -> Result<BTreeSet<String>, Error> {
        let settings = &self.wish.settings;
        let Some(node) = &self.wish.node else {
            return Ok(BTreeSet::new());
        };
        if self.open.is_none() && settings.is_enabled {
            self.open = Some(Open {
                links: Watch::of_links()?,
                slices: Slices::new(&self.client, &node.name),
            });
        }
        let Some(present) = self.present() else {
            return Ok(BTreeSet::new());
        };
        if let Some(why) = &self.wish.obstacle {
            let why = format!("no devices are offered: {why}");
            self.apply(slice::removal(&present)).await?;
            return Ok(BTreeSet::from([why]));
        }
        if !settings.is_enabled {
            self.apply(slice::removal(&present)).await?;
            self.open = None;
            self.state.send_modify(|state| state.links = None);
            return Ok(BTreeSet::new());
        }
        let nics = facts::of_node(settings.clone()).await?;
        self.offer(nics, &present).await
    }

    fn present(&self) -> Option<Vec<Slice>> {
        self.open.as_ref()?.slices.present()
    }

    /// Offers links. Returns the reasons why others are not offered.
    async fn offer(
        &mut self,
        mut nics: Vec<Nic>,
        present: &[Slice],
    ) -> Result<BTreeSet<String>, Error> {
        let Some(node) = &self.wish.node else {
            return Ok(BTreeSet::new());
        };
        let owner = Owner {
            name: node.name.clone(),
            uid: node.uid.clone(),
        };
        remember(&mut nics, &mut self.speeds, present);
        let alone = self.plugin.devices_alone().await;
        self.state.send_modify(|state| {
            state.links = Some((nics.clone(), SystemTime::now()));
            state.alone = alone;
        });
        let (offers, refused) = offers(&nics, &self.wish.settings);
        let mut sentences = sentences(offers.len(), &refused);
        let contents = slice::contents(&owner.name, &offers);
        let cut = "the API server leaves out a part of ResourceSlices: features of it are off";
        let is_known = |(known, slices): &(Vec<Value>, Vec<Slice>)| {
            *known == contents && slices.as_slice() == present
        };
        if self.cut.as_ref().is_some_and(is_known) {
            sentences.insert(cut.to_owned());
            return Ok(sentences);
        }
        self.cut = None;
        let changes = slice::changes(present, &contents, &owner);
        if self.apply(changes).await? {
            self.cut = self.present().map(|slices| (contents, slices));
            sentences.insert(cut.to_owned());
        }
        Ok(sentences)
    }

    /// Carries out changes. Returns true if the API server has left out a part.
    async fn apply(&mut self, changes: Vec<Change>) -> Result<bool, Error> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let outcome = open.slices.apply(&changes).await?;
        if outcome.count > 0 {
            tracing::info!(count = outcome.count, "changed ResourceSlices");
        }
        Ok(outcome.is_cut)
    }

    /// Logs sentences that were not logged at the last comparison.
    fn report(&mut self, sentences: BTreeSet<String>) {
        for sentence in sentences.difference(&self.reported) {
            tracing::warn!("{sentence}");
        }
        self.reported = sentences;
    }
}

/// Returns sentences about links that are not offered.
fn sentences(offered: usize, refused: &[(&IfName, Refusal)]) -> BTreeSet<String> {
    let refused = refused.iter();
    let refused = refused.map(|(link, why)| format!("link {link} is not offered: {why}"));
    let mut all: BTreeSet<String> = refused.collect();
    if offered == 0 && all.is_empty() {
        let why = "no devices are offered: dra.include and dra.exclude leave no link of the node";
        all.insert(why.to_owned());
    }
    all
}

/// Keeps the speeds of links, and gives a link without a carrier the speed that it had. After a start
/// of the agent, the slices have it.
fn remember(nics: &mut [Nic], speeds: &mut BTreeMap<u32, u32>, present: &[Slice]) {
    let before = std::mem::take(speeds);
    for nic in nics {
        if nic.speed_mbit.is_none() && !nic.fact.carrier {
            let name = device::name(&nic.name, Form::Shared);
            let in_slices = || present.iter().find_map(|slice| slice.speed_mbit(&name));
            let known = before.get(&nic.fact.index).copied();
            nic.speed_mbit = known.or_else(in_slices);
        }
        speeds.extend(nic.speed_mbit.map(|speed| (nic.fact.index, speed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::name::Mac;
    use braid_core::plan::facts::LinkFact;
    use serde_json::json;

    #[test]
    fn a_node_without_an_included_link_says_so() {
        let link = IfName::parse("eth1").expect("a name");
        assert_eq!(sentences(1, &[]), BTreeSet::new());
        let of = |refused: &[_]| sentences(0, refused).into_iter().collect::<Vec<_>>();
        assert!(of(&[])[0].starts_with("no devices are offered: "));
        let refused = [(&link, Refusal::NoMac)];
        assert_eq!(
            of(&refused),
            ["link eth1 is not offered: it has no hardware address"]
        );
    }

    #[test]
    fn a_link_without_a_carrier_keeps_its_speed() {
        let mut fact = LinkFact::planned("", Some(Mac([2, 0, 0, 0, 0, 1])), 1500, true);
        fact.index = 7;
        let nic = |carrier, speed_mbit| Nic {
            name: IfName::parse("eth1").expect("a name"),
            fact: LinkFact {
                carrier,
                ..fact.clone()
            },
            device: None,
            speed_mbit,
            is_uplink: false,
        };
        let mut speeds = BTreeMap::new();
        let mut of = |carrier, speed, present: &[Slice]| {
            let mut nics = [nic(carrier, speed)];
            remember(&mut nics, &mut speeds, present);
            nics[0].speed_mbit
        };
        let device = json!({"name": "eth1", "attributes": {"speed": {"int": 1000}}});
        let slice = json!({"metadata": {"name": "a"}, "spec": {"devices": [device]}});
        let present = [Slice::of(&slice).expect("a slice")];
        assert_eq!(of(false, None, &[]), None);
        assert_eq!(of(false, None, &present), Some(1000));
        assert_eq!(of(true, Some(10_000), &present), Some(10_000));
        assert_eq!(of(false, None, &present), Some(10_000));
        assert_eq!(of(true, None, &present), None, "the driver has none");
        assert_eq!(of(false, None, &[]), None);
    }
}
