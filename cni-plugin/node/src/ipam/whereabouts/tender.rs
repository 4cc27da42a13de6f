//! The agent's work on a node's pools: it pays the debts of calls, and holds addresses for the next pods, so
//! that calls send no requests.
//!
//! ```text
//!  journals ─┬─► need of each pool ─► Session: tend, look ─► journals
//!            └─► use of each pool
//! ```

use super::reservations::reservations;
use super::session::Session;
use super::store::{self, FOLDER, JournalFile};
use super::way::{failed, remember, this_boot};
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api::{Api, Failure};
use braid_core::ipam::whereabouts::hold;
use braid_core::ipam::whereabouts::journal::{Journal, Place, State};
use braid_core::ipam::whereabouts::pool::{self, Node};
use braid_core::ipam::whereabouts::steps::held;
use braid_core::ipam::whereabouts::usage::Usage;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time without a new or a removed pod after which a node holds nothing.
const IDLE: Duration = Duration::from_mins(1);
/// Age after which a pool is read again, to see whether others need the held addresses.
const HOLDING_AGE: Duration = Duration::from_secs(3);
/// Age after which the pool of a node with addresses is compared again, as it may have been restored
/// from a backup.
const AGE: Duration = Duration::from_mins(1);

/// Time between two collections of reservations without an entry. Each reads all reservations.
const COLLECTION: Duration = Duration::from_hours(1);

/// The agent's work on all pools of a node.
#[derive(Debug)]
pub struct Tender {
    /// Name of the Node.
    name: String,
    node: Option<Node>,
    pools: BTreeMap<PathBuf, Tended>,
    /// Time of the last collection of reservations.
    collected: Instant,
}

/// A pool, as the agent knows it.
#[derive(Debug)]
struct Tended {
    /// Entries in use when it was last looked at.
    used: BTreeMap<u128, pool::Entry>,
    /// Time of the last new or removed pod.
    active: Instant,
    /// Time of the last answer of the API server.
    read: Option<Instant>,
    /// Use of the pool; `None` if the node has no address of it.
    usage: Option<Usage>,
    /// Tells calls that this agent pays. It does not while the API server refuses.
    lock: Option<File>,
}

/// Need of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    /// To be compared with the journal.
    Look,
    /// To have so many addresses held.
    Tend(usize),
}

impl Tender {
    /// Begins the work for a node.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            node: None,
            pools: BTreeMap::new(),
            collected: Instant::now(),
        }
    }

    /// Does the work that is due. `api` returns the way to the API server of a kubeconfig. Returns the errors.
    pub fn round(&mut self, api: &mut dyn FnMut(&Path) -> Box<dyn Api>) -> Vec<Error> {
        let paths = match store::journals(Path::new(FOLDER)) {
            Ok(paths) => paths,
            Err(err) => return vec![err],
        };
        let mut errors = Vec::new();
        for path in &paths {
            if let Err(err) = self.pool(path, api) {
                if let Some(tended) = self.pools.get_mut(path) {
                    tended.lock = None;
                }
                errors.push(err);
            }
        }
        if self.collected.elapsed() >= COLLECTION {
            self.collected = Instant::now();
            errors.extend(self.collect(&paths, api).err());
        }
        errors
    }

    /// Deletes reservations without an entry.
    fn collect(
        &mut self,
        paths: &[PathBuf],
        api: &mut dyn FnMut(&Path) -> Box<dyn Api>,
    ) -> Result<(), Error> {
        let mut all = BTreeMap::new();
        for path in paths {
            let place = store::peek(path)?.place;
            let Some(place) = place.filter(|place| place.has_reservations) else {
                continue;
            };
            let mut api = api(&place.kubeconfig);
            let all = match all.entry(place.kubeconfig.clone()) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => unread.insert(reservations(&mut *api)?),
            };
            let node = self.node(&mut *api)?;
            let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
            let mut session = Session::open(&place, &node, &mut *api, &mut journal)?;
            session.collect_reservations(all)?;
        }
        Ok(())
    }

    /// Returns the use of each pool that has addresses of the node, as of the last round.
    pub fn usages(&self) -> impl Iterator<Item = &Usage> {
        self.pools
            .values()
            .filter_map(|tended| tended.usage.as_ref())
    }

    /// Returns the node's identity, if the API server has told it.
    pub fn identity(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Gives back all that is held. Calls pay themselves from now on.
    pub fn end(mut self, api: &mut dyn FnMut(&Path) -> Box<dyn Api>) -> Vec<Error> {
        let mut errors = Vec::new();
        for path in std::mem::take(&mut self.pools).into_keys() {
            let ended = store::peek(&path).and_then(|journal| match journal.place.clone() {
                Some(place) if held(&journal) > 0 || journal.is_behind() => {
                    self.work(&place, Need::Tend(0), &mut *api(&place.kubeconfig))
                }
                _ => Ok(()),
            });
            errors.extend(ended.err());
        }
        errors
    }

    fn pool(
        &mut self,
        path: &Path,
        api: &mut dyn FnMut(&Path) -> Box<dyn Api>,
    ) -> Result<(), Error> {
        let journal = store::peek(path)?;
        let Some(place) = journal.place.clone() else {
            return Ok(());
        };
        let used = used(&journal);
        let now = Instant::now();
        let tended = self.pools.entry(path.to_owned()).or_insert_with(|| Tended {
            used: used.clone(),
            active: now,
            read: None,
            usage: None,
            lock: None,
        });
        tended.usage = Usage::of(&journal);
        if tended.used != used {
            tended.used = used;
            tended.active = now;
        }
        let is_idle = now.duration_since(tended.active) >= IDLE;
        let age = tended.read.map(|read| now.duration_since(read));
        let need = need(&journal, is_idle, age);
        if need == Need::Nothing {
            return Ok(());
        }
        self.work(&place, need, &mut *api(&place.kubeconfig))?;
        if let Some(tended) = self.pools.get_mut(path) {
            tended.read = Some(now);
            if tended.lock.is_none() {
                tended.lock = Some(store::be_agent(path)?);
            }
        }
        Ok(())
    }

    fn work(&mut self, place: &Place, need: Need, api: &mut dyn Api) -> Result<(), Error> {
        let node = self.node(api)?;
        let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
        let mut session = Session::open(place, &node, api, &mut journal)?;
        match need {
            Need::Nothing => Ok(()),
            Need::Look => session.look(),
            Need::Tend(target) => session.tend(target),
        }
    }

    /// Returns the node's identity, and writes it down for calls.
    fn node(&mut self, api: &mut dyn Api) -> Result<Node, Error> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        let found = api.node(&self.name);
        let found = found.map_err(|err| failed("Node", &err))?;
        let found = found.ok_or_else(|| failed("Node", &Failure::Missing))?;
        let node = Node {
            name: self.name.clone(),
            uid: found.uid,
            boot: this_boot()?,
        };
        remember(&store::node(Path::new(FOLDER)), &node)?;
        Ok(self.node.insert(node).clone())
    }
}

