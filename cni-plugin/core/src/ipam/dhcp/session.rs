//! DHCP leases of one link, with a client for each configured address family.

use super::timing::{Dice, Limits};
use super::{DhcpConfig, v4, v6};
use crate::cni::{Dns, IpConfig, Owner, Route};
use crate::ipam::Lease;
use crate::name::Mac;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Action or event that a session returns to the DHCP daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send an IPv4 packet.
    Send4(v4::Packet),
    /// Send a message to all DHCPv6 servers on the link.
    Send6(Vec<u8>),
    /// A lease was acquired or renewed.
    Bound,
    /// A lease is no longer valid, so its address must be deleted from the link.
    Lost {
        /// Leased address; `None` if the server sent no mask, so the address was never on the link.
        ip: Option<IpConfig>,
        /// Routes of the lease.
        routes: Vec<Route>,
        /// Reason why the lease is no longer valid.
        why: &'static str,
    },
    /// A client got no lease before the timeout.
    GaveUp,
}

/// Leases of a session, to be stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// DHCPv4 lease, if any.
    pub v4: Option<v4::LeaseV4>,
    /// DHCPv6 lease, if any.
    pub v6: Option<v6::LeaseV6>,
}

/// A link and its owner, as presented to DHCP servers.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// Network, container and interface name of the link.
    pub owner: &'a Owner,
    /// Hardware address of the link.
    pub mac: Mac,
    /// True if servers must broadcast their answers.
    pub broadcast: bool,
}

/// DHCPv4 and DHCPv6 clients of one link.
#[derive(Debug, Clone)]
pub struct Session {
    v4: Option<v4::Client>,
    v6: Option<v6::Client>,
    priority: u32,
}

impl Session {
    /// Returns a session that continues with the leases in `held` and acquires the missing leases.
    pub fn new(
        config: &DhcpConfig,
        link: Link<'_>,
        held: Held,
        (limits, now): (Limits, Duration),
        rng: Dice<'_>,
    ) -> Self {
        let v4 = config.families.v4.then(|| {
            let identity = config.v4(link.owner, link.mac, link.broadcast);
            match held.v4 {
                Some(lease) => v4::Client::resume(identity, limits, lease),
                None => v4::Client::new(identity, limits, None, now, rng),
            }
        });
        let v6 = config.families.v6.then(|| {
            let identity = DhcpConfig::v6(link.owner);
            match held.v6 {
                Some(lease) => v6::Client::resume(identity, limits, lease),
                None => v6::Client::new(identity, limits, None, now, rng),
            }
        });
        Self {
            v4,
            v6,
            priority: config.priority,
        }
    }

    /// Returns the current leases.
    pub fn held(&self) -> Held {
        let v4 = self.v4.as_ref().and_then(v4::Client::lease).cloned();
        Held {
            v4,
            v6: self.v6.as_ref().and_then(v6::Client::lease).cloned(),
        }
    }

    /// True if each configured address family has a lease.
    pub fn is_bound(&self) -> bool {
        self.v4
            .as_ref()
            .is_none_or(|client| client.lease().is_some())
            && self
                .v6
                .as_ref()
                .is_none_or(|client| client.lease().is_some())
    }

    /// Returns the time of the next action; `None` if all clients have ended.
    pub fn next(&self) -> Option<Duration> {
        let v4 = self.v4.as_ref().and_then(v4::Client::next);
        let v6 = self.v6.as_ref().and_then(v6::Client::next);
        match (v4, v6) {
            (Some(v4), Some(v6)) => Some(v4.min(v6)),
            (v4, v6) => v4.or(v6),
        }
    }

    /// True if the DHCPv4 client is waiting for an answer.
    pub fn listens4(&self) -> bool {
        self.v4.as_ref().is_some_and(v4::Client::listens)
    }

    /// True if the DHCPv6 client is waiting for an answer.
    pub fn listens6(&self) -> bool {
        self.v6.as_ref().is_some_and(v6::Client::listens)
    }

    /// Schedules a retry, shortly after `now`, of an IPv4 packet that could not be sent.
    pub fn hold4(&mut self, now: Duration) {
        if let Some(client) = &mut self.v4 {
            client.hold(now);
        }
    }

    /// Schedules a retry, shortly after `now`, of a DHCPv6 message that could not be sent.
    pub fn hold6(&mut self, now: Duration) {
        if let Some(client) = &mut self.v6 {
            client.hold(now);
        }
    }

    /// Sets whether servers must broadcast their answers to a client without an address. Otherwise,
    /// servers send answers to the client's hardware address.
    pub fn set_broadcast(&mut self, on: bool) {
        if let Some(client) = &mut self.v4 {
            client.protocol.broadcast = on;
        }
    }

    /// Performs the actions that are due at `now`.
    pub fn tick(&mut self, now: Duration, rng: Dice<'_>) -> Vec<Output> {
        let mut outputs = Vec::new();
        if let Some(client) = &mut self.v4 {
            outputs.extend(client.tick(now, rng).into_iter().map(output4));
        }
        if let Some(client) = &mut self.v6 {
            outputs.extend(client.tick(now, rng).into_iter().map(output6));
        }
        outputs
    }

