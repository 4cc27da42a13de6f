//! Probes of direct paths in mode `auto`: ICMP echo requests between network addresses of pod
//! ranges. The other node's kernel answers, also if its agent is dead.
//!
//! ```text
//!  fabric ─► Prober::assign ─► task: a round of requests ─► Probes::judge ─► Prober::changed
//!     └──────── Probes::passing ◄────────────────────────────────┘
//! ```
//!
//! Requests and answers use [the table of probes](super::routes::PROBE_TABLE), so they never go
//! through VXLAN, whatever the routes to pods are.

mod packet;
mod socket;

use super::peers::Target;
use nix::errno::Errno;
use socket::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time between two probes of a target.
const STEADY: Duration = Duration::from_secs(10);
/// The same for a new target, and for a target that has just not answered.
const FAST: Duration = Duration::from_secs(1);
/// Number of fast probes of a new target.
const FAST_PROBES: u32 = 5;
/// Number of probes in a row without an answer after which a path no longer passes.
const MISSES: u32 = 3;
/// Targets that are due within this time are probed in one round.
const SLACK: Duration = Duration::from_millis(500);

/// Direct paths and the results of their probes.
#[derive(Debug, Default)]
pub struct Probes {
    targets: BTreeMap<Target, Progress>,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    is_passing: bool,
    /// Probes in a row without an answer.
    missed: u32,
    /// Fast probes that are left.
    fast: u32,
    due: Instant,
}

impl Probes {
    /// Sets the targets. A new one passes from the start if it is in `routed`, which are the paths
    /// that have a direct route already: an agent that starts again changes no route.
    pub fn keep(&mut self, targets: &BTreeSet<Target>, routed: &BTreeSet<Target>, now: Instant) {
        self.targets.retain(|target, _| targets.contains(target));
        for target in targets {
            self.targets.entry(*target).or_insert(Progress {
                is_passing: routed.contains(target),
                missed: 0,
                fast: FAST_PROBES,
                due: now,
            });
        }
    }

    /// Returns the paths that pass.
    pub fn passing(&self) -> BTreeSet<Target> {
        let passing = self.targets.iter().filter(|(_, it)| it.is_passing);
        passing.map(|(target, _)| *target).collect()
    }

    /// Returns the time of the next round; `None` without targets.
    fn next(&self) -> Option<Instant> {
        self.targets.values().map(|progress| progress.due).min()
    }

    fn due(&self, now: Instant) -> Vec<Target> {
        let due = self.targets.iter().filter(|(_, it)| it.due <= now + SLACK);
        due.map(|(target, _)| *target).collect()
    }

    /// Enters the results of a round that began at `start`. Returns true if a path passes now and
    /// did not before, or the other way round.
    fn judge(&mut self, probed: &[Target], answered: &BTreeSet<Target>, start: Instant) -> bool {
        let mut is_changed = false;
        for target in probed {
            // The target may be gone meanwhile.
            let Some(progress) = self.targets.get_mut(target) else {
                continue;
            };
            let before = progress.is_passing;
            if answered.contains(target) {
                progress.is_passing = true;
                progress.missed = 0;
                progress.fast = 0;
            } else {
                progress.missed += 1;
                progress.is_passing &= progress.missed < MISSES;
                progress.fast = progress.fast.saturating_sub(1);
            }
            let is_in_doubt = progress.missed > 0 && progress.is_passing;
            let pause = if is_in_doubt || progress.fast > 0 {
                FAST
            } else {
                STEADY
            };
            progress.due = start + pause;
            is_changed |= before != progress.is_passing;
        }
        is_changed
    }

    /// Lets no path pass, since none can be probed.
    fn give_up(&mut self) {
        for progress in self.targets.values_mut() {
            progress.is_passing = false;
        }
    }
}

