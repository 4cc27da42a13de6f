//! The states of a DHCPv6 client (RFC 8415 §18.2) for one address: time, random numbers and messages in, messages and events
//! out. Every message goes to all servers of the link.

use super::Identity;
use super::message::{CLIENT_ID, Kind, Message, SERVER_ID};
use crate::ipam::dhcp::timing::{Dice, Limits, Terms, backoff};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use std::time::Duration;

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address. Other hosts need not be on the link because they share a prefix with it (RFC 5942).
    pub address: Ipv6Addr,
    /// The server's identifier.
    pub server: Vec<u8>,
    /// Its times.
    pub terms: Terms,
}

/// News of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message to be sent to all servers of the link.
    Send(Vec<u8>),
    /// There is a lease: a new one, or the old one for longer.
    Bound,
    /// The lease is void, and why; the client looks for another one.
    Lost(Lease, &'static str),
    /// There was no lease in time.
    GaveUp,
}

/// A client.
#[derive(Debug, Clone)]
pub struct Client {
    identity: Identity,
    limits: Limits,
    phase: Phase,
    /// The lease that is held.
    lease: Option<Lease>,
    /// An address to ask for.
    wish: Option<Ipv6Addr>,
    xid: [u8; 3],
    /// When the exchange began.
    since: Duration,
    /// When it stops to look for a lease; `None` once it had one.
    until: Option<Duration>,
    /// Number of messages in a row without success.
    sent: u32,
    /// When it has something to do.
    next: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Soliciting,
    Requesting { offer: Lease, until: Duration },
    Bound,
    Renewing,
    Rebinding,
    Over,
}

impl Client {
    /// A client that looks for a lease from now on, if it can with this address.
    pub fn new(identity: Identity, limits: Limits, wish: Option<Ipv6Addr>, now: Duration, dice: Dice<'_>) -> Self {
        let until = Some(now.saturating_add(limits.give_up));
        let (phase, xid) = (Phase::Soliciting, xid(dice));
        Self { identity, limits, phase, lease: None, wish, xid, since: now, until, sent: 0, next: now }
    }

    /// A client that holds a lease already.
    pub fn resume(identity: Identity, limits: Limits, lease: Lease) -> Self {
        let (since, next, wish) = (lease.terms.got, lease.terms.renew, Some(lease.address));
        let (phase, xid) = (Phase::Bound, [0; 3]);
        Self { identity, limits, phase, lease: Some(lease), wish, xid, since, until: None, sent: 0, next }
    }

    /// The lease that is held.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// When it has something to do; `None` where it has ended.
    pub fn next(&self) -> Option<Duration> {
        Some(self.next).filter(|_| self.phase != Phase::Over)
    }

    /// True if an answer may come.
    pub fn listens(&self) -> bool {
        !matches!(self.phase, Phase::Bound | Phase::Over)
    }

    /// Tries again in a moment: the last message could not be sent, as before the link's own address is usable.
    pub fn hold(&mut self, now: Duration) {
        (self.next, self.sent) = (self.next.min(now + Duration::from_millis(100)), 0);
    }

    /// Does what it is time for.
    pub fn tick(&mut self, now: Duration, dice: Dice<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        if now < self.next || self.phase == Phase::Over {
            return events;
        }
        if self.lease.is_none() && self.until.is_some_and(|until| until <= now) {
            self.phase = Phase::Over;
            return vec![Event::GaveUp];
        }
        self.pass(now, dice, &mut events);
        events.extend(self.message(now).map(|message| Event::Send(message.encode())));
        self.sent += 1;
        self.next = self.next_time(now, dice);
        events
    }

    /// Goes on to the phase that the time is for.
    fn pass(&mut self, now: Duration, dice: Dice<'_>, events: &mut Vec<Event>) {
        if let Phase::Requesting { until, .. } = self.phase
            && until <= now
        {
            self.turn(Phase::Soliciting, now, dice);
        }
        let Some(terms) = self.lease.as_ref().map(|lease| lease.terms) else { return };
        if terms.expire <= now {
            events.extend(self.lose("it has expired", now, dice));
        } else if terms.rebind <= now && self.phase != Phase::Rebinding {
            self.turn(Phase::Rebinding, now, dice);
        } else if terms.renew <= now && self.phase == Phase::Bound {
            self.turn(Phase::Renewing, now, dice);
        }
    }

    /// Begins an exchange.
    fn turn(&mut self, phase: Phase, now: Duration, dice: Dice<'_>) {
        (self.phase, self.xid, self.since, self.sent) = (phase, xid(dice), now, 0);
    }

