//! File modes of braid's state on the node. A configuration may contain secrets, and any process
//! that can open a lock file can hold the lock.

use crate::conf;
use braid_tests::{Sandbox, json, state};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Returns mode, owner and path of `root` and of each file and folder below it. Leaves out symbolic
/// links, because their mode has no meaning.
fn modes(root: &str) -> Vec<String> {
    let mode = |path: &Path| {
        let meta = fs::symlink_metadata(path).unwrap();
        format!(
            "{:o} {}:{} {}",
            meta.permissions().mode(),
            meta.uid(),
            meta.gid(),
            path.display()
        )
    };
    let below = state::tree(Path::new(root))
        .into_keys()
        .map(|path| mode(Path::new(&path)));
    let all = [mode(Path::new(root))].into_iter().chain(below);
    all.filter(|line| !line.starts_with("120")).collect()
}

#[test]
fn state_of_a_call_is_private_to_root() {
    let host = Sandbox::new();
    let limits = json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000,
        "egressBurst": 800_000});
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let mapping = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let plugins =
        json!([conf::bridge(), limits, ports, {"type": "firewall", "ingressPolicy": "isolated"}]);
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins,
        "runtimeConfig": {"portMappings": mapping}});
    let [one, other] = ["one", "other"].map(|name| host.pod(name));
    let call = host.call("braid", &one, list.clone());
    let call_of_other = host
        .call("braid", &other, list)
        .with("runtimeConfig", json!({}));
    for call in [&call, &call_of_other] {
        call.add().result();
    }
    call_of_other.del().ok();
    let kept = modes("/run/braid");
    let (folders, files): (Vec<&String>, Vec<&String>) =
        kept.iter().partition(|line| line.starts_with("40"));
    assert!(
        folders.iter().all(|line| line.starts_with("40700 0:0 ")),
        "{folders:?}"
    );
    assert!(
        files.iter().all(|line| line.starts_with("100600 0:0 ")),
        "{files:?}"
    );
    for name in [
        "/run/braid",
        "attachments/one",
        "lock",
        "leaving",
        "attachments/one/eth0:net:braid.json",
        "lock/rules",
        "kernel",
    ] {
        assert!(
            kept.iter().any(|line| line.ends_with(name)),
            "{name} is not in {kept:?}"
        );
    }
    // These modes are the same as with the reference plugin.
    let leases = [
        "40755 0:0 /var/lib/cni/networks/net",
        "100600 0:0 /var/lib/cni/networks/net/10.1.0.2",
        "100600 0:0 /var/lib/cni/networks/net/last_reserved_ip.0",
        "100750 0:0 /var/lib/cni/networks/net/lock",
    ];
    assert_eq!(modes("/var/lib/cni/networks/net"), leases);
    call.del().ok();
    host.assert_nothing_left();
}
