//! Client state machine of both protocols (RFC 2131 §4.4, RFC 8415 §18.2). Time, random numbers and
//! messages go in, packets and events come out. Each protocol builds its packets and parses its
//! answers.

use super::timing::{Dice, Limits, Terms, backoff, number};
use std::fmt::Debug;
use std::time::Duration;

/// A protocol, with the client's identity.
pub trait Protocol: Debug + Clone {
    /// Lease of the protocol.
    type Lease: Leased;
    /// Packet or message to send.
    type Packet: Debug + Clone + PartialEq;

    /// Returns the packet for the client's phase; `None` if the phase has none.
    fn packet(&self, state: &ClientState<Self::Lease>, now: Duration) -> Option<Self::Packet>;
}

/// A lease of either protocol.
pub trait Leased: Debug + Clone + PartialEq {
    /// Address of a lease.
    type Address: Debug + Copy + PartialEq;

    /// Returns the address.
    fn address(&self) -> Self::Address;

    /// Returns the times of the lease.
    fn terms(&self) -> Terms;
}

/// Event of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<P, L> {
    /// A packet to send.
    Send(P),
    /// A lease was acquired or renewed.
    Bound,
    /// The lease is void, with the reason. The client requests another one.
    Lost(L, &'static str),
    /// No lease until the timeout.
    GaveUp,
}

/// Phase of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase<L> {
    /// Discovering servers.
    Selecting,
    /// Requesting an offered lease.
    Requesting {
        /// The offer.
        offer: L,
        /// Time at which the client drops the offer.
        until: Duration,
    },
    /// Holding a lease.
    Bound,
    /// Asking the server of the lease to renew it.
    Renewing,
    /// Asking any server to renew the lease.
    Rebinding,
    /// Ended.
    Over,
}

/// State that packets depend on.
#[derive(Debug, Clone)]
pub struct ClientState<L: Leased> {
    /// Phase of the client.
    pub phase: Phase<L>,
    /// The current lease.
    pub lease: Option<L>,
    /// Address to request.
    pub wish: Option<L::Address>,
    /// Transaction id of the exchange.
    pub xid: u32,
    /// Start of the exchange.
    pub since: Duration,
}

/// A client.
#[derive(Debug, Clone)]
pub struct Client<P: Protocol> {
    /// The protocol, with the client's identity.
    pub protocol: P,
    /// State that packets depend on.
    pub state: ClientState<P::Lease>,
    limits: Limits,
    /// Timeout for acquiring a lease; `None` once the client has had one.
    until: Option<Duration>,
    /// Number of packets in a row without an answer.
    sent: u32,
    /// Time of the next action.
    next: Duration,
}

/// Events of a client.
pub type Events<P> = Vec<Event<<P as Protocol>::Packet, <P as Protocol>::Lease>>;
type Address<P> = <<P as Protocol>::Lease as Leased>::Address;

impl<P: Protocol> Client<P> {
    /// Returns a client that acquires a lease from now on, with the address `wish` if possible.
    pub fn new(
        protocol: P,
        limits: Limits,
        wish: Option<Address<P>>,
        now: Duration,
        rng: Dice<'_>,
    ) -> Self {
        let until = Some(now.saturating_add(limits.give_up));
        let state = ClientState {
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

    /// Returns a client that holds a lease already.
    pub fn resume(protocol: P, limits: Limits, lease: P::Lease) -> Self {
        let Terms { got, renew, .. } = lease.terms();
        let wish = Some(lease.address());
        let state = ClientState {
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

    /// Returns the current lease.
    pub fn lease(&self) -> Option<&P::Lease> {
        self.state.lease.as_ref()
    }

    /// Returns the time of the next action; `None` if the client has ended.
    pub fn next(&self) -> Option<Duration> {
        if self.state.phase == Phase::Over {
            return None;
        }
        Some(self.next)
    }

    /// True if an answer may arrive.
    pub fn listens(&self) -> bool {
        !matches!(self.state.phase, Phase::Bound | Phase::Over)
    }

    /// Schedules the last packet again in 100 ms. It could not be sent, for example because the
    /// link's own address is not usable yet.
    pub fn hold(&mut self, now: Duration) {
        (self.next, self.sent) = (self.next.min(now + Duration::from_millis(100)), 0);
    }

    /// Performs the actions that are due.
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

    /// Changes to the phase that is due.
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
            events.extend(self.lose("it expired", now, rng));
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

    /// Drops the lease and starts over.
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

    /// Requests an offered lease immediately. Keeps the transaction id, which DHCPv4 uses for
    /// discovery and request.
    pub fn accept(&mut self, offer: P::Lease, now: Duration, rng: Dice<'_>) -> Events<P> {
        self.state.phase = Phase::Requesting {
            offer,
            until: now + self.limits.request,
        };
        (self.sent, self.next) = (0, now);
        self.tick(now, rng)
    }

    /// Handles a refused request: waits for another offer. There is a pause, because the server may
    /// refuse everything it offers.
    pub fn refuse_offer(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        (self.state.phase, self.state.wish) = (Phase::Selecting, None);
        self.sent += 1;
        self.next = self.next_time(now, rng);
        Vec::new()
    }

    /// Handles a refused lease: it is void, and the client starts over immediately.
    pub fn refuse_lease(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        let mut events = Vec::from_iter(self.lose("the server refused the lease", now, rng));
        self.state.wish = None;
        events.extend(self.tick(now, rng));
        events
    }

    /// Stores a lease, which may replace the current one.
    pub fn bind(&mut self, lease: P::Lease) -> Events<P> {
        let mut events = Vec::new();
        if let Some(held) = self.state.lease.take()
            && held.address() != lease.address()
        {
            events.push(Event::Lost(held, "the server assigned another address"));
        }
        (self.state.phase, self.state.wish) = (Phase::Bound, Some(lease.address()));
        (self.until, self.sent, self.next) = (None, 0, lease.terms().renew);
        self.state.lease = Some(lease);
        events.push(Event::Bound);
        events
    }

    /// Ends the client. Returns the lease to release: the current one, or the requested one, which
    /// the server may have assigned meanwhile.
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
