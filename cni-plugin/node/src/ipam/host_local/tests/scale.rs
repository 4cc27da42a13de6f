//! Many leases and many concurrent callers.

use super::*;
use crate::ipam::host::NoServers;
use crate::log::Log;
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn sixteen_threads_get_distinct_addresses_and_leave_nothing() {
    let bed = Bed::new();
    let config = bed.config(
        r#""ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"2001:db8::/64"}]]"#,
        "",
    );
    let held: BTreeSet<String> = std::thread::scope(|scope| {
        let worker = |thread: usize| {
            let (bed, config) = (&bed, &config);
            scope.spawn(move || {
                // Each thread holds four addresses at a time and releases three. 16 x 4 fit, so any
                // double use fails.
                let mut kept = String::new();
                for round in 0..5 {
                    let ids: Vec<String> =
                        (0..4).map(|i| format!("t{thread}-{round}-{i}")).collect();
                    let ips: Vec<String> =
                        ids.iter().map(|id| bed.add(config, id).unwrap()).collect();
                    for (id, ip) in ids.iter().zip(&ips) {
                        let v4 = ip.split('/').next().unwrap();
                        assert_eq!(bed.read(v4), Some(format!("{id}\r\neth0")));
                        if round < 4 || id != &ids[0] {
                            assert_eq!(bed.del(config, id).len(), 2);
                        }
                    }
                    ips[0].clone_into(&mut kept);
                }
                kept
            })
        };
        let workers: Vec<_> = (0..16).map(worker).collect();
        let mut held = BTreeSet::new();
        for worker in workers {
            held.insert(worker.join().unwrap());
        }
        held
    });
    assert_eq!(held.len(), 16);
    for thread in 0..16 {
        assert_eq!(bed.del(&config, &format!("t{thread}-4-0")).len(), 2);
    }
    assert_eq!(
        bed.names(),
        ["last_reserved_ip.0", "last_reserved_ip.1", "lock"]
    );
}

/// Child process of
/// [`one_reserve_and_release_count_the_same_syscalls_on_an_empty_and_on_a_crowded_network`], run
/// under strace.
#[test]
#[ignore = "a child of another test, which passes the directory"]
fn traced_child() {
    let Ok(dir) = std::env::var("BRAID_TEST_IPAM_DIR") else {
        return;
    };
    let dir = Path::new(&dir);
    let config = crowd_config(dir);
    let libcni = crate::ipam::liveness::LibcniCache {
        dir: dir.join("results"),
        network: "net".to_owned(),
    };
    let state = dir.join("state");
    let host = Host {
        state_dir: &state,
        liveness: &libcni,
        attachment: None,
        prober: None,
        servers: &NoServers,
        log: &Log::new(|_| {}),
    };
    mark("reserve");
    let lease = config.reserve(&owner("new", "eth0"), host).unwrap();
    mark("release");
    let freed = config.release(&owner("new", "eth0"), host).unwrap();
    mark("end");
    assert_eq!(freed, [lease.ips[0].address.addr()]);
}

/// Makes a system call that marks a position in the trace.
fn mark(what: &str) {
    assert!(fs::metadata(format!("/braid-mark-{what}")).is_err());
}

fn crowd_config(dir: &Path) -> HostLocalConfig {
    let data = dir.join("data");
    let text = format!(r#"{{"name":"net","ipam":{{"dataDir":{data:?},"subnet":"10.64.0.0/16"}}}}"#);
    HostLocalConfig::parse(&NetConf::parse(text.as_bytes()).unwrap(), "").unwrap()
}

/// Returns the thread id in a line of strace's output.
fn thread_of(line: &str) -> Option<&str> {
    line.split(' ').next()
}

/// Returns the system calls of one reservation and one release, next to `leases` other leases.
/// Their addresses are consecutive and follow the round-robin mark.
fn trace(bed: &Bed, leases: u32) -> Option<[Vec<String>; 2]> {
    let config = crowd_config(bed.dir.path());
    for i in 0..leases {
        let ip = std::net::Ipv4Addr::from(0x0a40_0000 + 3 + i);
        bed.write(&ip.to_string(), &format!("c{i}\r\neth0"));
    }
    // The first call after a foreign change builds the index. It also sets the mark before the
    // consecutive leases.
    bed.add(
        &HostLocalConfig {
            requested: vec!["10.64.0.2".parse().unwrap()],
            ..config.clone()
        },
        "first",
    )
    .unwrap();
    let out = bed.dir.path().join("trace");
    let status = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&out)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "ipam::host_local::tests::scale::traced_child",
        ])
        .env("BRAID_TEST_IPAM_DIR", bed.dir.path())
        .output();
    assert!(status.ok()?.status.success());
    let text = fs::read_to_string(out).unwrap();
    let between = |from: &str, to: &str| {
        let is_mark = |line: &&str, mark: &str| line.contains(&format!("/braid-mark-{mark}"));
        let mut lines = text.lines().skip_while(|l| !is_mark(l, from));
        let own = thread_of(lines.next().unwrap_or_default());
        let mut called = Vec::new();
        for line in lines.take_while(|l| !is_mark(l, to)) {
            // Other threads of the test harness may make system calls meanwhile and split a line.
            if thread_of(line) == own && !line.contains(" resumed>") {
                called.push(line.to_owned());
            }
        }
        called
    };
    Some([between("reserve", "release"), between("release", "end")])
}

#[test]
fn one_reserve_and_release_count_the_same_syscalls_on_an_empty_and_on_a_crowded_network() {
    let Some(empty) = trace(&Bed::new(), 0) else {
        return eprintln!("skipped: strace is not installed, so system calls cannot be counted");
    };
    let crowded = trace(&Bed::new(), 10_000).unwrap();
    for (empty, crowded) in empty.iter().zip(&crowded) {
        eprintln!(
            "{} system calls on an empty network, {} beside 10000 leases",
            empty.len(),
            crowded.len()
        );
        assert!(empty.len() > 10, "the trace is empty: {empty:#?}");
        assert!(empty.len().abs_diff(crowded.len()) <= 2, "{crowded:#?}");
        assert!(
            !crowded.iter().any(|line| line.contains("getdents")),
            "{crowded:#?}"
        );
    }
    if std::env::var_os("BRAID_TEST_SHOW").is_some() {
        eprintln!("{}", crowded.concat().join("\n"));
    }
}
