//! Many parallel calls on one node.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with each number below `count`. `at_once` of these calls run in parallel.
fn in_parallel(count: usize, at_once: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    work(at);
                }
            });
        }
    });
}

#[test]
fn five_hundred_containers_get_distinct_addresses_and_leave_nothing() {
    const COUNT: usize = 500;
    let host = Sandbox::new();
    let pods: Vec<_> = (0..COUNT).map(|at| host.pod(&format!("p{at}"))).collect();
    let ipam =
        json!({"type": "host-local", "subnet": "10.1.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]});
    let call = |pod: &Ns| {
        host.call("bridge", pod, conf::bridge())
            .with("ipam", ipam.clone())
            .with("ipMasq", true)
    };
    let calls: Vec<Call> = pods.iter().map(|pod| call(pod)).collect();
    let addresses = Mutex::new(BTreeSet::new());
    in_parallel(COUNT, COUNT, |at| {
        let result = calls[at].add().result();
        addresses
            .lock()
            .unwrap()
            .insert(result["ips"][0]["address"].to_string());
    });
    assert_eq!(addresses.into_inner().unwrap().len(), COUNT);
    assert!(pods[0].can_ping("10.1.0.1") && pods[COUNT - 1].can_ping("10.1.0.1"));
    in_parallel(COUNT, COUNT, |at| calls[at].del().ok());
    host.assert_nothing_left();
}

#[test]
fn parallel_adds_and_dels_do_not_interfere() {
    let host = Sandbox::new();
    let pods: Vec<_> = (0..16).map(|at| host.pod(&format!("p{at}"))).collect();
    let calls: Vec<Call> = pods
        .iter()
        .map(|pod| {
            host.call("bridge", pod, conf::bridge())
                .with("ipMasq", true)
                .with("macspoofchk", true)
        })
        .collect();
    in_parallel(16, 16, |at| {
        for _ in 0..5 {
            let result = calls[at].add().result();
            calls[at].check(&result).ok();
            calls[at].del().ok();
        }
    });
    host.assert_nothing_left();
}

#[test]
fn of_parallel_adds_for_one_interface_one_succeeds() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    let codes = Mutex::new(Vec::new());
    in_parallel(8, 8, |_| codes.lock().unwrap().push(call.add().code));
    let succeeded = codes
        .into_inner()
        .unwrap()
        .iter()
        .filter(|code| **code == 0)
        .count();
    assert_eq!(succeeded, 1);
    assert_eq!(pod.addrs("eth0").len(), 1);
    call.del().ok();
    host.assert_nothing_left();
}
