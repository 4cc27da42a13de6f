//! Capabilities of the agent's container: with those of the manifest everything works, and without
//! any one of them something fails.

use super::{Agent, CONFLIST, PATIENCE, Pair, ask};
use crate::json;
use braid_testbed::sh;
use braid_tests::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

const LOG: &str = "/run/agent.log";
/// First of the second bytes of pod ranges.
const FIRST_NET: u8 = 131;
/// Failure without a capability.
const FAILURES: [(&str, &str); 3] = [
    ("NET_ADMIN", "watch the kernel's notifications"),
    ("NET_RAW", "the kernel permits no raw socket for probes"),
    ("SYS_ADMIN", "mount a procfs over /proc"),
];

/// Returns the securityContext of the container `agent` in the manifest.
fn security_context(pair: &Pair) -> Value {
    let manifest = sh::root().join("deploy/braid.yaml");
    let file = format!("--filename={}", manifest.display());
    let selector = "--selector=app.kubernetes.io/component=agent";
    let print = ["create", "--dry-run=client", "-o", "json", &file, selector];
    let set = pair.world.server.kubectl(&print, None);
    let set: Value = serde_json::from_str(&set).expect("JSON");
    let containers = &set["spec"]["template"]["spec"]["containers"];
    let container = containers.as_array().into_iter().flatten();
    let mut contexts = container.filter(|it| it["name"] == "agent");
    let context = contexts.next().expect("a container")["securityContext"].clone();
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    context
}

/// Returns the capabilities that the manifest adds.
fn added(pair: &Pair) -> BTreeSet<String> {
    let context = security_context(pair);
    let added = context["capabilities"]["add"].as_array().cloned();
    let name = |name: Value| name.as_str().expect("a name").to_owned();
    added.unwrap_or_default().into_iter().map(name).collect()
}

/// Starts the agent of the first node in mode `auto` as in its container: with these capabilities,
/// a read-only `/` and `/proc/sys`, and no way to new privileges.
fn start(pair: &Pair, capabilities: &BTreeSet<String>) -> Agent {
    let world = &pair.world;
    let namespace = &world.namespace;
    let create = ["create", "token", "agent", "-n", namespace];
    let token = world.server.kubectl(&create, None);
    let kubeconfig = world.kubeconfig(&json!({"token": token.trim()}));
    let mut bounding = "--bounding-set=-all".to_owned();
    for capability in capabilities {
        bounding.push_str(",+");
        bounding.push_str(&capability.to_lowercase());
    }
    let script = "mount -o bind,ro /proc/sys /proc/sys && mount -o remount,bind,ro / && \
        exec setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all \"$@\"";
    let log = File::create(LOG).expect("a log");
    let child = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", &bounding])
        .arg(braid_tests::binary::braid())
        .args(["agent", "--mode", "auto", "--kubeconfig"])
        .arg(kubeconfig)
        .args(["--node-name", &pair.names[0]])
        .args(["--service-account", &format!("{namespace}/agent")])
        .args(["--config-map", &pair.config_map()])
        .stderr(log)
        .spawn()
        .expect("the agent starts");
    Agent { child }
}

/// Waits until the agent is ready, and routes, masquerades and probes. Fails with the agent's words
/// if the kernel refuses something.
fn await_work(pair: &Pair, net: u8, agent: &mut Agent) -> Result<(), String> {
    let start = Instant::now();
    let direct = format!("10.{net}.2.0/24 via 192.0.2.2");
    loop {
        let log = fs::read_to_string(LOG).expect("a log");
        if let Some(status) = agent.child.try_wait().expect("a status") {
            return Err(format!("{status}: {log}"));
        }
        let (status, body) = ask("/readyz").unwrap_or_default();
        if let Some(line) = log.lines().find(|line| is_refusal(line)) {
            return Err(line.to_owned());
        }
        // In mode auto, a direct route is the work of a probe.
        if status.contains(" 200 ") && pair.routes().contains(&direct) {
            return Ok(());
        }
        assert!(start.elapsed() < PATIENCE, "{status} {body}: {log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_refusal(line: &str) -> bool {
    ["EPERM", "EACCES", "not permitted", "permits no"]
        .iter()
        .any(|word| line.contains(word))
}

/// Runs the agent of a new node with these capabilities. Returns its failure.
fn run(
    number: u8,
    choose: impl FnOnce(BTreeSet<String>) -> BTreeSet<String>,
) -> Result<(), String> {
    let net = FIRST_NET + number;
    let pair = Pair::new(&format!("capabilities-{number}"), net).expect("an API server");
    let capabilities = choose(added(&pair));
    // The kernel of the other node answers probes.
    pair.other
        .run(&format!("ip addr add 10.{net}.2.0/32 dev lo"));
    let back = format!("ip route add 10.{net}.1.0/24 via 192.0.2.1");
    pair.other.run(&back);
    let mut agent = start(&pair, &capabilities);
    await_work(&pair, net, &mut agent)?;
    assert!(fs::exists(CONFLIST).expect("readable"));
    let tables = pair.world.sandbox.json("nft -j list tables").to_string();
    assert!(tables.contains("braid-cluster"), "{tables}");
    let forwarding = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").expect("a sysctl");
    assert_eq!(forwarding.trim(), "1");
    Ok(())
}

#[test]
fn the_agent_works_with_the_capabilities_of_the_manifest_and_not_without_any_of_them() {
    let Some(pair) = Pair::new("capabilities", FIRST_NET) else {
        return;
    };
    let all = added(&pair);
    drop(pair);
    run(1, |all| all).expect("the capabilities of the manifest suffice");
    let mut failures = Vec::new();
    for (number, capability) in (2..).zip(&all) {
        let without = |mut all: BTreeSet<String>| {
            all.remove(capability);
            all
        };
        let failure = run(number, without).expect_err(&format!("{capability} is not necessary"));
        eprintln!("without {capability}: {failure}");
        failures.push((capability.as_str(), failure));
    }
    assert_eq!(failures.len(), FAILURES.len());
    for ((capability, failure), (expected, words)) in failures.iter().zip(FAILURES) {
        assert_eq!(*capability, expected);
        assert!(failure.contains(words), "without {capability}: {failure}");
    }
}
