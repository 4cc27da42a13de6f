//! The kernel's routes to addresses.

use super::Kernel;
use crate::error::Error;
use crate::network::routes::Lookup;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use rtnetlink::RouteMessageBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Lookups that wait for the kernel at the same time. Their answers fit into the socket's buffer.
const CONCURRENT: usize = 64;

impl Kernel {
    /// Looks up each address in the kernel's routing tables.
    pub async fn lookups(
        &self,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<BTreeMap<IpAddr, Lookup>, Error> {
        let tunnels = &self.point_to_point().await?;
        let lookups = iter(addresses).map(|address| self.lookup(*address, tunnels));
        lookups.buffer_unordered(CONCURRENT).try_collect().await
    }

    async fn lookup(
        &self,
        address: IpAddr,
        tunnels: &BTreeSet<u32>,
    ) -> Result<(IpAddr, Lookup), Error> {
        let doing = format!("look up {address}");
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let mut request = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, prefix)
            .map_err(|err| Error::new(&doing, err))?
            .build();
        // A lookup accepts no other header field under strict checks.
        let family = request.header.address_family;
        request.header = RouteHeader {
            address_family: family,
            destination_prefix_length: prefix,
            ..RouteHeader::default()
        };
        let request = RouteNetlinkMessage::GetRoute(request);
        let lookup = match self.exchange(request, 0).await {
            Ok(answer) => match answer.messages.first() {
                Some(RouteNetlinkMessage::NewRoute(message)) => judged(message, tunnels),
                _ => Lookup::Unreachable,
            },
            Err(failure) if failure.errno != 0 => Lookup::Unreachable,
            Err(failure) => return Err(failure.during(doing)),
        };
        Ok((address, lookup))
    }

    async fn point_to_point(&self) -> Result<BTreeSet<u32>, Error> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut found = BTreeSet::new();
        for message in self.list("links", request).await? {
            if let RouteNetlinkMessage::NewLink(link) = message
                && link.header.flags.contains(LinkFlags::Pointopoint)
            {
                found.insert(link.header.index);
            }
        }
        Ok(found)
    }
}

fn judged(message: &RouteMessage, tunnels: &BTreeSet<u32>) -> Lookup {
    if message.header.kind == RouteType::Local {
        return Lookup::Own;
    }
    if message.header.kind != RouteType::Unicast {
        // A rule or a route refuses the address.
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

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::RouteAddress;
    use std::net::Ipv4Addr;

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
        assert_eq!(judged(&message, &none), Lookup::Own);
        message.header.kind = RouteType::Prohibit;
        assert_eq!(judged(&message, &none), Lookup::Unreachable);
    }
}
