//! Messages that a DHCPv6 client for one address sends, and answers that it handles (RFC 8415
//! §18.2). Every message is sent to all servers on the link.

use super::Identity;
use super::message::{CLIENT_ID, Message, MessageType, SERVER_ID};
use crate::ipam::dhcp::client::{self, ClientState, Events, Leased, Phase, Protocol};
use crate::ipam::dhcp::timing::{Dice, Terms, number};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use std::time::Duration;

/// A DHCPv6 lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseV6 {
    /// Leased address. It has no prefix length, because hosts with the same prefix need not be on
    /// the link (RFC 5942).
    pub address: Ipv6Addr,
    /// Server identifier.
    pub server: Vec<u8>,
    /// Times of the lease.
    pub terms: Terms,
}

/// Event of a DHCPv6 client. The message of a `Send` event is for all servers on the link.
pub type Event = client::Event<Vec<u8>, LeaseV6>;

/// A DHCPv6 client.
pub type Client = client::Client<Identity>;

impl Leased for LeaseV6 {
    type Address = Ipv6Addr;

    fn address(&self) -> Ipv6Addr {
        self.address
    }

    fn terms(&self) -> Terms {
        self.terms
    }
}

impl Protocol for Identity {
    type Lease = LeaseV6;
    type Packet = Vec<u8>;

    fn packet(&self, state: &ClientState<LeaseV6>, now: Duration) -> Option<Vec<u8>> {
        let held = state.lease.as_ref();
        let (kind, address, server) = match &state.phase {
            Phase::Selecting => (MessageType::Solicit, state.wish, None),
            Phase::Requesting { offer, .. } => (
                MessageType::Request,
                Some(offer.address),
                Some(&offer.server),
            ),
            Phase::Renewing => (
                MessageType::Renew,
                held.map(|lease| lease.address),
                held.map(|lease| &lease.server),
            ),
            Phase::Rebinding => (MessageType::Rebind, held.map(|lease| lease.address), None),
            Phase::Bound | Phase::Over => return None,
        };
        let hundredths =
            u16::try_from(now.saturating_sub(state.since).as_millis() / 10).unwrap_or(u16::MAX);
        let Self { duid, iaid } = self;
        let mut message =
            Message::new(kind, xid(state.xid), duid, (*iaid, address)).after(hundredths);
        if let Some(server) = server {
            message.options.push((SERVER_ID, server.clone()));
        }
        Some(message.encode())
    }
}

impl Client {
    /// Processes a received message.
    pub fn take(&mut self, message: &Message, now: Duration, rng: Dice<'_>) -> Events<Identity> {
        let Identity { duid, iaid } = &self.protocol;
        let is_own = message.xid == xid(self.state.xid) && message.get(CLIENT_ID) == Some(duid);
        if !is_own || !self.listens() {
            return Vec::new();
        }
        let Some(server) = message.get(SERVER_ID) else {
            return Vec::new();
        };
        let granted = message.granted(*iaid).map(|granted| {
            let set = |seconds| Some(seconds).filter(|seconds| *seconds > 0);
            let terms = Terms::new(now, granted.valid, set(granted.renew), set(granted.rebind));
            LeaseV6 {
                address: granted.address,
                server: server.to_vec(),
                terms,
            }
        });
        let is = |kind: MessageType| message.kind == kind as u8;
        match (&self.state.phase, granted) {
            // The first offer is accepted. Waiting a second for better ones, as in the RFC, would
            // delay the container.
            (Phase::Selecting, Some(offer)) if is(MessageType::Advertise) => {
                // Each exchange has a new transaction id.
                self.turn(Phase::Selecting, now, rng);
                self.accept(offer, now, rng)
            }
            (Phase::Requesting { .. } | Phase::Renewing | Phase::Rebinding, Some(lease))
                if is(MessageType::Reply) =>
            {
                self.bind(lease)
            }
            (Phase::Requesting { .. }, None) if is(MessageType::Reply) => {
                self.refuse_offer(now, rng)
            }
            (Phase::Renewing | Phase::Rebinding, None) if is(MessageType::Reply) => {
                self.refuse_lease(now, rng)
            }
            _ => Vec::new(),
        }
    }

    /// Ends the client. Returns the message that releases the lease; `None` if there is nothing to
    /// release.
    pub fn release(&mut self, rng: Dice<'_>) -> Option<Vec<u8>> {
        let lease = self.end()?;
        let Identity { duid, iaid } = &self.protocol;
        let mut message = Message::new(
            MessageType::Release,
            xid(number(rng)),
            duid,
            (*iaid, Some(lease.address)),
        );
        message.options.push((SERVER_ID, lease.server));
        Some(message.after(0).encode())
    }
}

