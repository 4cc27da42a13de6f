//! Configurations with which many tests start.

use braid_tests::{Value, json};

/// Returns the configuration of a bridge that is the gateway of its containers, with the subnet
/// 10.1.0.0/24.
pub(crate) fn bridge() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"},
    })
}

/// Returns the configuration of a bridge without IPAM.
pub(crate) fn bridge_l2() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0"})
}

/// Returns the configuration of a `ptp`, a veth that the host routes to, with the subnet
/// 10.2.0.0/24.
pub(crate) fn ptp() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// Returns the configuration of a netkit that the host routes to, with the subnet 10.2.0.0/24.
pub(crate) fn netkit() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "netkit",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// Returns the configuration of a macvlan on the host's link `lan`, with the subnet 10.3.0.0/24.
pub(crate) fn macvlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "lan",
        "ipam": {"type": "host-local", "subnet": "10.3.0.0/24"},
    })
}

/// Returns the configuration of a link for VLAN 5 on the host's link `lan`, with the subnet
/// 10.5.0.0/24.
pub(crate) fn vlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "vlan", "master": "lan", "vlanId": 5,
        "ipam": {"type": "host-local", "subnet": "10.5.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns the configuration of a vxlan that sends through the host's link `lan` to the remote
/// 10.3.0.254, with the subnet 10.9.0.0/24.
pub(crate) fn vxlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "vxlan", "id": 5, "dev": "lan", "remote": "10.3.0.254",
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"},
    })
}

/// Returns the configuration of a dummy link, with the subnet 10.6.0.0/24.
pub(crate) fn dummy() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "dummy",
        "ipam": {"type": "host-local", "subnet": "10.6.0.0/24"},
    })
}

/// Returns the configuration of a tap, a link that ends at a program, with the subnet
/// 10.4.0.0/24.
pub(crate) fn tap() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tap",
        "ipam": {"type": "host-local", "subnet": "10.4.0.0/24"},
    })
}

/// Returns the configuration of a `host-device` that moves the host's link `dev0`, with the subnet
/// 10.8.0.0/24.
pub(crate) fn host_device() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "dev0",
        "ipam": {"type": "host-local", "subnet": "10.8.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns the configuration of a `tuning` without settings. Its `prevResult` names `eth0` of the
/// container `a`.
pub(crate) fn tuning() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tuning",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/a"}]},
    })
}

/// Returns a `host-local` IPAM with an IPv4 range and an IPv6 range.
pub(crate) fn dual_stack() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})
}
