//! Reboots, lost nodes, and lost or restored pools.

use super::calls::{By, Verb};
use super::world::Fate;
use super::{Life, NODES, Trial, boot, name};
use serde_json::Value;
use std::collections::BTreeMap;

impl Trial {
    /// Restarts a node: its calls are killed, and its containers are gone without a DEL. The runtime
    /// calls DEL for those that Whereabouts attached.
    pub(super) fn reboot(&mut self) {
        let number = self.dice.below(NODES);
        self.stop(number);
        self.boot(number);
    }

    fn stop(&mut self, number: usize) {
        let calls: Vec<(usize, By)> = self
            .running
            .iter()
            .filter(|(_, call)| call.node == number)
            .map(|(call, running)| (*call, running.by))
            .collect();
        for (call, by) in calls {
            if by == By::Braid {
                self.world.go_on(call, Fate::KilledBefore);
            }
            self.finish(call);
        }
        let foreign = &self.foreign;
        self.containers
            .retain(|id, (node, _)| *node != number || foreign.contains(id));
        for (node, life) in self.containers.values_mut() {
            if *node == number {
                *life = Life::Ending;
            }
        }
        let containers = &self.containers;
        self.live.retain(|_, owner| {
            containers
                .get(owner)
                .is_some_and(|(_, life)| *life != Life::Ending)
        });
    }

    fn boot(&mut self, number: usize) {
        self.boots[number] += 1;
        // A power cut may have taken the files. Then removed containers of Whereabouts are not looked
        // for.
        if !self.has_peer && self.dice.is_one_in(3) {
            let journals = &mut self.world.lock().journals;
            journals.retain(|(of, _), _| *of != number);
        }
        if let Some(found) = self.world.lock().objects.nodes.get_mut(&name(number)) {
            found.boot = boot(self.boots[number]);
        }
    }

    /// Loses a node, or brings it back; or makes, restores or loses the pools. The reservations would be
    /// of another time.
    pub(super) fn strike(&mut self) {
        match self.dice.below(6) {
            // Nothing but the pool has the address of a claim without a pod.
            of if of < 2 || !self.claims.is_empty() || self.has_reservations => {
                let number = self.dice.below(NODES);
                if self.down.remove(&number) {
                    self.come_back(number);
                } else {
                    self.lose(number);
                }
            }
            2 | 3 => self.backup = self.world.lock().objects.pools.clone(),
            4 => self.restore(self.backup.clone()),
            _ => self.restore(BTreeMap::new()),
        }
    }

    /// Loses a node for good, as far as the cluster knows.
    fn lose(&mut self, number: usize) {
        self.stop(number);
        self.down.insert(number);
        let mut state = self.world.lock();
        if self.dice.is_one_in(2) {
            state.objects.nodes.remove(&name(number));
        } else if let Some(found) = state.objects.nodes.get_mut(&name(number)) {
            found.is_out_of_service = true;
        }
    }

    pub(super) fn come_back(&mut self, number: usize) {
        self.boot(number);
        let mut state = self.world.lock();
        if let Some(found) = state.objects.nodes.get_mut(&name(number)) {
            found.is_out_of_service = false;
            return;
        }
        drop(state);
        self.register(number);
    }

    /// Replaces all pools. The nodes look at once, and again after entries that others removed.
    fn restore(&mut self, pools: BTreeMap<String, Value>) {
        self.end_calls();
        self.world.lock().objects.pools = pools;
        for number in (0..NODES).chain(0..NODES) {
            if !self.down.contains(&number) {
                self.call(number, &Verb::Look).expect("an answer");
            }
        }
    }
}
