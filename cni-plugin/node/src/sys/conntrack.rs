//! Tracked connections of the kernel (conntrack).
//!
//! Numbers are from `include/uapi/linux/netfilter/nfnetlink_conntrack.h`.

use super::netlink::{KernelError, NESTED, Socket, attr, find, nest};
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
const TUPLE_ORIG: u16 = 1;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const PROTO_DST_PORT: u16 = 3;
const FILTER: u16 = 25;
const FILTER_ORIG_FLAGS: u16 = 1;
/// Filter flag for the protocol's number (Linux 5.8).
const BY_PROTOCOL: u32 = 1 << 3;
/// Filter flag for the destination port (Linux 5.8).
const BY_PORT: u32 = 1 << 5;
const UDP: u8 = 17;
/// Length of `struct nfgenmsg`.
const HEAD_LEN: usize = 4;
/// Attribute type of a tuple's IPv4 destination address.
const V4_DST: u16 = 2;
/// Attribute type of a tuple's IPv6 destination address.
const V6_DST: u16 = 4;

/// Deletes the tracked UDP connections to these ports of this host, regardless of their NAT target,
/// so that the clients' next packets are redirected anew. An unspecified address stands for all
/// addresses of its family.
///
/// Each request makes the kernel walk the connections of all namespaces, which takes 20 ms. So
/// there is one request for each family. If all ports of a family are equal, the kernel returns
/// only the connections to that port. Otherwise it returns all UDP connections.
pub fn forget_udp(
    socket: &mut Socket,
    ports: impl IntoIterator<Item = (IpAddr, u16)>,
) -> Result<(), KernelError> {
    let (v4, v6) = ports.into_iter().partition(|(addr, _)| addr.is_ipv4());
    forget_of(socket, libc::AF_INET, &v4)?;
    forget_of(socket, libc::AF_INET6, &v6)
}

fn forget_of(
    socket: &mut Socket,
    family: i32,
    ports: &BTreeSet<(IpAddr, u16)>,
) -> Result<(), KernelError> {
    let Some((_, first)) = ports.first() else {
        return Ok(());
    };
    let head = [u8::try_from(family).unwrap_or_default(), 0, 0, 0];
    let is_one = ports.iter().all(|(_, port)| port == first);
    let request = |out: &mut Vec<u8>| {
        out.extend(head);
        nest(NESTED | TUPLE_ORIG, out, |out| {
            nest(NESTED | TUPLE_PROTO, out, |out| {
                attr(PROTO_NUM, &[UDP], out);
                attr(PROTO_DST_PORT, &first.to_be_bytes(), out);
            });
        });
        let flags = BY_PROTOCOL | if is_one { BY_PORT } else { 0 };
        nest(NESTED | FILTER, out, |out| {
            attr(FILTER_ORIG_FLAGS, &flags.to_ne_bytes(), out);
        });
    };
    let is_wanted = |body: &[u8]| original(body).is_some_and(|tuple| is_to(tuple, ports));
    let found = match socket.dump_those(GET, request, is_wanted) {
        Ok(found) => found,
        // Connections are not tracked, so there are none to delete.
        Err(err) if [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&err.errno) => return Ok(()),
        Err(err) => return Err(err),
    };
    for message in &found {
        let Some(tuple) = original(&message.body) else {
            continue;
        };
        let delete = |out: &mut Vec<u8>| {
            out.extend(head);
            attr(NESTED | TUPLE_ORIG, tuple, out);
        };
        match socket.call(DELETE, 0, delete) {
            Err(err) if err.errno != Errno::ENOENT => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

fn original(body: &[u8]) -> Option<&[u8]> {
    find(TUPLE_ORIG, body.get(HEAD_LEN..)?)
}

/// True if the tuple belongs to a UDP connection to one of the ports.
fn is_to(tuple: &[u8], ports: &BTreeSet<(IpAddr, u16)>) -> bool {
    let protocol = find(TUPLE_PROTO, tuple).unwrap_or_default();
    let port = find(PROTO_DST_PORT, protocol)
        .and_then(|port| Some(u16::from_be_bytes(*port.first_chunk()?)));
    let (Some(port), Some(addr)) = (port, destination(tuple)) else {
        return false;
    };
    let unspecified = if addr.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    find(PROTO_NUM, protocol) == Some(&[UDP])
        && [addr, unspecified]
            .iter()
            .any(|addr| ports.contains(&(*addr, port)))
}

fn destination(tuple: &[u8]) -> Option<IpAddr> {
    let addrs = find(TUPLE_IP, tuple)?;
    let v4 = || Some(IpAddr::from(*find(V4_DST, addrs)?.first_chunk::<4>()?));
    let v6 = || Some(IpAddr::from(*find(V6_DST, addrs)?.first_chunk::<16>()?));
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(to: &str, protocol: u8, port: u16) -> Vec<u8> {
        let mut out = Vec::new();
        nest(TUPLE_IP, &mut out, |out| {
            match to.parse().expect("an address") {
                IpAddr::V4(addr) => attr(V4_DST, &addr.octets(), out),
                IpAddr::V6(addr) => attr(V6_DST, &addr.octets(), out),
            }
        });
        nest(TUPLE_PROTO, &mut out, |out| {
            attr(PROTO_NUM, &[protocol], out);
            attr(PROTO_DST_PORT, &port.to_be_bytes(), out);
        });
        out
    }

    fn is_to(tuple: &[u8], ports: &[(&str, u16)]) -> bool {
        let ports = ports
            .iter()
            .map(|(addr, port)| (addr.parse().expect("an address"), *port))
            .collect();
        super::is_to(tuple, &ports)
    }

    #[test]
    fn only_udp_to_the_port_and_the_address_is_deleted() {
        let to_dns = tuple("192.0.2.1", UDP, 53);
        assert!(is_to(&to_dns, &[("0.0.0.0", 53)]));
        assert!(is_to(&to_dns, &[("192.0.2.2", 53), ("192.0.2.1", 53)]));
        assert!(!is_to(
            &to_dns,
            &[("192.0.2.2", 53), ("192.0.2.1", 54), ("::", 53)]
        ));
        assert!(is_to(&tuple("fd00::1", UDP, 53), &[("::", 53)]));
        assert!(!is_to(&tuple("fd00::1", 6, 53), &[("::", 53)]));
        assert!(!is_to(&[], &[("0.0.0.0", 53)]));
    }
}
