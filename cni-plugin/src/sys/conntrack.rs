//! Connections that the kernel keeps track of.
//!
//! Numbers are those of `include/uapi/linux/netfilter/nfnetlink_conntrack.h`.

use super::netlink::{KernelError, NESTED, Socket, attr, find, nest};
use nix::errno::Errno;
use std::net::IpAddr;

const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
const TUPLE_ORIG: u16 = 1;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const PROTO_DST_PORT: u16 = 3;
const FILTER: u16 = 25;
const FILTER_ORIG_FLAGS: u16 = 1;
/// Of the filter's flags, those for the protocol's number and the destination port (Linux 5.8).
const BY_PROTOCOL_AND_PORT: u32 = 1 << 3 | 1 << 5;
const UDP: u8 = 17;

/// Forgets the connections of UDP to that port of this host, wherever they were led: their clients' next packets are led
/// anew. An unspecified address stands for all of its family.
pub fn forget_udp(socket: &mut Socket, addr: IpAddr, port: u16) -> Result<(), KernelError> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let family = u8::try_from(family).unwrap_or_default();
    let head = [family, 0, 0, 0];
    let found = socket.dump(GET, |out| {
        out.extend(head);
        nest(NESTED | TUPLE_ORIG, out, |out| {
            nest(NESTED | TUPLE_PROTO, out, |out| {
                attr(PROTO_NUM, &[UDP], out);
                attr(PROTO_DST_PORT, &port.to_be_bytes(), out);
            });
        });
        nest(NESTED | FILTER, out, |out| attr(FILTER_ORIG_FLAGS, &BY_PROTOCOL_AND_PORT.to_ne_bytes(), out));
    });
    let found = match found {
        Ok(found) => found,
        // Nobody tracks connections, so none has to be forgotten.
        Err(err) if [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&err.errno) => return Ok(()),
        Err(err) => return Err(err),
    };
    for message in &found {
        let Some(tuple) = original(message.body.get(head.len()..).unwrap_or_default()) else { continue };
        if !is_to(tuple, addr, port) {
            continue;
        }
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
    find(TUPLE_ORIG, body)
}

/// Whether the tuple is one of UDP to the address and the port.
fn is_to(tuple: &[u8], addr: IpAddr, port: u16) -> bool {
    let protocol = find(TUPLE_PROTO, tuple).unwrap_or_default();
    let (destination, bytes) = match addr {
        IpAddr::V4(addr) => (2, addr.octets().to_vec()),
        IpAddr::V6(addr) => (4, addr.octets().to_vec()),
    };
    let is_there = find(TUPLE_IP, tuple).and_then(|ip| find(destination, ip)).is_some_and(|found| found == bytes);
    find(PROTO_NUM, protocol) == Some(&[UDP])
        && find(PROTO_DST_PORT, protocol) == Some(&port.to_be_bytes())
        && (addr.is_unspecified() || is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(protocol: u8, port: u16) -> Vec<u8> {
        let mut out = Vec::new();
        nest(TUPLE_IP, &mut out, |out| attr(2, &[192, 0, 2, 1], out));
        nest(TUPLE_PROTO, &mut out, |out| {
            attr(PROTO_NUM, &[protocol], out);
            attr(PROTO_DST_PORT, &port.to_be_bytes(), out);
        });
        out
    }

    #[test]
    fn only_udp_to_the_port_and_the_address_is_forgotten() {
        let at = |addr: &str| addr.parse::<IpAddr>().expect("an address");
        assert!(is_to(&tuple(UDP, 53), at("0.0.0.0"), 53));
        assert!(is_to(&tuple(UDP, 53), at("192.0.2.1"), 53));
        assert!(!is_to(&tuple(UDP, 53), at("192.0.2.2"), 53));
        assert!(!is_to(&tuple(UDP, 53), at("0.0.0.0"), 54));
        assert!(!is_to(&tuple(6, 53), at("0.0.0.0"), 53));
        assert!(!is_to(&[], at("0.0.0.0"), 53));
    }
}
