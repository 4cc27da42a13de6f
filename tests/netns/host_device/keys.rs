//! Configuration keys that select the device, and values that are refused.

use super::{assert_back, attach, device};
use crate::conf;
use braid_tests::{Sandbox, json};
use std::fs;
use std::path::Path;

/// Mounts a fake `/sys/bus` with these devices. Each has its path, the path of the link `dev0`
/// below that path, and its driver.
fn buses(devices: &[(&str, &str, &str)]) {
    let none: Option<&str> = None;
    nix::mount::mount(
        Some("tmpfs"),
        "/sys/bus",
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        none,
    )
    .unwrap();
    for bus in ["pci", "auxiliary"] {
        fs::create_dir_all(format!("/sys/bus/{bus}/devices")).unwrap();
    }
    for (device, net, driver) in devices {
        let folder = Path::new("/sys/bus").join(device);
        fs::create_dir_all(folder.join(net)).unwrap();
        let driver = Path::new("/run/drivers").join(driver);
        fs::create_dir_all(&driver).unwrap();
        std::os::unix::fs::symlink(driver, folder.join("driver")).unwrap();
    }
}

#[test]
fn every_key_finds_the_device() {
    let keys = [
        json!({"device": "dev0"}),
        json!({"hwaddr": "C2:00:00:00:00:01"}),
        json!({"kernelpath": "/sys/devices/virtual"}),
        json!({"pciBusID": "0000:03:00.1"}),
        json!({"pciBusID": "0000:04:00.0"}),
        json!({"runtimeConfig": {"deviceID": "0000:03:00.1"}}),
        json!({"runtimeConfig": {"deviceID": "mlx5_core.sf.4"}}),
        // The first key that is set counts. A key from the runtime precedes the keys of the
        // configuration.
        json!({"device": "dev0", "hwaddr": "c2:00:00:00:00:09"}),
        json!({"pciBusID": "0000:05:00.0", "runtimeConfig": {"deviceID": "0000:03:00.1"}}),
        json!({"pciBusID": "0000:05:00.0", "runtimeConfig": {"deviceID": "mlx5_core.sf.4"}}),
    ];
    for more in keys {
        let host = Sandbox::new();
        buses(&[
            ("pci/devices/0000:03:00.1", "net/dev0", "mlx5_core"),
            ("pci/devices/0000:04:00.0", "virtio3/net/dev0", "virtio-pci"),
            ("pci/devices/0000:05:00.0", "net/other", "vfio-pci"),
            (
                "auxiliary/devices/mlx5_core.sf.4",
                "net/dev0",
                "mlx5_core.sf",
            ),
        ]);
        device(&host);
        host.run("ip link set dev0 address c2:00:00:00:00:01");
        let before = host.the_link("dev0");
        let pod = host.pod("a");
        let mut conf = conf::host_device();
        conf.as_object_mut().unwrap().remove("device");
        for (key, value) in more.as_object().unwrap() {
            conf[key] = value.clone();
        }
        let call = host.call("host-device", &pod, conf);
        let result = call.add().result();
        assert_eq!(
            pod.the_link("eth0")["address"],
            "c2:00:00:00:00:01",
            "{more}"
        );
        call.check(&result).ok();
        call.prev(&result).del().ok();
        assert_back(&host, &before);
        host.assert_nothing_left();
    }
}

#[test]
fn a_device_with_a_userspace_driver_is_not_moved_and_gets_addresses() {
    let host = Sandbox::new();
    buses(&[("pci/devices/0000:03:00.1", "net/dev0", "vfio-pci")]);
    device(&host);
    let pod = host.pod("a");
    let mut conf = conf::host_device();
    conf.as_object_mut().unwrap().remove("device");
    let by_key = host
        .call("host-device", &pod, conf.clone())
        .with("pciBusID", "0000:03:00.1");
    let by_runtime = host
        .call("host-device", &pod, conf)
        .with("runtimeConfig", json!({"deviceID": "0000:03:00.1"}));
    for call in [
        by_key,
        by_runtime,
        attach(&host, &pod).with("DPDKMode", true),
    ] {
        let before = host.state().of_network();
        let result = call.add().result();
        let interface = json!({"name": "eth0", "sandbox": "/run/netns/a"});
        assert_eq!(result["interfaces"], json!([interface]));
        assert_eq!(result["ips"][0]["interface"], 0);
        assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}]));
        before.assert_same(&host.state().of_network());
        call.check(&result).ok();
        call.clone().prev(&result).del().ok();
        call.clone().prev(&result).del().ok();
        before.assert_same(&host.state().of_network());
        host.assert_nothing_left();
        let result = call.clone().with("ipam", json!({})).add().result();
        assert_eq!(
            result,
            json!({"cniVersion": "1.1.0", "interfaces": [interface]})
        );
        call.with("ipam", json!({})).prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn an_invalid_device_is_refused_before_any_change() {
    let host = Sandbox::new();
    buses(&[]);
    device(&host);
    let pod = host.pod("a");
    pod.run("ip link add taken type veth peer name other");
    let before = host.state();
    let none = |key: &str, value: &str| {
        let mut conf = conf::host_device();
        conf.as_object_mut().unwrap().remove("device");
        conf[key] = json!(value);
        host.call("host-device", &pod, conf)
    };
    let either = "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"";
    none("device", "").add().refused(7, &[either]);
    none("device", "none")
        .add()
        .refused(999, &["failed to find host device", "\"none\""]);
    none("hwaddr", "c2:00:00:00:00:09")
        .add()
        .refused(999, &["failed to find host device", "c2:00:00:00:00:09"]);
    none("hwaddr", "nonsense")
        .add()
        .refused(7, &["\"hwaddr\": \"nonsense\""]);
    for path in ["devices/virtual", "/sys/class", "/sys/devices/../class"] {
        none("kernelpath", path)
            .add()
            .refused(7, &[path, "must be absolute and begin with /sys/devices/"]);
    }
    none("kernelpath", "/sys/devices/none")
        .add()
        .refused(999, &["failed to read directory /sys/devices/none/net"]);
    for id in ["../../class", "..", "0000:03:00.1/net"] {
        none("pciBusID", id)
            .add()
            .refused(7, &["\"pciBusID\"", "is not a device name on a bus"]);
        let by_runtime = attach(&host, &pod).with("runtimeConfig", json!({"deviceID": id}));
        by_runtime
            .add()
            .refused(7, &["\"deviceID\"", "is not a device name on a bus"]);
    }
    none("pciBusID", "0000:03:00.1")
        .add()
        .refused(999, &["error with host device", "0000:03:00.1/driver"]);
    let unknown = attach(&host, &pod).with("runtimeConfig", json!({"deviceID": "0000:03:00.1"}));
    unknown.add().refused(
        999,
        &["runtime config DeviceID 0000:03:00.1 not found or unsupported"],
    );
    attach(&host, &pod)
        .ifname("taken")
        .add()
        .refused(999, &["interface \"taken\" already exists"]);
    before.assert_same(&host.state());
}
