//! Pods on a node without a working connection to the API server, or a slow one.

use super::{Node, bridged, calls, json, spy};
use crate::agent::await_true;
use crate::{Fault, write_kubeconfig};
use braid_tests::Ns;
use braid_tests::sandbox::strays;
use std::fs;
use std::time::{Duration, Instant};

/// Rewrites the kubeconfig so that it names a port at which nothing listens.
fn cut_off() {
    let nowhere = json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true});
    write_kubeconfig(&nowhere, &json!({"token": "some-token"}));
}

/// A DNS server. It is ready once it has become a daemon.
struct NameServer<'n>(&'n Ns);

impl<'n> NameServer<'n> {
    fn start(ns: &'n Ns) -> Self {
        let names = "--conf-file=/dev/null --no-hosts --no-resolv --host-record=api.cluster.test,127.0.0.1 --local=/test/";
        let at =
            "--listen-address=127.0.0.1 --bind-interfaces --user=root --pid-file=/run/dnsmasq.pid";
        ns.run(&format!("/usr/sbin/dnsmasq {names} {at}"));
        Self(ns)
    }
}

impl Drop for NameServer<'_> {
    fn drop(&mut self) {
        self.0.run("pkill --pidfile /run/dnsmasq.pid");
    }
}

/// braid resolves names by the C library, which is musl in the shipped build.
#[test]
fn the_api_server_is_resolved_by_hosts_file_dns_and_search_domain() {
    let Some(node) = Node::new("by-name", &[]) else {
        return;
    };
    let host = node.world.sandbox.host();
    fs::write("/run/hosts", "127.0.0.1 api.in-hosts\n").expect("a hosts file");
    fs::write(
        "/run/resolv.conf",
        "nameserver 127.0.0.1\nsearch none.test cluster.test\n",
    )
    .expect("a resolver's file");
    for name in ["hosts", "resolv.conf"] {
        host.run(&format!("mount --bind /run/{name} /etc/{name}"));
    }
    let _server = NameServer::start(host);
    let url = node.world.proxy.url();
    let port = url.rsplit(':').next().expect("a port");
    for (at, name) in ["api.in-hosts", "api.cluster.test", "api"]
        .iter()
        .enumerate()
    {
        let server = format!("https://{name}:{port}");
        let cluster = json!({"server": server, "certificate-authority": "/run/ca.crt", "tls-server-name": "127.0.0.1"});
        write_kubeconfig(&cluster, &json!({"token": node.world.server.token}));
        let pod = node.annotated(&format!("web{at}"), &json!({}));
        pod.call.add().result();
        pod.call.del().ok();
        node.assert_nothing_left(&pod);
    }
}

#[test]
fn without_the_api_add_is_retryable_and_leaves_nothing() {
    let Some(node) = Node::new("pods-down", &[]) else {
        return;
    };
    let pod = node.annotated("web", &json!({}));
    cut_off();
    pod.call
        .add()
        .refused(11, &["get pod pods-down/web", "127.0.0.1:1"]);
    node.assert_nothing_left(&pod);
}

#[test]
fn del_check_and_gc_do_not_query_the_api() {
    let Some(node) = Node::new(
        "offline",
        &[("lan", bridged(1)), ("a", spy("a", &json!({})))],
    ) else {
        return;
    };
    let pod = node.pod("web", "lan,a");
    let result = pod.call.add().result();
    calls();
    cut_off();
    pod.call.check(&result).ok();
    pod.call.gc(&[("web", "eth0")]).ok();
    pod.call.status().ok();
    assert!(pod.ns.can_ping("10.1.0.1") && pod.ns.can_ping("10.0.0.1"));
    pod.call.del().ok();
    assert_eq!(calls(), ["CHECK a net2 spy", "DEL a net2 spy"]);
    node.assert_nothing_left(&pod);
}

#[test]
fn a_missing_or_different_pod_is_not_attached() {
    let Some(node) = Node::new("gone", &[]) else {
        return;
    };
    let pod = node.annotated("web", &json!({}));
    let args = |name: &str| {
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=gone;K8S_POD_NAME={name};K8S_POD_UID=other")
    };
    pod.call
        .clone()
        .args(&args("none"))
        .add()
        .refused(11, &["gone/none"]);
    pod.call
        .clone()
        .args(&args("web"))
        .add()
        .refused(7, &["the call is for uid other"]);
    node.assert_nothing_left(&pod);
}

