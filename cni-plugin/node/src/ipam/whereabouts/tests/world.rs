//! A cluster in memory: an API server, nodes, and calls that stop before each request and each write
//! of a journal until they are told to go on.

use super::patch;
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::{Api, Entered, Failure, Reserved, Store};
use braid_core::ipam::whereabouts::fence::FoundNode;
use braid_core::ipam::whereabouts::journal::Journal;
use braid_core::ipam::whereabouts::pool::{Entry, Pool};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Random numbers (xorshift).
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end).unwrap_or(1);
        usize::try_from((self.0 >> 11) % end.max(1)).unwrap_or_default()
    }

    pub(super) fn is_one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It is carried out, and its answer is lost.
    Unheard,
    /// It is not carried out.
    Lost,
    /// It is carried out later, after its sender has given up.
    Late,
    /// The call is killed before it.
    KilledBefore,
    /// The call is killed after it.
    KilledAfter,
}

/// A request that is carried out after its sender has given up: a name and a patch or an object.
#[derive(Debug, Clone)]
pub(super) enum Late {
    Change(String, Value),
    Reserve(String, Value),
}

/// Objects of the API server.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    pub(super) pools: BTreeMap<String, Value>,
    pub(super) reservations: BTreeMap<String, Value>,
    pub(super) nodes: BTreeMap<String, FoundNode>,
    /// Requests to be carried out later.
    pub(super) late: Vec<Late>,
    made: u64,
}

impl Objects {
    pub(super) fn uid(&mut self) -> String {
        self.made += 1;
        format!("uid-{}", self.made)
    }

    pub(super) fn carry_out(&mut self, late: Late) {
        match late {
            Late::Change(name, patch) => drop(self.change(&name, &patch)),
            Late::Reserve(name, object) => drop(self.reserve(&name, object)),
        }
    }

    fn reserve(&mut self, name: &str, mut object: Value) -> Result<String, Failure> {
        if self.reservations.contains_key(name) {
            return Err(Failure::Exists);
        }
        let uid = self.uid();
        object["uid"] = uid.clone().into();
        self.reservations.insert(name.to_owned(), object);
        Ok(uid)
    }

    pub(super) fn change(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure> {
        let object = self.pools.get(name).ok_or(Failure::Missing)?;
        let mut changed = patch::apply(object, patch).ok_or(Failure::Unfit)?;
        self.made += 1;
        changed["metadata"]["resourceVersion"] = self.made.to_string().into();
        self.pools.insert(name.to_owned(), changed.clone());
        Ok(parse(&changed))
    }
}

pub(super) fn parse(object: &Value) -> Pool {
    Pool::parse(object.to_string().as_bytes()).expect("a pool")
}

fn reserved(name: &str, object: &Value) -> Reserved {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    Reserved {
        name: name.to_owned(),
        uid: text("uid"),
        container_id: text("id"),
        podref: text("podref"),
        ifname: String::new(),
        of: serde_json::from_value(object["of"].clone()).ok(),
    }
}

/// State that calls and the test share.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) objects: Objects,
    /// Journals by node and pool.
    pub(super) journals: BTreeMap<(usize, String), Journal>,
    /// Calls that wait before a request.
    pub(super) waiting: BTreeSet<usize>,
    /// The call that may go on, and the fate of its next request.
    turn: Option<(usize, Fate)>,
    /// Calls that have ended.
    pub(super) ended: BTreeSet<usize>,
}

