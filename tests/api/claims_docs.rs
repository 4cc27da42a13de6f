//! The examples of resource claims in `docs/claims.md`: the API server accepts them, `braid lint` finds
//! no fault, and `braid plan` and `braid try` attach them.

use crate::{World, json};
use braid_testbed::chart::objects;
use braid_tests::page::blocks;
use braid_tests::{Value, binary};
use std::fs;
use std::process::Command;

/// The documentation page.
const PAGE: &str = include_str!("../../docs/claims.md");
/// Namespace of the test, and the one in place of the page's `rails`.
const NAMESPACE: &str = "claims-docs";
const RAILS: &str = "claims-docs-rails";
const FILE: &str = "/run/example.yaml";

/// Returns the examples of the page, with namespaces of this test.
fn examples() -> [String; 3] {
    let mut examples = blocks(PAGE, "yaml");
    examples.retain(|example| example.contains("resource.k8s.io/v1"));
    let examples = examples.iter().map(|example| {
        let example = example.replace("nad: rails/", &format!("nad: {RAILS}/"));
        let example = example.replace("namespace: rails", &format!("namespace: {RAILS}"));
        let namespace = "kind: Namespace\nmetadata: {name: ";
        example.replace(
            &format!("{namespace}rails}}"),
            &format!("{namespace}{RAILS}}}"),
        )
    });
    let examples: Vec<String> = examples.collect();
    examples.try_into().expect("three examples")
}

/// Runs braid, and returns its output. Fails if braid fails.
#[track_caller]
fn braid(words: &str) -> String {
    let mut braid = Command::new(binary::braid());
    let output = braid
        .args(words.split_whitespace())
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "braid {words}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// Creates the links `eth1` and `eth2`, which the examples use.
fn create_links(world: &World) {
    for (link, far) in [("eth1", "far1"), ("eth2", "far2")] {
        let host = &world.sandbox;
        host.run(&format!("ip link add {link} up type veth peer name {far}"));
        host.run(&format!("ip link set {far} up"));
    }
}

/// Returns the steps that make or address `interface`, each in one line without a MAC.
fn steps(plan: &str, interface: &str) -> Vec<String> {
    let mut steps = Vec::new();
    for line in plan.replace("\n      ", " ").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_of = |pair: &[&str]| ["name", "dev"].contains(&pair[0]) && pair[1] == interface;
        if words.contains(&"ip") && words.windows(2).any(is_of) {
            let line = words.join(" ");
            let (before, after) = line.split_once(" address ").unwrap_or((&line, ""));
            let after = after.split_once(' ').map(|(_, after)| format!(" {after}"));
            steps.push(before.to_owned() + &after.unwrap_or_default());
        }
    }
    steps
}

/// Returns the limits of a plan in bits per second, in its order.
fn rates(plan: &str) -> Vec<u64> {
    let parts = plan.split("tbf rate ").skip(1);
    let rates = parts.filter_map(|part| part.split_once("bit")?.0.parse().ok());
    rates.collect()
}

fn plan(example: &str, devices: &str) -> String {
    fs::write(FILE, example).expect("written");
    assert_eq!(braid(&format!("lint -f {FILE}")), "", "{example}");
    braid(&format!("plan -f {FILE} {devices}"))
}

#[test]
fn the_api_server_accepts_the_examples() {
    let Some(world) = World::new(NAMESPACE) else {
        return;
    };
    let server = world.server;
    for example in examples() {
        for mut object in objects(&example).expect("YAML") {
            let is_of_all = ["DeviceClass", "Namespace"].map(|kind| object["kind"] == kind);
            if object["metadata"]["namespace"].is_null() && is_of_all == [false; 2] {
                object["metadata"]["namespace"] = NAMESPACE.into();
            }
            server.kubectl(&["create", "-f", "-"], Some(&object));
        }
    }
    let get = [
        "get",
        "pods,resourceclaims,resourceclaimtemplates",
        "-o",
        "name",
    ];
    let made = server.kubectl(&[&get[..], &["-n", NAMESPACE]].concat(), None);
    assert_eq!(made.lines().count(), 6, "{made}");
    server.kubectl(&["delete", "deviceclass", "lan-100"], None);
}

#[test]
fn the_examples_are_planned_as_they_say() {
    let Some(world) = World::new("claims-docs-plan") else {
        return;
    };
    create_links(&world);
    let before = world.sandbox.state();
    let [storage, class, rails] = examples();
    let first = plan(&storage, "--device eth1");
    assert_eq!(
        steps(&first, "data0"),
        [
            "pod ip link add link eth1 # of host name data0 type macvlan mode bridge",
            "pod ip addr add 192.0.2.2/24 dev data0 brd +",
        ]
    );
    assert_eq!(rates(&first), [200_000_000; 2], "{first}");

    let second = plan(&class, "--device nic=eth1");
    assert_eq!(
        steps(&second, "net1"),
        ["pod ip link add link eth1 # of host name net1 type vlan id 100"]
    );
    let note = "# dhcp: requests the addresses of vlan here, through the link; not shown";
    assert!(second.lines().any(|line| line == note), "{second}");

    let third = plan(&rails, "--device a=eth1 --device b=eth2");
    for (interface, link, mode) in [("rail0", "eth1", "bridge"), ("rail1", "eth2", "private")] {
        let step = format!(
            "pod ip link add link {link} # of host name {interface} type macvlan mode {mode}"
        );
        assert_eq!(steps(&third, interface), [step]);
    }
    let (fast, slow) = (5_000_000_000, 1_000_000_000);
    assert_eq!(rates(&third), [fast, fast, slow, slow], "{third}");
    fs::remove_file(FILE).expect("removed");
    let differences = before.differences(&world.sandbox.state());
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_claim_that_is_attached_is_in_the_status() {
    let Some(world) = World::new("claims-docs-status") else {
        return;
    };
    create_links(&world);
    let [storage, ..] = examples();
    fs::write(FILE, storage).expect("written");
    let tried = braid(&format!("try --keep -f {FILE} --device eth1"));
    let id = tried.split_whitespace().last().expect("an id");
    let status: Value = serde_json::from_str(&braid("status -o json")).expect("JSON");
    let attachments = status["attachments"].as_array().expect("a list");
    let claims: Vec<_> = attachments
        .iter()
        .map(|one| (one["ifname"].clone(), one["claim"].clone()))
        .collect();
    let name = "default/reader-storage";
    let claim = json!({"name": name, "request": "nic", "device": "eth1", "rate": "200M"});
    let expected = [(json!("data0"), claim), (json!("eth0"), Value::Null)];
    assert_eq!(claims, expected);
    let row = format!("{name}  nic      eth1    200M  {id}  data0");
    let table = braid("status");
    assert!(table.lines().any(|line| line == row), "{table}");
    braid(&format!("detach {id}"));
    world.sandbox.assert_nothing_left();
}
