//! Calls of a caller without Kubernetes.

use super::*;
use crate::source::cluster::NoCluster;

#[test]
fn a_call_without_a_cluster_serves_the_default_network() {
    let machine = cluster(Some("blue"));
    let (mut attach, mut settings) = request(Command::Add, "");
    let err = pods::add(&attach, &settings, &machine, &NoCluster, &mut |_| Ok(()))
        .map(drop)
        .expect_err("a pod needs the API");
    assert!(err.msg.contains("this call has none"), "{err}");
    assert_nothing_left(&machine, "");
    settings.kubeconfig = None;
    pods::add(&attach, &settings, &machine, &NoCluster, &mut |_| Ok(())).expect("attached");
    assert_eq!(machine.folders(), 1);
    attach.command = Command::Del;
    pods::del(attach, &settings, "braid", &machine, &NoCluster).expect("detached");
    assert_nothing_left(&machine, "");
}
