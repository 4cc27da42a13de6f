//! DHCPv4 leases, and their addresses and routes in a result.

use super::Message;
use super::number::{
    CLASSLESS_ROUTES, LEASE_TIME, REBINDING_TIME, RENEWAL_TIME, ROUTERS, SERVER_ID, STATIC_ROUTES,
    SUBNET_MASK,
};
use crate::cni::{IpConfig, Route};
use crate::ipam::dhcp::timing::Terms;
use crate::kernel_numbers::RT_SCOPE_LINK;
use crate::name::Mac;
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Lease time in seconds if the server sends none, as in the reference daemon.
const USUAL: u32 = 3600;

/// A DHCPv4 lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseV4 {
    /// Leased address.
    pub address: Ipv4Addr,
    /// Prefix length; `None` if the server sent no valid mask.
    pub prefix_len: Option<u8>,
    /// Server identifier.
    pub server: Ipv4Addr,
    /// Hardware address of the server, or of the relay before it.
    pub server_mac: Mac,
    /// Default gateways: the option `routers`.
    pub routers: Vec<Ipv4Addr>,
    /// Classless routes: destination and router, which is all zeros for on-link routes.
    classless: Vec<(Ipv4Net, Ipv4Addr)>,
    /// Classful static routes: destination and router.
    classful: Vec<(Ipv4Net, Ipv4Addr)>,
    /// Times of the lease.
    pub terms: Terms,
}

impl LeaseV4 {
    /// Parses an offer or an acknowledgement; `None` without an address or a server identifier.
    pub fn of(message: &Message, from: Mac, now: Duration) -> Option<Self> {
        let address = message.yiaddr;
        if address.is_unspecified() || address.is_broadcast() {
            return None;
        }
        let server = *message.addresses(SERVER_ID).first()?;
        let mask = message.addresses(SUBNET_MASK).first().copied();
        let prefix_len = mask.and_then(|mask| ipnet::ipv4_mask_to_prefix(mask).ok());
        let length = match message.number(LEASE_TIME) {
            None | Some(0) => USUAL,
            Some(length) => length,
        };
        let terms = Terms::new(
            now,
            length,
            message.number(RENEWAL_TIME),
            message.number(REBINDING_TIME),
        );
        Some(Self {
            address,
            prefix_len,
            server,
            server_mac: from,
            routers: message.addresses(ROUTERS),
            classless: classless(&message.get(CLASSLESS_ROUTES).unwrap_or_default()),
            classful: classful(&message.addresses(STATIC_ROUTES)),
            terms,
        })
    }

    /// Returns the address with its prefix length; `None` if the prefix length is unknown.
    pub fn net(&self) -> Option<IpNet> {
        let net = Ipv4Net::new(self.address, self.prefix_len?).ok()?;
        Some(net.into())
    }

    /// Returns the address for a CNI result, with the first router as gateway; `None` if the prefix
    /// length is unknown.
    pub fn ip(&self) -> Option<IpConfig> {
        Some(IpConfig {
            address: self.net()?,
            gateway: self.routers.first().map(|router| IpAddr::from(*router)),
            interface: None,
        })
    }

    /// Returns the routes for a CNI result. If the lease has classless routes, only these are
    /// returned (RFC 3442). Otherwise, the static routes and a default route through the first
    /// router are returned.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        if !self.classless.is_empty() {
            for (dst, router) in &self.classless {
                routes.push(route(*dst, *router));
            }
            return routes;
        }
        for (dst, router) in &self.classful {
            routes.push(route(*dst, *router));
        }
        if let Some(router) = self.routers.first() {
            routes.push(route(Ipv4Net::default(), *router));
        }
        routes
    }
}

/// Returns a route for a CNI result. The route is on-link if `router` is all zeros.
fn route(dst: Ipv4Net, router: Ipv4Addr) -> Route {
    let mut route = Route::to(dst.into());
    if router.is_unspecified() {
        route.scope = Some(RT_SCOPE_LINK);
    } else {
        route.gw = Some(router.into());
    }
    route
}

/// Parses classless routes (RFC 3442). Each route has a prefix length, the significant bytes of the
/// prefix, and a router.
fn classless(mut bytes: &[u8]) -> Vec<(Ipv4Net, Ipv4Addr)> {
    let mut routes = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let Some((prefix, rest)) = rest.split_at_checked(usize::from(len.div_ceil(8))) else {
            break;
        };
        let Some((router, rest)) = rest.split_first_chunk::<4>() else {
            break;
        };
        let mut octets = [0; 4];
        let Some(place) = octets.get_mut(..prefix.len()) else {
            break;
        };
        place.copy_from_slice(prefix);
        let Ok(net) = Ipv4Net::new(octets.into(), *len) else {
            break;
        };
        routes.push((net.trunc(), Ipv4Addr::from(*router)));
        bytes = rest;
    }
    routes
}