    fn next_time(&self, now: Duration, dice: Dice<'_>) -> Duration {
        let terms = self.lease.as_ref().map(|lease| lease.terms);
        match (&self.phase, terms) {
            (Phase::Renewing, Some(terms)) => terms.ask_again(now, terms.rebind),
            (Phase::Rebinding, Some(terms)) => terms.ask_again(now, terms.expire),
            (phase, _) => {
                let next = now + backoff(self.sent, self.limits.resend_most, dice);
                let offered = if let Phase::Requesting { until, .. } = phase { Some(*until) } else { None };
                [offered, self.until].into_iter().flatten().fold(next, Duration::min)
            }
        }
    }

    /// Gives a lease up and begins anew.
    fn lose(&mut self, why: &'static str, now: Duration, dice: Dice<'_>) -> Option<Event> {
        let lost = self.lease.take();
        self.turn(Phase::Soliciting, now, dice);
        (self.until, self.next) = (None, now);
        lost.map(|lease| Event::Lost(lease, why))
    }

    /// The message that the phase sends.
    fn message(&self, now: Duration) -> Option<Message> {
        let held = self.lease.as_ref();
        let (kind, address, server) = match &self.phase {
            Phase::Soliciting => (Kind::Solicit, self.wish, None),
            Phase::Requesting { offer, .. } => (Kind::Request, Some(offer.address), Some(&offer.server)),
            Phase::Renewing => (Kind::Renew, held.map(|lease| lease.address), held.map(|lease| &lease.server)),
            Phase::Rebinding => (Kind::Rebind, held.map(|lease| lease.address), None),
            Phase::Bound | Phase::Over => return None,
        };
        let hundredths = u16::try_from(now.saturating_sub(self.since).as_millis() / 10).unwrap_or(u16::MAX);
        let Identity { duid, iaid } = &self.identity;
        let mut message = Message::new(kind, self.xid, duid, (*iaid, address)).after(hundredths);
        message.options.extend(server.map(|server| (SERVER_ID, server.clone())));
        Some(message)
    }

