//! The chart on a real API server: every object is accepted, and the kinds alone stay.

use crate::table::{ALL_DRA, FLANNEL, IPAM, LEFT_OUT, ROWS};
use crate::{committed, helm, lacks_helm, name, rendered};
use braid_testbed::api_server::ApiServer;
use braid_testbed::chart::{self, CHART, RELEASE};
use braid_tests::{Sandbox, Value, json};
use std::path::Path;

/// Folder of the API server's files. It is in memory, like all of the sandbox's `/run`.
const HOME: &str = "/run/api-server";
const NAMESPACE: &str = "--namespace=kube-system";
const NETWORK: [&str; 4] = ["network-attachment-definition", "lan", "-n", "default"];

/// Calls `work` with an API server without an object of braid. Etcd and the API server end with the
/// thread.
fn with_server(test: &str, work: impl FnOnce(&ApiServer) + Send + 'static) {
    if lacks_helm(test) {
        return;
    }
    if let Some(why) = ApiServer::missing() {
        braid_tests::feature::tell_skip(&format!("chart::{test}"), &why);
        return;
    }
    let ended = std::thread::spawn(move || {
        // Its end would wait for etcd and the API server.
        let _sandbox = std::mem::ManuallyDrop::new(Sandbox::new());
        let server = ApiServer::start_bare(Path::new(HOME)).unwrap_or_else(|err| panic!("{err:#}"));
        work(&server);
    });
    if let Err(panic) = ended.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command of helm as administrator. Fails if it fails.
#[track_caller]
fn run(server: &ApiServer, arguments: &[&str]) {
    let kubeconfig = format!("--kubeconfig={}", server.pki("admin.conf").display());
    let output = helm(&[arguments, &[&kubeconfig, NAMESPACE]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}

/// Returns the objects that exist.
fn existing(server: &ApiServer, objects: &[Value]) -> Vec<String> {
    let mut existing = Vec::new();
    for object in objects {
        let name = name(object);
        let get = ["get", &name, "-n", "kube-system"];
        let output = server.try_kubectl(&get, None).expect("kubectl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || said.contains("(NotFound)"),
            "{name}: {said}"
        );
        if output.status.success() {
            existing.push(name);
        }
    }
    existing
}

#[test]
fn a_release_is_installed_and_uninstalled_and_only_the_kinds_stay() {
    with_server("install", |server| {
        let objects = rendered(&[FLANNEL.value, IPAM.value]);
        let install = ["install", RELEASE, CHART, FLANNEL.value, IPAM.value];
        let names: Vec<String> = objects.iter().map(name).collect();
        let mut kinds = names.clone();
        kinds.retain(|name| name.starts_with("CustomResourceDefinition/"));
        assert_eq!(kinds.len(), 4);
        run(server, &install);
        assert_eq!(existing(server, &objects), names);
        let network = json!({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "lan", "namespace": "default"},
            "spec": {"config": "{}"},
        });
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        server.kubectl(&wait, None).expect("established");
        server
            .kubectl(&["create", "-f", "-"], Some(&network))
            .expect("a network");
        run(server, &["uninstall", RELEASE]);
        assert_eq!(existing(server, &objects), kinds);
        server
            .kubectl(&[&["get"], &NETWORK[..]].concat(), None)
            .expect("the network stays");
        // A later release takes the kinds over.
        run(server, &install);
        assert_eq!(existing(server, &objects), names);
        run(
            server,
            &["upgrade", RELEASE, CHART, "--set=network.mtu=1400"],
        );
        let map = [
            "get",
            "configmap",
            "braid",
            "-n",
            "kube-system",
            "-o",
            "json",
        ];
        let map = server.kubectl(&map, None).expect("a configuration");
        assert!(map.contains("mtu: 1400 "), "{map}");
        let usual: Vec<String> = rendered(&[]).iter().map(name).collect();
        let mut left = names;
        left.retain(|name| usual.contains(name) || kinds.contains(name));
        let why = "without flannel.enabled and ipam.enabled";
        assert_eq!(existing(server, &objects), left, "{why}");
    });
}

#[test]
fn kinds_of_whereabouts_stay_those_of_their_owner() {
    with_server("whereabouts", |server| {
        let pools = "CustomResourceDefinition/ippools.whereabouts.cni.cncf.io";
        let mut kind = committed("deploy/ipam.yaml");
        kind.retain(|object| name(object) == pools);
        server
            .kubectl(&["create", "-f", "-"], kind.first())
            .expect("Whereabouts' kind");
        let get = ["get", pools, "-o", "jsonpath={.metadata.annotations}"];
        let owner = || server.kubectl(&get, None).expect("the kind");
        let before = owner();
        run(server, &["install", RELEASE, CHART, IPAM.value]);
        run(server, &["upgrade", RELEASE, CHART, IPAM.value]);
        let objects = rendered(&[IPAM.value]);
        let names: Vec<String> = objects.iter().map(name).collect();
        assert_eq!(existing(server, &objects), names);
        assert_eq!(owner(), before);
    });
}

#[test]
fn a_release_takes_over_the_objects_of_the_manifest() {
    with_server("take-over", |server| {
        server
            .kubectl(&["apply", "-f", "deploy/braid.yaml"], None)
            .expect("applied");
        let take = ["--take-ownership", "--force-conflicts"];
        run(server, &[&["install", RELEASE, CHART], &take[..]].concat());
        run(server, &["uninstall", RELEASE]);
        let objects = rendered(&[]);
        let left = existing(server, &objects);
        assert!(
            left.iter()
                .all(|name| name.starts_with("CustomResourceDefinition/")),
            "{left:?}"
        );
    });
}

#[test]
fn the_api_server_accepts_the_objects_of_each_value() {
    with_server("accepted", |server| {
        let mut all: Vec<Vec<&str>> = ROWS
            .iter()
            .map(|row| row.values.split(' ').collect())
            .collect();
        all.extend(LEFT_OUT.iter().map(|(value, _)| vec![*value]));
        all.push(vec![FLANNEL.value, IPAM.value, "--set=nameOverride=net"]);
        all.push(ALL_DRA.value.split(' ').collect());
        for values in all {
            let text = chart::render(&values).expect("objects");
            let path = Path::new(HOME).join("objects.yaml");
            std::fs::write(&path, text).expect("written");
            let apply = ["apply", "--dry-run=server", "-f", &path.to_string_lossy()];
            let applied = server.kubectl(&apply, None);
            applied.unwrap_or_else(|err| panic!("{values:?}: {err:#}"));
        }
    });
}
