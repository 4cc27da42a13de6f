//! A node after a reboot: `/run` is empty and all namespaces are gone, but leases and libcni's
//! cache still exist.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, binary, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

const LEASES: &str = "/var/lib/cni/networks/net";
const RESULTS: &str = "/var/lib/cni/results";

fn attach(host: &Sandbox, pod: &Ns) -> Call {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/29"});
    host.call("bridge", pod, conf::bridge()).with("ipam", ipam)
}

/// Writes the entry that libcni's cache has after an ADD for `pod`.
pub(crate) fn remember(pod: &Ns) {
    let record = json!({
        "kind": "cniCacheV1", "networkName": "net", "containerId": pod.name(), "ifName": "eth0", "netns": pod.path()
    });
    fs::create_dir_all(RESULTS).unwrap();
    fs::write(
        format!("{RESULTS}/net-{}-eth0", pod.name()),
        record.to_string(),
    )
    .unwrap();
}

/// Attaches containers and ends them as a reboot would. Files on disk stay, and their modification
/// time becomes an hour before the kernel started. If `is_remembered`, libcni's cache has the
/// attachments.
fn reboot(host: &Sandbox, names: &[&str], is_remembered: bool) {
    let pods: Vec<Rc<Ns>> = names.iter().map(|name| host.pod(name)).collect();
    for pod in &pods {
        attach(host, pod).add().result();
        if is_remembered {
            remember(pod);
        }
    }
    for pod in &pods {
        // Deleted explicitly, because the kernel takes a while to delete the links of an ended
        // namespace.
        pod.run("ip link del eth0");
        host.end(pod);
        fs::remove_file(pod.path()).unwrap();
    }
    fs::remove_dir_all("/run/braid").unwrap();
    host.run("ip link del br0");
    for folder in [LEASES, RESULTS]
        .iter()
        .filter(|folder| Path::new(folder).is_dir())
    {
        for entry in fs::read_dir(folder).unwrap() {
            fs::File::open(entry.unwrap().path())
                .unwrap()
                .set_modified(before_boot())
                .unwrap();
        }
    }
}

/// Returns the time an hour before the kernel started.
fn before_boot() -> SystemTime {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    SystemTime::now() - Duration::from_secs_f64(seconds) - Duration::from_hours(1)
}

fn leases() -> Vec<String> {
    let names = fs::read_dir(LEASES)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut leases: Vec<String> = names.filter(|name| name.starts_with("10.")).collect();
    leases.sort();
    leases
}

fn address(result: &Value) -> &str {
    result["ips"][0]["address"].as_str().unwrap()
}

#[test]
fn after_a_reboot_the_same_container_can_be_attached() {
    for is_remembered in [false, true] {
        let host = Sandbox::new();
        reboot(&host, &["a"], is_remembered);
        // The runtime uses the same path for the container's new namespace.
        let pod = host.pod("a");
        assert_eq!(
            address(&attach(&host, &pod).add().result()),
            "10.1.0.3/29",
            "{is_remembered}"
        );
        assert_eq!(leases(), ["10.1.0.3"]);
    }
}

#[test]
fn after_a_reboot_a_requested_address_is_free_immediately() {
    for is_remembered in [false, true] {
        let host = Sandbox::new();
        reboot(&host, &["a"], is_remembered);
        // Another container uses the path that the first one had.
        let pod = host.pod("a");
        let call = attach(&host, &pod)
            .container("new")
            .args("IgnoreUnknown=1;IP=10.1.0.2");
        assert_eq!(
            address(&call.add().result()),
            "10.1.0.2/29",
            "{is_remembered}"
        );
    }
}

/// In some containers `/dev/null` is older than the node's boot.
#[test]
fn an_old_dev_null_does_not_keep_addresses_of_an_earlier_boot() {
    let host = Sandbox::new();
    reboot(&host, &["a"], false);
    host.host().run("mknod -m 666 /run/null c 1 3");
    host.host().run("touch -d @0 /run/null");
    host.host().run("mount --bind /run/null /dev/null");
    let pod = host.pod("x");
    let call = attach(&host, &pod).args("IgnoreUnknown=1;IP=10.1.0.2");
    assert_eq!(address(&call.add().result()), "10.1.0.2/29");
}

#[test]
fn a_range_full_of_terminated_containers_is_usable() {
    for is_remembered in [false, true] {
        let host = Sandbox::new();
        reboot(&host, &["a", "b", "c", "d", "e"], is_remembered);
        let pods = ["a", "x"].map(|name| host.pod(name));
        for pod in pods {
            attach(&host, &pod).status().ok();
            attach(&host, &pod)
                .container(&format!("new-{}", pod.name()))
                .add()
                .result();
        }
    }
}

/// Runs `braid gc` with these arguments, and returns its output.
fn gc(words: &[&str]) -> String {
    let output = Command::new(binary::braid())
        .arg("gc")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn braid_gc_deletes_only_leases_of_terminated_containers() {
    for is_remembered in [false, true] {
        let host = Sandbox::new();
        reboot(&host, &["a", "b"], is_remembered);
        let pods = ["a", "c"].map(|name| host.pod(name));
        // This boot has two attachments: one with a record of braid, and one that is only in
        // libcni's cache.
        attach(&host, &pods[0]).container("new").add().result();
        attach(&host, &pods[1]).add().result();
        remember(&pods[1]);
        fs::remove_dir_all("/run/braid/attachments/c").unwrap();
        fs::write(format!("{LEASES}/10.1.0.6"), "kept for the printer").unwrap();
        let told = gc(&["--dry-run"]);
        assert!(
            told.contains("10.1.0.2") && told.contains("10.1.0.3") && !told.contains("10.1.0.4"),
            "{told}"
        );
        assert_eq!(leases().len(), 5);
        let done = gc(&[]);
        assert!(
            done.contains("10.1.0.2") && done.contains("10.1.0.3"),
            "{done}"
        );
        assert_eq!(leases(), ["10.1.0.4", "10.1.0.5", "10.1.0.6"]);
        assert_eq!(gc(&[]), "nothing to delete\n");
    }
}

#[test]
fn braid_gc_finds_data_dirs_of_records_and_configurations() {
    let host = Sandbox::new();
    let ipam =
        |folder: &str| json!({"type": "host-local", "subnet": "10.1.0.0/29", "dataDir": folder});
    let foreign = json!({"type": "theirs", "master": "lan", "ipam": ipam("/var/lib/cni/a")});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [foreign]});
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    fs::write("/etc/cni/net.d/10-net.conflist", list.to_string()).unwrap();
    fs::write("/etc/cni/net.d/20-broken.conf", "{").unwrap();
    let pod = host.pod("a");
    attach(&host, &pod)
        .with("ipam", ipam("/var/lib/cni/b"))
        .add()
        .result();
    for folder in ["a", "b"] {
        let lease = format!("/var/lib/cni/{folder}/net/10.1.0.6");
        fs::create_dir_all(Path::new(&lease).parent().unwrap()).unwrap();
        fs::write(&lease, "gone\r\neth0").unwrap();
        fs::File::open(&lease)
            .unwrap()
            .set_modified(before_boot())
            .unwrap();
    }
    gc(&[]);
    let left = |folder: &str| Path::new(&format!("/var/lib/cni/{folder}/net/10.1.0.6")).exists();
    assert!(!left("a") && !left("b"));
    assert!(Path::new("/var/lib/cni/b/net/10.1.0.2").exists());
}
