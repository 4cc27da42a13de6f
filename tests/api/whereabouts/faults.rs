//! Faults of Whereabouts. Each scenario runs with both programs: Whereabouts has the fault, braid
//! has not.

use super::peers::{Braid, Peers, Program, Whereabouts};
use super::{NAMESPACE, addresses, json};
use crate::proxy::{Fault, Proxy};
use braid_testbed::wait;
use braid_tests::Value;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// Program that runs another one in a process group of its own, and writes its number to [`GROUP`].
const KILLABLE: &str = "/run/cni-bin/killable";
const GROUP: &str = "/run/killable";

/// Returns the networks of a program, so that a scenario finds its pools empty twice.
fn range(by: Program, number: u8, prefix_len: u8) -> String {
    let second = if by == Whereabouts { 236 } else { 237 };
    format!("10.{second}.{number}.0/{prefix_len}")
}

/// Returns an address in [`range`].
fn address(by: Program, number: u8, last: u8) -> String {
    let range = range(by, number, 24);
    format!("{}.{last}", range.trim_end_matches(".0/24"))
}

/// A pod gets a new sandbox while the old one runs, as a pod of a `StatefulSet` on another node.
/// Returns the addresses of both sandboxes.
fn new_sandbox(peers: &Peers, by: Program) -> [String; 2] {
    let sandbox = &peers.node.world.sandbox;
    let ipam = json!({"range": range(by, 1, 29)});
    let calls = ["before", "after"].map(|id| {
        let ns = sandbox.pod(&format!("{id}-{by:?}"));
        peers.call(by, &ns, &ipam).args(&peers.args("web"))
    });
    let found = calls.each_ref().map(|call| {
        let result = call.add().result();
        addresses(&result)[0].to_owned()
    });
    for call in calls {
        call.del().ok();
    }
    found
}

/// whereabouts#176
#[test]
fn a_pods_new_sandbox_does_not_take_the_address_of_one_that_runs() {
    let Some(peers) = Peers::new("whereabouts-sandbox") else {
        return;
    };
    peers.create_pods(&["web"]);
    let [before, after] = new_sandbox(&peers, Whereabouts);
    assert_eq!(before, after);
    let [before, after] = new_sandbox(&peers, Braid);
    assert_ne!(before, after);
}

/// An administrator removes the first of two entries of a container before its DEL. Returns the
/// pools that still have an entry after it.
fn first_entry_gone(peers: &Peers, by: Program) -> Vec<String> {
    let [first, second] = [2, 3].map(|number| range(by, number, 29));
    let ipam = json!({"ipRanges": [{"range": first}, {"range": second}]});
    let ns = peers.node.world.sandbox.pod(&format!("two-{by:?}"));
    let call = peers.call(by, &ns, &ipam).args(&peers.args("web"));
    call.add().result();
    let pool = first.replace('/', "-");
    let patch = json!([{"op": "remove", "path": "/spec/allocations/1"}]).to_string();
    let namespace = &peers.node.world.namespace;
    let edit = [
        "patch",
        "ippool",
        &pool,
        "-n",
        namespace,
        "--type=json",
        "-p",
        &patch,
    ];
    peers.node.world.server.kubectl(&edit, None);
    call.del().ok();
    let entries = peers.objects(by).entries.into_iter();
    let mut pools: Vec<String> = entries.map(|entry| entry.range).collect();
    pools.retain(|pool| [&first, &second].contains(&pool));
    pools
}

#[test]
fn del_frees_the_later_ranges_though_the_first_has_no_entry() {
    let Some(peers) = Peers::new("whereabouts-later") else {
        return;
    };
    peers.create_pods(&["web"]);
    let left = first_entry_gone(&peers, Whereabouts);
    assert_eq!(left, [range(Whereabouts, 3, 29)]);
    assert_eq!(first_entry_gone(&peers, Braid), [""; 0]);
}

