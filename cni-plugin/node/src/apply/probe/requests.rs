//! `nf_tables` requests that have the form of an attachment's requests.

use crate::effect::firewall::addrs;
use crate::effect::host_ports::nft;
use crate::effect::{mac_check, masquerade, packet_guard};
use crate::sys::netlink::{KernelError, Socket};
use braid_core::name::{IfName, Mac};
use braid_core::plan::thing::firewall::Gate;
use braid_core::plan::thing::host_ports::{HostEndpoint, HostPort, Protocol, Rewrite, Target};
use braid_core::plan::thing::packet_guard::PacketLimit;
use braid_core::plan::thing::{Firewall, HostPorts, LinkRef, MacCheck, Masquerade, PacketGuard};
use nix::errno::Errno;
use std::net::{Ipv4Addr, SocketAddr};

/// Requests the generation number of the `nf_tables` ruleset. Fails on a kernel without
/// `nf_tables`.
pub(super) fn nf_tables(socket: &mut Socket) -> Result<(), KernelError> {
    const GETGEN: u16 = 10 << 8 | 16;
    socket.call(GETGEN, 0, |out| out.extend([0; 4]))?;
    Ok(())
}

pub(super) fn masqueraded(socket: &mut Socket) -> Result<(), KernelError> {
    let source = Ipv4Addr::new(10, 0, 0, 1).into();
    let network = ipnet::IpNet::new(source, 24).or(Err(Errno::EINVAL))?;
    masquerade::add(
        socket,
        &Masquerade {
            source,
            network,
            owner: String::new(),
        },
    )
}

pub(super) fn led(socket: &mut Socket) -> Result<(), KernelError> {
    let addr = Ipv4Addr::new(10, 0, 0, 1);
    let at = HostEndpoint {
        addr: Ipv4Addr::UNSPECIFIED.into(),
        protocol: Protocol::Tcp,
        port: 80,
        conditional: false,
    };
    let port = HostPort {
        at,
        to: SocketAddr::new(addr.into(), 80),
    };
    let target = Target {
        addr: addr.into(),
        rewrite: Rewrite::Own,
    };
    let (ports, targets, owner) = (vec![port], vec![target], String::new());
    nft::add(
        socket,
        &HostPorts {
            ports,
            targets,
            owner,
            ..HostPorts::default()
        },
    )
}

pub(super) fn let_through(socket: &mut Socket) -> Result<(), KernelError> {
    let addrs = vec![Ipv4Addr::new(10, 0, 0, 1).into()];
    let gate = Gate::Chains {
        admin: String::new(),
    };
    addrs::add(
        socket,
        &Firewall {
            addrs,
            isolation: None,
            gate,
            legacy: Vec::new(),
            owner: String::new(),
        },
    )
}

pub(super) fn mac_checked(socket: &mut Socket) -> Result<(), KernelError> {
    let port = IfName::parse("probe0").or(Err(Errno::EINVAL))?;
    mac_check::add(
        socket,
        &MacCheck {
            port,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            owner: String::new(),
        },
    )
}

pub(super) fn packets_held(socket: &mut Socket) -> Result<(), KernelError> {
    let at = LinkRef::host(IfName::parse("lo").or(Err(Errno::EINVAL))?);
    packet_guard::add(
        socket,
        &PacketGuard {
            at,
            limit: PacketLimit { rate: 1, burst: 1 },
            subnets: None,
        },
    )
}
