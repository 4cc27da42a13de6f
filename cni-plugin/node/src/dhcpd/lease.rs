//! Lease of the daemon: its DHCP session, its sockets while responses are expected, and the calls
//! that wait for it.

use super::Settings;
use crate::ipam::dhcp::store::{Store, Stored};
use crate::log::Log;
use crate::sys::events::Events;
use crate::sys::packet::{PacketSocket, ServersSocket};
use braid_core::ipam::dhcp::{DhcpConfig, Session, v6};
use braid_core::name::Mac;
use nix::errno::Errno;
use std::fmt::Arguments;

/// Kind of a lease's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Socket {
    /// IPv4 packets.
    V4,
    /// DHCPv6 messages.
    V6,
}

impl Socket {
    pub(super) fn kind(self) -> u64 {
        match self {
            Self::V4 => 2,
            Self::V6 => 3,
        }
    }

    pub(super) fn of_kind(kind: u64) -> Option<Self> {
        [Self::V4, Self::V6]
            .into_iter()
            .find(|socket| socket.kind() == kind)
    }
}

/// A call that waits for the lease.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) connection: u64,
    pub(super) seq: u64,
    pub(super) method: String,
}

/// A lease that the daemon serves, with its DHCP session.
#[derive(Debug)]
pub(super) struct ServedLease {
    /// The lease as stored in its file. The field `held` changes only when [`ServedLease::keep`]
    /// writes the file.
    pub(super) stored: Stored,
    pub(super) session: Session,
    pub(super) waiting: Vec<Waiter>,
    /// True if a plugin received the addresses, so they are on the link unless they expired.
    pub(super) is_told: bool,
    /// True if an address that a plugin received has expired. The daemon itself then adds the next
    /// address to the link.
    pub(super) is_lost: bool,
    pub(super) log: Log,
    v4: Option<PacketSocket>,
    v6: Option<ServersSocket>,
}

impl ServedLease {
    pub(super) fn new(stored: Stored, session: Session, log: Log) -> Self {
        let (is_told, is_lost) = (false, false);
        Self {
            stored,
            session,
            waiting: Vec::new(),
            is_told,
            is_lost,
            v4: None,
            v6: None,
            log,
        }
    }

    /// Creates a lease from an earlier daemon's file.
    pub(super) fn resumed(stored: Stored, session: Session, log: Log) -> Self {
        let is_lost = !session.is_bound();
        Self {
            is_told: true,
            is_lost,
            ..Self::new(stored, session, log)
        }
    }

    /// Sends a packet. If there is no socket for the packet's protocol, opens one and adds the
    /// socket to `events`.
    pub(super) fn send(
        &mut self,
        events: &Events,
        id: u64,
        packet: Packet<'_>,
    ) -> Result<(), Errno> {
        let place = || match self.stored.place() {
            Some(Ok(place)) => Ok(place),
            Some(Err(_)) | None => Err(Errno::ENODEV),
        };
        match packet {
            Packet::V4(bytes, to) => {
                if self.v4.is_none() {
                    let socket = place()?.open4()?;
                    events.add(&socket, id << 2 | Socket::V4.kind())?;
                    self.v4 = Some(socket);
                }
                self.v4
                    .as_ref()
                    .map_or(Ok(()), |socket| socket.send(bytes, to))
            }
            Packet::V6(message) => {
                if self.v6.is_none() {
                    let socket = place()?.open6()?;
                    events.add(&socket, id << 2 | Socket::V6.kind())?;
                    self.v6 = Some(socket);
                }
                self.v6
                    .as_ref()
                    .map_or(Ok(()), |socket| socket.send(message, v6::SERVER_PORT))
            }
        }
    }

    /// Receives a packet into `buffer`. Returns the packet's length and the sender's hardware
    /// address, which is zero for DHCPv6. Returns `None` if there is no packet or no socket.
    pub(super) fn receive(&self, socket: Socket, buffer: &mut [u8]) -> Option<(usize, Mac)> {
        match socket {
            Socket::V4 => self.v4.as_ref()?.receive(buffer).ok()?,
            Socket::V6 => {
                let len = self.v6.as_ref()?.receive(buffer).ok()??;
                Some((len, Mac([0; 6])))
            }
        }
    }

    /// Closes the sockets on which the session expects no response. An open socket keeps the
    /// container's namespace alive.
    pub(super) fn close_idle(&mut self) {
        if !self.session.listens4()
            && let Some(socket) = self.v4.take()
        {
            socket.close();
        }
        if !self.session.listens6() {
            self.v6 = None;
        }
    }

    /// Returns the lease's name for the log.
    pub(super) fn name(&self) -> String {
        self.stored.owner.whole()
    }

    /// Logs a sentence about this lease.
    pub(super) fn report(&self, sentence: Arguments<'_>) {
        self.log.line(format_args!("{}: {sentence}", self.name()));
    }

    /// Writes the current lease to its file.
    pub(super) fn keep(&mut self, store: &Store) {
        self.stored.held = self.session.held();
        if let Err(err) = store.put(&self.stored) {
            self.report(format_args!("write the lease file: {err}"));
        }
    }
}

/// A packet to send.
#[derive(Debug, Clone, Copy)]
pub(super) enum Packet<'a> {
    /// An IPv4 packet and the receiver's hardware address; `None` for a broadcast.
    V4(&'a [u8], Option<Mac>),
    /// A message to all DHCPv6 servers.
    V6(&'a [u8]),
}

/// Creates the DHCP session of a stored lease. Servers identify the client by the lease's owner and
/// hardware address.
pub(super) fn session(
    stored: &Stored,
    config: &DhcpConfig,
    settings: &Settings,
    rng: &mut dyn FnMut() -> u64,
) -> Session {
    let link = braid_core::ipam::dhcp::session::Link {
        owner: &stored.owner,
        mac: stored.mac,
        broadcast: settings.broadcast,
    };
    Session::new(
        config,
        link,
        stored.held.clone(),
        (settings.limits, crate::sys::events::now()),
        rng,
    )
}