/// A pod has ranges that overlap, and another one behind them. Returns the reserved addresses of its
/// first and last range.
fn after_an_overlap(peers: &Peers, by: Program) -> Vec<String> {
    let ranges = [range(by, 9, 29), range(by, 9, 30), range(by, 10, 29)];
    let ipam = json!({"ipRanges": ranges.map(|range| json!({"range": range}))});
    let ns = peers.node.world.sandbox.pod(&format!("web-{by:?}"));
    let call = peers.call(by, &ns, &ipam).args(&peers.args("web"));
    call.add().result();
    let objects = peers.objects(by);
    let mut addresses = [9, 10].map(|number| address(by, number, 1)).to_vec();
    addresses.retain(|address| objects.reserved().contains(address.as_str()));
    addresses
}

#[test]
fn an_address_of_a_range_after_two_that_overlap_is_reserved() {
    let Some(peers) = Peers::new("whereabouts-overlap") else {
        return;
    };
    peers.create_pods(&["web"]);
    let first = address(Whereabouts, 9, 1);
    assert_eq!(after_an_overlap(&peers, Whereabouts), [first]);
    let both = [9, 10].map(|number| address(Braid, number, 1));
    assert_eq!(after_an_overlap(&peers, Braid), both);
}

/// Two pods request an address from a range that begins 2^63 addresses past its network. Returns the
/// addresses that they get.
fn upper_half(peers: &Peers, by: Program) -> Vec<String> {
    let net = if by == Whereabouts { "fd36" } else { "fd37" };
    let ipam = json!({
        "range": format!("{net}::/64"),
        "range_start": format!("{net}::8000:0:0:5"),
        "enable_overlapping_ranges": false,
    });
    let mut found = Vec::new();
    for name in ["one", "two"] {
        let ns = peers.node.world.sandbox.pod(&format!("{name}-{by:?}"));
        let answer = peers.call(by, &ns, &ipam).args(&peers.args(name)).add();
        if answer.code == 0 {
            found.push(addresses(&answer.result())[0].to_owned());
        }
    }
    found
}

#[test]
fn no_address_of_the_upper_half_of_a_64_is_in_two_pods() {
    let Some(peers) = Peers::new("whereabouts-upper") else {
        return;
    };
    peers.create_pods(&["one", "two"]);
    let twice = ["fd36::8000:0:0:5/64"; 2];
    assert_eq!(upper_half(&peers, Whereabouts), twice);
    // Whereabouts would drop entries of braid there, so braid assigns none of them.
    assert_eq!(upper_half(&peers, Braid), [""; 0]);
}

/// Two pods request one address, by `CNI_ARGS` as Multus does or by `runtimeConfig`. Returns the
/// addresses of both, and the entries of the pool by offset.
fn requests(peers: &Peers, by: Program, is_by_args: bool) -> ([Vec<String>; 2], Vec<String>) {
    let number = if is_by_args { 4 } else { 5 };
    let ipam = json!({"range": range(by, number, 29)});
    let wanted = format!("{}/29", address(by, number, 5));
    let found = ["one", "two"].map(|name| {
        let ns = peers
            .node
            .world
            .sandbox
            .pod(&format!("{name}-{number}-{by:?}"));
        let mut call = peers.call(by, &ns, &ipam);
        if is_by_args {
            call = call.args(&format!("{};IP={wanted}", peers.args(name)));
        } else {
            let requested = json!({"ips": [wanted]});
            call = call.with("capabilities", json!({"ips": true}));
            call = call
                .args(&peers.args(name))
                .with("runtimeConfig", requested);
        }
        let answer = call.add();
        if answer.code != 0 {
            return Vec::new();
        }
        let result = answer.result();
        addresses(&result).into_iter().map(str::to_owned).collect()
    });
    let range = range(by, number, 29);
    let entries = peers.objects(by).entries.into_iter();
    let entries = entries.filter(|entry| entry.range == range);
    (found, entries.map(|entry| entry.offset).collect())
}