/// The cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a waiting call go on until it waits again or ends.
    pub(super) fn go_on(&self, call: usize, fate: Fate) {
        let mut state = self.lock();
        state.waiting.remove(&call);
        state.turn = Some((call, fate));
        self.state.1.notify_all();
        drop(state);
        self.await_stop(call);
    }

    /// Waits until a call waits or has ended.
    pub(super) fn await_stop(&self, call: usize) {
        let mut state = self.lock();
        while !state.waiting.contains(&call) && !state.ended.contains(&call) {
            state = self
                .state
                .1
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stops the calling thread until it may go on. Returns its fate.
    fn stop(&self, call: usize) -> (Fate, MutexGuard<'_, State>) {
        let mut state = self.lock();
        state.waiting.insert(call);
        self.state.1.notify_all();
        loop {
            if let Some((turn, fate)) = state.turn
                && turn == call
            {
                state.turn = None;
                return (fate, state);
            }
            state = self
                .state
                .1
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn end(&self, call: usize) {
        self.lock().ended.insert(call);
        self.state.1.notify_all();
    }
}

/// The API server and a node's journal, as one call sees them.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) world: World,
    pub(super) call: usize,
    pub(super) node: usize,
    /// True after the call was killed: nothing has an effect any more.
    pub(super) is_dead: bool,
    /// True for a call at the end of a test, which nothing stops.
    pub(super) is_free: bool,
}

impl Seat {
    /// Carries out a request as far as its fate allows.
    pub(super) fn request<T>(
        &mut self,
        work: impl FnOnce(&mut State) -> Result<T, Failure>,
        later: Option<Late>,
    ) -> Result<T, Failure> {
        let silence = || Failure::Passing("no answer".to_owned());
        if self.is_dead {
            return Err(silence());
        }
        let world = self.world.clone();
        if self.is_free {
            return work(&mut world.lock());
        }
        let (fate, mut state) = world.stop(self.call);
        match fate {
            Fate::Done => work(&mut state),
            Fate::Lost => Err(silence()),
            Fate::Unheard => {
                let _ = work(&mut state);
                Err(silence())
            }
            Fate::Late => {
                match later {
                    Some(later) => state.objects.late.push(later),
                    None => drop(work(&mut state)),
                }
                Err(silence())
            }
            Fate::KilledBefore => {
                self.is_dead = true;
                Err(silence())
            }
            Fate::KilledAfter => {
                let _ = work(&mut state);
                self.is_dead = true;
                Err(silence())
            }
        }
    }
}

impl Api for Seat {
    fn pool(&mut self, name: &str) -> Result<Option<Pool>, Failure> {
        self.request(|state| Ok(state.objects.pools.get(name).map(parse)), None)
    }

    fn create_pool(&mut self, name: &str, range: IpNet) -> Result<Pool, Failure> {
        self.request(
            |state| {
                if state.objects.pools.contains_key(name) {
                    return Err(Failure::Exists);
                }
                let uid = state.objects.uid();
                let object = json!({
                    "metadata": {"name": name, "uid": uid, "resourceVersion": "1"},
                    "spec": {"range": range, "allocations": {}},
                });
                state.objects.pools.insert(name.to_owned(), object.clone());
                Ok(parse(&object))
            },
            None,
        )
    }

    fn change_pool(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure> {
        let later = Late::Change(name.to_owned(), patch.clone());
        self.request(|state| state.objects.change(name, patch), Some(later))
    }

    fn reserve(&mut self, name: &str, entry: &Entry, pool: &str) -> Result<String, Failure> {
        let object = json!({"id": entry.id, "of": [super::name(self.node), pool]});
        let later = Late::Reserve(name.to_owned(), object.clone());
        self.request(|state| state.objects.reserve(name, object), Some(later))
    }

    /// Sends the requests in either order.
    fn enter(&mut self, all: &[(String, Entry)], pool: &str, patch: &Value) -> Entered {
        let is_reservation_first = self.world.lock().objects.made.is_multiple_of(2);
        if is_reservation_first {
            return Entered {
                reserved: self.reserve_all(all, pool),
                changed: self.change_pool(pool, patch),
            };
        }
        let changed = self.change_pool(pool, patch);
        Entered {
            reserved: self.reserve_all(all, pool),
            changed,
        }
    }

    fn reservation(&mut self, name: &str) -> Result<Option<Reserved>, Failure> {
        self.request(
            |state| {
                let found = state.objects.reservations.get(name);
                Ok(found.map(|found| reserved(name, found)))
            },
            None,
        )
    }

    fn reservations(&mut self) -> Result<Vec<Reserved>, Failure> {
        self.request(
            |state| {
                let all = state.objects.reservations.iter();
                Ok(all.map(|(name, found)| reserved(name, found)).collect())
            },
            None,
        )
    }

    fn unreserve(&mut self, name: &str, uid: &str) -> Result<(), Failure> {
        self.request(
            |state| {
                let reservations = &mut state.objects.reservations;
                if reservations.get(name).is_some_and(|it| it["uid"] == uid) {
                    reservations.remove(name);
                }
                Ok(())
            },
            None,
        )
    }

    fn node(&mut self, name: &str) -> Result<Option<FoundNode>, Failure> {
        self.request(|state| Ok(state.objects.nodes.get(name).cloned()), None)
    }
}

/// A node's journal of a pool, as one call sees it.
#[derive(Debug)]
pub(super) struct Book(pub(super) Arc<Mutex<Seat>>, pub(super) String);

/// A call's seat, shared by its view of the API and of the journal.
#[derive(Debug, Clone)]
pub(super) struct Shared(pub(super) Arc<Mutex<Seat>>);

impl Shared {
    pub(super) fn seat(&self) -> MutexGuard<'_, Seat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.seat().is_dead
    }
}

impl Api for Shared {
    fn pool(&mut self, name: &str) -> Result<Option<Pool>, Failure> {
        self.seat().pool(name)
    }

    fn create_pool(&mut self, name: &str, range: IpNet) -> Result<Pool, Failure> {
        self.seat().create_pool(name, range)
    }

    fn change_pool(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure> {
        self.seat().change_pool(name, patch)
    }

    fn reserve(&mut self, name: &str, entry: &Entry, pool: &str) -> Result<String, Failure> {
        self.seat().reserve(name, entry, pool)
    }

    fn enter(&mut self, all: &[(String, Entry)], pool: &str, patch: &Value) -> Entered {
        self.seat().enter(all, pool, patch)
    }

    fn reservation(&mut self, name: &str) -> Result<Option<Reserved>, Failure> {
        self.seat().reservation(name)
    }

    fn reservations(&mut self) -> Result<Vec<Reserved>, Failure> {
        self.seat().reservations()
    }

    fn unreserve(&mut self, name: &str, uid: &str) -> Result<(), Failure> {
        self.seat().unreserve(name, uid)
    }

    fn node(&mut self, name: &str) -> Result<Option<FoundNode>, Failure> {
        self.seat().node(name)
    }
}

impl Store for Book {
    fn update(&mut self, change: &mut dyn FnMut(&mut Journal)) -> Result<Journal, Error> {
        let mut seat = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (seat.node, self.1.clone());
        // A step fails only if its call is killed.
        let updated = seat.request(
            |state| {
                let journal = state.journals.entry(key).or_default();
                change(journal);
                Ok(journal.clone())
            },
            None,
        );
        updated.map_err(|err| Error::io(err.to_string()))
    }
}