/// Values that the task and the agent's loop share.
#[derive(Debug, Default)]
struct Shared {
    assignment: Mutex<Assignment>,
    assigned: Notify,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Assignment {
    probes: Probes,
    /// Addresses to send from, one per family.
    sources: Vec<IpAddr>,
    /// True if the kernel does not permit raw sockets.
    is_refused: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Assignment> {
        let lock = self.assignment.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that probes. It ends with this value.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Prober {
    /// Starts the task in the current runtime.
    pub fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(work(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Sets the targets, see [`Probes::keep`]. Returns the paths that pass.
    pub fn assign(
        &self,
        targets: &BTreeSet<Target>,
        routed: &BTreeSet<Target>,
    ) -> BTreeSet<Target> {
        let mut assignment = self.shared.lock();
        if assignment.is_refused {
            return BTreeSet::new();
        }
        assignment.probes.keep(targets, routed, Instant::now());
        assignment.probes.passing()
    }

    /// Sets the addresses to send from, after they are on the VXLAN link, and lets a due round
    /// begin.
    pub fn send_from(&self, sources: &BTreeSet<IpAddr>) {
        let mut assignment = self.shared.lock();
        let first = |is_ipv4: bool| sources.iter().find(|source| source.is_ipv4() == is_ipv4);
        let firsts = [first(true), first(false)];
        assignment.sources = firsts.into_iter().flatten().copied().collect();
        drop(assignment);
        self.shared.assigned.notify_one();
    }

    /// Waits until the result for a path changes.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Probes all targets again and again. Ends if the kernel does not permit it.
async fn work(shared: Arc<Shared>) {
    let nonce = RandomState::new().hash_one(std::process::id());
    let mut sockets: Vec<Socket> = Vec::new();
    let mut reported = None;
    let mut round: u32 = 0;
    loop {
        let (next, sources) = {
            let assignment = shared.lock();
            (assignment.probes.next(), assignment.sources.clone())
        };
        let has_all = open(&mut sockets, &sources);
        match has_all {
            Err(Errno::EPERM | Errno::EACCES) => break,
            Err(errno) if reported != Some(errno) => {
                tracing::warn!(error = %errno.desc(), "open a socket for probes");
                reported = Some(errno);
            }
            _ => {}
        }
        let pause = match (has_all, next) {
            (Ok(()), Some(next)) if !sources.is_empty() => next,
            (Ok(()), _) => Instant::now() + Duration::from_hours(1),
            (Err(_), _) => Instant::now() + STEADY,
        };
        if pause > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(pause) => {}
                () = shared.assigned.notified() => {}
            }
            continue;
        }
        round = round.wrapping_add(1);
        let start = Instant::now();
        let due = shared.lock().probes.due(start);
        let answered = probe(&sockets, &due, nonce, round).await;
        if shared.lock().probes.judge(&due, &answered, start) {
            shared.changed.notify_one();
        }
    }
    tracing::warn!("mode auto stays with VXLAN: the kernel permits no raw socket for probes");
    let mut assignment = shared.lock();
    assignment.is_refused = true;
    assignment.probes.give_up();
    drop(assignment);
    shared.changed.notify_one();
}

/// Opens a socket for each of the addresses, and closes others.
fn open(sockets: &mut Vec<Socket>, sources: &[IpAddr]) -> Result<(), Errno> {
    sockets.retain(|socket| sources.contains(&socket.source()));
    for source in sources {
        if !sockets.iter().any(|socket| socket.source() == *source) {
            sockets.push(Socket::open(*source)?);
        }
    }
    Ok(())
}

/// Probes the targets of both families at the same time. Returns those that answered.
async fn probe(sockets: &[Socket], targets: &[Target], nonce: u64, round: u32) -> BTreeSet<Target> {
    let mut rounds = Vec::new();
    for socket in sockets {
        let is_ipv4 = socket.source().is_ipv4();
        let mut of_family = targets.to_vec();
        of_family.retain(|target| target.address.is_ipv4() == is_ipv4);
        rounds.push(async move { socket.round(&of_family, nonce, round).await });
    }
    let answered = futures_util::future::join_all(rounds).await;
    answered.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(last: u8) -> Target {
        Target {
            address: IpAddr::from([10, 244, last, 0]),
            via: IpAddr::from([192, 0, 2, last]),
            link: 7,
        }
    }

    /// Runs rounds with these results. Returns the time of each, and whether the path passes.
    fn run(probes: &mut Probes, results: &[bool], begin: Instant) -> Vec<(u64, bool)> {
        let target = target(2);
        let mut seen = Vec::new();
        for is_answered in results {
            let now = probes.next().expect("a target");
            assert_eq!(probes.due(now), [target]);
            let answered = BTreeSet::from_iter(is_answered.then_some(target));
            let before = probes.passing().len();
            let is_changed = probes.judge(&[target], &answered, now);
            assert_eq!(is_changed, before != probes.passing().len());
            let is_passing = !probes.passing().is_empty();
            seen.push((now.duration_since(begin).as_secs(), is_passing));
        }
        seen
    }

    fn new(routed: bool) -> (Probes, Instant) {
        let (mut probes, now) = (Probes::default(), Instant::now());
        let targets = BTreeSet::from([target(2)]);
        let routed = if routed {
            targets.clone()
        } else {
            BTreeSet::new()
        };
        probes.keep(&targets, &routed, now);
        (probes, now)
    }

    #[test]
    fn a_new_path_passes_with_its_first_answer_within_seconds() {
        let (mut probes, begin) = new(false);
        let results = [false, false, true, true];
        let expected = [(0, false), (1, false), (2, true), (12, true)];
        assert_eq!(run(&mut probes, &results, begin), expected);
    }

    #[test]
    fn a_path_without_answers_is_probed_fast_at_first_and_then_steadily() {
        let (mut probes, begin) = new(false);
        let times = run(&mut probes, &[false; 7], begin).into_iter();
        let times: Vec<u64> = times.map(|(time, _)| time).collect();
        assert_eq!(times, [0, 1, 2, 3, 4, 14, 24]);
    }

    #[test]
    fn a_path_stops_passing_after_several_misses_in_a_row_and_not_after_one() {
        let (mut probes, begin) = new(true);
        let results = [true, false, true, false, false, false, false, true];
        let expected = [
            (0, true),
            (10, true),
            (11, true),
            (21, true),
            (22, true),
            (23, false),
            (33, false),
            (43, true),
        ];
        assert_eq!(run(&mut probes, &results, begin), expected);
    }

    #[test]
    fn an_agent_that_starts_again_keeps_a_direct_route_until_probes_fail() {
        let (mut probes, begin) = new(true);
        assert_eq!(probes.passing().len(), 1);
        let expected = [(0, true), (1, true), (2, false)];
        assert_eq!(run(&mut probes, &[false; 3], begin), expected);
    }

    #[test]
    fn another_address_of_a_node_is_another_path() {
        let (mut probes, now) = new(true);
        let moved = Target {
            via: IpAddr::from([192, 0, 2, 77]),
            ..target(2)
        };
        probes.keep(&BTreeSet::from([moved]), &BTreeSet::new(), now);
        assert_eq!(probes.passing(), BTreeSet::new());
        assert_eq!(probes.due(now), [moved]);
        let late = BTreeSet::from([target(2)]);
        assert!(
            !probes.judge(&[target(2)], &late, now),
            "a target that left"
        );
    }

    #[test]
    fn targets_that_are_due_soon_share_a_round() {
        let mut probes = Probes::default();
        let begin = Instant::now();
        let mut targets = BTreeSet::new();
        for last in 1..=3 {
            targets.insert(target(last));
            let at = begin + Duration::from_millis(200 * u64::from(last));
            probes.keep(&targets, &BTreeSet::new(), at);
        }
        let due = probes.due(begin + Duration::from_millis(200));
        assert_eq!(due.len(), 3);
    }
}
