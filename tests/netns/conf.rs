//! Configurations that many tests start from.

use braid_tests::{Value, json};

/// Returns a bridge that is the gateway of its containers; 10.1.0.0/24.
pub(crate) fn bridge() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"},
    })
}

/// Returns a bridge without addresses.
pub(crate) fn bridge_l2() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0"})
}

/// Returns a veth that the host routes to; 10.2.0.0/24.
pub(crate) fn ptp() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// Returns a netkit that the host routes to; 10.2.0.0/24.
pub(crate) fn netkit() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "netkit",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"},
    })
}

/// Returns a macvlan of the host's `lan`; 10.3.0.0/24.
pub(crate) fn macvlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "lan",
        "ipam": {"type": "host-local", "subnet": "10.3.0.0/24"},
    })
}

/// Returns VLAN 5 of the host's `lan`; 10.5.0.0/24.
pub(crate) fn vlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "vlan", "master": "lan", "vlanId": 5,
        "ipam": {"type": "host-local", "subnet": "10.5.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a vxlan above the host's `lan` to one peer there; 10.9.0.0/24.
pub(crate) fn vxlan() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "vxlan", "id": 5, "dev": "lan", "remote": "10.3.0.254",
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"},
    })
}

/// Returns a dummy interface; 10.6.0.0/24.
pub(crate) fn dummy() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "dummy",
        "ipam": {"type": "host-local", "subnet": "10.6.0.0/24"},
    })
}

/// Returns a tap, an interface with a program at its other end; 10.4.0.0/24.
pub(crate) fn tap() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tap",
        "ipam": {"type": "host-local", "subnet": "10.4.0.0/24"},
    })
}

/// Returns the host's `dev0` as a host-device; 10.8.0.0/24.
pub(crate) fn host_device() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "dev0",
        "ipam": {"type": "host-local", "subnet": "10.8.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns sysctls and attributes for the existing interface of `prevResult`.
pub(crate) fn tuning() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "tuning",
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/a"}]},
    })
}

/// Returns an IPAM with one IPv4 and one IPv6 range.
pub(crate) fn dual_stack() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})
}
