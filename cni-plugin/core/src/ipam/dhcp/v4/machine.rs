//! The states of a DHCPv4 client (RFC 2131 §4.4): time, random numbers and messages in, packets and events out.

use super::message::Kind;
use super::{Identity, Lease, MAX_SIZE, Message, REQUEST_LIST, REQUESTED_ADDRESS, SERVER_ID, frame};
use crate::ipam::dhcp::timing::{Dice, Limits, backoff, number};
use crate::name::Mac;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Longest message that the client takes, in bytes: what a usual link carries in one packet.
const LONGEST: u16 = 1472;

/// A packet to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its bytes, from the IPv4 header on.
    pub bytes: Vec<u8>,
    /// The hardware address that it goes to; all hosts of the link where there is none.
    pub to: Option<Mac>,
}

/// News of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet to be sent.
    Send(Packet),
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
    wish: Option<Ipv4Addr>,
    xid: u32,
    /// When it began to look for a lease.
    since: Duration,
    /// When it stops doing so; `None` once it had one.
    until: Option<Duration>,
    /// Number of packets in a row without success.
    sent: u32,
    /// When it has something to do.
    next: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Selecting,
    Requesting { offer: Lease, until: Duration },
    Bound,
    Renewing,
    Rebinding,
    Over,
}

impl Client {
    /// A client that looks for a lease from now on, if it can with this address.
    pub fn new(identity: Identity, limits: Limits, wish: Option<Ipv4Addr>, now: Duration, dice: Dice<'_>) -> Self {
        let until = Some(now.saturating_add(limits.give_up));
        let xid = number(dice);
        let phase = Phase::Selecting;
        Self { identity, limits, phase, lease: None, wish, xid, since: now, until, sent: 0, next: now }
    }

    /// A client that holds a lease already.
    pub fn resume(identity: Identity, limits: Limits, lease: Lease) -> Self {
        let (since, next, wish) = (lease.terms.got, lease.terms.renew, Some(lease.address));
        let phase = Phase::Bound;
        Self { identity, limits, phase, lease: Some(lease), wish, xid: 0, since, until: None, sent: 0, next }
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

    /// Tries again in a moment: the last packet could not be sent.
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
        match self.phase.clone() {
            Phase::Selecting => events.push(self.discover(now)),
            Phase::Requesting { offer, .. } => events.push(self.request(&offer, now)),
            Phase::Renewing | Phase::Rebinding => events.extend(self.prolong(now)),
            Phase::Bound | Phase::Over => return events,
        }
        self.sent += 1;
        self.next = self.next_time(now, dice);
        events
    }

