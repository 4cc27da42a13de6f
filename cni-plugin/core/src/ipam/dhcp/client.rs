//! Client state machine of DHCPv4 and DHCPv6 (RFC 2131 §4.4, RFC 8415 §18.2). Its inputs are the
//! time since boot, random numbers and received messages. Its outputs are packets and events. The
//! modules `v4` and `v6` build packets and parse answers.

use super::timing::{Dice, Limits, Terms, backoff, number};
use std::fmt::Debug;
use std::time::Duration;

/// DHCPv4 or DHCPv6, with the client's identity.
pub trait Protocol: Debug + Clone {
    /// Lease of the protocol.
    type Lease: Leased;
    /// Packet or message to send.
    type Packet: Debug + Clone + PartialEq;

    /// Returns the packet to send in the client's current phase; `None` if the client sends nothing
    /// in this phase.
    fn packet(&self, state: &ClientState<Self::Lease>, now: Duration) -> Option<Self::Packet>;
}

/// A DHCPv4 or DHCPv6 lease.
pub trait Leased: Debug + Clone + PartialEq {
    /// Type of the leased address.
    type Address: Debug + Copy + PartialEq;

    /// Returns the leased address.
    fn address(&self) -> Self::Address;

    /// Returns the times at which the lease starts, is renewed and expires.
    fn terms(&self) -> Terms;
}

/// Event that a DHCP client reports to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<P, L> {
    /// A packet to send.
    Send(P),
    /// A lease was acquired or renewed.
    Bound,
    /// The lease is no longer valid, for the reason in the second field. The client requests
    /// another lease.
    Lost(L, &'static str),
    /// The client got no lease before the timeout, and has ended.
    GaveUp,
}

/// Phase of a DHCP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase<L> {
    /// Discovering servers.
    Selecting,
    /// Requesting an offered lease.
    Requesting {
        /// The offered lease.
        offer: L,
        /// Time at which the client drops the offer.
        until: Duration,
    },
    /// Holding a lease.
    Bound,
    /// Asking the server that granted the lease to renew it.
    Renewing,
    /// Asking any server to renew the lease.
    Rebinding,
    /// The client has ended.
    Over,
}

/// State of a DHCP client from which its packets are built.
#[derive(Debug, Clone)]
pub struct ClientState<L: Leased> {
    /// Phase of the client.
    pub phase: Phase<L>,
    /// The current lease, if any.
    pub lease: Option<L>,
    /// Address that the client prefers, if any.
    pub wish: Option<L::Address>,
    /// Transaction id of the current exchange with servers.
    pub xid: u32,
    /// Start of the current exchange, as time since boot.
    pub since: Duration,
}

/// A DHCP client of one link.
#[derive(Debug, Clone)]
pub struct Client<P: Protocol> {
    /// The protocol, with the client's identity.
    pub protocol: P,
    /// State from which the packets are built.
    pub state: ClientState<P::Lease>,
    limits: Limits,
    /// Time at which the client gives up acquiring a lease; `None` once the client has had a lease.
    until: Option<Duration>,
    /// Number of packets in a row without an answer.
    sent: u32,
    /// Time of the next action.
    next: Duration,
}

/// Events of a DHCP client for the protocol `P`, in order.
pub type Events<P> = Vec<Event<<P as Protocol>::Packet, <P as Protocol>::Lease>>;
type Address<P> = <<P as Protocol>::Lease as Leased>::Address;

impl<P: Protocol> Client<P> {
    /// Returns a client that starts to acquire a lease at `now`, with the address `wish` if
    /// possible.
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

    /// Returns the current lease, if any.
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

    /// True if the client is waiting for an answer from a server.
    pub fn listens(&self) -> bool {
        !matches!(self.state.phase, Phase::Bound | Phase::Over)
    }

    /// Schedules a retry of the last packet after at most 100 ms. Used if the packet could not be
    /// sent, for example because the link's own address is not usable yet.
    pub fn hold(&mut self, now: Duration) {
        (self.next, self.sent) = (self.next.min(now + Duration::from_millis(100)), 0);
    }

    /// Performs the actions that are due at `now`, and returns their events.
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

    /// Changes the phase if the offer or the lease has reached one of its timeouts.
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

    /// Begins an exchange with servers: enters `phase` with a new transaction id.
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

    /// Drops the lease and starts over with the discovery of servers.
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

    /// Requests an offered lease immediately. Keeps the transaction id, because DHCPv4 uses the
    /// same id for discovery and request.
    pub fn accept(&mut self, offer: P::Lease, now: Duration, rng: Dice<'_>) -> Events<P> {
        self.state.phase = Phase::Requesting {
            offer,
            until: now + self.limits.request,
        };
        (self.sent, self.next) = (0, now);
        self.tick(now, rng)
    }

    /// Handles a server's refusal of the requested offer: returns to discovery after a pause.
    /// Without the pause, a server that refuses each request would cause a busy loop.
    pub fn refuse_offer(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        (self.state.phase, self.state.wish) = (Phase::Selecting, None);
        self.sent += 1;
        self.next = self.next_time(now, rng);
        Vec::new()
    }

    /// Handles a server's refusal to renew the lease: drops the lease and starts over immediately.
    pub fn refuse_lease(&mut self, now: Duration, rng: Dice<'_>) -> Events<P> {
        let mut events = Vec::from_iter(self.lose("the server refused the lease", now, rng));
        self.state.wish = None;
        events.extend(self.tick(now, rng));
        events
    }

    /// Stores a lease from a server, which replaces the current lease, if any.
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

    /// Ends the client. Returns the lease to release: the current lease, or else the requested
    /// offer, which the server may already have assigned.
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
