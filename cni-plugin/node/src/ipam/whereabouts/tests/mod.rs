//! Random orders of calls on several nodes, judged by an oracle: no address is in two containers, and
//! none is lost.

mod calls;
mod claims;
mod disasters;
mod fenced;
mod finish;
mod full;
mod last;
mod late;
mod overlap;
mod patch;
mod peer;
mod released;
mod world;

use braid_core::ipam::whereabouts::PoolRange;
use braid_core::ipam::whereabouts::fence::FoundNode;
use braid_core::ipam::whereabouts::pool::{Entry, Node};
use calls::{By, Verb, work};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread::{self, JoinHandle};
use world::{Dice, Fate, Seat, World};

const NODES: usize = 3;
/// Addresses of the range.
const ADDRESSES: usize = 5;
const STEPS: usize = 400;
/// End of the ids of containers with an address of the second pool.
const SECOND: &str = "-second";

/// A container of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Life {
    /// Its ADD runs.
    Starting,
    Running(IpAddr),
    /// Its DEL is due, or runs.
    Ending,
}

struct Running {
    node: usize,
    pool: usize,
    by: By,
    verb: Verb,
    /// True after its first step.
    has_begun: bool,
    thread: JoinHandle<Option<Result<Option<IpAddr>, String>>>,
}

struct Trial {
    world: World,
    dice: Dice,
    /// Ranges of the pools. They overlap.
    ranges: Vec<PoolRange>,
    has_reservations: bool,
    /// True if Whereabouts serves some of the calls.
    has_peer: bool,
    /// True if nodes are lost, and pools are restored from a backup or deleted.
    has_disasters: bool,
    /// Addresses of IPAMClaims, by uid, once a pod had them.
    claims: BTreeMap<String, Option<IpAddr>>,
    boots: [u32; NODES],
    /// Nodes that do not run.
    down: BTreeSet<usize>,
    /// Pools of an earlier time.
    backup: BTreeMap<String, Value>,
    running: BTreeMap<usize, Running>,
    containers: BTreeMap<String, (usize, Life)>,
    /// Containers that Whereabouts attached.
    foreign: BTreeSet<String>,
    /// Containers with a DEL that has ended while their ADD runs.
    released: BTreeSet<String>,
    calls: usize,
    /// Addresses in containers.
    live: BTreeMap<IpAddr, String>,
}

fn range() -> PoolRange {
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    PoolRange {
        net: "10.0.0.0/24".parse().expect("a range"),
        prefix_len: 24,
        first: address(1),
        last: address(6),
        exclude: vec!["10.0.0.3/32".parse().expect("a network")],
        gateway: None,
    }
}

/// Returns a range of another pool that has addresses of the first.
fn second() -> PoolRange {
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    PoolRange {
        net: "10.0.0.4/30".parse().expect("a range"),
        prefix_len: 30,
        first: address(4),
        last: address(7),
        exclude: Vec::new(),
        gateway: None,
    }
}

/// Returns the pool of a call for an attachment: its id ends with the pool.
fn pool_of(verb: &Verb) -> usize {
    let is_second = |entry: &Entry| entry.id.ends_with(SECOND);
    usize::from(verb.entry().is_some_and(is_second))
}

