//! Devices from end to end: the kubelet's socket, the files of device plugins, the CNI plugins, and
//! the pod's status.

use super::{NETWORKS, Node, Pod, Value, bridged, calls, json, spied, spy};
use crate::kubelet::{Kubelet, Manner, pod as resources};
use std::fs;
use std::path::Path;

const DEVINFO: &str = "/var/run/k8s.cni.cncf.io/devinfo";

/// Creates a network whose pods get a device of `resource`.
pub(super) fn taking(node: &Node, name: &str, resource: &str, config: &Value) {
    let annotations = json!({"k8s.v1.cni.cncf.io/resourceName": resource});
    let [api, kind] = ["k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"];
    let metadata = json!({"name": name, "annotations": annotations});
    node.world
        .create(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": {"config": config.to_string()}}));
}

/// Creates a pod on node-1 that uses the resource claim `nics`.
pub(super) fn claiming(node: &Node, name: &str, networks: &str) -> Pod {
    let claims = json!([{"name": "nics", "resourceClaimName": "nics"}]);
    let container =
        json!({"name": "c", "image": "none", "resources": {"claims": [{"name": "nics"}]}});
    let spec = json!({"nodeName": "node-1", "containers": [container], "resourceClaims": claims});
    let metadata = json!({"name": name, "annotations": {NETWORKS: networks}});
    node.container(
        &node
            .world
            .create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})),
    )
}

/// Writes a device-information file, as a device plugin would.
fn dp_file(name: &str, content: &str) {
    fs::create_dir_all(format!("{DEVINFO}/dp")).expect("a folder");
    fs::write(format!("{DEVINFO}/dp/{name}"), content).expect("a file");
}

/// Returns name and content of the device-information files that belong to attachments.
fn cni_files() -> Vec<(String, String)> {
    let files = fs::read_dir(format!("{DEVINFO}/cni"))
        .into_iter()
        .flatten()
        .flatten();
    let read = |path: &Path| fs::read_to_string(path).expect("a file");
    let mut files: Vec<_> = files
        .map(|file| (file.file_name().display().to_string(), read(&file.path())))
        .collect();
    files.sort();
    files
}

/// Returns interface and `device-info` of each status entry that has a `device-info`.
fn told(node: &Node, pod: &Pod) -> Vec<(String, Value)> {
    let entries = node
        .status(pod)
        .into_iter()
        .filter(|entry| !entry["device-info"].is_null());
    entries
        .map(|entry| {
            (
                entry["interface"].as_str().unwrap_or_default().to_owned(),
                entry["device-info"].clone(),
            )
        })
        .collect()
}

/// Returns device information of each type, with all keys of the type and an unknown key.
fn kinds() -> [Value; 4] {
    let of = |kind: &str, keys: Value| json!({"type": kind, "version": "1.1.0", kind: keys, "org.example/more": [1]});
    [
        of(
            "pci",
            json!({"pci-address": "0000:18:02.1", "vhost-net": "/dev/v", "rdma-device": "mlx5_3",
                "pf-pci-address": "0000:18:00.0", "representor-device": "eth3"}),
        ),
        of(
            "vdpa",
            json!({"parent-device": "vdpa1", "driver": "vhost", "path": "/dev/vhost-vdpa-1", "pci-address": "0000:18:02.2",
                "pf-pci-address": "0000:18:00.0", "representor-device": "eth4"}),
        ),
        of(
            "vhost-user",
            json!({"mode": "client", "path": "/run/vhost.sock"}),
        ),
        of(
            "memif",
            json!({"role": "slave", "path": "/run/memif.sock", "mode": "inject-punt"}),
        ),
    ]
}

