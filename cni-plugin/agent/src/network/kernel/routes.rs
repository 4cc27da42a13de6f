//! Routes of the agent.

use super::{Kernel, ip};
use crate::error::Error;
use crate::network::routes::{Dev, PROBE_TABLE, PROTOCOL, Route, Table};
use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::RouteMessageBuilder;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Kernel {
    /// Lists the routes of a protocol that have the agent's form. `vxlan` is the index of the VXLAN
    /// link.
    pub(super) async fn routes(
        &self,
        protocol: RouteProtocol,
        families: &[AddressFamily],
        vxlan: Option<u32>,
    ) -> Result<BTreeSet<Route>, Error> {
        let mut routes = BTreeSet::new();
        for family in families {
            let mut filter = RouteMessage::default();
            filter.header.address_family = *family;
            filter.header.protocol = protocol;
            let request = RouteNetlinkMessage::GetRoute(filter);
            for found in self.list("routes", request).await? {
                if let RouteNetlinkMessage::NewRoute(message) = found
                    && message.header.protocol == protocol
                {
                    routes.extend(parse(&message, vxlan));
                }
            }
        }
        Ok(routes)
    }
}

/// Returns a route of the agent's form; `None` for others.
fn parse(message: &RouteMessage, vxlan: Option<u32>) -> Option<Route> {
    let is_of_form = message.header.kind == RouteType::Unicast;
    let table = match message.header.table {
        RouteHeader::RT_TABLE_MAIN => Table::Main,
        PROBE_TABLE => Table::Probes,
        _ => return None,
    };
    let (mut dst, mut via, mut link) = (None, None, None);
    for attribute in &message.attributes {
        if let RouteAttribute::Destination(address) = attribute {
            dst = ip(address);
        } else if let RouteAttribute::Gateway(address) = attribute {
            via = ip(address);
        } else if let RouteAttribute::Via(RouteVia::Inet6(address)) = attribute {
            via = Some(IpAddr::V6(*address));
        } else if let RouteAttribute::Oif(index) = attribute {
            link = Some(*index);
        }
    }
    let dst = IpNet::new(dst?, message.header.destination_prefix_length).ok()?;
    let (via, link) = (via?, link?);
    let dev = if Some(link) == vxlan {
        Dev::Vxlan
    } else {
        Dev::Index(link)
    };
    is_of_form.then_some(Route {
        table,
        dst,
        via,
        dev,
    })
}

/// Protocol of the agent's routes.
pub(super) const OWN: RouteProtocol = RouteProtocol::Other(PROTOCOL);

/// Returns the message of a route of the agent.
pub(super) fn message(route: &Route, vxlan: u32) -> Result<RouteMessage, Error> {
    let Route { dst, via, .. } = route;
    let mut message = match (dst, via) {
        (IpNet::V4(dst), IpAddr::V4(via)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .gateway(*via)
            .build(),
        (IpNet::V4(dst), IpAddr::V6(via)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .via(*via)
            .build(),
        (IpNet::V6(dst), IpAddr::V6(via)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .gateway(*via)
            .build(),
        (IpNet::V6(_), IpAddr::V4(_)) => {
            let why = "IPv6 packets need an IPv6 gateway";
            return Err(Error::new(format_args!("route {dst} via {via}"), why));
        }
    };
    message.header.protocol = OWN;
    message.header.table = match route.table {
        Table::Main => RouteHeader::RT_TABLE_MAIN,
        Table::Probes => PROBE_TABLE,
    };
    let link = match route.dev {
        Dev::Index(index) => index,
        Dev::Vxlan => {
            // The gateway is on no network of the link.
            message.header.flags.insert(RouteFlags::Onlink);
            vxlan
        }
    };
    message.attributes.push(RouteAttribute::Oif(link));
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(table: Table, dst: &str, via: &str, dev: Dev) -> Route {
        Route {
            table,
            dst: dst.parse().expect("a range"),
            via: via.parse().expect("an address"),
            dev,
        }
    }

    #[test]
    fn a_route_survives_the_way_to_the_kernels_message_and_back() {
        for (dst, via) in [
            ("10.244.2.0/24", "10.99.0.12"),
            ("10.244.2.0/24", "fd99::12"),
            ("fd00:2::/64", "fd99::12"),
        ] {
            for table in [Table::Main, Table::Probes] {
                let route = route(table, dst, via, Dev::Index(7));
                let message = message(&route, 9).expect("a message");
                assert_eq!(parse(&message, Some(9)), Some(route));
            }
            let route = route(Table::Main, dst, via, Dev::Vxlan);
            let message = message(&route, 9).expect("a message");
            assert!(message.header.flags.contains(RouteFlags::Onlink));
            assert_eq!(parse(&message, Some(9)), Some(route));
        }
    }

    #[test]
    fn routes_of_another_form_are_not_the_agents() {
        let route = route(Table::Main, "10.244.2.0/24", "10.99.0.12", Dev::Index(7));
        let ours = message(&route, 0).expect("a message");
        let mut in_other_table = ours.clone();
        in_other_table.header.table = 100;
        let mut blackhole = ours;
        blackhole.header.kind = RouteType::BlackHole;
        for other in [in_other_table, blackhole] {
            assert_eq!(parse(&other, None), None);
        }
    }
}