#[test]
fn a_requested_address_is_the_only_one_of_the_pod_and_in_the_pool() {
    let Some(peers) = Peers::new("whereabouts-requests") else {
        return;
    };
    peers.create_pods(&["one", "two"]);
    let (found, entries) = requests(&peers, Whereabouts, true);
    let [one, two] = [1, 2].map(|last| format!("{}/29", address(Whereabouts, 4, last)));
    let wanted = format!("{}/29", address(Whereabouts, 4, 5));
    assert_eq!(found, [vec![one, wanted.clone()], vec![two, wanted]]);
    assert_eq!(entries, ["1", "2"]);
    // Whereabouts does not read the runtime's configuration.
    let (found, entries) = requests(&peers, Whereabouts, false);
    let [one, two] = [1, 2].map(|last| vec![format!("{}/29", address(Whereabouts, 5, last))]);
    assert_eq!(found, [one, two]);
    assert_eq!(entries, ["1", "2"]);
    for is_by_args in [true, false] {
        let (found, entries) = requests(&peers, Braid, is_by_args);
        let number = if is_by_args { 4 } else { 5 };
        let wanted = format!("{}/29", address(Braid, number, 5));
        assert_eq!(found, [vec![wanted], Vec::new()]);
        assert_eq!(entries, ["5"]);
    }
}

/// A pod attaches to a range of two addresses, one of them the gateway's. Returns the pod's.
fn beside_the_gateway(peers: &Peers, by: Program) -> String {
    let ipam = json!({"range": range(by, 6, 30), "gateway": address(by, 6, 1)});
    let ns = peers.node.world.sandbox.pod(&format!("web-{by:?}"));
    let call = peers.call(by, &ns, &ipam).args(&peers.args("web"));
    let result = call.add().result();
    addresses(&result)[0].to_owned()
}

#[test]
fn no_pod_gets_the_address_of_the_gateway() {
    let Some(peers) = Peers::new("whereabouts-gateway") else {
        return;
    };
    peers.create_pods(&["web"]);
    let [gateway, other] =
        [(Whereabouts, 1), (Braid, 2)].map(|(by, last)| format!("{}/30", address(by, 6, last)));
    assert_eq!(beside_the_gateway(&peers, Whereabouts), gateway);
    assert_eq!(beside_the_gateway(&peers, Braid), other);
}

/// Account with all rights of Whereabouts, but for changes of pools.
const READER: &str = "whereabouts-no-patch";

/// Creates [`READER`], and returns the user entry of its kubeconfig.
fn reader(peers: &Peers) -> Value {
    let server = peers.node.world.server;
    let group = "whereabouts.cni.cncf.io";
    let all = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let rules = json!([
        {"apiGroups": [group], "resources": ["overlappingrangeipreservations"], "verbs": all},
        {"apiGroups": [group], "resources": ["ippools"], "verbs": ["get", "list", "create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": all},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get"]},
    ]);
    let api = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": api,
        "kind": "ClusterRole",
        "metadata": {"name": READER},
        "rules": rules,
    });
    server.kubectl(&["create", "-f", "-"], Some(&role));
    let account = ["create", "serviceaccount", READER, "-n", NAMESPACE];
    server.kubectl(&account, None);
    bind(
        peers,
        READER,
        READER,
        ["list", "ippools.whereabouts.cni.cncf.io"],
    );
    json!({"token": server.create_token(READER)})
}

/// Binds an account to a role, and waits until it has the right to a verb on a resource.
fn bind(peers: &Peers, account: &str, role: &str, [verb, resource]: [&str; 2]) {
    let server = peers.node.world.server;
    let subject = format!("--serviceaccount={NAMESPACE}:{account}");
    let (name, role) = (format!("{account}-{role}"), format!("--clusterrole={role}"));
    let create = ["create", "clusterrolebinding", &name, &role, &subject];
    server.kubectl(&create, None);
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
    let can = ["auth", "can-i", verb, resource, &user];
    let may = || Ok(server.try_kubectl(&can, None).status.success());
    wait::until("the right is there", Duration::from_mins(1), may).expect("a right");
}