// Requirements D1, D2, D3, D4, D5, D6, D7, D8, D9, D10, D11, D12, D13, D14, T16.
#[test]
fn devices_reach_plugins_and_status() {
    let Some(node) = Node::new("devices", &[]) else {
        return;
    };
    let [pci, vdpa, vhost_user, memif] = kinds();
    let can = json!({"CNIDeviceInfoFile": true, "deviceID": true});
    let tells =
        |name: &str, info: &Value| spy(name, &json!({"capabilities": can, "device-info": info}));
    node.create_networks(&[
        ("user", tells("user", &vhost_user)),
        ("memif", tells("memif", &memif)),
    ]);
    let list = json!({"cniVersion": "1.0.0", "name": "vf", "plugins": [{"type": "spy", "capabilities": can}, {"type": "spy2"}]});
    taking(&node, "vf", "a.example/vf", &list);
    taking(&node, "native", "a.example/vdpa", &bridged(1));
    taking(&node, "odd", "a.example/odd", &bridged(2));
    dp_file("a.example-vf-0000:18:02.1-device.json", &format!("{pci:#}"));
    dp_file("a.example-vdpa-vdpa1-device.json", &vdpa.to_string());
    dp_file(
        "a.example-odd-x-device.json",
        r#"{"type":"usb","version":"1.1.0","usb":{}}"#,
    );
    let given: &[(&str, &[&str])] = &[
        ("a.example/vf", &["0000:18:02.5", "0000:18:02.1"]),
        ("a.example/vdpa", &["vdpa1"]),
        ("a.example/odd", &["x"]),
    ];
    let kubelet = Kubelet::start(
        vec![resources("devices", "web", given, &[])],
        Manner::default(),
    );
    let pod = node.pod("web", "vf,native,vf,user,memif,odd");
    let added = pod.call.add();
    let result = added.result();
    assert_eq!(kubelet.asked(), ["Get"], "once for all");
    let spied = spied();
    let devices = |at: usize| ["deviceID", "pciBusID"].map(|key| spied[at]["conf"][key].clone());
    let [first, second] = ["0000:18:02.1", "0000:18:02.5"];
    assert_eq!(
        [devices(0), devices(1)],
        [[json!(first), json!(first)], [json!(first), json!(first)]]
    );
    assert_eq!(
        [devices(2), devices(3)],
        [
            [json!(second), json!(second)],
            [json!(second), json!(second)]
        ]
    );
    let runtime = |at: usize| spied[at]["conf"]["runtimeConfig"].clone();
    let file = |ifname: &str| format!("{DEVINFO}/cni/web:{ifname}-device.json");
    assert_eq!(
        runtime(0),
        json!({"CNIDeviceInfoFile": file("net1"), "deviceID": first})
    );
    assert_eq!(runtime(1), Value::Null, "it declares nothing");
    assert_eq!(
        runtime(2),
        json!({"CNIDeviceInfoFile": file("net3"), "deviceID": second})
    );
    assert_eq!(
        runtime(4),
        json!({"CNIDeviceInfoFile": file("net4")}),
        "without a resource too"
    );
    let files: Vec<String> = cni_files().into_iter().map(|(name, _)| name).collect();
    let of = |number: u8| format!("web:net{number}-device.json");
    assert_eq!(
        files,
        [1, 2, 4, 5, 6].map(of),
        "each has its own, and where nobody says anything none"
    );
    assert_eq!(cni_files()[0].1, format!("{pci:#}"), "byte for byte");
    let expected = [
        ("net1", pci),
        ("net2", vdpa),
        ("net4", vhost_user),
        ("net5", memif),
    ];
    assert_eq!(
        told(&node, &pod),
        expected.map(|(ifname, info)| (ifname.to_owned(), info))
    );
    assert!(
        added
            .stderr
            .contains("web:net6-device.json: device information: \"type\": \"usb\" is not one of"),
        "{}",
        added.stderr
    );
    pod.call.check(&result).ok();
    pod.call.del().ok();
    assert_eq!(cni_files(), []);
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

#[test]
fn devices_are_found_at_a_kubelet_with_another_folder() {
    let Some(node) = Node::new("kubelet-folder", &[]) else {
        return;
    };
    let network = spy("vf", &json!({"capabilities": {"deviceID": true}}));
    taking(&node, "vf", "a.example/vf", &network);
    let given: &[(&str, &[&str])] = &[("a.example/vf", &["1"])];
    let kubelet = Kubelet::start(
        vec![resources("kubelet-folder", "web", given, &[])],
        Manner::default(),
    );
    let elsewhere = "/var/lib/elsewhere";
    fs::rename("/var/lib/kubelet", elsewhere).expect("another folder");
    let pod = node.pod("web", "vf");
    pod.call.add().refused(11, &["kubelet.sock: No such file"]);
    let call = pod.call.clone().with("kubeletRootDir", elsewhere);
    call.add().result();
    assert_eq!(kubelet.asked(), ["Get"]);
    call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirements D9, D11, D15.
#[test]
fn too_few_devices_a_busy_kubelet_and_stale_files_are_handled() {
    let Some(node) = Node::new(
        "few-devices",
        &[("bad", spy("bad", &json!({"fail": "ADD"})))],
    ) else {
        return;
    };
    let [pci, ..] = kinds();
    taking(
        &node,
        "vf",
        "a.example/vf",
        &spy("vf", &json!({"capabilities": {"CNIDeviceInfoFile": true}})),
    );
    dp_file("a.example-vf-1-device.json", &pci.to_string());
    let pod = node.pod("web", "vf");
    pod.call.add().refused(
        11,
        &[
            "devices of pod few-devices/web",
            "kubelet.sock: No such file",
        ],
    );
    let given: &[(&str, &[&str])] = &[("a.example/vf", &["1"])];
    let all = ["web", "two", "failing"]
        .map(|name| resources("few-devices", name, given, &[]))
        .to_vec();
    let old = Kubelet::start(
        all.clone(),
        Manner {
            is_old: true,
            busy: 0,
        },
    );
    fs::create_dir_all(format!("{DEVINFO}/cni")).expect("a folder");
    fs::write(format!("{DEVINFO}/cni/web:net1-device.json"), "stale").expect("a file");
    pod.call.add().result();
    assert_eq!(old.asked(), ["Get", "List"]);
    assert_eq!(
        told(&node, &pod),
        [("net1".to_owned(), pci)],
        "what an earlier attempt left is not read"
    );
    pod.call.del().ok();
    drop(old);
    calls();
    let busy = Kubelet::start(
        all,
        Manner {
            is_old: false,
            busy: 2,
        },
    );
    for (pod, networks, words) in [
        (
            "two",
            "vf,vf",
            "resource \"a.example/vf\": 2 networks need a device of it, but the pod has 1",
        ),
        ("failing", "vf,bad", "spy was told to fail"),
    ] {
        let pod = node.pod(pod, networks);
        let error = pod.call.add().error();
        assert!(error.msg.contains(words), "{error:?}");
        assert_eq!((cni_files(), node.entries(&pod)), (vec![], vec![]));
        node.assert_nothing_left(&pod);
    }
    assert_eq!(busy.asked(), ["Get"; 4]);
    assert_eq!(
        calls(),
        [
            "ADD vf net1 spy",
            "ADD bad net2 spy",
            "DEL bad net2 spy",
            "DEL vf net1 spy"
        ]
    );
}

// Requirement D9.
#[test]
fn a_resource_claims_device_comes_from_its_drivers_slice() {
    let Some(node) = Node::new("dynamic", &[]) else {
        return;
    };
    let [pci, ..] = kinds();
    taking(&node, "vf", "nics.example/vf", &spy("vf", &json!({})));
    dp_file("nics.example-vf-0000:18:02.1-device.json", &pci.to_string());
    let device = |name: &str, id: &str| {
        let attributes = json!({"k8s.cni.cncf.io/deviceID": {"string": id},
            "k8s.cni.cncf.io/resourceName": {"string": "nics.example/vf"}, "nic.example/numa": {"int": 1}});
        json!({"name": name, "attributes": attributes})
    };
    let slice = |name: &str, node: &str, driver: &str, generation: u8, devices: Value| {
        let pool = json!({"name": "pool", "generation": generation, "resourceSliceCount": 1});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"nodeName": node, "driver": driver, "pool": pool, "devices": devices}})
    };
    let slices = [
        slice(
            "new",
            "node-1",
            "nic.example",
            2,
            json!([device("d1", "0000:18:02.1"), device("d2", "0000:18:02.2")]),
        ),
        slice(
            "old",
            "node-1",
            "nic.example",
            1,
            json!([device("d1", "0000:00:00.0")]),
        ),
        slice(
            "far",
            "node-2",
            "nic.example",
            9,
            json!([device("d1", "0000:ff:00.0")]),
        ),
        slice("gpu", "node-1", "gpu.example", 1, json!([{"name": "d1"}])),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": slices});
    node.world
        .server
        .kubectl(&["create", "-f", "-"], Some(&list));
    let claimed = [["nic.example", "pool", "d1"], ["gpu.example", "pool", "d1"]];
    let pods = ["web", "two"].map(|name| resources("dynamic", name, &[], &claimed));
    let kubelet = Kubelet::start(pods.to_vec(), Manner::default());
    let pod = claiming(&node, "web", "vf");
    pod.call.add().result();
    assert_eq!(kubelet.asked(), ["Get"]);
    assert_eq!(spied()[0]["conf"]["deviceID"], "0000:18:02.1");
    assert_eq!(told(&node, &pod), [("net1".to_owned(), pci)]);
    pod.call.del().ok();
    let pod = claiming(&node, "two", "vf,vf");
    pod.call
        .add()
        .refused(7, &["2 networks need a device of it, but the pod has 1"]);
    assert_eq!(cni_files(), []);
    node.assert_nothing_left(&pod);
}
