//! The IPAM `dhcp` with Debian's dnsmasq as the server: leases, their expiry and release, and the
//! daemon.

#![expect(clippy::expect_used, reason = "a helper fails its test by a panic")]

mod identity;
mod interop;
mod lifecycle;
mod lost;
mod many;
mod peers;
mod tables;
mod types;

use braid_tests::{Ns, Sandbox, Value, json};
use peers::{Program, SOCKET, Server, daemon, said, start, until};
use std::rc::Rc;

/// Creates a host link `lan`. Returns the machine at its other end, which has 10.3.0.254 and
/// `fd00:3::254`.
fn lan(host: &Sandbox) -> Rc<Ns> {
    let far = host.outside("lan", "10.3.0.253/16", "10.3.0.254/16");
    far.run("ip addr add fd00:3::254/64 dev lan nodad");
    far
}

/// Returns the configuration of a macvlan on `lan` with an address from DHCP.
fn macvlan() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "lan", "ipam": {"type": "dhcp"}})
}

/// Returns the first address of a result, without the prefix length.
fn address(result: &Value) -> String {
    let text = result["ips"][0]["address"].as_str().expect("an address");
    text.split('/').next().unwrap_or_default().to_owned()
}