    /// Takes a message.
    pub fn take(&mut self, message: &Message, now: Duration, dice: Dice<'_>) -> Vec<Event> {
        let is_own = message.xid == self.xid && message.get(CLIENT_ID) == Some(&self.identity.duid);
        let Some(server) = message.get(SERVER_ID).filter(|_| is_own && self.listens()) else { return Vec::new() };
        let granted = message.granted(self.identity.iaid).map(|granted| {
            let set = |seconds| Some(seconds).filter(|seconds| *seconds > 0);
            let terms = Terms::new(now, granted.valid, set(granted.renew), set(granted.rebind));
            Lease { address: granted.address, server: server.to_vec(), terms }
        });
        match (self.phase.clone(), message.kind, granted) {
            // The first offer is taken: to wait a second for better ones, as the RFC has it, would hold up the container.
            (Phase::Soliciting, kind, Some(offer)) if kind == Kind::Advertise as u8 => {
                self.turn(Phase::Requesting { offer, until: now + self.limits.request }, now, dice);
                self.next = now;
                self.tick(now, dice)
            }
            (Phase::Requesting { .. }, kind, Some(lease)) if kind == Kind::Reply as u8 => self.bind(lease),
            (Phase::Requesting { .. }, kind, None) if kind == Kind::Reply as u8 => {
                (self.phase, self.wish, self.sent) = (Phase::Soliciting, None, self.sent + 1);
                self.next = self.next_time(now, dice);
                Vec::new()
            }
            (Phase::Renewing | Phase::Rebinding, kind, Some(lease)) if kind == Kind::Reply as u8 => {
                let is_other = self.lease.as_ref().is_some_and(|held| held.address != lease.address);
                let lost = self.lease.take().filter(|_| is_other);
                let lost = lost.map(|lease| Event::Lost(lease, "the server gave another address"));
                lost.into_iter().chain(self.bind(lease)).collect()
            }
            (Phase::Renewing | Phase::Rebinding, kind, None) if kind == Kind::Reply as u8 => {
                let lost = self.lose("the server refused it", now, dice);
                self.wish = None;
                lost.into_iter().chain(self.tick(now, dice)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, lease: Lease) -> Vec<Event> {
        (self.phase, self.until, self.sent) = (Phase::Bound, None, 0);
        (self.next, self.wish) = (lease.terms.renew, Some(lease.address));
        self.lease = Some(lease);
        vec![Event::Bound]
    }

    /// The message that gives the lease back. The client ends.
    pub fn release(&mut self, dice: Dice<'_>) -> Option<Vec<u8>> {
        self.phase = Phase::Over;
        let lease = self.lease.take()?;
        let Identity { duid, iaid } = &self.identity;
        let mut message = Message::new(Kind::Release, xid(dice), duid, (*iaid, Some(lease.address)));
        message.options.push((SERVER_ID, lease.server));
        Some(message.after(0).encode())
    }
}

fn xid(dice: Dice<'_>) -> [u8; 3] {
    dice().to_be_bytes().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::grant;
    use super::*;

    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn dice() -> u64 {
        0x1234_5678_0000_06f8
    }

    #[track_caller]
    fn sent(events: &[Event]) -> Message {
        match events {
            [.., Event::Send(bytes)] => Message::decode(bytes).expect("a message"),
            _ => panic!("{events:?}"),
        }
    }

    fn reply(client: &Client, kind: Kind, to: &Message, valid: u32) -> Message {
        grant(kind, to, (client.identity.iaid, ADDRESS), valid)
    }

    /// A client with a lease of a hundred seconds since second 100.
    fn bound() -> Client {
        let mut client = Client::new(Identity::of("4f1c/n/eth0"), Limits::default(), None, at(100), &mut dice);
        let solicit = sent(&client.tick(at(100), &mut dice));
        assert_eq!(solicit.kind, Kind::Solicit as u8);
        let request = sent(&client.take(&reply(&client, Kind::Advertise, &solicit, 100), at(100), &mut dice));
        assert_eq!((request.kind, request.get(SERVER_ID)), (Kind::Request as u8, Some(&[0, 1, 9][..])));
        let events = client.take(&reply(&client, Kind::Reply, &request, 100), at(100), &mut dice);
        assert_eq!(events, [Event::Bound]);
        client
    }

    #[test]
    fn four_messages_make_a_lease_that_is_prolonged_at_half_time() {
        let mut client = bound();
        assert_eq!(client.lease().map(|lease| lease.address), Some(ADDRESS));
        assert_eq!((client.next(), client.listens()), (Some(at(150)), false));
        let renew = sent(&client.tick(at(150), &mut dice));
        assert_eq!((renew.kind, renew.get(SERVER_ID).is_some()), (Kind::Renew as u8, true));
        assert_eq!(client.take(&reply(&client, Kind::Reply, &renew, 100), at(151), &mut dice), [Event::Bound]);
        assert_eq!(client.next(), Some(at(201)));
    }

    #[test]
    fn a_silent_server_gives_way_to_any_and_then_the_lease_ends() {
        let mut client = bound();
        let mut kinds = Vec::new();
        loop {
            let now = client.next().expect("something to do");
            let events = client.tick(now, &mut dice);
            let kind = sent(&events).kind;
            if kinds.last().is_none_or(|(last, _)| *last != kind) {
                kinds.push((kind, now.as_secs()));
            }
            if let [Event::Lost(lease, _), ..] = &events[..] {
                assert_eq!(lease.address, ADDRESS);
                break;
            }
        }
        assert_eq!(kinds, [(Kind::Renew as u8, 150), (Kind::Rebind as u8, 185), (Kind::Solicit as u8, 200)]);
    }

    #[test]
    fn a_refusal_ends_the_lease_and_begins_anew() {
        let mut client = bound();
        let renew = sent(&client.tick(at(150), &mut dice));
        let events = client.take(&reply(&client, Kind::Reply, &renew, 0), at(150), &mut dice);
        assert!(matches!(&events[..], [Event::Lost(..), Event::Send(_)]), "{events:?}");
        assert_eq!(sent(&events).kind, Kind::Solicit as u8);
    }

    #[test]
    fn a_message_to_another_client_or_of_another_exchange_is_not_heard() {
        let mut client = bound();
        let renew = sent(&client.tick(at(150), &mut dice));
        let mut other = reply(&client, Kind::Reply, &renew, 100);
        other.xid = [9; 3];
        assert_eq!(client.take(&other, at(150), &mut dice), []);
        let mut other = reply(&client, Kind::Reply, &renew, 100);
        other.options[0].1 = vec![9];
        assert_eq!(client.take(&other, at(150), &mut dice), []);
    }

    #[test]
    fn without_an_answer_it_gives_up_in_time() {
        let mut client = Client::new(Identity::of("x"), Limits::default(), None, at(100), &mut dice);
        let mut last = Vec::new();
        while let Some(now) = client.next() {
            assert!(now <= at(308));
            last = client.tick(now, &mut dice);
        }
        assert_eq!(last, [Event::GaveUp]);
    }

    #[test]
    fn a_release_names_server_and_address() {
        let mut client = bound();
        let release = Message::decode(&client.release(&mut dice).expect("a lease")).expect("a message");
        assert_eq!((release.kind, release.get(SERVER_ID)), (Kind::Release as u8, Some(&[0, 1, 9][..])));
        assert_eq!((client.next(), client.release(&mut dice)), (None, None));
    }

    #[test]
    fn an_identity_follows_from_the_text_alone() {
        assert_eq!(Identity::of("a"), Identity::of("a"));
        assert_ne!(Identity::of("a"), Identity::of("b"));
        assert_eq!((Identity::of("a").duid.len(), &Identity::of("a").duid[..2]), (18, &[0, 4][..]));
    }
}
