//! Forwarding of packets between pods, nodes and the outside.

use crate::Error;
use braid_node::sys::sysctl;
use std::fs;

const FORWARDING: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
const LINKS: &str = "/proc/sys/net/ipv6/conf";

/// Enables forwarding of both families.
///
/// A router ignores router advertisements, unless `accept_ra` of the link is 2. Links that accept
/// them as a host get this value first, so that the node keeps its default route.
pub fn enable() -> Result<(), Error> {
    if sysctl::read(FORWARDING[1])
        .map_err(|err| Error::new(format_args!("read {}", FORWARDING[1]), err))?
        .is_some_and(|value| value == "0")
    {
        keep_router_advertisements()?;
    }
    for key in FORWARDING {
        // A kernel without IPv6 has no such key.
        sysctl::ensure(key, "1").map_err(|err| Error::new(format_args!("set {key} to 1"), err))?;
    }
    Ok(())
}

fn keep_router_advertisements() -> Result<(), Error> {
    let doing = format!("list {LINKS}");
    for entry in fs::read_dir(LINKS).map_err(|err| Error::new(&doing, err))? {
        let name = entry.map_err(|err| Error::new(&doing, err))?.file_name();
        let Some(name) = name.to_str() else { continue };
        // These are defaults of links, not links.
        if ["all", "default"].contains(&name) {
            continue;
        }
        let key = format!("net/ipv6/conf/{name}/accept_ra");
        let doing = format!("set {key} to 2");
        if sysctl::read(&key)
            .map_err(|err| Error::new(&doing, err))?
            .is_some_and(|value| value == "1")
        {
            sysctl::write(&key, "2").map_err(|err| Error::new(&doing, err))?;
        }
    }
    Ok(())
}