    /// Goes on to the phase that the time is for.
    fn pass(&mut self, now: Duration, dice: Dice<'_>, events: &mut Vec<Event>) {
        if let Phase::Requesting { until, .. } = self.phase
            && until <= now
        {
            (self.phase, self.sent) = (Phase::Selecting, 0);
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

    fn turn(&mut self, phase: Phase, now: Duration, dice: Dice<'_>) {
        (self.phase, self.xid, self.since, self.sent) = (phase, number(dice), now, 0);
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
        self.wish = lost.as_ref().map(|lease| lease.address).or(self.wish);
        self.turn(Phase::Selecting, now, dice);
        (self.until, self.next) = (None, now);
        lost.map(|lease| Event::Lost(lease, why))
    }

    /// Takes a message that came from this hardware address.
    pub fn take(&mut self, message: &Message, from: Mac, now: Duration, dice: Dice<'_>) -> Vec<Event> {
        let is_answer = message.is_reply && message.xid == self.xid && message.mac == self.identity.mac;
        let Some(kind) = message.kind().filter(|_| is_answer && self.listens()) else { return Vec::new() };
        let said = Lease::of(message, from, now);
        match (&self.phase, kind, said) {
            (Phase::Selecting, Kind::Offer, Some(offer)) => {
                let until = now + self.limits.request;
                let event = self.request(&offer, now);
                (self.phase, self.sent) = (Phase::Requesting { offer, until }, 1);
                self.next = self.next_time(now, dice);
                vec![event]
            }
            (Phase::Requesting { offer, .. }, Kind::Ack, Some(lease)) if lease.server == offer.server => {
                self.bind(lease)
            }
            (Phase::Requesting { offer, .. }, Kind::Nak, _) if message.addresses(SERVER_ID).contains(&offer.server) => {
                // Not in a loop without a pause: the server may refuse whatever it offers.
                (self.phase, self.wish) = (Phase::Selecting, None);
                self.sent += 1;
                self.next = self.next_time(now, dice);
                Vec::new()
            }
            (Phase::Renewing | Phase::Rebinding, Kind::Ack, Some(mut lease)) => {
                let held = self.lease.take();
                let (same, other): (Vec<_>, Vec<_>) = held.into_iter().partition(|held| held.address == lease.address);
                // The mask belongs to the address, so not every server says it again.
                lease.prefix_len = lease.prefix_len.or(same.first().and_then(|held| held.prefix_len));
                let lost = other.into_iter().map(|lease| Event::Lost(lease, "the server gave another address"));
                lost.chain(self.bind(lease)).collect()
            }
            (Phase::Renewing | Phase::Rebinding, Kind::Nak, _) => {
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

    /// The packet that gives the lease back; its sender is the address that it is about. The client ends. What it has asked for
    /// the server may have given meanwhile.
    pub fn release(&mut self, dice: Dice<'_>) -> Option<Packet> {
        let asked = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Requesting { offer, .. } => Some(offer),
            Phase::Selecting | Phase::Bound | Phase::Renewing | Phase::Rebinding | Phase::Over => None,
        };
        let lease = self.lease.take().or(asked)?;
        let mut message = Message::new(Kind::Release, number(dice), self.identity.mac);
        message.ciaddr = lease.address;
        message.options.push((SERVER_ID, lease.server.octets().to_vec()));
        // Others of the client's options have no place here (RFC 2131, table 5).
        let id = self.identity.options.iter().filter(|(code, _)| *code == super::CLIENT_ID);
        message.options.extend(id.cloned());
        Some(to_server(&lease, &message))
    }

    fn discover(&self, now: Duration) -> Event {
        let mut message = self.message(Kind::Discover, now);
        message.options.extend(self.wish.map(|wish| (REQUESTED_ADDRESS, wish.octets().to_vec())));
        Event::Send(to_all(Ipv4Addr::UNSPECIFIED, &self.complete(message)))
    }

    fn request(&self, offer: &Lease, now: Duration) -> Event {
        let mut message = self.message(Kind::Request, now);
        message.options.push((REQUESTED_ADDRESS, offer.address.octets().to_vec()));
        message.options.push((SERVER_ID, offer.server.octets().to_vec()));
        Event::Send(to_all(Ipv4Addr::UNSPECIFIED, &self.complete(message)))
    }

    fn prolong(&self, now: Duration) -> Option<Event> {
        let lease = self.lease.as_ref()?;
        let mut message = self.message(Kind::Request, now);
        // The client has its address, and can be answered there.
        (message.ciaddr, message.broadcast) = (lease.address, false);
        let message = self.complete(message);
        let is_any = self.phase == Phase::Rebinding;
        Some(Event::Send(if is_any { to_all(lease.address, &message) } else { to_server(lease, &message) }))
    }

    fn message(&self, kind: Kind, now: Duration) -> Message {
        let secs = u16::try_from(now.saturating_sub(self.since).as_secs()).unwrap_or(u16::MAX);
        let message = Message::new(kind, self.xid, self.identity.mac);
        Message { secs, broadcast: self.identity.broadcast, ..message }
    }

    /// Adds what each message but a release has.
    fn complete(&self, mut message: Message) -> Message {
        let size = (MAX_SIZE, LONGEST.to_be_bytes().to_vec());
        let list = Some((REQUEST_LIST, self.identity.request.clone())).filter(|(_, list)| !list.is_empty());
        for option in list.into_iter().chain([size]).chain(self.identity.options.iter().cloned()) {
            message.options.retain(|(code, _)| *code != option.0);
            message.options.push(option);
        }
        message
    }
}

fn to_all(from: Ipv4Addr, message: &Message) -> Packet {
    Packet { bytes: frame::encode(from, Ipv4Addr::BROADCAST, &message.encode()), to: None }
}

fn to_server(lease: &Lease, message: &Message) -> Packet {
    let bytes = frame::encode(lease.address, lease.server, &message.encode());
    Packet { bytes, to: Some(lease.server_mac) }
}

#[cfg(test)]
mod tests;
