//! Sockets with the kernel's notifications about links, addresses, routes, neighbours, rules,
//! forwarding and nf_tables.

use crate::error::Error;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, setsockopt, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::net::UdpSocket;

/// Groups of `rtnetlink`, numbered from 1: LINK, NEIGH, and for each family IFADDR, ROUTE, RULE and
/// NETCONF.
const ROUTE_GROUPS: [u32; 10] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25];
/// Group of links.
const LINK_GROUPS: [u32; 1] = [1];
/// `NFNLGRP_NFTABLES`.
const NFTABLES_GROUPS: [u32; 1] = [7];
/// Size of the buffer of each socket in bytes. A longer burst is an overrun.
const BUFFER: usize = 1 << 20;
/// Longest datagram in bytes. The kernel fills at most a page, and 32 KiB for large objects.
const LONGEST: usize = 32 << 10;

/// The sockets.
#[derive(Debug)]
pub struct Watch {
    sockets: [UdpSocket; 2],
    buffers: [Vec<u8>; 2],
}

/// A notification.
#[derive(Debug, PartialEq, Eq)]
pub enum Notification<'b> {
    /// Messages of one datagram.
    Messages(&'b [u8]),
    /// Messages were lost: anything may have changed.
    Lost,
}

impl Watch {
    /// Opens the sockets in the network namespace of this thread.
    pub fn open() -> Result<Self, Error> {
        Self::of_groups(&ROUTE_GROUPS, &NFTABLES_GROUPS)
    }

    /// Like [`Watch::open`], with notifications about links alone.
    pub fn of_links() -> Result<Self, Error> {
        Self::of_groups(&LINK_GROUPS, &[])
    }

    fn of_groups(route: &[u32], nftables: &[u32]) -> Result<Self, Error> {
        let route = open(SockProtocol::NetlinkRoute, route);
        let nftables = open(SockProtocol::NetlinkNetFilter, nftables);
        let failed = |err| Error::new("watch the kernel's notifications", err);
        Ok(Self {
            sockets: [route.map_err(failed)?, nftables.map_err(failed)?],
            buffers: [vec![0; LONGEST], vec![0; LONGEST]],
        })
    }

    /// Waits for a notification. Dropping the future loses none.
    pub async fn next(&mut self) -> Notification<'_> {
        let [route, nftables] = &self.sockets;
        let [of_route, of_nftables] = &mut self.buffers;
        let (received, buffer) = tokio::select! {
            received = route.recv(of_route) => (received, &self.buffers[0]),
            received = nftables.recv(of_nftables) => (received, &self.buffers[1]),
        };
        match received {
            Ok(length) if length < LONGEST => Notification::Messages(&buffer[..length]),
            // ENOBUFS: the buffer of the socket was full.
            Ok(_) | Err(_) => Notification::Lost,
        }
    }
}

/// Opens a socket of these groups. It receives as a UDP socket does, and tokio has no type for it.
fn open(protocol: SockProtocol, groups: &[u32]) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    enlarge(&fd)?;
    let mut mask = 0;
    for group in groups {
        mask |= 1 << (group - 1);
    }
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask))?;
    UdpSocket::from_std(fd.into())
}

/// Enlarges the receive buffer, beyond the limit of ordinary programs if that is permitted.
fn enlarge(fd: &OwnedFd) -> Result<(), Errno> {
    setsockopt(fd, RcvBufForce, &BUFFER).or_else(|_| setsockopt(fd, RcvBuf, &BUFFER))
}
