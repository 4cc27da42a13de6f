//! Packets that a DHCPv4 client sends, and answers that it handles (RFC 2131 §4.4).

use super::message::MessageType;
use super::number::{CLIENT_ID, MAX_SIZE, REQUEST_LIST, REQUESTED_ADDRESS, SERVER_ID};
use super::{Identity, LeaseV4, Message, frame};
use crate::ipam::dhcp::client::{self, ClientState, Events, Leased, Phase, Protocol};
use crate::ipam::dhcp::timing::{Dice, Terms, number};
use crate::name::Mac;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum message size that the client accepts, in bytes: one packet on a link with MTU 1500.
const LONGEST: u16 = 1472;

/// An IPv4 packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Bytes from the IPv4 header on.
    pub bytes: Vec<u8>,
    /// Destination hardware address; `None` means broadcast.
    pub to: Option<Mac>,
}

/// Event of a DHCPv4 client.
pub type Event = client::Event<Packet, LeaseV4>;

/// A DHCPv4 client.
pub type Client = client::Client<Identity>;

impl Leased for LeaseV4 {
    type Address = Ipv4Addr;

    fn address(&self) -> Ipv4Addr {
        self.address
    }

    fn terms(&self) -> Terms {
        self.terms
    }
}

impl Protocol for Identity {
    type Lease = LeaseV4;
    type Packet = Packet;

    fn packet(&self, state: &ClientState<LeaseV4>, now: Duration) -> Option<Packet> {
        let held = state.lease.as_ref();
        match &state.phase {
            Phase::Selecting => Some(self.discover(state, now)),
            Phase::Requesting { offer, .. } => Some(self.request(offer, state, now)),
            Phase::Renewing => {
                held.map(|lease| to_server(lease, &self.prolonging(lease, state, now)))
            }
            Phase::Rebinding => {
                held.map(|lease| to_all(lease.address, &self.prolonging(lease, state, now)))
            }
            Phase::Bound | Phase::Over => None,
        }
    }
}

impl Identity {
    fn discover(&self, state: &ClientState<LeaseV4>, now: Duration) -> Packet {
        let mut message = self.message(MessageType::Discover, state, now);
        if let Some(wish) = state.wish {
            let address = wish.octets().to_vec();
            message.options.push((REQUESTED_ADDRESS, address));
        }
        to_all(Ipv4Addr::UNSPECIFIED, &self.complete(message))
    }

    fn request(&self, offer: &LeaseV4, state: &ClientState<LeaseV4>, now: Duration) -> Packet {
        let mut message = self.message(MessageType::Request, state, now);
        message
            .options
            .push((REQUESTED_ADDRESS, offer.address.octets().to_vec()));
        message
            .options
            .push((SERVER_ID, offer.server.octets().to_vec()));
        to_all(Ipv4Addr::UNSPECIFIED, &self.complete(message))
    }

    fn prolonging(&self, lease: &LeaseV4, state: &ClientState<LeaseV4>, now: Duration) -> Message {
        let mut message = self.message(MessageType::Request, state, now);
        // The client has its address and can be reached there.
        (message.ciaddr, message.broadcast) = (lease.address, false);
        self.complete(message)
    }

    fn message(&self, kind: MessageType, state: &ClientState<LeaseV4>, now: Duration) -> Message {
        let secs = u16::try_from(now.saturating_sub(state.since).as_secs()).unwrap_or(u16::MAX);
        Message {
            secs,
            broadcast: self.broadcast,
            ..Message::new(kind, state.xid, self.mac)
        }
    }

    /// Adds the options of every message except a release.
    fn complete(&self, mut message: Message) -> Message {
        let mut options = Vec::with_capacity(2 + self.options.len());
        if !self.request.is_empty() {
            options.push((REQUEST_LIST, self.request.clone()));
        }
        options.push((MAX_SIZE, LONGEST.to_be_bytes().to_vec()));
        options.extend_from_slice(&self.options);
        for option in options {
            message.options.retain(|(code, _)| *code != option.0);
            message.options.push(option);
        }
        message
    }
}

impl Client {
    /// Processes a message received from the hardware address `from`.
    pub fn take(
        &mut self,
        message: &Message,
        from: Mac,
        now: Duration,
        rng: Dice<'_>,
    ) -> Events<Identity> {
        let is_answer =
            message.is_reply && message.xid == self.state.xid && message.mac == self.protocol.mac;
        if !is_answer || !self.listens() {
            return Vec::new();
        }
        let Some(kind) = message.kind() else {
            return Vec::new();
        };
        let said = LeaseV4::of(message, from, now);
        match (&self.state.phase, kind, said) {
            (Phase::Selecting, MessageType::Offer, Some(offer)) => self.accept(offer, now, rng),
            (Phase::Requesting { offer, .. }, MessageType::Ack, Some(lease))
                if lease.server == offer.server =>
            {
                self.bind(lease)
            }
            (Phase::Requesting { offer, .. }, MessageType::Nak, _)
                if message.addresses(SERVER_ID).contains(&offer.server) =>
            {
                self.refuse_offer(now, rng)
            }
            (Phase::Renewing | Phase::Rebinding, MessageType::Ack, Some(mut lease)) => {
                // The mask does not change with the address, so not every server sends it again.
                if let Some(held) = self.lease()
                    && held.address == lease.address
                {
                    lease.prefix_len = lease.prefix_len.or(held.prefix_len);
                }
                self.bind(lease)
            }
            (Phase::Renewing | Phase::Rebinding, MessageType::Nak, _) => {
                self.refuse_lease(now, rng)
            }
            _ => Vec::new(),
        }
    }

    /// Ends the client. Returns the packet that releases the lease; `None` if there is nothing to
    /// release. The packet's source is the leased address.
    pub fn release(&mut self, rng: Dice<'_>) -> Option<Packet> {
        let lease = self.end()?;
        let mut message = Message::new(MessageType::Release, number(rng), self.protocol.mac);
        message.ciaddr = lease.address;
        message
            .options
            .push((SERVER_ID, lease.server.octets().to_vec()));
        // Other client options are not allowed in a release (RFC 2131, table 5).
        for option in &self.protocol.options {
            if option.0 == CLIENT_ID {
                message.options.push(option.clone());
            }
        }
        Some(to_server(&lease, &message))
    }
}

fn to_all(from: Ipv4Addr, message: &Message) -> Packet {
    Packet {
        bytes: frame::encode(from, Ipv4Addr::BROADCAST, &message.encode()),
        to: None,
    }
}

fn to_server(lease: &LeaseV4, message: &Message) -> Packet {
    let bytes = frame::encode(lease.address, lease.server, &message.encode());
    Packet {
        bytes,
        to: Some(lease.server_mac),
    }
}

#[cfg(test)]
mod tests;
