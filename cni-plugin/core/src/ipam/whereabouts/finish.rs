//! The end of Whereabouts: decisions of `braid ipam finish`, which marks pools as braid's alone.
//!
//! ```text
//!  entries of Whereabouts ─┬─ none ───────────────────────────────────────► mark
//!                          ├─ a pod has one ──────────────────────────────► refused
//!                          └─ no pod ─► first look ─ 10 min ─► no pod still ─► removed, mark
//! ```
//!
//! Nothing about the exclusion of addresses changes: each address keeps its entry and its reservation, as
//! the reservations also keep pools of braid that overlap apart. So no address is in two containers while
//! nodes learn of the mark one after the other, nor if Whereabouts is used again. The mark only permits
//! offsets that Whereabouts does not read, and a call reads it with the pool, which it reads anyway.
//!
//! An entry of Whereabouts names its pod, and not its node. Its pod must be missing twice, with a pause
//! between, as a node may still detach the container of a pod that was deleted. The first look is an
//! annotation of the pool. Both times come from the clock of the machine on which the command runs.

use super::change::annotation;
use super::inventory::{Assigned, foreign};
use super::names;
use super::pods::FoundPod;
use super::pool::{EXCLUSIVE, Entry, ListedPool, TRUE};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Time between two looks at an entry without a pod.
pub const PAUSE: Duration = Duration::from_mins(10);
/// Annotation with the entries without a pod: `offset:id:time`, separated by commas. The id is cut, and
/// the time of the first look is in seconds since 1970.
const FINISHING: &str = "ipam.braid.io/finishing";

/// Progress of `braid ipam finish`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// True if all pools are braid's alone.
    pub finished: bool,
    /// Names of the pools that are braid's alone.
    pub exclusive: Vec<String>,
    /// Entries of Whereabouts with a pod.
    pub used: Vec<Assigned>,
    /// Entries of Whereabouts without a pod that wait for the second look.
    pub waiting: Vec<Assigned>,
    /// Time until the second look at all of them, in seconds.
    pub wait_seconds: u64,
    /// Entries of Whereabouts that were removed.
    pub released: Vec<Assigned>,
}

impl Progress {
    /// True if there is nothing to show.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Entries of Whereabouts in a pool, by offset.
pub type Foreign<'p> = BTreeMap<u128, &'p Entry>;

/// Next step for a pool.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'p> {
    /// None: the pool is braid's alone.
    Nothing,
    /// The second look at these entries is later.
    Wait {
        /// The entries.
        entries: Foreign<'p>,
        /// Time until the second look at all of them.
        left: Duration,
        /// Annotation to write first.
        note: Option<String>,
    },
    /// Remove these entries, and mark the pool.
    End(Foreign<'p>),
}

/// Returns the entries of Whereabouts that a pod may use. Entries without a `podref` belong to the pod
/// with the address in its status.
pub fn used(pools: &[ListedPool], pods: &[FoundPod]) -> Vec<Assigned> {
    let by_name: BTreeMap<&str, &FoundPod> = pods.iter().map(|pod| (&*pod.name, pod)).collect();
    let mut used = Vec::new();
    for pool in pools {
        for (offset, entry) in foreign(pool) {
            let address = pool.net().and_then(|net| names::address(net, offset));
            let user = if entry.podref.is_empty() {
                pods.iter().find(|pod| pod.has(address))
            } else {
                let pod = by_name.get(&*entry.podref).copied();
                pod.filter(|pod| pod.may_have(address))
            };
            if let Some(user) = user {
                let mut one = Assigned::new(pool, offset, entry, None);
                one.pod = Some(user.name.clone());
                used.push(one);
            }
        }
    }
    used
}

/// Decides on a pool in which no entry of Whereabouts has a pod. `now` is the time since 1970.
pub fn next(pool: &ListedPool, now: Duration) -> Next<'_> {
    let entries = foreign(pool);
    if entries.is_empty() && pool.pool.is_exclusive() {
        return Next::Nothing;
    }
    let text = pool.pool.annotation(FINISHING);
    let looks = parse(text.unwrap_or_default());
    let (mut left, mut note) = (Duration::ZERO, String::new());
    for (offset, entry) in &entries {
        let first = looks.get(offset).filter(|(id, _)| *id == entry.short());
        // A later time is that of a clock that was wrong.
        let first = first.map(|(_, time)| *time).filter(|time| *time <= now);
        let first = first.unwrap_or(now);
        left = left.max((first + PAUSE).saturating_sub(now));
        let separator = if note.is_empty() { "" } else { "," };
        let id = entry.short();
        let _ = write!(note, "{separator}{offset}:{id}:{}", first.as_secs());
    }
    if left.is_zero() {
        return Next::End(entries);
    }
    Next::Wait {
        entries,
        left,
        note: Some(note).filter(|note| text != Some(note)),
    }
}

fn parse(text: &str) -> BTreeMap<u128, (&str, Duration)> {
    let looks = text.split(',').filter_map(|one| {
        let (offset, rest) = one.split_once(':')?;
        // The id of a claim would have a colon.
        let (id, time) = rest.rsplit_once(':')?;
        let time = Duration::from_secs(time.parse().ok()?);
        Some((offset.parse().ok()?, (id, time)))
    });
    looks.collect()
}

/// Returns the change of a pool that writes down a look.
pub fn look(pool: &ListedPool, note: &str) -> Value {
    let seen = pool.pool.annotation(FINISHING);
    let mut patch = begin(pool);
    patch.push(json!({"op": "test", "path": annotation(FINISHING), "value": seen}));
    patch.push(json!({"op": "add", "path": annotation(FINISHING), "value": note}));
    Value::Array(patch)
}

/// Returns the change of a pool that removes entries of Whereabouts and marks the pool as braid's alone.
/// It fails if the pool has changed in any way, as that may be a new entry of Whereabouts.
pub fn end(pool: &ListedPool, entries: &Foreign<'_>) -> Value {
    let mut patch = begin(pool);
    let version = &pool.pool.version;
    patch.insert(
        0,
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
    );
    for (offset, entry) in entries {
        let path = format!("/spec/allocations/{offset}");
        patch.push(json!({"op": "test", "path": format!("{path}/id"), "value": entry.id}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    if pool.pool.annotation(FINISHING).is_some() {
        patch.push(json!({"op": "remove", "path": annotation(FINISHING)}));
    }
    patch.push(json!({"op": "add", "path": annotation(EXCLUSIVE), "value": TRUE}));
    Value::Array(patch)
}

/// Returns the start of a change: a test that it is this pool, and a map of annotations if it has none.
fn begin(pool: &ListedPool) -> Vec<Value> {
    let path = "/metadata/annotations";
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": pool.pool.uid})];
    if pool.pool.annotations.is_none() {
        patch.push(json!({"op": "test", "path": path, "value": Value::Null}));
        patch.push(json!({"op": "add", "path": path, "value": {}}));
    }
    patch
}

/// Returns the pools that are braid's alone, or an error that names one that is not.
pub fn exclusive(pools: &[ListedPool]) -> Result<Vec<String>, String> {
    let is_alone = |pool: &&ListedPool| pool.pool.is_exclusive() && foreign(pool).is_empty();
    if let Some(other) = pools.iter().find(|pool| !is_alone(pool)) {
        return Err(other.name.clone());
    }
    Ok(pools.iter().map(|pool| pool.name.clone()).collect())
}

#[cfg(test)]
mod tests;
