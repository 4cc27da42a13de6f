//! Device information of a pod's networks, in a folder of the test.

use super::*;
use braid_core::k8s::RESOURCE_NAME;
use braid_core::k8s::dynamic::{Allocated, Given, Offered};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Information from a device plugin, with an unknown key.
const INFO: &str =
    r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.1"},"x.y/z":1e+400}"#;

/// Creates a cluster with a network `vf` that takes a device of `a/vf`. The kubelet assigned two of
/// them to the pod.
fn with_devices(annotation: &str, capability: &str) -> Model {
    let machine = cluster(Some(annotation));
    let config = format!(
        r#"{{"cniVersion":"1.0.0","type":"macvlan","master":"lan",{capability}{}}}"#,
        ipam(7)
    );
    let annotations = BTreeMap::from([(RESOURCE_NAME.to_owned(), "a/vf".to_owned())]);
    let mut cluster = machine.cluster.borrow_mut();
    cluster.nads.push(Nad {
        name: object("vf"),
        config,
        annotations,
    });
    let ids = ["0000:18:02.5", "0000:18:02.1"].map(str::to_owned);
    cluster.devices.by_resource = BTreeMap::from([("a/vf".to_owned(), ids.to_vec())]);
    drop(cluster);
    let dp = machine.devinfo().join("dp");
    fs::create_dir_all(&dp).expect("a folder");
    fs::write(dp.join("a-vf-0000:18:02.1-device.json"), INFO).expect("written");
    machine
}

/// Lists the attachments' files, each with its content.
fn files(machine: &Model) -> Vec<String> {
    let entries = fs::read_dir(machine.devinfo().join("cni"))
        .into_iter()
        .flatten()
        .flatten();
    let text = |path: &std::path::Path| fs::read_to_string(path).expect("read");
    let mut files: Vec<String> = entries
        .map(|entry| format!("{} {}", entry.file_name().display(), text(&entry.path())))
        .collect();
    files.sort();
    files
}

fn published(machine: &Model) -> String {
    machine.cluster.borrow().pods[0].annotations[NETWORK_STATUS].replace([' ', '\n'], "")
}

