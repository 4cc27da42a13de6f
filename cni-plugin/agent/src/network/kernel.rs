//! The agent's routes in the kernel: reading, lookups and changes, through rtnetlink.

use super::routes::{Change, Lookup, PROTOCOL, Route};
use crate::Error;
use futures_util::TryStreamExt;
use futures_util::stream::StreamExt;
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// No such process: the route does not exist.
const ESRCH: i32 = 3;
/// The route exists.
const EEXIST: i32 = 17;
/// No such device.
const ENODEV: i32 = 19;

/// The link of the node's own address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Networks of its addresses.
    pub networks: Vec<IpNet>,
}

/// A netlink socket in the node's network namespace.
#[derive(Debug, Clone)]
pub struct Kernel {
    handle: Handle,
}

impl Kernel {
    /// Opens the socket. A task of the current runtime serves it until the value is dropped.
    pub fn open() -> Result<Self, Error> {
        // Strict checks make the kernel honour the filter of a dump (Linux 4.20).
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()
            .map_err(|err| Error::new("open a netlink socket", err))?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// Lists the agent's own routes.
    pub async fn routes(&self) -> Result<BTreeSet<Route>, Error> {
        let mut routes = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut filter = RouteMessage::default();
            filter.header.address_family = family;
            filter.header.table = RouteHeader::RT_TABLE_MAIN;
            filter.header.protocol = RouteProtocol::Other(PROTOCOL);
            let mut found = self.handle.route().get(filter).execute();
            while let Some(message) = found
                .try_next()
                .await
                .map_err(|err| Error::new("list routes", err))?
            {
                routes.extend(parse(&message));
            }
        }
        Ok(routes)
    }

    /// Carries out a change. Returns false if another program has a route to the range.
    pub async fn change(&self, change: &Change) -> Result<bool, Error> {
        let done = match change {
            Change::Add(route) => self.handle.route().add(message(route)?).execute().await,
            Change::Replace(route) => {
                let request = self.handle.route().add(message(route)?);
                request.replace().execute().await
            }
            Change::Delete(route) => self.handle.route().del(message(route)?).execute().await,
        };
        match (change, done) {
            (Change::Add(_), Err(err)) if code_of(&err) == -EEXIST => Ok(false),
            // The kernel deleted the route with its link, or another program deleted it.
            (Change::Delete(_), Err(err)) if [-ESRCH, -ENODEV].contains(&code_of(&err)) => Ok(true),
            (_, done) => {
                done.map_err(|err| Error::new(change, err))?;
                Ok(true)
            }
        }
    }

    /// Looks up each address in the kernel's routing tables.
    pub async fn lookups(
        &self,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<BTreeMap<IpAddr, Lookup>, Error> {
        let tunnels = self.point_to_point().await?;
        let mut lookups = BTreeMap::new();
        for address in addresses {
            lookups.insert(*address, self.lookup(*address, &tunnels).await?);
        }
        Ok(lookups)
    }

    async fn lookup(&self, address: IpAddr, tunnels: &BTreeSet<u32>) -> Result<Lookup, Error> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let mut request = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, prefix)
            .map_err(|err| Error::new(format_args!("look up {address}"), err))?
            .build();
        // A lookup accepts no other header field under strict checks.
        let family = request.header.address_family;
        request.header = RouteHeader {
            address_family: family,
            destination_prefix_length: prefix,
            ..RouteHeader::default()
        };
        let mut found = self.handle.route().get(request).execute();
        Ok(match found.next().await {
            Some(Ok(message)) => judged(&message, tunnels),
            Some(Err(rtnetlink::Error::NetlinkError(_))) | None => Lookup::Unreachable,
            Some(Err(err)) => return Err(Error::new(format_args!("look up {address}"), err)),
        })
    }

    async fn point_to_point(&self) -> Result<BTreeSet<u32>, Error> {
        let mut links = self.handle.link().get().execute();
        let mut found = BTreeSet::new();
        while let Some(link) = links
            .try_next()
            .await
            .map_err(|err| Error::new("list links", err))?
        {
            if link.header.flags.contains(LinkFlags::Pointopoint) {
                found.insert(link.header.index);
            }
        }
        Ok(found)
    }

    /// Returns the link that has one of the addresses; `None` if no link has.
    pub async fn uplink(&self, own: &[IpAddr]) -> Result<Option<Uplink>, Error> {
        let mut by_link: BTreeMap<u32, Vec<IpNet>> = BTreeMap::new();
        let mut link = None;
        let mut addresses = self.handle.address().get().execute();
        while let Some(message) = addresses
            .try_next()
            .await
            .map_err(|err| Error::new("list addresses", err))?
        {
            let index = message.header.index;
            let Some(address) = own_address(&message.attributes) else {
                continue;
            };
            if own.contains(&address) {
                link.get_or_insert(index);
            }
            if let Ok(network) = IpNet::new(address, message.header.prefix_len) {
                by_link.entry(index).or_default().push(network.trunc());
            }
        }
        let Some(link) = link else {
            return Ok(None);
        };
        let networks = by_link.remove(&link).unwrap_or_default();
        self.link(link, networks).await.map(Some)
    }

    async fn link(&self, link: u32, networks: Vec<IpNet>) -> Result<Uplink, Error> {
        let doing = format!("read link {link}");
        let mut found = self.handle.link().get().match_index(link).execute();
        let message = found
            .try_next()
            .await
            .map_err(|err| Error::new(&doing, err))?;
        let (mut name, mut mtu) = (None, None);
        for attribute in message.map(|link| link.attributes).unwrap_or_default() {
            if let LinkAttribute::Mtu(found) = attribute {
                mtu = Some(found);
            } else if let LinkAttribute::IfName(found) = attribute {
                name = Some(found);
            }
        }
        match (name, mtu) {
            (Some(name), Some(mtu)) => Ok(Uplink {
                name,
                mtu,
                networks,
            }),
            _ => Err(Error::new(&doing, "the kernel reports no name or MTU")),
        }
    }
}

