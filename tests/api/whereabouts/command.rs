//! `braid ipam` on a pool with entries of two nodes and of Whereabouts.

use super::{NAMESPACE, Node, addresses, json};
use braid_core::ipam::whereabouts::last::Last;
use braid_core::ipam::whereabouts::pool::{Entry, Node as Identity, Note};
use braid_tests::Value;
use std::collections::BTreeMap;

const POOL: &str = "10.209.0.0-28";
const OTHER: &str = "whereabouts-command-other";

fn reserve(node: &Node, address: &str, entry: &Entry) {
    let object = json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": address, "namespace": NAMESPACE},
        "spec": {"podref": entry.podref, "containerid": if entry.podref.is_empty() { &entry.id } else { "" }},
    });
    let create = ["create", "-f", "-"];
    node.world.server.kubectl(&create, Some(&object));
}

/// Adds an address of another node, one that it holds, and one of Whereabouts.
fn add_others(node: &Node) {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}});
    let server = node.world.server;
    let made = server.kubectl(&["create", "-o", "json", "-f", "-"], Some(&object));
    let made: Value = serde_json::from_str(&made).expect("kubectl prints JSON");
    let other = Identity {
        name: OTHER.into(),
        uid: made["metadata"]["uid"].as_str().expect("a uid").into(),
        boot: "boot".into(),
    };
    let entry = |id: &str, podref: &str| Entry {
        id: id.into(),
        podref: podref.into(),
        ifname: "net1".into(),
    };
    let own = [(5, entry("other", "")), (6, Entry::held_by(&other))];
    let own: BTreeMap<u128, Entry> = own.into();
    let mut all = own.clone();
    all.insert(9, entry("foreign", "shop/web"));
    let mut allocations = json!({});
    for (offset, entry) in &all {
        allocations[offset.to_string()] = json!(entry);
        reserve(node, &format!("10.209.0.{offset}"), entry);
    }
    let mut annotations = json!({});
    annotations[other.key()] = Note::new(other.clone(), 1, &own, &Last::default())
        .text()
        .into();
    let patch = json!({
        "metadata": {"annotations": annotations},
        "spec": {"allocations": allocations},
    });
    let patch = patch.to_string();
    let words = ["patch", "ippools", POOL, "-n", NAMESPACE];
    let merge = [&words[..], &["--type=merge", "-p", &patch]].concat();
    server.kubectl(&merge, None);
}

fn succeeds(node: &Node, words: &[&str]) -> String {
    let output = node.ipam(words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Fails unless the command fails with this text and prints nothing.
fn fails(node: &Node, words: &[&str], expected: &str) {
    let output = node.ipam(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(told.contains(expected), "{told}");
}

fn parsed(node: &Node, words: &[&str]) -> Value {
    let text = succeeds(node, &[words, &["-o", "json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the element of a list with this name. Other tests have pools and nodes too.
fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    let all = list.as_array().expect("a list");
    let found = all.iter().find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {list}"))
}

fn offsets(node: &Node) -> Vec<String> {
    let entries = node.entries(POOL).into_iter();
    entries.map(|(offset, _)| offset).collect()
}

fn reserved(node: &Node) -> Vec<u8> {
    let is_reserved = |last: &u8| {
        let name = format!("10.209.0.{last}");
        node.get("overlappingrangeipreservations", &name).is_some()
    };
    (1..15).filter(is_reserved).collect()
}

#[test]
fn addresses_are_listed_and_those_of_a_node_that_is_gone_are_released() {
    let Some(node) = Node::new("whereabouts-command") else {
        return;
    };
    let name = node.world.namespace.clone();
    let (_ns, call) = node.pod("first", &json!({"range": "10.209.0.0/28"}));
    assert_eq!(addresses(&call.add().result()), ["10.209.0.1/28"]);
    add_others(&node);

    let all = parsed(&node, &[]);
    let expected = json!({"name": POOL, "range": "10.209.0.0/28", "used": 2, "held": 1, "claimed": 0,
        "whereabouts": 1, "free": 10, "exclusive": false});
    assert_eq!(named(&all["pools"], POOL), &expected);
    let expected = json!({"name": name, "state": "present", "used": 1, "held": 0});
    assert_eq!(named(&all["nodes"], &name), &expected);
    let expected = json!({"name": OTHER, "state": "present", "used": 1, "held": 1});
    assert_eq!(named(&all["nodes"], OTHER), &expected);
    let pools = all["whereabouts"]["pools"].as_array().expect("a list");
    assert!(pools.contains(&POOL.into()), "{all}");
    let text = succeeds(&node, &["--kubeconfig", &node.kubeconfig]);
    assert!(text.contains(POOL) && text.contains(OTHER) && text.contains("\nWhereabouts has "));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let list = ["list", "--pool", POOL];
    let text = succeeds(&node, &list);
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|it| it.split_whitespace().collect())
        .collect();
    assert_eq!(words[3], ["10.209.0.5", "other", "net1", OTHER]);
    assert_eq!(words[4], ["10.209.0.6", "(held)", OTHER]);
    assert_eq!(
        words[5],
        ["10.209.0.9", "foreign", "net1", "shop/web", "(Whereabouts)"]
    );
    let rows = parsed(&node, &list);
    assert_eq!(
        (&rows[0]["node"], &rows[0]["kind"]),
        (&json!(name), &json!("used"))
    );
    fails(
        &node,
        &["list", "--pool", "none"],
        "there is no IPPool \"none\"",
    );

    let release = ["release", "--node", &name];
    fails(&node, &release, "node.kubernetes.io/out-of-service");
    assert_eq!(
        (offsets(&node).len(), reserved(&node)),
        (4, vec![1, 5, 6, 9])
    );
    node.world.server.kubectl(&["delete", "node", &name], None);
    assert_eq!(
        named(&parsed(&node, &[])["nodes"], &name)["state"],
        "missing"
    );
    let text = succeeds(&node, &release);
    let last = format!("node {name}: 1 address released\n");
    assert!(
        text.contains("10.209.0.1") && text.ends_with(&last),
        "{text}"
    );
    assert_eq!(
        (offsets(&node), reserved(&node)),
        (["5", "6", "9"].map(Into::into).into(), vec![5, 6, 9])
    );
    fails(&node, &release, "no IPPool has an address of it");
    call.del().ok();

    let release = ["release", "--node", OTHER];
    fails(&node, &release, "--force");
    let released = parsed(&node, &["release", "--node", OTHER, "--force"]);
    assert_eq!(released["released"].as_array().map(Vec::len), Some(2));
    assert_eq!(released["released"][0]["container_id"], "other");
    assert_eq!(
        (offsets(&node), reserved(&node)),
        (vec!["9".into()], vec![9])
    );
}