    /// Processes an IPv4 packet received from the hardware address `from`.
    pub fn take4(&mut self, packet: &[u8], from: Mac, now: Duration, rng: Dice<'_>) -> Vec<Output> {
        let message = v4::frame::decode(packet).and_then(v4::Message::decode);
        let (Some(message), Some(client)) = (message, &mut self.v4) else {
            return Vec::new();
        };
        let events = client.take(&message, from, now, rng);
        events.into_iter().map(output4).collect()
    }

    /// Processes a received DHCPv6 message.
    pub fn take6(&mut self, message: &[u8], now: Duration, rng: Dice<'_>) -> Vec<Output> {
        let (Some(message), Some(client)) = (v6::Message::decode(message), &mut self.v6) else {
            return Vec::new();
        };
        let events = client.take(&message, now, rng);
        events.into_iter().map(output6).collect()
    }

    /// Ends the clients and returns the packets that release their leases.
    pub fn release(&mut self, rng: Dice<'_>) -> Vec<Output> {
        let mut outputs = Vec::new();
        if let Some(client) = &mut self.v4
            && let Some(packet) = client.release(rng)
        {
            outputs.push(Output::Send4(packet));
        }
        if let Some(client) = &mut self.v6
            && let Some(message) = client.release(rng)
        {
            outputs.push(Output::Send6(message));
        }
        outputs
    }

    /// Returns the addresses and routes of all leases. Fails if the DHCPv4 server sent no valid
    /// subnet mask.
    pub fn lease(&self) -> Result<Lease, &'static str> {
        let Held { v4, v6 } = self.held();
        let mut lease = Lease {
            dns: Dns::default(),
            ..Lease::default()
        };
        if let Some(v4) = v4 {
            let Some(ip) = v4.ip() else {
                return Err("DHCP option Subnet Mask not found in DHCPACK");
            };
            lease.ips.push(ip);
            for mut route in v4.routes() {
                route.priority = self.priority;
                lease.routes.push(route);
            }
        }
        if let Some(v6) = &v6 {
            lease.ips.push(whole(v6));
        }
        Ok(lease)
    }
}

fn whole(lease: &v6::LeaseV6) -> IpConfig {
    IpConfig {
        address: Ipv6Net::from(lease.address).into(),
        gateway: None,
        interface: None,
    }
}

fn output4(event: v4::Event) -> Output {
    match event {
        v4::Event::Send(packet) => Output::Send4(packet),
        v4::Event::Bound => Output::Bound,
        v4::Event::Lost(lease, why) => Output::Lost {
            ip: lease.ip(),
            routes: lease.routes(),
            why,
        },
        v4::Event::GaveUp => Output::GaveUp,
    }
}

fn output6(event: v6::Event) -> Output {
    match event {
        v6::Event::Send(message) => Output::Send6(message),
        v6::Event::Bound => Output::Bound,
        v6::Event::Lost(lease, why) => Output::Lost {
            ip: Some(whole(&lease)),
            routes: Vec::new(),
            why,
        },
        v6::Event::GaveUp => Output::GaveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NetConf;

    fn session(families: &str, held: Held) -> Session {
        let conf = format!(
            r#"{{"name":"n","ipam":{{"type":"dhcp","priority":7,"ipFamilies":{families}}}}}"#
        );
        let config = DhcpConfig::parse(&NetConf::parse(conf.as_bytes()).unwrap(), "").unwrap();
        let owner = Owner::new("n", "4f1c", "eth0");
        let link = Link {
            owner: &owner,
            mac: Mac([2; 6]),
            broadcast: false,
        };
        Session::new(
            &config,
            link,
            held,
            (Limits::default(), Duration::ZERO),
            &mut || 0,
        )
    }

    fn kinds(outputs: &[Output]) -> String {
        let kind = |output: &Output| match output {
            Output::Send4(_) => '4',
            Output::Send6(_) => '6',
            Output::Bound => 'b',
            Output::Lost { .. } => 'l',
            Output::GaveUp => 'g',
        };
        outputs.iter().map(kind).collect()
    }

    #[test]
    fn each_family_has_its_client() {
        for (families, expected) in [
            (r#"["IPv4"]"#, "4"),
            (r#"["IPv6"]"#, "6"),
            (r#"["IPv4","IPv6"]"#, "46"),
        ] {
            let mut session = session(families, Held::default());
            assert_eq!(kinds(&session.tick(Duration::ZERO, &mut || 0)), expected);
            assert!(!session.is_bound());
        }
    }

    #[test]
    fn held_lease_is_kept_while_the_other_family_is_acquired() {
        let terms = super::super::timing::Terms::new(Duration::ZERO, 100, None, None);
        let lease = v6::LeaseV6 {
            address: "fd00::7".parse().unwrap(),
            server: vec![1],
            terms,
        };
        let held = Held {
            v6: Some(lease),
            v4: None,
        };
        let mut session = session(r#"["IPv4","IPv6"]"#, held.clone());
        assert_eq!(kinds(&session.tick(Duration::ZERO, &mut || 0)), "4");
        assert_eq!((session.held(), session.is_bound()), (held, false));
        let ips = session.lease().expect("addresses").ips;
        assert_eq!(
            ips.iter()
                .map(|ip| ip.address.to_string())
                .collect::<Vec<_>>(),
            ["fd00::7/128"]
        );
        assert_eq!(kinds(&session.release(&mut || 0)), "6");
        assert_eq!(session.next(), None);
    }
}