/// Returns the address of the link itself. For a link with a peer, `IFA_ADDRESS` is the peer's and
/// `IFA_LOCAL` the own one; IPv6 has only the first without a peer.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let mut own = None;
    for attribute in attributes {
        if let AddressAttribute::Local(address) = attribute {
            return Some(*address);
        }
        if let AddressAttribute::Address(address) = attribute {
            own = Some(*address);
        }
    }
    own
}

fn judged(message: &RouteMessage, tunnels: &BTreeSet<u32>) -> Lookup {
    if message.header.kind != RouteType::Unicast {
        // The address is one of this node's own, or is refused by a rule.
        return Lookup::Unreachable;
    }
    let mut link = None;
    for attribute in &message.attributes {
        if let RouteAttribute::Gateway(_) | RouteAttribute::Via(_) = attribute {
            return Lookup::Elsewhere;
        }
        if let RouteAttribute::Oif(index) = attribute {
            link = Some(*index);
        }
    }
    match link {
        Some(link) if tunnels.contains(&link) => Lookup::Elsewhere,
        Some(link) => Lookup::OnLink(link),
        None => Lookup::Elsewhere,
    }
}

/// Returns a route of the agent's form; `None` for others of the protocol, which it did not create.
fn parse(message: &RouteMessage) -> Option<Route> {
    let is_ours = message.header.protocol == RouteProtocol::Other(PROTOCOL)
        && message.header.table == RouteHeader::RT_TABLE_MAIN
        && message.header.kind == RouteType::Unicast;
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
    is_ours.then_some(Route { dst, via, link })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(address) = address {
        Some(IpAddr::V4(*address))
    } else if let RouteAddress::Inet6(address) = address {
        Some(IpAddr::V6(*address))
    } else {
        None
    }
}

fn message(route: &Route) -> Result<RouteMessage, Error> {
    let Route { dst, via, link } = route;
    let protocol = RouteProtocol::Other(PROTOCOL);
    Ok(match (dst, via) {
        (IpNet::V4(dst), IpAddr::V4(via)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .gateway(*via)
            .output_interface(*link)
            .protocol(protocol)
            .build(),
        (IpNet::V4(dst), IpAddr::V6(via)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .via(*via)
            .output_interface(*link)
            .protocol(protocol)
            .build(),
        (IpNet::V6(dst), IpAddr::V6(via)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(dst.network(), dst.prefix_len())
            .gateway(*via)
            .output_interface(*link)
            .protocol(protocol)
            .build(),
        (IpNet::V6(_), IpAddr::V4(_)) => {
            let why = "IPv6 packets need an IPv6 gateway";
            return Err(Error::new(format_args!("route {dst} via {via}"), why));
        }
    })
}

/// Returns the negative error number of the kernel; 0 if the error is not the kernel's.
fn code_of(err: &rtnetlink::Error) -> i32 {
    if let rtnetlink::Error::NetlinkError(message) = err {
        message.raw_code()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_survives_the_way_to_the_kernels_message_and_back() {
        for (dst, via) in [
            ("10.244.2.0/24", "10.99.0.12"),
            ("10.244.2.0/24", "fd99::12"),
            ("fd00:2::/64", "fd99::12"),
        ] {
            let route = Route {
                dst: dst.parse().expect("a range"),
                via: via.parse().expect("an address"),
                link: 7,
            };
            let message = message(&route).expect("a message");
            assert_eq!(parse(&message), Some(route));
        }
    }

    #[test]
    fn routes_of_other_programs_are_not_the_agents() {
        let route = Route {
            dst: "10.244.2.0/24".parse().expect("a range"),
            via: "10.99.0.12".parse().expect("an address"),
            link: 7,
        };
        let ours = message(&route).expect("a message");
        let mut of_bird = ours.clone();
        of_bird.header.protocol = RouteProtocol::Bird;
        let mut in_other_table = ours.clone();
        in_other_table.header.table = 100;
        let mut blackhole = ours;
        blackhole.header.kind = RouteType::BlackHole;
        for other in [of_bird, in_other_table, blackhole] {
            assert_eq!(parse(&other), None);
        }
    }

    #[test]
    fn the_own_address_of_a_link_with_a_peer_is_not_the_peers() {
        let [own, peer] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let both = [
            AddressAttribute::Address(peer),
            AddressAttribute::Local(own),
        ];
        assert_eq!(own_address(&both), Some(own));
        assert_eq!(own_address(&[AddressAttribute::Address(own)]), Some(own));
    }

    #[test]
    fn only_an_address_on_a_link_of_several_stations_is_on_a_shared_link() {
        let mut message = RouteMessage::default();
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(7)];
        let none = BTreeSet::new();
        assert_eq!(judged(&message, &none), Lookup::OnLink(7));
        assert_eq!(judged(&message, &BTreeSet::from([7])), Lookup::Elsewhere);
        let gateway = RouteAddress::Inet(Ipv4Addr::new(10, 99, 0, 1));
        message.attributes.push(RouteAttribute::Gateway(gateway));
        assert_eq!(judged(&message, &none), Lookup::Elsewhere);
        message.header.kind = RouteType::Local;
        assert_eq!(judged(&message, &none), Lookup::Unreachable);
    }
}