/// Converts a random number to a transaction id of three bytes.
fn xid(number: u32) -> [u8; 3] {
    let [a, b, c, _] = number.to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::grant;
    use super::*;
    use crate::ipam::dhcp::timing::Limits;

    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn rng() -> u64 {
        0x1234_5678_0000_06f8
    }

    #[track_caller]
    fn sent(events: &[Event]) -> Message {
        match events {
            [.., Event::Send(bytes)] => Message::decode(bytes).expect("a message"),
            _ => panic!("{events:?}"),
        }
    }

    fn reply(client: &Client, kind: MessageType, to: &Message, valid: u32) -> Message {
        grant(kind, to, (client.protocol.iaid, ADDRESS), valid)
    }

    /// Returns a client with a lease of 100 seconds since second 100.
    fn bound() -> Client {
        let mut client = Client::new(
            Identity::of("4f1c/n/eth0"),
            Limits::default(),
            None,
            at(100),
            &mut rng,
        );
        let solicit = sent(&client.tick(at(100), &mut rng));
        assert_eq!(solicit.kind, MessageType::Solicit as u8);
        let request = sent(&client.take(
            &reply(&client, MessageType::Advertise, &solicit, 100),
            at(100),
            &mut rng,
        ));
        assert_eq!(
            (request.kind, request.get(SERVER_ID)),
            (MessageType::Request as u8, Some(&[0, 1, 9][..]))
        );
        let events = client.take(
            &reply(&client, MessageType::Reply, &request, 100),
            at(100),
            &mut rng,
        );
        assert_eq!(events, [Event::Bound]);
        client
    }

    #[test]
    fn four_messages_acquire_a_lease_that_is_renewed_at_half_time() {
        let mut client = bound();
        assert_eq!(client.lease().map(|lease| lease.address), Some(ADDRESS));
        assert_eq!((client.next(), client.listens()), (Some(at(150)), false));
        let renew = sent(&client.tick(at(150), &mut rng));
        assert_eq!(
            (renew.kind, renew.get(SERVER_ID).is_some()),
            (MessageType::Renew as u8, true)
        );
        assert_eq!(
            client.take(
                &reply(&client, MessageType::Reply, &renew, 100),
                at(151),
                &mut rng
            ),
            [Event::Bound]
        );
        assert_eq!(client.next(), Some(at(201)));
    }

    #[test]
    fn any_server_is_asked_after_a_silent_one_until_the_lease_ends() {
        let mut client = bound();
        let mut kinds = Vec::new();
        loop {
            let now = client.next().expect("something to do");
            let events = client.tick(now, &mut rng);
            let kind = sent(&events).kind;
            if kinds.last().is_none_or(|(last, _)| *last != kind) {
                kinds.push((kind, now.as_secs()));
            }
            if let [Event::Lost(lease, _), ..] = &events[..] {
                assert_eq!(lease.address, ADDRESS);
                break;
            }
        }
        assert_eq!(
            kinds,
            [
                (MessageType::Renew as u8, 150),
                (MessageType::Rebind as u8, 185),
                (MessageType::Solicit as u8, 200)
            ]
        );
    }

    #[test]
    fn refusal_ends_the_lease_and_starts_over() {
        let mut client = bound();
        let renew = sent(&client.tick(at(150), &mut rng));
        let events = client.take(
            &reply(&client, MessageType::Reply, &renew, 0),
            at(150),
            &mut rng,
        );
        assert!(
            matches!(&events[..], [Event::Lost(..), Event::Send(_)]),
            "{events:?}"
        );
        assert_eq!(sent(&events).kind, MessageType::Solicit as u8);
    }

    #[test]
    fn messages_of_other_clients_or_exchanges_are_ignored() {
        let mut client = bound();
        let renew = sent(&client.tick(at(150), &mut rng));
        let mut other = reply(&client, MessageType::Reply, &renew, 100);
        other.xid = [9; 3];
        assert_eq!(client.take(&other, at(150), &mut rng), []);
        let mut other = reply(&client, MessageType::Reply, &renew, 100);
        other.options[0].1 = vec![9];
        assert_eq!(client.take(&other, at(150), &mut rng), []);
    }

    #[test]
    fn without_an_answer_the_client_gives_up_at_the_timeout() {
        let mut client = Client::new(
            Identity::of("x"),
            Limits::default(),
            None,
            at(100),
            &mut rng,
        );
        let mut last = Vec::new();
        while let Some(now) = client.next() {
            assert!(now <= at(308));
            last = client.tick(now, &mut rng);
        }
        assert_eq!(last, [Event::GaveUp]);
    }

    #[test]
    fn release_has_server_and_address() {
        let mut client = bound();
        let release =
            Message::decode(&client.release(&mut rng).expect("a lease")).expect("a message");
        assert_eq!(
            (release.kind, release.get(SERVER_ID)),
            (MessageType::Release as u8, Some(&[0, 1, 9][..]))
        );
        assert_eq!((client.next(), client.release(&mut rng)), (None, None));
    }

    #[test]
    fn requested_address_is_released_too() {
        let mut client = Client::new(
            Identity::of("x"),
            Limits::default(),
            None,
            at(100),
            &mut rng,
        );
        let solicit = sent(&client.tick(at(100), &mut rng));
        sent(&client.take(
            &reply(&client, MessageType::Advertise, &solicit, 100),
            at(100),
            &mut rng,
        ));
        let release =
            Message::decode(&client.release(&mut rng).expect("an address")).expect("a message");
        assert_eq!(release.kind, MessageType::Release as u8);
    }

    #[test]
    fn identity_depends_only_on_the_text() {
        assert_eq!(Identity::of("a"), Identity::of("a"));
        assert_ne!(Identity::of("a"), Identity::of("b"));
        assert_eq!(
            (Identity::of("a").duid.len(), &Identity::of("a").duid[..2]),
            (18, &[0, 4][..])
        );
    }
}
