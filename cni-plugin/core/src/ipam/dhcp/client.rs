//! The states of a client, which both protocols have (RFC 2131 §4.4, RFC 8415 §18.2): time, random
//! numbers and messages in, packets and events out. Each protocol says its packets and reads its
//! answers.

use super::timing::{Dice, Limits, Terms, backoff, number};
use std::fmt::Debug;
use std::time::Duration;

/// A protocol, with the client's identity in it.
pub trait Protocol: Debug + Clone {
    /// A lease.
    type Lease: Leased;
    /// A packet or a message to be sent.
    type Packet: Debug + Clone + PartialEq;

    /// What the client sends in its phase; `None` where that is nothing.
    fn packet(&self, state: &State<Self::Lease>, now: Duration) -> Option<Self::Packet>;
}

/// A lease of either protocol.
pub trait Leased: Debug + Clone + PartialEq {
    /// An address.
    type Address: Debug + Copy + PartialEq;

    /// The address.
    fn address(&self) -> Self::Address;

    /// Its times.
    fn terms(&self) -> Terms;
}

/// News of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<P, L> {
    /// Something to be sent.
    Send(P),
    /// There is a lease: a new one, or the old one for longer.
    Bound,
    /// The lease is void, and why; the client looks for another one.
    Lost(L, &'static str),
    /// There was no lease in time.
    GaveUp,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase<L> {
    /// Servers are asked for an offer.
    Selecting,
    /// An offer is to be confirmed, until then.
    Requesting {
        /// The offer.
        offer: L,
        /// The time at which another one is looked for.
        until: Duration,
    },
    /// There is a lease.
    Bound,
    /// Its server is asked to prolong it.
    Renewing,
    /// Any server is.
    Rebinding,
    /// The client has ended.
    Over,
}

/// State that a packet depends on.
#[derive(Debug, Clone)]
pub struct State<L: Leased> {
    /// The phase.
    pub phase: Phase<L>,
    /// The lease that is held.
    pub lease: Option<L>,
    /// An address to ask for.
    pub wish: Option<L::Address>,
    /// The number of the exchange.
    pub xid: u32,
    /// The begin of the exchange.
    pub since: Duration,
}

/// A client.
#[derive(Debug, Clone)]
pub struct Client<P: Protocol> {
    /// The protocol, with the client's identity in it.
    pub protocol: P,
    /// State that its packets depend on.
    pub state: State<P::Lease>,
    limits: Limits,
    /// When it stops to look for a lease; `None` once it had one.
    until: Option<Duration>,
    /// Number of packets in a row without success.
    sent: u32,
    /// When it has something to do.
    next: Duration,
}

/// Events of a client.
pub type Events<P> = Vec<Event<<P as Protocol>::Packet, <P as Protocol>::Lease>>;
type Address<P> = <<P as Protocol>::Lease as Leased>::Address;

impl<P: Protocol> Client<P> {
    /// A client that looks for a lease from now on, if it can with this address.
    pub fn new(
        protocol: P,
        limits: Limits,
        wish: Option<Address<P>>,
        now: Duration,
        rng: Dice<'_>,
    ) -> Self {
        let until = Some(now.saturating_add(limits.give_up));
        let state = State {
            phase: Phase::Selecting,
            lease: None,
            wish,
            xid: number(rng),
            since: now,
        };
        Self {
            protocol,
            state,
            limits,
            until,
            sent: 0,
            next: now,
        }
    }

    /// A client that holds a lease already.
    pub fn resume(protocol: P, limits: Limits, lease: P::Lease) -> Self {
        let Terms { got, renew, .. } = lease.terms();
        let wish = Some(lease.address());
        let state = State {
            phase: Phase::Bound,
            lease: Some(lease),
            wish,
            xid: 0,
            since: got,
        };
        Self {
            protocol,
            state,
            limits,
            until: None,
            sent: 0,
            next: renew,
        }
    }

    /// The lease that is held.
    pub fn lease(&self) -> Option<&P::Lease> {
        self.state.lease.as_ref()
    }

    /// When it has something to do; `None` where it has ended.
    pub fn next(&self) -> Option<Duration> {
        Some(self.next).filter(|_| self.state.phase != Phase::Over)
    }

    /// True if an answer may come.
    pub fn listens(&self) -> bool {
        !matches!(self.state.phase, Phase::Bound | Phase::Over)
    }

    /// Tries again in a moment: the last packet could not be sent, as before the link's own address
    /// is usable.
    pub fn hold(&mut self, now: Duration) {
        (self.next, self.sent) = (self.next.min(now + Duration::from_millis(100)), 0);
    }

    /// Does what it is time for.
    pub fn tick(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        let mut events = Vec::new();
        if now < self.next || self.state.phase == Phase::Over {
            return events;
        }
        if self.state.lease.is_none() && self.until.is_some_and(|until| until <= now) {
            self.state.phase = Phase::Over;
            return vec![Event::GaveUp];
        }
        self.pass(now, rng, &mut events);
        if let Some(packet) = self.protocol.packet(&self.state, now) {
            events.push(Event::Send(packet));
            self.sent += 1;
            self.next = self.next_time(now, rng);
        }
        events
    }

    /// Goes on to the phase that the time is for.
    fn pass(&mut self, now: Duration, rng: Dice<'_>, events: &mut Events<P>) {
        if let Phase::Requesting { until, .. } = self.state.phase
            && until <= now
        {
            self.turn(Phase::Selecting, now, rng);
        }
        let Some(terms) = self.lease().map(Leased::terms) else {
            return;
        };
        if terms.expire <= now {
            events.extend(self.lose("it has expired", now, rng));
        } else if terms.rebind <= now && self.state.phase != Phase::Rebinding {
            self.turn(Phase::Rebinding, now, rng);
        } else if terms.renew <= now && self.state.phase == Phase::Bound {
            self.turn(Phase::Renewing, now, rng);
        }
    }

    /// Begins an exchange.
    pub fn turn(&mut self, phase: Phase<P::Lease>, now: Duration, rng: Dice<'_>) {
        (self.state.phase, self.state.xid, self.state.since) = (phase, number(rng), now);
        self.sent = 0;
    }

    fn next_time(&self, now: Duration, rng: Dice<'_>) -> Duration {
        match (&self.state.phase, self.lease().map(Leased::terms)) {
            (Phase::Renewing, Some(terms)) => terms.ask_again(now, terms.rebind),
            (Phase::Rebinding, Some(terms)) => terms.ask_again(now, terms.expire),
            (phase, _) => {
                let next = now + backoff(self.sent, self.limits.resend_most, rng);
                let offered = if let Phase::Requesting { until, .. } = phase {
                    Some(*until)
                } else {
                    None
                };
                [offered, self.until]
                    .into_iter()
                    .flatten()
                    .fold(next, Duration::min)
            }
        }
    }

    /// Gives a lease up and begins anew.
    fn lose(
        &mut self,
        why: &'static str,
        now: Duration,
        rng: Dice<'_>,
    ) -> Option<Event<P::Packet, P::Lease>> {
        let lost = self.state.lease.take();
        self.turn(Phase::Selecting, now, rng);
        (self.until, self.next) = (None, now);
        lost.map(|lease| Event::Lost(lease, why))
    }

    /// Asks for an offer, at once. The exchange goes on where the protocol has one number for all
    /// of it.
    pub fn accept(&mut self, offer: P::Lease, now: Duration, rng: Dice<'_>) -> Events<P> {
        self.state.phase = Phase::Requesting {
            offer,
            until: now + self.limits.request,
        };
        (self.sent, self.next) = (0, now);
        self.tick(now, rng)
    }

    /// Has what was asked for refused: another offer is looked for, but not in a loop without a
    /// pause, since the server may refuse whatever it offers.
    pub fn refuse_offer(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        (self.state.phase, self.state.wish) = (Phase::Selecting, None);
        self.sent += 1;
        self.next = self.next_time(now, rng);
        Vec::new()
    }

    /// Has the lease refused: it is void, and another one is looked for at once.
    pub fn refuse_lease(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        let lost = self.lose("the server refused it", now, rng);
        self.state.wish = None;
        lost.into_iter().chain(self.tick(now, rng)).collect()
    }

    /// Takes a lease in the place of one that may be held.
    pub fn bind(&mut self, lease: P::Lease) -> Events<P> {
        let other = self
            .state
            .lease
            .take()
            .filter(|held| held.address() != lease.address());
        (self.state.phase, self.state.wish) = (Phase::Bound, Some(lease.address()));
        (self.until, self.sent, self.next) = (None, 0, lease.terms().renew);
        self.state.lease = Some(lease);
        let lost = other.map(|lease| Event::Lost(lease, "the server gave another address"));
        lost.into_iter().chain([Event::Bound]).collect()
    }

    /// Ends. Returns what is to be given back: the lease, or what was asked for, which the server
    /// may have given meanwhile.
    pub fn end(&mut self) -> Option<P::Lease> {
        let asked = match std::mem::replace(&mut self.state.phase, Phase::Over) {
            Phase::Requesting { offer, .. } => Some(offer),
            Phase::Selecting | Phase::Bound | Phase::Renewing | Phase::Rebinding | Phase::Over => {
                None
            }
        };
        self.state.lease.take().or(asked)
    }
}
