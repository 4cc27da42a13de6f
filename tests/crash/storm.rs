//! A hundred ADDs at the same time. Each is killed at a random moment. This repeats until enough
//! ADDs were killed before their end.

use crate::points::KILLED;
use braid_tests::{Answer, Call, Sandbox, json};
use std::collections::HashSet;
use std::io::Write;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of containers, and of addresses.
const COUNT: usize = 100;
/// Latest moment of a kill in the first round, in milliseconds. Later rounds adapt it, because the
/// duration of an ADD depends on the machine.
const LAST_MS: u64 = 800;
/// Number of killed ADDs after which the test ends.
const LEAST_KILLED: usize = 60;
const MOST_ROUNDS: usize = 20;

/// Kills ADDs at random moments and runs DEL for all of them. Then checks that nothing is left and
/// that every address can be reserved again.
pub(crate) fn adds() {
    let host = Sandbox::new();
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.101"});
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipMasq": true, "macspoofchk": true, "ipam": ipam});
    let pods: Vec<_> = (0..COUNT)
        .map(|number| host.pod(&format!("pod{number}")))
        .collect();
    let calls: Vec<Call> = pods
        .iter()
        .map(|pod| host.call("bridge", pod, conf.clone()))
        .collect();

    let (mut killed, mut rounds, mut last_ms) = (0, 0, LAST_MS);
    while killed < LEAST_KILLED {
        assert!(
            rounds < MOST_ROUNDS,
            "{killed} ADDs killed in {rounds} rounds, the last within {last_ms} ms"
        );
        let doomed = calls.iter().zip(moments(last_ms));
        let doomed: Vec<Call> = doomed
            .map(|(call, ms)| call.clone().under(&format!("timeout -s KILL {ms}e-3")))
            .collect();
        let now = at_once(&doomed, "ADD")
            .iter()
            .filter(|answer| answer.code == KILLED)
            .count();
        at_once(&calls, "DEL").iter().for_each(Answer::ok);
        host.assert_nothing_left();
        if now < COUNT / 4 {
            last_ms = (last_ms / 2).max(1);
        }
        (killed, rounds) = (killed + now, rounds + 1);
    }

    let results = at_once(&calls, "ADD");
    let addresses: HashSet<String> = results
        .iter()
        .map(|answer| answer.result()["ips"][0]["address"].to_string())
        .collect();
    assert_eq!(addresses.len(), COUNT, "addresses given out of {COUNT}");
    at_once(&calls, "DEL").iter().for_each(Answer::ok);
    host.assert_nothing_left();
    let _ = writeln!(
        std::io::stderr(),
        "crash storm: {killed} of {} ADDs killed, all addresses given out again",
        rounds * COUNT
    );
}

/// Runs all calls at the same time, and returns their answers in the same order.
fn at_once(calls: &[Call], verb: &str) -> Vec<Answer> {
    thread::scope(|scope| {
        let running: Vec<_> = calls
            .iter()
            .map(|call| scope.spawn(|| call.run(verb)))
            .collect();
        running
            .into_iter()
            .map(|call| call.join().expect("a call"))
            .collect()
    })
}

/// Returns random moments from 1 to `last_ms` milliseconds, which differ between runs.
fn moments(last_ms: u64) -> impl Iterator<Item = u64> {
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock behind 1970");
    // Linear congruential generator (Knuth, MMIX); its high bits are good enough.
    let step = |seed: &u64| {
        Some(
            seed.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        )
    };
    std::iter::successors(Some(u64::from(clock.subsec_nanos())), step)
        .skip(1)
        .map(move |seed| 1 + (seed >> 33) % last_ms)
}