fn used(journal: &Journal) -> BTreeMap<u128, pool::Entry> {
    let used = journal
        .own
        .iter()
        .filter(|(_, own)| own.state == State::Used);
    used.map(|(at, own)| (*at, own.entry.clone())).collect()
}

/// Decides on the work on a pool. `age` is the time since its last answer.
fn need(journal: &Journal, is_idle: bool, age: Option<Duration>) -> Need {
    let held = held(journal);
    let (seen, range) = (journal.seen.as_ref(), journal.range.as_ref());
    let target = match (seen, range) {
        (Some(seen), Some(range)) if !is_idle => {
            let entries = journal.taken.len() + journal.own.len();
            let entries = u128::try_from(entries).unwrap_or(u128::MAX);
            let left = range.capacity().saturating_sub(entries);
            hold::target(journal.count(State::Used), left, seen.nodes)
        }
        _ => 0,
    };
    let is_older = |than: Duration| age.is_none_or(|age| age >= than);
    let has_entries = !journal.own.is_empty() || !journal.sought.is_empty();
    if journal.is_behind() || held > target || held < target && is_older(HOLDING_AGE) {
        return Need::Tend(target);
    }
    if held < target && held * 2 <= target {
        return Need::Tend(target);
    }
    if held > 0 && is_older(HOLDING_AGE) || has_entries && is_older(AGE) {
        return Need::Look;
    }
    Need::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::ipam::whereabouts::PoolRange;
    use braid_core::ipam::whereabouts::journal::{Own, Seen};

    fn journal(states: &[State]) -> Journal {
        let address = |last: u8| [10, 0, 0, last].into();
        let mut journal = Journal {
            range: Some(PoolRange {
                net: "10.0.0.0/24".parse().expect("a network"),
                prefix_len: 24,
                first: address(1),
                last: address(254),
                exclude: Vec::new(),
                gateway: None,
            }),
            seen: Some(Seen {
                uid: "pool".to_owned(),
                nodes: 2,
                ..Seen::default()
            }),
            ..Journal::default()
        };
        for (at, state) in (1..).zip(states) {
            let own = Own {
                state: *state,
                ..Own::default()
            };
            journal.own.insert(at, own);
        }
        let wanted = journal.wanted();
        journal.seen.as_mut().expect("seen").own = wanted;
        journal
    }

    #[test]
    fn a_pool_is_tended_when_it_differs_and_read_when_it_is_old() {
        let (used, held, owed) = (State::Used, State::Held, State::Owed);
        let young = Some(Duration::from_secs(1));
        let old = Some(Duration::from_mins(2));
        for (states, is_idle, age, expected) in [
            (&[][..], false, None, Need::Nothing),
            (&[used], false, young, Need::Tend(1)),
            (&[used, held], false, young, Need::Nothing),
            (&[used, held], false, old, Need::Look),
            (&[used, held], true, young, Need::Tend(0)),
            (&[used], true, young, Need::Nothing),
            (&[used], true, old, Need::Look),
            (&[used, held, owed], false, young, Need::Tend(1)),
        ] {
            let need = need(&journal(states), is_idle, age);
            assert_eq!(need, expected, "{states:?} {is_idle} {age:?}");
        }
    }
}
