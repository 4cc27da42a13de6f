//! firewalld's zones: which of them the packets of an address belong to (its D-Bus interface, `firewalld.dbus(5)`).

use super::dbus::{Bus, Object, Refusal, is_true};
use super::netlink::KernelError;
use nix::errno::Errno;
use std::io::ErrorKind;
use std::net::IpAddr;

/// Its name on the bus.
const NAME: &str = "org.fedoraproject.FirewallD1";
const ZONES: Object =
    Object { destination: NAME, path: "/org/fedoraproject/FirewallD1", interface: "org.fedoraproject.FirewallD1.zone" };

/// Whether it runs.
pub fn is_there() -> Result<bool, KernelError> {
    match Bus::connect().map_err(|err| failed(&err))? {
        Some(mut bus) => bus.has_owner(NAME).map_err(|err| failed(&err)),
        None => Ok(false),
    }
}

/// Puts the address into the zone, if it is not there.
pub fn add_source(zone: &str, addr: IpAddr) -> Result<(), KernelError> {
    let already = |err: &Refusal| matches!(err, Refusal::Error { text, .. } if text.starts_with("ZONE_ALREADY_SET"));
    match call("addSource", zone, addr) {
        Err(err) if already(&err) => Ok(()),
        other => other.map(drop).map_err(|err| failed(&err)),
    }
}

/// Takes the address out of the zone; success where it is not there, or firewalld does not run.
pub fn remove_source(zone: &str, addr: IpAddr) -> Result<(), KernelError> {
    match call("removeSource", zone, addr) {
        // firewalld's own word that it is not there, or the bus's that nobody has its name.
        Err(Refusal::Error { .. }) => Ok(()),
        Err(Refusal::Io(err)) if err.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map(drop).map_err(|err| failed(&err)),
    }
}

/// Whether the address is in the zone.
pub fn has_source(zone: &str, addr: IpAddr) -> Result<bool, KernelError> {
    call("querySource", zone, addr).map(|body| is_true(&body)).map_err(|err| failed(&err))
}

fn call(member: &str, zone: &str, addr: IpAddr) -> Result<Vec<u8>, Refusal> {
    let no_bus = || Refusal::Io(std::io::Error::new(ErrorKind::NotFound, "there is no system bus"));
    let source = format!("{addr}/{}", if addr.is_ipv4() { 32 } else { 128 });
    Bus::connect()?.ok_or_else(no_bus)?.call(ZONES, member, &[zone, &source])
}

fn failed(err: &Refusal) -> KernelError {
    let errno = match err {
        Refusal::Io(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Errno::ETIMEDOUT,
        _ => Errno::EPROTO,
    };
    KernelError { ext_ack: Some(format!("firewalld: {err}")), ..errno.into() }
}