// Conformance: D7, D8, D9, D10, D11, D14
#[test]
fn a_device_is_passed_to_the_plugins_and_published_in_the_status() {
    let machine = with_devices("vf,blue,vf", "");
    add(&machine, "").expect("attached");
    assert_eq!(machine.cluster.borrow().devices_asked, 1);
    assert_eq!(
        files(&machine),
        [format!("c1:net1-device.json {INFO}")],
        "the second device has none"
    );
    assert!(
        published(&machine).contains(&format!(r#""device-info":{INFO}"#)),
        "{}",
        published(&machine)
    );
    let records = crate::apply::host::Machine::records(&machine).expect("records");
    let devices = records[0]
        .attachments
        .iter()
        .map(|one| one.conf.get("deviceID").cloned())
        .collect::<Vec<_>>();
    assert_eq!(
        devices,
        [
            None,
            Some("0000:18:02.1".into()),
            None,
            Some("0000:18:02.5".into())
        ]
    );
    assert_eq!(
        records[0].attachments[1].conf.get("pciBusID"),
        Some(&"0000:18:02.1".into())
    );
    del(&machine).expect("detached");
    assert_eq!(files(&machine), [""; 0]);
    del(&machine).expect("again");
}

// Conformance: D9
#[test]
fn too_few_devices_fail_the_pod_and_the_kubelet_is_queried_only_if_needed() {
    let machine = with_devices("vf,vf,vf", "");
    let err = add(&machine, "").expect_err("two are too few");
    assert!(
        err.msg
            .contains("3 networks need a device of it, but the pod has 2"),
        "{err}"
    );
    assert_nothing_left(&machine, "");
    for annotation in ["blue", r#"[{"name":"vf","deviceID":"0000:18:02.1"}]"#] {
        let machine = with_devices(annotation, "");
        add(&machine, "").expect(annotation);
        assert_eq!(machine.cluster.borrow().devices_asked, 0, "{annotation}");
    }
}

// Conformance: D9
#[test]
fn a_device_of_a_resource_claim_is_found_in_its_drivers_slices() {
    let machine = with_devices("vf", "");
    {
        let mut cluster = machine.cluster.borrow_mut();
        let [driver, pool, device] = ["nic", "p", "d1"].map(str::to_owned);
        cluster.devices = Given {
            allocated: vec![Allocated {
                driver,
                pool,
                device,
            }],
            ..Given::default()
        };
        let [pool, device, id, resource] = ["p", "d1", "0000:18:02.1", "a/vf"].map(str::to_owned);
        cluster.offered.push((
            "nic".to_owned(),
            Offered {
                pool,
                generation: 1,
                device,
                id,
                resource,
            },
        ));
    }
    add(&machine, "").expect("attached");
    assert_eq!(
        machine.cluster.borrow().asked,
        4,
        "pod, network, slices, status"
    );
    assert_eq!(files(&machine), [format!("c1:net1-device.json {INFO}")]);
    assert!(
        published(&machine).contains(&format!(r#""device-info":{INFO}"#)),
        "{}",
        published(&machine)
    );
}

// Conformance: D11, D15
#[test]
fn a_failed_add_leaves_no_file_and_no_stale_one_is_read() {
    let capability = r#""capabilities":{"CNIDeviceInfoFile":true,"deviceID":true},"#;
    let machine = with_devices("vf,vf,far", capability);
    add(&machine, "").expect_err("far has no master");
    assert_eq!(files(&machine), [""; 0]);
    let machine = with_devices("vf,vf", capability);
    let cni = machine.devinfo().join("cni");
    fs::create_dir_all(&cni).expect("a folder");
    for ifname in ["net1", "net2"] {
        fs::write(
            cni.join(format!("c1:{ifname}-device.json")),
            INFO.replace("02.1", "02.9"),
        )
        .expect("written");
    }
    add(&machine, "").expect("attached");
    assert_eq!(files(&machine), [format!("c1:net1-device.json {INFO}")]);
    let records = crate::apply::host::Machine::records(&machine).expect("records");
    let runtime = records[0].attachments[2]
        .conf
        .get("runtimeConfig")
        .map(ToString::to_string)
        .unwrap_or_default();
    let path = cni.join("c1:net2-device.json").display().to_string();
    assert!(
        runtime.contains(&path) && runtime.contains(r#""deviceID":"0000:18:02.5""#),
        "{runtime}"
    );
}

/// Writes a program that adds device information to the file that it is given.
fn teller(folder: &TempDir, says: &str) {
    let script = format!(
        r#"#!/bin/sh
conf=$(cat)
file=${{conf##*CNIDeviceInfoFile}}
file=/${{file#*/}}
file=${{file%%\"*}}
[ $CNI_COMMAND = ADD ] || exit 0
echo '{says}' > "$file"
echo '{{"cniVersion":"1.0.0"}}'
"#
    );
    let path = folder.path().join("teller");
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
}

// Conformance: D1, D12, D13, D14
#[test]
fn device_information_from_a_plugin_is_published() {
    let memif =
        r#"{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/m","mode":"ip"}}"#;
    for (says, passes_prev_result) in [
        (memif, true),
        (r#"{"type":"usb","version":"1.1.0"}"#, false),
        ("{", false),
    ] {
        let folder = TempDir::new().expect("a folder");
        teller(&folder, says);
        let machine = cluster(Some("memif"));
        let config =
            r#"{"cniVersion":"1.0.0","type":"teller","capabilities":{"CNIDeviceInfoFile":true}}"#
                .to_owned();
        let nad = Nad {
            name: object("memif"),
            config,
            annotations: BTreeMap::new(),
        };
        machine.cluster.borrow_mut().nads.push(nad);
        let (mut add, settings) = request(Command::Add, "");
        add.path = vec![folder.path().to_owned()];
        pods::add(&add, &settings, &machine, &machine, &mut |_| Ok(()))
            .map(drop)
            .expect("attached");
        assert_eq!(files(&machine), [format!("c1:net1-device.json {says}\n")]);
        assert_eq!(
            published(&machine).contains(&format!(r#""device-info":{memif}"#)),
            passes_prev_result,
            "{says}"
        );
        del(&machine).expect("detached");
        assert_eq!(files(&machine), [""; 0]);
    }
}
