//! Manifests in deploy/ beside the chart.

use crate::{committed, helm, lacks_helm, name, rendered};
use braid_testbed::chart::{self, CHART};
use braid_tests::Value;
use std::collections::BTreeMap;

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|it| (name(&it), it)).collect()
}

#[test]
fn the_manifest_has_the_objects_of_the_default_values() {
    if lacks_helm("manifest") {
        return;
    }
    let (manifest, chart) = (committed("deploy/braid.yaml"), rendered(&[]));
    assert_eq!(manifest.len(), chart.len());
    let (manifest, chart) = (by_name(manifest), by_name(chart));
    assert!(manifest.keys().eq(chart.keys()), "{:?}", manifest.keys());
    for (name, object) in &manifest {
        assert_eq!(object, &chart[name], "{name}");
    }
}

#[test]
fn the_kinds_stay_when_the_release_is_uninstalled() {
    if lacks_helm("kinds") {
        return;
    }
    for object in rendered(&[
        "--set=flannel.enabled=true",
        "--set=ipam.enabled=true",
        "--set=node.clearNetworkUnavailable=true",
    ]) {
        let policy = &object["metadata"]["annotations"]["helm.sh/resource-policy"];
        let is_kept = object["kind"] == "CustomResourceDefinition";
        assert_eq!(*policy == "keep", is_kept, "{}", name(&object));
    }
}

#[test]
fn lint_finds_nothing() {
    if lacks_helm("lint") {
        return;
    }
    let output = helm(&["lint", "--strict", CHART]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !said.contains('['), "{said}");
    assert!(
        said.contains("1 chart(s) linted, 0 chart(s) failed"),
        "{said}"
    );
}

#[test]
fn the_notes_remove_braid_from_the_folders_of_the_values() {
    if lacks_helm("notes") {
        return;
    }
    let removal = |values: &[&str]| chart::removal(values).expect("a patch");
    let usual = serde_json::from_str::<Value>(&removal(&[])).expect("JSON");
    assert_eq!(vec![usual], committed("deploy/remove.yaml"));
    let text = removal(&["--set=distribution=k3s"]);
    let configurations = "/var/lib/rancher/k3s/agent/etc/cni/net.d";
    for expected in [
        "--bin-dir=/host/var/lib/rancher/k3s/data/cni\"",
        &format!("--kubeconfig={configurations}/braid.d/kubeconfig\""),
        &format!("--conflist={configurations}/00-braid.conflist\",\"--remove\""),
        &format!("\"mountPath\":\"/host{configurations}\""),
        &format!("\"--call-kubeconfig={configurations}/braid.d/kubeconfig\",\"--remove\""),
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