/// Parses classful static routes, which are pairs of destination and router. The prefix length is
/// the length for the address class.
fn classful(addresses: &[Ipv4Addr]) -> Vec<(Ipv4Net, Ipv4Addr)> {
    let class = |dst: Ipv4Addr| match dst.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    };
    let mut routes = Vec::new();
    for [dst, router] in addresses.as_chunks::<2>().0 {
        if let Ok(net) = Ipv4Net::new(*dst, class(*dst)) {
            routes.push((net.trunc(), *router));
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::super::message::MessageType;
    use super::*;

    fn lease(options: &[(u8, &[u8])]) -> Option<LeaseV4> {
        let mut message = Message::new(MessageType::Ack, 1, Mac([0; 6]));
        message.yiaddr = Ipv4Addr::new(10, 1, 0, 7);
        message
            .options
            .extend(options.iter().map(|(code, value)| (*code, value.to_vec())));
        LeaseV4::of(&message, Mac([1; 6]), Duration::from_secs(100))
    }

    const SERVER: (u8, &[u8]) = (SERVER_ID, &[10, 1, 0, 1]);
    const MASK: (u8, &[u8]) = (SUBNET_MASK, &[255, 255, 255, 0]);
    const ROUTER: (u8, &[u8]) = (ROUTERS, &[10, 1, 0, 2, 10, 1, 0, 3]);

    fn routes(options: &[(u8, &[u8])]) -> Vec<String> {
        let text = |route: &Route| {
            format!(
                "{} {:?} {:?}",
                route.dst,
                route.gw.map(|gw| gw.to_string()),
                route.scope
            )
        };
        lease(&[&[SERVER, MASK, ROUTER], options].concat())
            .expect("a lease")
            .routes()
            .iter()
            .map(text)
            .collect()
    }

    #[test]
    fn the_first_router_is_gateway_and_default_route() {
        let ip = lease(&[SERVER, MASK, ROUTER])
            .and_then(|lease| lease.ip())
            .expect("an address");
        assert_eq!(
            (ip.address.to_string(), ip.gateway),
            ("10.1.0.7/24".into(), "10.1.0.2".parse().ok())
        );
        assert_eq!(routes(&[]), [r#"0.0.0.0/0 Some("10.1.0.2") None"#]);
    }

    #[test]
    fn static_routes_have_classes_and_precede_the_default_route() {
        let classful = routes(&[(
            STATIC_ROUTES,
            &[10, 9, 9, 9, 10, 1, 0, 4, 192, 168, 7, 9, 10, 1, 0, 5, 1],
        )]);
        let expected = [
            r#"10.0.0.0/8 Some("10.1.0.4") None"#,
            r#"192.168.7.0/24 Some("10.1.0.5") None"#,
            r#"0.0.0.0/0 Some("10.1.0.2") None"#,
        ];
        assert_eq!(classful, expected);
    }

    #[test]
    fn classless_routes_replace_others_and_are_on_link_without_a_router() {
        let option: &[u8] = &[
            0, 10, 1, 0, 9, 25, 192, 168, 7, 128, 0, 0, 0, 0, 33, 1, 2, 3, 4, 5, 6, 7, 8, 9,
        ];
        let expected = [
            r#"0.0.0.0/0 Some("10.1.0.9") None"#,
            "192.168.7.128/25 None Some(253)",
        ];
        assert_eq!(
            routes(&[
                (CLASSLESS_ROUTES, option),
                (STATIC_ROUTES, &[10, 0, 0, 0, 10, 1, 0, 4])
            ]),
            expected
        );
    }

    #[test]
    fn without_a_server_there_is_no_lease_and_without_a_mask_no_address() {
        assert_eq!(lease(&[MASK]), None);
        assert_eq!(lease(&[SERVER]).expect("a lease").ip(), None);
        assert_eq!(
            lease(&[SERVER, (SUBNET_MASK, &[255, 0, 255, 0])])
                .expect("a lease")
                .ip(),
            None
        );
    }

    #[test]
    fn a_lease_without_a_length_lasts_an_hour() {
        assert_eq!(
            lease(&[SERVER]).expect("a lease").terms.expire,
            Duration::from_secs(3700)
        );
    }
}
