//! `braid ipam finish` that is disturbed: each entry has its reservation at any time.

use super::super::finish::finish;
use super::Trial;
use super::peer::POOL;
use super::world::Seat;
use braid_core::ipam::whereabouts::api::{Api, Failure, Reserved, Server};
use braid_core::ipam::whereabouts::fence::FoundNode;
use braid_core::ipam::whereabouts::finish::Progress;
use braid_core::ipam::whereabouts::pods::FoundPod;
use braid_core::ipam::whereabouts::pool::{Entry, ListedPool, Pool};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::time::Duration;

/// Disturbance of the change that removes the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbed {
    No,
    /// Whereabouts gives the address to the next pod of the same name.
    Used,
    KilledBefore,
    KilledAfter,
}

/// The API server of a command.
struct Command {
    seat: Seat,
    disturbed: Disturbed,
    is_killed: bool,
}

fn killed<T>() -> Result<T, Failure> {
    Err(Failure::Passing("killed".to_owned()))
}

impl Api for Command {
    fn pool(&mut self, name: &str) -> Result<Option<Pool>, Failure> {
        self.seat.pool(name)
    }

    fn create_pool(&mut self, name: &str, range: IpNet) -> Result<Pool, Failure> {
        self.seat.create_pool(name, range)
    }

    fn change_pool(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure> {
        match self.disturbed {
            Disturbed::No => self.seat.change_pool(name, patch),
            Disturbed::Used => {
                self.disturbed = Disturbed::No;
                let path = "/spec/allocations/5/id";
                let used = json!([{"op": "add", "path": path, "value": "again"}]);
                self.seat.change_pool(name, &used)?;
                Err(Failure::Unfit)
            }
            Disturbed::KilledBefore => killed(),
            Disturbed::KilledAfter => {
                self.is_killed = true;
                self.seat.change_pool(name, patch)
            }
        }
    }

    fn reserve(&mut self, name: &str, entry: &Entry, pool: &str) -> Result<String, Failure> {
        self.seat.reserve(name, entry, pool)
    }

    fn reservation(&mut self, name: &str) -> Result<Option<Reserved>, Failure> {
        self.seat.reservation(name)
    }

    fn reservations(&mut self) -> Result<Vec<Reserved>, Failure> {
        self.seat.reservations()
    }

    fn unreserve(&mut self, name: &str, uid: &str) -> Result<(), Failure> {
        if self.is_killed {
            return killed();
        }
        self.seat.unreserve(name, uid)
    }

    fn node(&mut self, name: &str) -> Result<Option<FoundNode>, Failure> {
        self.seat.node(name)
    }
}

impl Server for Command {
    fn node_of(&mut self, _namespace: &str, _pod: &str) -> Result<String, Failure> {
        killed()
    }

    fn pools(&mut self) -> Result<Vec<ListedPool>, Failure> {
        let pool = self.seat.pool(POOL)?;
        let listed = pool.map(|pool| ListedPool {
            name: POOL.to_owned(),
            range: "10.0.0.0/24".to_owned(),
            pool,
        });
        Ok(listed.into_iter().collect())
    }

    fn slice(&mut self, _pool: &str, _node: &str) -> Result<Option<IpNet>, Failure> {
        Ok(None)
    }

    fn pods(&mut self) -> Result<Vec<FoundPod>, Failure> {
        Ok(Vec::new())
    }

    fn programs(&mut self) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn act_for(&mut self, _node: &str) {}
}

/// Returns a cluster with an entry of Whereabouts without a pod, noted a while ago.
fn trial() -> Trial {
    let trial = Trial::new(0);
    let pool = json!({
        "metadata": {
            "name": POOL,
            "uid": "pool",
            "resourceVersion": "1",
            "annotations": {"ipam.braid.io/finishing": "5:gone:0"},
        },
        "spec": {
            "range": "10.0.0.0/24",
            "allocations": {"5": {"id": "gone", "podref": "shop/web-0", "ifname": "net1"}},
        },
    });
    let reservation = json!({"uid": "reserved", "podref": "shop/web-0"});
    let mut state = trial.world.lock();
    state.objects.pools.insert(POOL.to_owned(), pool);
    let name = "10.0.0.5".to_owned();
    state.objects.reservations.insert(name, reservation);
    drop(state);
    trial
}

/// Runs the command. Returns the numbers of entries and of reservations after it.
fn run(trial: &Trial, disturbed: Disturbed) -> (bool, usize, usize) {
    let mut command = Command {
        seat: trial.seat(usize::MAX, 0, true),
        disturbed,
        is_killed: false,
    };
    let now = Duration::from_hours(1);
    let done = finish(&mut command, false, now, &mut Progress::default());
    let state = trial.world.lock();
    let entries = super::world::parse(&state.objects.pools[POOL])
        .entries
        .len();
    (done.is_ok(), entries, state.objects.reservations.len())
}

#[test]
fn a_disturbed_end_of_whereabouts_leaves_no_entry_without_a_reservation() {
    for (disturbed, expected) in [
        (Disturbed::No, (true, 0, 0)),
        (Disturbed::Used, (false, 1, 1)),
        (Disturbed::KilledBefore, (false, 1, 1)),
        (Disturbed::KilledAfter, (false, 0, 1)),
    ] {
        let trial = trial();
        assert_eq!(run(&trial, disturbed), expected, "{disturbed:?}");
        if disturbed != Disturbed::Used {
            let again = run(&trial, Disturbed::No);
            assert_eq!(again, (true, 0, 0), "after {disturbed:?}");
        }
    }
}
