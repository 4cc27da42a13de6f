//! Forwarding of packets between pods, nodes and the outside.

use crate::error::Error;
use braid_node::sys::sysctl;

const FORWARDING: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];

/// Returns the sysctls of forwarding that are off.
pub fn disabled() -> Result<Vec<&'static str>, Error> {
    let mut disabled = Vec::new();
    for key in FORWARDING {
        let value = sysctl::read(key).map_err(|err| Error::new(format_args!("read {key}"), err))?;
        // A kernel without IPv6 lacks one.
        if value.is_some_and(|value| value != "1") {
            disabled.push(key);
        }
    }
    Ok(disabled)
}

/// Enables forwarding of both families.
///
/// A router ignores router advertisements, unless `accept_ra` of the link is 2. An uplink that
/// accepts them as a host gets this value first, so that the node keeps its default route.
pub fn enable(uplink: &str) -> Result<(), Error> {
    let accept = format!("net/ipv6/conf/{uplink}/accept_ra");
    let present =
        sysctl::read(&accept).map_err(|err| Error::new(format_args!("read {accept}"), err))?;
    if present.is_some_and(|value| value == "1") {
        set(&accept, "2")?;
    }
    FORWARDING.iter().try_for_each(|key| set(key, "1"))
}

/// Sets a sysctl. A kernel without IPv6 lacks some.
fn set(key: &str, value: &str) -> Result<(), Error> {
    sysctl::ensure(key, value)
        .map(drop)
        .map_err(|err| Error::new(format_args!("set {key} to {value}"), err))
}
