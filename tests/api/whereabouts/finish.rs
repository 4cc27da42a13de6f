//! `braid ipam finish` in a namespace of its own: it concerns all pools there.

use super::{Node, addresses, json};
use braid_tests::Value;

const POOL: &str = "10.210.0.0-28";
const RESERVATIONS: &str = "overlappingrangeipreservations";
/// Annotation with the first look.
const FINISHING: &str = "ipam.braid.io/finishing";

/// Fails unless the command fails with this text. Returns its output.
#[track_caller]
fn fails(node: &Node, words: &[&str], expected: &str) -> String {
    let output = node.ipam(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(expected), "{told}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn succeeds(node: &Node, words: &[&str]) -> Value {
    let output = node.ipam(&[words, &["-o", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs kubectl in the node's namespace.
fn kubectl(node: &Node, words: &[&str], object: Option<&Value>) -> String {
    let of = ["-n", &*node.world.namespace];
    node.world.server.kubectl(&[words, &of].concat(), object)
}

fn pool(node: &Node) -> Value {
    let text = kubectl(node, &["get", "ippools", POOL, "-o", "json"], None);
    serde_json::from_str(&text).expect("JSON")
}

fn offsets(node: &Node) -> Vec<String> {
    let pool = pool(node);
    let entries = pool["spec"]["allocations"].as_object().expect("entries");
    entries.keys().cloned().collect()
}

/// Adds an entry as Whereabouts makes it, with its reservation.
fn add_foreign(node: &Node, offset: u8, pod: &str) {
    let podref = format!("{}/{pod}", node.world.namespace);
    let entry = json!({"id": format!("container{offset}"), "podref": podref, "ifname": "net1"});
    let mut allocations = json!({});
    allocations[offset.to_string()] = entry;
    let patch = json!({"spec": {"allocations": allocations}}).to_string();
    kubectl(
        node,
        &["patch", "ippools", POOL, "--type=merge", "-p", &patch],
        None,
    );
    let object = json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": format!("10.210.0.{offset}"), "namespace": node.world.namespace},
        "spec": {"podref": podref},
    });
    kubectl(node, &["create", "-f", "-"], Some(&object));
}

/// Makes the first look ten minutes older.
fn wait_ten_minutes(node: &Node) {
    let pool = pool(node);
    let note = pool["metadata"]["annotations"][FINISHING].as_str();
    let mut older = Vec::new();
    for look in note.expect("a first look").split(',') {
        let (entry, time) = look.rsplit_once(':').expect("a time");
        let time: u64 = time.parse().expect("seconds");
        older.push(format!("{entry}:{}", time - 600));
    }
    let annotation = format!("{FINISHING}={}", older.join(","));
    kubectl(
        node,
        &["annotate", "ippools", POOL, "--overwrite", &annotation],
        None,
    );
}

#[test]
fn pools_are_braids_alone_after_whereabouts_and_its_pods_are_gone() {
    let Some(node) = Node::new("whereabouts-finish") else {
        return;
    };
    node.alone();
    let (_ns, call) = node.pod("first", &json!({"range": "10.210.0.0/28"}));
    let result = call.add().result();
    assert_eq!(addresses(&result), ["10.210.0.1/28"]);
    let finish = ["finish"];
    let hint = "can't see whether Whereabouts is still in the cluster";
    fails(&node, &finish, hint);
    node.become_admin();
    let template = json!({
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "whereabouts", "image": "example.org/ipam:1"}]},
    });
    let program = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "w"},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template},
    });
    kubectl(&node, &["create", "-f", "-"], Some(&program));
    let named = "DaemonSet whereabouts-finish/w (example.org/ipam:1)";
    assert_eq!(fails(&node, &finish, named), "");
    add_foreign(&node, 9, "web");
    add_foreign(&node, 10, "gone");
    node.world.create_pod("web", &json!({}));
    let forced = ["finish", "--force"];
    let text = fails(&node, &forced, "make them again, with braid");
    assert!(
        text.contains("10.210.0.9") && text.contains("whereabouts-finish/web"),
        "{text}"
    );
    assert!(!text.contains("10.210.0.10"), "{text}");
    assert_eq!(
        pool(&node)["metadata"]["annotations"][FINISHING],
        Value::Null
    );
    kubectl(&node, &["delete", "daemonset", "w"], None);
    kubectl(
        &node,
        &["delete", "pod", "web", "--grace-period=0", "--force"],
        None,
    );

    for _ in 0..2 {
        let text = fails(&node, &finish, "run the command again in 10 minutes");
        assert_eq!(text.matches("no pod").count(), 2, "{text}");
    }
    assert_eq!(offsets(&node), ["1", "10", "9"]);
    wait_ten_minutes(&node);
    let done = succeeds(&node, &finish);
    assert_eq!(
        (&done["finished"], &done["exclusive"]),
        (&json!(true), &json!([POOL]))
    );
    assert_eq!(done["released"].as_array().map(Vec::len), Some(2), "{done}");
    assert_eq!(offsets(&node), ["1"]);
    let annotations = pool(&node)["metadata"]["annotations"].clone();
    assert_eq!(annotations["ipam.braid.io/exclusive"], "true");
    assert_eq!(annotations[FINISHING], Value::Null);
    let left = kubectl(&node, &["get", RESERVATIONS, "-o", "name"], None);
    assert!(left.trim_end().ends_with("/10.210.0.1"), "{left}");

    let again = succeeds(&node, &finish);
    assert_eq!(
        (&again["finished"], &again["released"]),
        (&json!(true), &json!([]))
    );
    let shown = succeeds(&node, &[]);
    assert_eq!(shown["pools"][0]["exclusive"], true);
    add_foreign(&node, 11, "late");
    assert_eq!(
        succeeds(&node, &[])["whereabouts"]["returned"],
        json!([POOL])
    );
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(offsets(&node), ["11"]);
}

#[test]
fn addresses_that_whereabouts_does_not_read_are_given_out_after_its_end() {
    let Some(node) = Node::new("whereabouts-far") else {
        return;
    };
    node.alone();
    node.become_admin();
    let ipam = json!({"range": "fd40::/64", "range_start": "fd40::8000:0:0:1"});
    let (_ns, call) = node.pod("first", &ipam);
    let error = call.add();
    let expected = "fd40::8000:0:0:1 is too far from fd40::/64";
    assert!(
        error.code != 0 && error.stdout.contains(expected),
        "{}",
        error.stdout
    );
    call.del().ok();
    // Another test may have a program of Whereabouts.
    succeeds(&node, &["finish", "--force"]);
    let result = call.add().result();
    assert_eq!(addresses(&result), ["fd40::8000:0:0:1/64"]);
    call.check(&result).ok();
    let (_ns, second) = node.pod("second", &json!({"range": "fd40::/64"}));
    let second = second.with("args", json!({"cni": {"ips": ["fd40::ffff:0:0:1"]}}));
    assert_eq!(addresses(&second.add().result()), ["fd40::ffff:0:0:1/64"]);
    for call in [call, second] {
        call.del().ok();
    }
}
