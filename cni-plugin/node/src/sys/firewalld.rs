//! Source addresses of firewalld's zones, set over D-Bus (`firewalld.dbus(5)`).

use super::dbus::{Answer, Bus, Object, is_true};
use std::io::{self, ErrorKind};
use std::net::IpAddr;

/// Name of firewalld on the bus.
const NAME: &str = "org.fedoraproject.FirewallD1";
const ZONES: Object = Object {
    destination: NAME,
    path: "/org/fedoraproject/FirewallD1",
    interface: "org.fedoraproject.FirewallD1.zone",
};

/// True if firewalld runs.
pub fn is_there() -> io::Result<bool> {
    has_owner().map_err(|err| broken(&err))
}

fn has_owner() -> io::Result<bool> {
    match Bus::connect()? {
        Some(mut bus) => bus.has_owner(NAME),
        None => Ok(false),
    }
}

/// Adds the address to the zone, if missing.
pub fn add_source(zone: &str, addr: IpAddr) -> io::Result<()> {
    match call("addSource", zone, addr).map_err(|err| broken(&err))? {
        Err(said) if !said.contains(": ZONE_ALREADY_SET") => Err(refused(&said)),
        _ => Ok(()),
    }
}

/// Removes the address from the zone. Success if it is not in the zone, or if firewalld does not
/// run.
pub fn remove_source(zone: &str, addr: IpAddr) -> io::Result<()> {
    match call("removeSource", zone, addr) {
        Err(err) if err.kind() != ErrorKind::NotFound => Err(broken(&err)),
        // Also a success: firewalld reports that the address is not in the zone, the bus reports
        // that firewalld does not run, or there is no bus.
        _ => Ok(()),
    }
}

/// True if the address is in the zone.
pub fn has_source(zone: &str, addr: IpAddr) -> io::Result<bool> {
    let answer = call("querySource", zone, addr).map_err(|err| broken(&err))?;
    let body = answer.map_err(|said| refused(&said))?;
    Ok(is_true(&body))
}

fn call(member: &str, zone: &str, addr: IpAddr) -> io::Result<Answer> {
    let no_bus = || io::Error::new(ErrorKind::NotFound, "there is no system bus");
    let source = format!("{addr}/{}", if addr.is_ipv4() { 32 } else { 128 });
    Bus::connect()?
        .ok_or_else(no_bus)?
        .call(ZONES, member, &[zone, &source])
}

fn refused(said: &str) -> io::Error {
    io::Error::other(format!("firewalld: {said}"))
}

fn broken(err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("firewalld: system bus: {err}"))
}
