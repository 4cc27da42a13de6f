//! Configurations that many tests start from.

use braid_tests::{Value, json};

/// A bridge that is its containers' gateway; 10.1.0.0/24.
pub(crate) fn bridge() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"},
    })
}

/// A bridge without addresses.
pub(crate) fn bridge_l2() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0"})
}

/// A veth that the host routes to; 10.2.0.0/24.
pub(crate) fn ptp() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// A netkit that the host routes to; 10.2.0.0/24.
pub(crate) fn netkit() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "netkit",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// A child of the host's `lan`; 10.3.0.0/24.
pub(crate) fn macvlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "lan",
        "ipam": {"type": "host-local", "subnet": "10.3.0.0/24"},
    })
}

/// VLAN 5 of the host's `lan`; 10.5.0.0/24.
pub(crate) fn vlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "vlan", "master": "lan", "vlanId": 5,
        "ipam": {"type": "host-local", "subnet": "10.5.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// An interface for an address of 10.6.0.0/24.
pub(crate) fn dummy() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "dummy",
        "ipam": {"type": "host-local", "subnet": "10.6.0.0/24"},
    })
}

/// An interface whose other end is a program; 10.4.0.0/24.
pub(crate) fn tap() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tap",
        "ipam": {"type": "host-local", "subnet": "10.4.0.0/24"},
    })
}

/// The host's `dev0`; 10.8.0.0/24.
pub(crate) fn host_device() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "dev0",
        "ipam": {"type": "host-local", "subnet": "10.8.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Sysctls and attributes of an interface that is there already, of which `prevResult` tells.
pub(crate) fn tuning() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tuning",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/a"}]},
    })
}

/// IPAM with one IPv4 and one IPv6 range.
pub(crate) fn dual_stack() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})
}
