//! Health of devices for the kubelet, which shows it in the status of their pods.

use super::state::State;
use crate::kubelet::Health;
use braid_core::dra::device;
use braid_core::dra::nic::offers;
use futures_util::stream::{Stream, unfold};
use std::collections::BTreeSet;
use std::time::SystemTime;
use tokio::sync::watch::Receiver;

const NO_CARRIER: &str = "the link has no carrier";
const GONE: &str = "the link is not offered any more";

/// Returns the health of all devices: now, and each time the task has compared them.
pub(super) fn watch(mut state: Receiver<State>) -> impl Stream<Item = Vec<Health>> {
    state.mark_changed();
    unfold((state, Seen::default()), |(mut state, mut seen)| async {
        loop {
            state.changed().await.ok()?;
            let all = seen.update(&state.borrow_and_update());
            if !all.is_empty() {
                return Some((all, (state, seen)));
            }
        }
    })
}

/// Devices that the kubelet knows, by pool and name.
#[derive(Debug, Default)]
struct Seen(BTreeSet<(String, String)>);

impl Seen {
    /// Returns the health of the devices of a state, and of those that it lacks.
    fn update(&mut self, state: &State) -> Vec<Health> {
        let mut all = Vec::new();
        if let (Some((nics, at)), Some(node)) = (&state.links, &state.wish.node) {
            for offer in offers(nics, &state.wish.settings).0 {
                for form in offer.forms {
                    let has_carrier = offer.nic.has_carrier();
                    all.push(Health {
                        pool: node.name.clone(),
                        device: device::name(&offer.nic.name, *form),
                        fault: (!has_carrier).then_some(NO_CARRIER),
                        at: *at,
                    });
                }
            }
        }
        let key = |health: &Health| (health.pool.clone(), health.device.clone());
        let present: BTreeSet<_> = all.iter().map(key).collect();
        for (pool, device) in self.0.difference(&present) {
            let is_in_pod = state.alone.contains(device);
            all.push(Health {
                pool: pool.clone(),
                device: device.clone(),
                fault: (!is_in_pod).then_some(GONE),
                at: SystemTime::now(),
            });
        }
        self.0.extend(present);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node::{Node, NodeObject};
    use crate::dra::Wish;
    use braid_core::dra::nic::{Device, Nic};
    use braid_core::name::{IfName, Mac};
    use braid_core::plan::facts::LinkFact;
    use futures_util::StreamExt;
    use serde_json::json;
    use tokio::sync::watch::channel;

    fn state(names: &[&str], carrier: bool) -> State {
        let nic = |name: &&str| {
            let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
            let fact = LinkFact {
                carrier,
                ..LinkFact::planned("", mac, 1500, true)
            };
            Nic {
                name: IfName::parse(name).expect("a name"),
                fact,
                device: Some(Device::default()),
                speed_mbit: Some(1000),
                is_uplink: true,
            }
        };
        let node = json!({"metadata": {"name": "n1", "uid": "u"}, "spec": {}});
        let node: NodeObject = serde_json::from_value(node).expect("a node");
        State {
            wish: Wish {
                node: Node::of(&node),
                ..Wish::default()
            },
            links: Some((names.iter().map(nic).collect(), SystemTime::now())),
            ..State::default()
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn devices_without_a_carrier_and_those_that_are_gone_are_not_healthy() {
        let (sender, receiver) = channel(State::default());
        let mut health = Box::pin(watch(receiver));
        let mut next = async |state| {
            sender.send_replace(state);
            let all = health.next().await.expect("a message").into_iter();
            let all = all.map(|health| (health.device, health.fault));
            all.collect::<Vec<_>>()
        };
        let device = |name: &str, fault| (name.to_owned(), fault);
        let both = state(&["eth0", "eth1"], true);
        assert_eq!(
            next(both).await,
            [device("eth0", None), device("eth1", None)]
        );
        let down = state(&["eth0"], false);
        assert_eq!(
            next(down).await,
            [device("eth0", Some(NO_CARRIER)), device("eth1", Some(GONE))]
        );
        let mut in_pod = state(&["eth0"], true);
        in_pod.alone.insert("eth1".to_owned());
        assert_eq!(
            next(in_pod).await,
            [device("eth0", None), device("eth1", None)]
        );
        let disabled = State::default();
        assert_eq!(
            next(disabled).await,
            [device("eth0", Some(GONE)), device("eth1", Some(GONE))]
        );
    }
}
