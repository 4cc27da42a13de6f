//! Probes for addresses through a container's new link, before the link has them.
//!
//! ```text
//!  addresses ─► a socket for ARP, one for IPv6 ─► probes, three times in 100 ms
//!                                              ◄─ claims of other hosts ─► conflicts
//! ```

use super::dhcp::link::ContainerLink;
use super::host::Prober;
use crate::sys::packet::{PacketSocket, Protocol};
use braid_core::cni::{Attachment, Error};
use braid_core::ipam::probe::{self, Conflict, ROUNDS, WAIT};
use braid_core::name::Mac;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest part of a packet that is read, in bytes.
const LONGEST: usize = 128;
/// Length and source of a packet, if one has arrived.
type Received = Result<Option<(usize, Mac)>, Errno>;
/// Address of a link that has none.
const NO_MAC: Mac = Mac([0; 6]);

/// The hosts on the link of an attachment.
#[derive(Debug)]
pub struct LinkProber<'a>(pub &'a Attachment);

impl Prober for LinkProber<'_> {
    /// Asks for the addresses. A link that is down, or that has no hardware address, has no other
    /// hosts.
    fn probe(&self, addresses: &[IpAddr]) -> Result<Vec<Conflict>, Error> {
        let Attachment { ifname, netns, .. } = self.0;
        let failed =
            |err: &dyn Display| Error::io(format!("probe addresses on {}: {err}", ifname.as_str()));
        let path = netns.as_deref().unwrap_or(Path::new(""));
        let link = ContainerLink::find(path, ifname).map_err(|err| failed(&err))?;
        match link {
            Some(link) if link.link.is_up && link.link.mac != NO_MAC => {
                ask(&link, addresses).map_err(|err| failed(&err))
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }
}

/// Asks the hosts on the link for the addresses until the time is over, or all are claimed.
fn ask(link: &ContainerLink, addresses: &[IpAddr]) -> Result<Vec<Conflict>, Errno> {
    let own = link.link.mac;
    let mut sockets = Vec::new();
    for protocol in [Protocol::Arp, Protocol::Ipv6] {
        let is_of = |ip: &&IpAddr| ip.is_ipv4() == (protocol == Protocol::Arp);
        let targets: Vec<IpAddr> = addresses.iter().filter(is_of).copied().collect();
        if !targets.is_empty() {
            sockets.push(Socket::open(link, protocol, targets)?);
        }
    }
    let mut claims = BTreeMap::new();
    let start = Instant::now();
    for round in 1..=ROUNDS {
        for socket in &sockets {
            socket.ask(own)?;
        }
        let until = start + WAIT * round / ROUNDS;
        while claims.len() < addresses.len() && wait(&sockets, until)? {
            for socket in &sockets {
                socket.take_claims(own, until, &mut claims)?;
            }
        }
    }
    for socket in sockets {
        socket.packets.close();
    }
    let conflict = |(address, mac)| Conflict { address, mac };
    Ok(claims.into_iter().map(conflict).collect())
}

/// Waits for a packet. Returns false at the time `until`.
fn wait(sockets: &[Socket], until: Instant) -> Result<bool, Errno> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    // Rounded up: a shorter time would be a loop without a wait.
    let left = left + Duration::from_millis(1);
    let left = PollTimeout::try_from(left).map_err(|_too_long| Errno::EINVAL)?;
    let fd = |socket| {
        let Socket { packets, .. }: &Socket = socket;
        PollFd::new(packets.as_fd(), PollFlags::POLLIN)
    };
    let mut fds: Vec<PollFd<'_>> = sockets.iter().map(fd).collect();
    match poll(&mut fds, left) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// A socket for the addresses of one family.
#[derive(Debug)]
struct Socket {
    packets: PacketSocket,
    targets: Vec<IpAddr>,
}

impl Socket {
    fn open(link: &ContainerLink, protocol: Protocol, targets: Vec<IpAddr>) -> Result<Self, Errno> {
        let packets = link.open_for(protocol)?;
        for target in &targets {
            if let IpAddr::V6(target) = target {
                packets.join(probe::ALL_NODES)?;
                packets.join(probe::group_mac(*target))?;
            }
        }
        Ok(Self { packets, targets })
    }

    /// Sends a probe for each address.
    fn ask(&self, own: Mac) -> Result<(), Errno> {
        for target in &self.targets {
            let sent = match target {
                IpAddr::V4(target) => self.packets.send(&probe::arp(own, *target), None),
                IpAddr::V6(target) => {
                    let to = probe::group_mac(*target);
                    self.packets.send(&probe::solicitation(*target), Some(to))
                }
            };
            match sent {
                // Without a carrier the link drops all packets, and no host can answer.
                Ok(()) | Err(Errno::ENOBUFS) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads the packets that have arrived, and notes the claims to the addresses.
    fn take_claims(
        &self,
        own: Mac,
        until: Instant,
        claims: &mut BTreeMap<IpAddr, Mac>,
    ) -> Result<(), Errno> {
        let mut receive = |buffer: &mut [u8]| self.packets.receive(buffer);
        drain(until, &mut receive, &mut |packet, from| {
            let claim = match self.targets.first() {
                Some(IpAddr::V4(_)) => probe::arp_claim(packet, own),
                Some(IpAddr::V6(_)) => probe::nd_claim(packet, from, own),
                None => None,
            };
            let claim = claim.filter(|claim| self.targets.contains(&claim.address));
            claims.extend(claim.map(|claim| (claim.address, claim.mac)));
        })
    }
}

/// Reads the packets that have arrived, until the time `until`: on a busy link, new ones arrive
/// meanwhile.
fn drain(
    until: Instant,
    receive: &mut dyn FnMut(&mut [u8]) -> Received,
    take: &mut dyn FnMut(&[u8], Mac),
) -> Result<(), Errno> {
    let mut buffer = [0; LONGEST];
    while Instant::now() < until
        && let Some((len, from)) = receive(&mut buffer)?
    {
        take(&buffer[..len.min(LONGEST)], from);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_which_packets_never_end_is_read_until_the_time_is_over() {
        // An endless loop fails too.
        let mut left = 1_u64 << 26;
        let mut receive = |_: &mut [u8]| {
            left -= 1;
            Ok((left > 0).then_some((42, NO_MAC)))
        };
        let until = Instant::now() + Duration::from_millis(20);
        let mut count = 0_u64;
        drain(until, &mut receive, &mut |packet, _| {
            assert_eq!(packet.len(), 42);
            count += 1;
        })
        .expect("packets");
        assert!(Instant::now() >= until && count > 0 && left > 0, "{count}");
    }
}
