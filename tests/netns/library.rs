//! The library in a long-running process: after ten thousand calls, nothing is left in the process.

use braid_core::cni::Version;
use braid_core::cni::request::Environment;
use braid_node::apply::host::This;
use braid_node::attach;
use braid_node::log::Log;
use braid_node::source::cluster::NoCluster;
use braid_tests::{Ns, Sandbox, Value, json};
use std::fs;
use std::io::Write;
use std::process::Command;

/// Environment variable of the child process that makes the calls. They need a separate process,
/// because memory and descriptors are counted for a whole process.
const CHILD: &str = "BRAID_TEST_LIBRARY";
/// Verbs that a round calls. There are 2000 rounds, so ten thousand calls.
const VERBS: [&str; 5] = ["ADD", "CHECK", "STATUS", "DEL", "GC"];
const ROUNDS: usize = 2000;
/// Number of rounds before the first count of resources. Caches fill in these rounds.
const WARM_UP: usize = 400;
/// Number of rounds between two flushes of nf_tables. The next call repairs its rules.
const FLUSH: usize = 100;
/// Largest allowed growth of memory in KiB, for pages that the allocator touches late. A leak of
/// ten bytes per call would exceed it.
const GROWTH_KIB: u64 = 64;

/// Resources that this process uses.
#[derive(Debug)]
struct Usage {
    /// Size of anonymous memory in KiB. Pages of files do not count, because they depend on the
    /// page cache.
    heap_kib: u64,
    threads: u64,
    descriptors: usize,
}

impl Usage {
    fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let number = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_whitespace().nth(1));
            value.and_then(|value| value.parse().ok()).unwrap()
        };
        Self {
            heap_kib: number("RssAnon:"),
            threads: number("Threads:"),
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }
}

/// Runs a verb with the library in this process, and returns the answer.
fn call(verb: &str, pod: &Ns, conf: &Value) -> String {
    let variable = |key: &str| {
        Some(match key {
            "CNI_COMMAND" => verb.to_owned(),
            "CNI_CONTAINERID" => "c1".to_owned(),
            "CNI_IFNAME" => "eth0".to_owned(),
            "CNI_NETNS" => pod.path().display().to_string(),
            "CNI_PATH" => "/nowhere".to_owned(),
            _ => return None,
        })
    };
    let environment = Environment::parse(&variable).unwrap().unwrap();
    let stdin = conf.to_string();
    let request = environment
        .request(stdin.as_bytes(), &Version::ALL)
        .unwrap();
    let mut answer = String::new();
    let mut deliver = |text: &str| {
        text.clone_into(&mut answer);
        Ok(())
    };
    let log = Log::new(|sentence| panic!("{sentence}"));
    let machine = This::new(log);
    attach::answer(request, "bridge", &machine, &NoCluster, &mut deliver)
        .unwrap_or_else(|err| panic!("{verb}: {err}"));
    answer
}

fn make_calls() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "ipMasq": true, "cni.dev/valid-attachments": [],
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"},
    });
    let mut first = None;
    for round in 0..ROUNDS {
        for verb in VERBS {
            let answer = call(verb, &pod, &conf);
            if verb == "ADD" {
                conf["prevResult"] = serde_json::from_str(&answer).unwrap();
            }
        }
        conf.as_object_mut().unwrap().remove("prevResult");
        if round % FLUSH == 0 {
            host.host().run("nft flush ruleset");
        }
        if round == WARM_UP {
            first = Some(Usage::read());
        }
    }
    let (first, last) = (first.unwrap(), Usage::read());
    let _ = writeln!(std::io::stderr(), "{first:?}, then {last:?}");
    assert_eq!(last.threads, first.threads, "threads");
    assert_eq!(last.descriptors, first.descriptors, "descriptors");
    assert!(
        last.heap_kib <= first.heap_kib + GROWTH_KIB,
        "memory: {first:?}, then {last:?}"
    );
}

#[test]
fn ten_thousand_calls_in_one_process_leave_no_memory_descriptor_or_thread() {
    if std::env::var_os(CHILD).is_some() {
        return make_calls();
    }
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own)
        .args([
            "--exact",
            "library::ten_thousand_calls_in_one_process_leave_no_memory_descriptor_or_thread",
        ])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    assert!(error.contains("Usage"), "no calls were made: {text}{error}");
}