#[test]
fn temporary_faults_are_retried_and_nothing_is_done_twice() {
    let answers = [500, 503, 429].map(|status| Fault::Answer(status, "", ""));
    let faults = [answers.to_vec(), vec![Fault::Cut, Fault::LoseAnswer]].concat();
    let networks = [("a", spy("a", &json!({})))];
    let Some(node) = Node::with("passing", &networks, faults, Fault::None) else {
        return;
    };
    let pod = node.pod("web", "a");
    pod.call.add().result();
    assert_eq!(calls(), ["ADD a net1 spy"]);
    assert_eq!(node.entries(&pod), ["default eth0 true", "a net1 false"]);
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn at_800_ms_a_pod_with_two_networks_starts() {
    let far = Fault::Delay(Duration::from_millis(400));
    let networks = [("lan", bridged(1)), ("lan2", bridged(2))];
    let Some(node) = Node::with("pods-far", &networks, Vec::new(), far) else {
        return;
    };
    let pod = node.pod("web", "lan,lan2");
    pod.call.add().result();
    assert_eq!(
        node.entries(&pod),
        ["default eth0 true", "lan net1 false", "lan2 net2 false"]
    );
    let asked = node.requests();
    assert_eq!(
        (asked.len(), node.world.proxy.connections()),
        (4, 1),
        "{asked:?}"
    );
    pod.call.del().ok();
}

#[test]
fn an_unpublished_status_is_owed_and_published_by_gc() {
    let Some(node) = Node::new("owed", &[("lan", bridged(1))]) else {
        return;
    };
    let server = node.world.server;
    let rights = [
        "--verb=get",
        "--resource=pods,network-attachment-definitions.k8s.cni.cncf.io",
    ];
    server.kubectl(
        &[&["create", "role", "reader", "-n", "owed"], &rights[..]].concat(),
        None,
    );
    server.kubectl(
        &["create", "serviceaccount", "reader", "-n", "kube-system"],
        None,
    );
    let to = ["--role=reader", "--serviceaccount=kube-system:reader"];
    server.kubectl(
        &[&["create", "rolebinding", "reader", "-n", "owed"], &to[..]].concat(),
        None,
    );
    node.world
        .kubeconfig(&json!({"token": server.create_token("reader")}));
    let pod = node.pod("web", "lan");
    let added = pod.call.add();
    added.result();
    assert!(
        added
            .stderr
            .contains("its network-status is not written yet")
            && added.stderr.contains("403"),
        "{}",
        added.stderr
    );
    assert!(pod.ns.can_ping("10.1.0.1"));
    assert_eq!(node.entries(&pod), [""; 0]);
    node.world.kubeconfig(&json!({"token": server.token}));
    pod.call.gc(&[("web", "eth0")]).ok();
    assert_eq!(node.entries(&pod), ["default eth0 true", "lan net1 false"]);
    let asked = node.requests();
    pod.call.gc(&[("web", "eth0")]).ok();
    assert_eq!(node.requests(), asked, "it is owed no more");
    assert!(!added.stderr.contains(&server.token), "a secret is told");
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn gc_deletes_all_networks_of_a_terminated_container() {
    let networks = [
        ("lan", bridged(1)),
        ("a", spy("a", &json!({"cniVersion": "1.1.0"}))),
    ];
    let Some(node) = Node::new("pods-gc", &networks) else {
        return;
    };
    let [live, dead] = ["live", "dead"].map(|name| node.pod(name, "lan,a"));
    for pod in [&live, &dead] {
        pod.call.add().result();
    }
    calls();
    node.world.sandbox.end(&dead.ns);
    live.call.gc(&[("live", "eth0")]).ok();
    let left = node.world.sandbox.leftovers();
    assert!(!left.iter().any(|left| left.contains("dead")), "{left:?}");
    let (listed, last) = (
        json!([{"containerID": "live", "ifname": "net2"}]),
        super::spied().pop().expect("a call"),
    );
    assert_eq!(
        (&last["COMMAND"], &last["conf"]["cni.dev/valid-attachments"]),
        (&json!("GC"), &listed)
    );
    assert_eq!(calls()[0], "DEL a net2 spy");
    assert!(live.ns.can_ping("10.1.0.1") && live.ns.can_ping("10.0.0.1"));
    live.call.del().ok();
    node.assert_nothing_left(&live);
}

#[test]
fn the_client_of_a_killed_call_ends_with_it() {
    let Some(node) = Node::with("killed-call", &[], Vec::new(), Fault::Silence) else {
        return;
    };
    let pod = node.pod("web", "lan");
    let start = Instant::now();
    let killed = pod
        .call
        .clone()
        .under("timeout --foreground --signal KILL 2")
        .run("ADD");
    assert_eq!((killed.code, killed.stdout.as_str()), (137, ""));
    assert!(node.world.proxy.connections() > 0);
    await_true("the end of the client", || strays().is_empty());
    // If the client lived on, it would wait for its answer until ten seconds after its start.
    assert!(start.elapsed() < Duration::from_secs(8));
}