/// whereabouts#712, #409
#[test]
fn an_add_that_may_not_change_the_pool_fails_and_leaves_no_reservation() {
    let Some(mut peers) = Peers::new("whereabouts-reader") else {
        return;
    };
    peers.create_pods(&["web"]);
    let user = reader(&peers);
    peers.act_as(&user);
    let calls = [Whereabouts, Braid].map(|by| {
        let ns = peers.node.world.sandbox.pod(&format!("web-{by:?}"));
        let ipam = json!({"range": range(by, 7, 29)});
        peers.call(by, &ns, &ipam).args(&peers.args("web"))
    });
    let has_succeeded = calls.each_ref().map(|call| call.add().code == 0);
    assert_eq!(has_succeeded, [true, false]);
    assert_eq!(peers.objects(Braid).entries, []);
    // braid owes its reservation until it may change the pool.
    let right = ["patch", "ippools.whereabouts.cni.cncf.io"];
    bind(&peers, READER, "braid-ipam", right);
    for call in calls {
        call.del().ok();
    }
    let objects = peers.objects(Braid);
    assert_eq!(objects.entries, []);
    let leaked = address(Whereabouts, 7, 1);
    assert_eq!(objects.reserved(), [leaked.as_str()].into());
}

/// A DEL is killed after it has changed the pool and before its reservation is deleted. Then DEL
/// runs again. Returns the reservations that are left in the pool's range.
fn killed_del(peers: &Peers, by: Program) -> Vec<String> {
    let world = &peers.node.world;
    let ns = world.sandbox.pod(&format!("web-{by:?}"));
    let ipam = json!({"range": range(by, 8, 29)});
    let call = peers.call(by, &ns, &ipam);
    // The proxy reads HTTP/1.1.
    let call = call.args(&peers.args("web")).env("DISABLE_HTTP2", "1");
    call.add().result();
    let proxy = Proxy::new(world.server, Vec::new(), Fault::Hold("DELETE /apis/where"));
    peers.go_through(&proxy);
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| call.clone().under(KILLABLE).del());
        proxy.await_held(1);
        let group = fs::read_to_string(GROUP).expect("a process group");
        let group = Pid::from_raw(group.trim().parse().expect("a number"));
        killpg(group, Signal::SIGKILL).expect("killed");
        running.join().expect("an answer")
    });
    assert_eq!(answer.code, 128 + Signal::SIGKILL as i32);
    peers.go_through(&world.proxy);
    // Whereabouts would wait until the lease of the killed call ends.
    let lease = ["delete", "lease", "whereabouts", "--ignore-not-found"];
    let namespace = ["-n", &*world.namespace];
    world
        .server
        .kubectl(&[&lease[..], &namespace].concat(), None);
    call.del().ok();
    let objects = peers.objects(by);
    assert_eq!(objects.entries, []);
    objects.reserved().into_iter().map(str::to_owned).collect()
}

#[test]
fn a_del_that_is_killed_between_its_requests_leaves_no_reservation() {
    let Some(mut peers) = Peers::new("whereabouts-killed") else {
        return;
    };
    let account = peers.node.world.namespace.clone();
    let right = ["update", "leases.coordination.k8s.io"];
    bind(&peers, &account, "cluster-admin", right);
    let user = peers.node.user.clone();
    peers.act_as(&user);
    peers.create_pods(&["web"]);
    let script = format!("#!/bin/sh\necho $$ > {GROUP}\nexec setsid \"$@\"\n");
    peers.node.world.sandbox.script("killable", &script);
    assert_eq!(killed_del(&peers, Braid), [""; 0]);
    let leaked = address(Whereabouts, 8, 1);
    assert_eq!(killed_del(&peers, Whereabouts), [leaked]);
}
