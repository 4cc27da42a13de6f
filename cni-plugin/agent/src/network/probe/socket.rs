//! A raw ICMP socket, bound to a network address of this node.

use super::packet::{self, Echo};
use crate::network::peers::Target;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, socket,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::net::UdpSocket;

/// Longest wait for the answers of a round.
const PATIENCE: Duration = Duration::from_secs(1);
/// Requests that are sent before answers are read, so that the answers fit into the socket's
/// buffer.
const CHUNK: usize = 64;
/// Longest packet that is read, in bytes. The rest of a longer one is dropped.
const LONGEST: usize = 128;

/// A socket of one family.
#[derive(Debug)]
pub(super) struct Socket {
    /// The raw socket. It sends and receives as a UDP socket does, and tokio has no type for it.
    raw: UdpSocket,
    source: IpAddr,
}

impl Socket {
    /// Opens a socket that sends from `source` and receives packets to it.
    pub(super) fn open(source: IpAddr) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (family, protocol) = match source {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let fd = socket(family, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address(source)))?;
        let raw = UdpSocket::from_std(fd.into());
        let raw = raw.map_err(|err| Errno::from_raw(err.raw_os_error().unwrap_or_default()))?;
        Ok(Self { raw, source })
    }

    /// Returns the address from which the socket sends.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    /// Probes the targets. Returns those that answered.
    pub(super) async fn round(
        &self,
        targets: &[Target],
        nonce: u64,
        round: u32,
    ) -> BTreeSet<Target> {
        let mut answered = BTreeSet::new();
        let mut count = 0;
        let mut take = |echo: Echo| {
            let index = usize::try_from(echo.index).ok();
            let target = index.and_then(|index| targets.get(index));
            if (echo.nonce, echo.round) == (nonce, round) {
                answered.extend(target.copied());
            }
            answered.len()
        };
        for (index, target) in (0u32..).zip(targets) {
            let echo = Echo {
                nonce,
                round,
                index,
            };
            self.send(echo, target.address).await;
            if usize::try_from(index).is_ok_and(|index| index % CHUNK == CHUNK - 1) {
                // Other tasks of the thread run too.
                tokio::task::yield_now().await;
                while let Some(echo) = self.received() {
                    count = take(echo);
                }
            }
        }
        let all = async {
            while count < targets.len() && self.raw.readable().await.is_ok() {
                while let Some(echo) = self.received() {
                    count = take(echo);
                }
            }
        };
        // Targets without an answer by then have not answered.
        let _ = tokio::time::timeout(PATIENCE, all).await;
        answered
    }

    /// Sends a request. One that the kernel refuses is as one without an answer.
    async fn send(&self, echo: Echo, to: IpAddr) {
        let _ = self
            .raw
            .send_to(&packet::request(echo, to), address(to))
            .await;
    }

    /// Returns the next answer that is queued.
    fn received(&self) -> Option<Echo> {
        let mut buffer = [0; LONGEST];
        loop {
            match self.raw.try_recv(&mut buffer) {
                Ok(len) => {
                    let answer = packet::answer(&buffer[..len], self.source.is_ipv4());
                    if answer.is_some() {
                        return answer;
                    }
                }
                Err(_) => return None,
            }
        }
    }
}

fn address(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 0)
}