fn boot(number: u32) -> String {
    format!("boot-{number}")
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        // Whereabouts loses entries in a disaster.
        let (has_peer, has_disasters) = (dice.is_one_in(2), dice.is_one_in(2));
        let mut trial = Self {
            world: World::default(),
            has_reservations: dice.is_one_in(2),
            has_peer,
            has_disasters: has_disasters && !has_peer,
            dice,
            claims: BTreeMap::new(),
            ranges: vec![range()],
            boots: [0; NODES],
            down: BTreeSet::new(),
            backup: BTreeMap::new(),
            running: BTreeMap::new(),
            containers: BTreeMap::new(),
            foreign: BTreeSet::new(),
            released: BTreeSet::new(),
            calls: 0,
            live: BTreeMap::new(),
        };
        for number in 0..NODES {
            trial.register(number);
        }
        // Without reservations, pools that overlap give an address twice, and so does Whereabouts: after
        // it has lost the race for an address, it deletes the reservation of the other pool.
        if trial.has_reservations && !trial.has_peer && trial.dice.is_one_in(2) {
            trial.ranges.push(second());
        }
        if trial.dice.is_one_in(2) {
            trial.claims = [("c1".to_owned(), None), ("c2".to_owned(), None)].into();
        }
        trial
    }

    /// Makes a Node object.
    fn register(&self, number: usize) {
        let mut state = self.world.lock();
        let found = FoundNode {
            uid: state.objects.uid(),
            boot: boot(self.boots[number]),
            is_out_of_service: false,
        };
        state.objects.nodes.insert(name(number), found);
    }

    fn node(&self, number: usize) -> Node {
        let state = self.world.lock();
        let found = state.objects.nodes.get(&name(number));
        Node {
            name: name(number),
            uid: found.map(|found| found.uid.clone()).unwrap_or_default(),
            boot: boot(self.boots[number]),
        }
    }

    fn seat(&self, call: usize, node: usize, is_free: bool) -> Seat {
        Seat {
            world: self.world.clone(),
            call,
            node,
            is_dead: false,
            is_free,
        }
    }

    fn start(&mut self, number: usize, by: By, verb: Verb) {
        self.start_in(pool_of(&verb), number, by, verb);
    }

    fn start_in(&mut self, pool: usize, number: usize, by: By, verb: Verb) {
        let call = self.calls;
        self.calls += 1;
        let seat = self.seat(call, number, false);
        let (of, range) = (self.node(number), self.ranges[pool].clone());
        let (world, told) = (self.world.clone(), verb.clone());
        let has_reservations = self.has_reservations;
        let thread = thread::spawn(move || {
            let done = work(seat, (by, &told), (&of, &range, has_reservations));
            world.end(call);
            done
        });
        self.world.await_stop(call);
        let running = Running {
            node: number,
            pool,
            by,
            verb,
            has_begun: false,
            thread,
        };
        self.running.insert(call, running);
        self.reap(call);
    }

    /// Takes in the result of a call that has ended.
    fn reap(&mut self, call: usize) {
        if !self.world.lock().ended.contains(&call) {
            return;
        }
        let Some(Running {
            node, verb, thread, ..
        }) = self.running.remove(&call)
        else {
            return;
        };
        let done = thread.join().expect("a call ends without a panic");
        match (verb, done) {
            // The runtime removes it while its ADD runs.
            (Verb::Add(entry), Some(Ok(Some(_)))) if self.is_ending(&entry.id) => {
                assert!(!self.released.contains(&entry.id), "{} after DEL", entry.id);
            }
            (Verb::Add(entry) | Verb::Take(entry), Some(Ok(Some(address)))) => {
                let other = self.live.insert(address, entry.id.clone());
                assert_eq!(other, None, "{address} is in {} too", entry.id);
                if let Some(uid) = entry.claim() {
                    let kept = self.claims.insert(uid.to_owned(), Some(address));
                    let kept = kept.expect("a claim");
                    assert!(
                        kept.is_none_or(|kept| kept == address),
                        "{address}, not {kept:?}"
                    );
                }
                self.containers
                    .insert(entry.id, (node, Life::Running(address)));
            }
            // The runtime calls DEL after a failed ADD, and again after a failed DEL.
            (Verb::Gc(_) | Verb::Look | Verb::Tend(_) | Verb::Free(_) | Verb::Collect, _) => {}
            (verb, None | Some(Err(_))) => {
                let id = verb.entry().expect("an attachment").id.clone();
                self.containers.insert(id, (node, Life::Ending));
            }
            (Verb::Leave(entry), Some(Ok(_))) if self.has_call(&entry.id) => {
                self.released.insert(entry.id);
            }
            (Verb::Del(entry) | Verb::Leave(entry), Some(Ok(_))) => {
                self.containers.remove(&entry.id);
            }
            (Verb::Add(entry) | Verb::Take(entry), Some(Ok(None))) => {
                panic!("no address for {}", entry.id)
            }
        }
    }

    fn is_ending(&self, id: &str) -> bool {
        let container = self.containers.get(id);
        container.is_some_and(|(_, life)| *life == Life::Ending)
    }

    /// True if a call for the container runs.
    fn has_call(&self, id: &str) -> bool {
        let mut running = self.running.values();
        running.any(|call| call.verb.entry().is_some_and(|entry| entry.id == id))
    }

    /// Returns the nodes on which a call of this program may start: requests of a node about a pool are
    /// sent one call after the other, and those of Whereabouts in the whole cluster. A runtime calls GC alone.
    fn idle(&self, by: By, pool: usize, has_requests: bool) -> Vec<usize> {
        let is_busy = |node: usize| {
            let mut running = self.running.values();
            running.any(|call| match by {
                By::Whereabouts => call.by == by,
                By::Braid if call.by != by || (call.node, call.pool) != (node, pool) => false,
                By::Braid => {
                    matches!(call.verb, Verb::Gc(_)) || has_requests && call.verb.has_requests()
                }
            })
        };
        (0..NODES)
            .filter(|node| !self.down.contains(node) && !is_busy(*node))
            .collect()
    }

    fn entry(id: &str, by: By) -> Entry {
        if let Some(uid) = id.strip_prefix("claim:") {
            return Entry::of_claim(uid);
        }
        let podref = match by {
            By::Braid => String::new(),
            By::Whereabouts => format!("default/{id}"),
        };
        Entry {
            id: id.to_owned(),
            podref,
            ifname: "net1".to_owned(),
        }
    }

    fn by(&mut self) -> By {
        if self.has_peer && self.dice.is_one_in(3) {
            return By::Whereabouts;
        }
        By::Braid
    }

    fn step(&mut self) {
        match self.dice.below(24) {
            0..=3 => self.add(),
            4..=6 => self.del(),
            7 => self.carry_out_late(),
            8 if self.dice.is_one_in(6) => self.reboot(),
            9 if self.has_disasters && self.dice.is_one_in(3) => self.strike(),
            10 if self.dice.is_one_in(3) => self.gc(),
            11 => self.tend(),
            12 => self.add_claimed(),
            13 if self.dice.is_one_in(3) => self.delete_claim(),
            14 if self.dice.is_one_in(3) => self.del_early(),
            _ => self.go_on(),
        }
    }

    fn pool(&mut self) -> usize {
        self.dice.below(self.ranges.len())
    }

    fn add(&mut self) {
        let by = self.by();
        let is_step = by == By::Braid && self.dice.is_one_in(3);
        let pool = if by == By::Braid { self.pool() } else { 0 };
        let idle = self.idle(by, pool, !is_step);
        if idle.is_empty() {
            return;
        }
        let node = idle[self.dice.below(idle.len())];
        let end = if pool == 0 { "-container" } else { SECOND };
        let id = format!("{:08}{end}", self.calls);
        self.containers.insert(id.clone(), (node, Life::Starting));
        if by == By::Whereabouts {
            self.foreign.insert(id.clone());
        }
        let entry = Self::entry(&id, by);
        let verb = if is_step {
            Verb::Take(entry)
        } else {
            Verb::Add(entry)
        };
        self.start(node, by, verb);
    }

    /// Starts a pod with a claim, which no other pod has.
    fn add_claimed(&mut self) {
        let idle = self.idle(By::Braid, 0, true);
        let ids = self.claims.keys().map(|uid| Entry::of_claim(uid).id);
        let free: Vec<String> = ids.filter(|id| !self.containers.contains_key(id)).collect();
        if !idle.is_empty() && !free.is_empty() {
            let node = idle[self.dice.below(idle.len())];
            let id = free[self.dice.below(free.len())].clone();
            self.containers.insert(id.clone(), (node, Life::Starting));
            self.start(node, By::Braid, Verb::Add(Self::entry(&id, By::Braid)));
        }
    }

    /// Deletes a claim that no pod has, and makes another one.
    fn delete_claim(&mut self) {
        let idle = self.idle(By::Braid, 0, true);
        let uids: Vec<String> = self.claims.keys().cloned().collect();
        if idle.is_empty() || uids.is_empty() {
            return;
        }
        let uid = uids[self.dice.below(uids.len())].clone();
        if !self.containers.contains_key(&Entry::of_claim(&uid).id) {
            self.claims.remove(&uid);
            self.claims.insert(format!("d{}", self.calls), None);
            let node = idle[self.dice.below(idle.len())];
            self.start(node, By::Braid, Verb::Free(self.deleted()));
        }
    }

    /// Returns the uids of the claims in the pool that do not exist.
    fn deleted(&self) -> BTreeSet<String> {
        let state = self.world.lock();
        let pools = state.objects.pools.values();
        let entries = pools.flat_map(|object| world::parse(object).entries.into_values());
        let uids = entries.filter_map(|entry| entry.claim().map(str::to_owned));
        uids.filter(|uid| !self.claims.contains_key(uid)).collect()
    }

    /// Removes a container. In an upgrade or a downgrade, the other program removes it.
    fn del(&mut self) {
        let by = self.by();
        let is_step = by == By::Braid && self.dice.is_one_in(3);
        let pool = if by == By::Braid { self.pool() } else { 0 };
        let idle = self.idle(by, pool, !is_step);
        let due = self.containers.iter().filter(|(id, (node, life))| {
            let is_called = self.has_call(id);
            let is_pools = usize::from(id.ends_with(SECOND)) == pool;
            let is_braids = by == By::Braid || !id.starts_with("claim:");
            is_pools && idle.contains(node) && *life != Life::Starting && !is_called && is_braids
        });
        let due: Vec<(String, usize)> = due.map(|(id, (node, _))| (id.clone(), *node)).collect();
        if due.is_empty() {
            return;
        }
        let (id, node) = due[self.dice.below(due.len())].clone();
        // The kernel's state goes first.
        self.live.retain(|_, owner| *owner != id);
        self.containers.insert(id.clone(), (node, Life::Ending));
        let entry = Self::entry(&id, by);
        let verb = if is_step {
            Verb::Leave(entry)
        } else {
            Verb::Del(entry)
        };
        self.start(node, by, verb);
    }

    /// Removes a container while its ADD runs.
    fn del_early(&mut self) {
        let down = &self.down;
        let begun = self.running.values().filter(|call| call.has_begun);
        let adds = begun.filter(|call| matches!(call.verb, Verb::Add(_)) && call.by == By::Braid);
        let adds = adds.filter_map(|call| Some((call.node, call.verb.entry()?)));
        let due = adds.filter(|(node, entry)| {
            entry.claim().is_none() && !self.is_ending(&entry.id) && !down.contains(node)
        });
        let due: Vec<(usize, Entry)> = due.map(|(node, entry)| (node, entry.clone())).collect();
        if !due.is_empty() {
            let (node, entry) = due[self.dice.below(due.len())].clone();
            let ending = (node, Life::Ending);
            self.containers.insert(entry.id.clone(), ending);
            self.start(node, By::Braid, Verb::Leave(entry));
        }
    }

    fn tend(&mut self) {
        let pool = self.pool();
        let idle = self.idle(By::Braid, pool, true);
        if !idle.is_empty() {
            let node = idle[self.dice.below(idle.len())];
            let target = self.dice.below(4);
            let verb = if self.dice.is_one_in(4) {
                Verb::Collect
            } else {
                Verb::Tend(target)
            };
            self.start_in(pool, node, By::Braid, verb);
        }
    }

    fn gc(&mut self) {
        let pool = self.pool();
        let mut idle = self.idle(By::Braid, pool, true);
        idle.retain(|node| self.running.values().all(|call| call.node != *node));
        if !idle.is_empty() {
            let node = idle[self.dice.below(idle.len())];
            let kept = self.containers.keys().cloned().collect();
            self.start_in(pool, node, By::Braid, Verb::Gc(kept));
        }
    }

    fn go_on(&mut self) {
        let calls: Vec<usize> = self.running.keys().copied().collect();
        if calls.is_empty() {
            return;
        }
        let call = calls[self.dice.below(calls.len())];
        let fate = match self.dice.below(40) {
            // What Whereabouts loses on its own is not braid's.
            _ if self.running[&call].by == By::Whereabouts => Fate::Done,
            0 => Fate::Unheard,
            1 => Fate::Lost,
            2 => Fate::Late,
            3 => Fate::KilledBefore,
            4 => Fate::KilledAfter,
            _ => Fate::Done,
        };
        self.world.go_on(call, fate);
        if let Some(running) = self.running.get_mut(&call) {
            running.has_begun = true;
        }
        self.reap(call);
    }

    fn carry_out_late(&mut self) {
        let mut state = self.world.lock();
        let count = state.objects.late.len();
        if count > 0 {
            let late = state.objects.late.remove(self.dice.below(count));
            state.objects.carry_out(late);
        }
    }

    /// Lets the first call go on for so many steps. Returns false if it has ended.
    fn go_on_for(&self, steps: usize) -> bool {
        let has_ended = || self.world.lock().ended.contains(&0);
        for _ in 0..steps {
            if has_ended() {
                return false;
            }
            self.world.go_on(0, Fate::Done);
        }
        !has_ended()
    }

    fn end_calls(&mut self) {
        let calls: Vec<usize> = self.running.keys().copied().collect();
        for call in calls {
            self.finish(call);
        }
    }

    fn finish(&mut self, call: usize) {
        while self.running.contains_key(&call) {
            self.reap(call);
            if self.running.contains_key(&call) {
                self.world.go_on(call, Fate::Done);
            }
        }
    }

    /// Runs a call that nothing stops.
    fn call(&self, number: usize, verb: &Verb) -> Result<Option<IpAddr>, String> {
        self.call_in(pool_of(verb), number, verb)
    }

    fn call_in(&self, pool: usize, number: usize, verb: &Verb) -> Result<Option<IpAddr>, String> {
        let seat = self.seat(usize::MAX, number, true);
        let of = self.node(number);
        let how = (&of, &self.ranges[pool], self.has_reservations);
        work(seat, (By::Braid, verb), how).expect("not killed")
    }

    /// Pays all debts of a node in a pool.
    fn settle(&self, pool: usize, number: usize) {
        let id = ["next", "next-second"][pool];
        let next = Self::entry(id, By::Braid);
        let _ = self.call(number, &Verb::Add(next.clone()));
        self.call(number, &Verb::Del(next)).expect("a DEL");
        let mut verbs = vec![Verb::Tend(0), Verb::Look];
        // Of a container that Whereabouts removed, nothing else tells.
        if self.has_peer {
            verbs.insert(0, Verb::Gc(Vec::new()));
        }
        for verb in verbs {
            self.call_in(pool, number, &verb).expect("an answer");
        }
    }

    /// Ends all calls and containers. Then the pool must be empty, and have all its addresses.
    fn end(mut self) {
        self.end_calls();
        while !self.world.lock().objects.late.is_empty() {
            self.carry_out_late();
        }
        for number in std::mem::take(&mut self.down) {
            self.come_back(number);
        }
        for (id, (number, _)) in std::mem::take(&mut self.containers) {
            self.call(number, &Verb::Del(Self::entry(&id, By::Braid)))
                .expect("a DEL");
        }
        self.claims.clear();
        // An ADD reads the pool of a node that has lost its journal. The pool may be full until the
        // last node has paid.
        for pool in 0..self.ranges.len() {
            for number in 0..NODES {
                self.settle(pool, number);
            }
        }
        self.call(0, &Verb::Free(self.deleted()))
            .expect("an answer");
        for pool in 0..self.ranges.len() {
            for number in 0..NODES {
                let collected = self.call_in(pool, number, &Verb::Collect);
                collected.expect("an answer");
            }
        }
        let state = self.world.lock();
        for object in state.objects.pools.values() {
            assert_eq!(world::parse(object).entries, BTreeMap::new(), "{object}");
        }
        assert!(
            state.objects.reservations.is_empty(),
            "{:?}",
            state.objects.reservations
        );
        for journal in state.journals.values() {
            assert_eq!(journal.own, BTreeMap::new());
        }
        drop(state);
        let mut addresses = Vec::new();
        let full = loop {
            let id = format!("{}-last-container", addresses.len());
            let add = Verb::Add(Self::entry(&id, By::Braid));
            match self.call(addresses.len() % NODES, &add) {
                Ok(Some(address)) if !addresses.contains(&address) => addresses.push(address),
                other => break other,
            }
        };
        assert_eq!(addresses.len(), ADDRESSES, "{full:?}");
    }
}

/// Number of random orders.
fn trials() -> u64 {
    let number = std::env::var("BRAID_IPAM_TRIALS").ok();
    number.map_or(100, |number| number.parse().expect("a number"))
}

#[test]
fn no_address_is_in_two_containers_and_none_is_lost_in_random_orders() {
    let first: u64 =
        std::env::var("BRAID_IPAM_SEED").map_or(0, |seed| seed.parse().expect("a seed"));
    for seed in first..first + trials() {
        let tried = thread::spawn(move || {
            let mut trial = Trial::new(seed);
            for _ in 0..STEPS {
                trial.step();
            }
            trial.end();
        });
        let has_passed = tried.join().is_ok();
        assert!(has_passed, "BRAID_IPAM_SEED={seed} BRAID_IPAM_TRIALS=1");
    }
}
