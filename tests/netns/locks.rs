//! Locks that another call holds. They delay only calls for the same resource, and only for a
//! bounded time.

use crate::conf;
use braid_tests::{Answer, Call, Ns, Sandbox, Value, json};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{major, minor};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns a list that uses many shared resources of the node: a bridge, host ports with `backend`,
/// and the firewall.
fn list(backend: &str) -> Value {
    let ports =
        json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}});
    let firewall = json!({"type": "firewall", "ingressPolicy": "same-bridge"});
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::bridge(), ports, firewall]})
}

fn call(host: &Sandbox, pod: &Ns, backend: &str) -> Call {
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    host.call("braid", pod, list(backend))
        .with("runtimeConfig", json!({"portMappings": mapping}))
}

/// Locks the file at `path`, like a call that has stopped.
fn hold(path: &str) -> File {
    let path = Path::new(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = if path.is_dir() {
        File::open(path)
    } else {
        File::create(path)
    }
    .unwrap();
    file.lock().unwrap();
    file
}

/// Runs a call that waits for the lock `held`, and ends its waiting time with SIGALRM. After that,
/// the call waits at most a second for anything else.
fn at_its_end(held: &File, call: impl FnOnce() -> Answer + Send) -> Answer {
    std::thread::scope(|scope| {
        let calling = scope.spawn(call);
        let waiting = loop {
            match waiting(held) {
                Some(pid) => break Some(pid),
                None if calling.is_finished() => break None,
                None => std::thread::yield_now(),
            }
        };
        waiting
            .map(|pid| kill(pid, Signal::SIGALRM))
            .transpose()
            .unwrap();
        calling.join().unwrap()
    })
}

/// Returns the process that waits for a lock on the file. `/proc/locks` has a line for it, such as
/// `2: -> FLOCK  ADVISORY  WRITE 317 00:2e:17 0 EOF`.
fn waiting(held: &File) -> Option<Pid> {
    let meta = held.metadata().unwrap();
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(meta.dev()),
        minor(meta.dev()),
        meta.ino()
    );
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let mut lines = locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|words| words[1] == "->" && words.len() > 6 && words[6] == file)?;
    line[5].parse().ok().map(Pid::from_raw)
}

#[test]
fn a_lock_for_link_deletion_does_not_block_add() {
    let host = Sandbox::new();
    host.run("iptables -P FORWARD DROP");
    let pod = host.pod("a");
    let call = call(&host, &pod, "nftables");
    let _turn = hold("/run/braid/lock/links");
    // An older version of braid held this lock during deletions.
    fs::create_dir_all("/run/braid/attachments").unwrap();
    let _older = hold("/run/braid/attachments");
    let result = call.clone().under("timeout 60").add().result();
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn an_add_that_waits_too_long_returns_try_again() {
    for path in [
        "/var/lib/cni/networks/net/lock",
        "/run/braid/attachments/a",
        "/run/braid/lock/rules",
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = call(&host, &pod, "nftables");
        if path.starts_with("/run/braid/attachments") {
            fs::create_dir_all(path).unwrap();
        }
        let held = hold(path);
        at_its_end(&held, || call.add()).refused(11, &["another call has held it"]);
        assert_eq!(pod.link_names(), Vec::<String>::new());
        drop(held);
        // DEL rolls back the rest, for which the lock was needed.
        call.del().ok();
        host.assert_nothing_left();
        let result = call.add().result();
        let held = hold(path);
        if path.starts_with("/run/braid/attachments") {
            at_its_end(&held, || call.check(&result)).refused(11, &["another call has held it"]);
        }
        // A lock that is held is temporary, so STATUS must leave the node ready.
        let status = at_its_end(&held, || call.status());
        status.ok();
        let is_busy = path.starts_with("/var/lib/cni");
        assert_eq!(
            status.stderr.contains("another call has held it"),
            is_busy,
            "{}",
            status.stderr
        );
        at_its_end(&held, || call.del()).refused(11, &["another call has held it"]);
        drop(held);
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn the_ebpf_lock_blocks_only_calls_that_change_ebpf() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let held = hold("/run/braid/lock/ebpf");
    let other = call(&host, &pod, "nftables");
    other.add().result();
    other.del().ok();
    let call = call(&host, &pod, "ebpf");
    at_its_end(&held, || call.add())
        .refused(11, &["/run/braid/lock/ebpf: another call has held it"]);
    drop(held);
    call.del().ok();
    host.assert_nothing_left();
}
