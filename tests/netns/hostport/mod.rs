//! `portmap`: which clients reach the host ports of a container, and with which source address.

mod conditions;
mod flows;
mod loopback;
mod many;
mod martian;
mod matrix;
mod owners;
mod siblings;

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Service, Transport, Value, json};
use std::rc::Rc;

const BOTH: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Folder in which the eBPF backend pins its programs and maps.
const PINS: &str = "/sys/fs/bpf/braid";
/// Host port that the tests map to [`SERVICE`] in the container.
const PORT: u16 = 8080;
const SERVICE: u16 = 80;

/// Returns the configuration of a dual-stack network. `of` is a part of its subnets,
/// `10.<of>.0.0/24` and `fd00:<of>::/64`.
fn network(plugin: &str, name: &str, of: u8) -> Value {
    let ipam = json!({"type": "host-local",
        "ranges": [[{"subnet": format!("10.{of}.0.0/24")}], [{"subnet": format!("fd00:{of}::/64")}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let mut main = match plugin {
        "bridge" | "bridge of netkits" => conf::bridge(),
        "netkit" | "netkit l2" => conf::netkit(),
        _ => conf::ptp(),
    };
    if plugin.contains("netkit") {
        main["device"] = json!("netkit");
        main["mode"] = json!(if plugin == "netkit" { "l3" } else { "l2" });
    }
    main["ipam"] = ipam;
    main["bridge"] = json!(format!("br{of}"));
    json!({"cniVersion": "1.1.0", "name": name, "type": "braid",
        "plugins": [main, {"type": "portmap", "capabilities": {"portMappings": true}}]})
}

/// Returns the configuration of the network `net`, whose `portmap` uses `backend`.
fn network_by(plugin: &str, backend: &str) -> Value {
    let mut network = network(plugin, "net", 1);
    network["plugins"][1]["backend"] = json!(backend);
    network
}

fn mapping(transport: Transport) -> Value {
    let protocol = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Sctp => "sctp",
    };
    json!({"hostPort": PORT, "containerPort": SERVICE, "protocol": protocol})
}

fn tcp() -> Value {
    json!([mapping(Transport::Tcp)])
}

/// Returns a TCP mapping that is limited to one address of the host.
fn at_address(host_ip: &str) -> Value {
    let mut mapping = mapping(Transport::Tcp);
    mapping["hostIP"] = json!(host_ip);
    json!([mapping])
}

/// True if a TCP connection of `client` to `at` reaches a service in `server`.
fn reaches(client: &Ns, at: &str, server: &Ns) -> bool {
    let _service = Service::start(server, Transport::Tcp, SERVICE);
    client.ask(Transport::Tcp, at).is_ok()
}

fn mapped(host: &Sandbox, pod: &Ns, network: Value, mappings: &Value) -> Call {
    host.call("braid", pod, network)
        .with("runtimeConfig", json!({"portMappings": mappings}))
}

fn attach(host: &Sandbox, name: &str, network: Value) -> Rc<Ns> {
    let pod = host.pod(name);
    host.call("braid", &pod, network).add().result();
    pod
}

/// Creates a machine outside whose only route is to the host's addresses `192.0.2.1` and
/// `2001:db8::1`.
fn outside(host: &Sandbox) -> Rc<Ns> {
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    host.run("ip addr add 2001:db8::1/64 dev world nodad");
    outside.run("ip addr add 2001:db8::2/64 dev world nodad");
    host.run("ip link set lo up");
    outside
}

fn bridge_nf(host: &Sandbox, on: bool) {
    for key in [
        "net/bridge/bridge-nf-call-iptables",
        "net/bridge/bridge-nf-call-ip6tables",
    ] {
        if std::fs::exists(format!("/proc/sys/{key}")).unwrap_or(false) {
            host.set_sysctl(key, if on { "1" } else { "0" });
        }
    }
}
