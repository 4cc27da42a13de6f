//! Routes: requests, and parsing of the kernel's messages.

use super::{Effect, Head, Transport, link};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, KernelError, Socket, attr, attributes_of, find};
use crate::sys::rtnl::{self, emit, ip_of, u32_of};
use crate::{Context, Error};
use braid_core::kernel_numbers::RT_TABLE_MAIN;
use braid_core::name::Ns;
use braid_core::plan::facts::{Facts, RouteFact};
use braid_core::plan::thing::{LinkRef, Route, Verb};
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_EXPIRES: u16 = 23;
const RTA_NH_ID: u16 = 30;
/// `RTNH_F_ONLINK`: the next hop is on the link, regardless of its address. This is the only route
/// flag allowed in a request.
const ONLINK: u8 = 4;
/// Ticks per second in `struct rta_cacheinfo` (`USER_HZ`).
const TICKS: u32 = 100;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTPROT_RA: u8 = 9;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
/// Length of `struct rtmsg`.
const INFO_LEN: usize = 12;

impl Effect for Route {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    /// Uses neither `EXCL` nor `APPEND`, like the reference plugins. Without `EXCL`, two routes to
    /// one destination can coexist. Without `APPEND`, the kernel uses the newest of them for IPv4.
    /// For IPv6, the kernel spreads packets over both, with or without `APPEND`.
    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        write(index, self, RouteProtocol::Boot, body);
        Some(verb.word((rtnl::NEWROUTE, CREATE), (rtnl::DELROUTE, 0)))
    }
}

/// Writes the body of `RTM_NEWROUTE` or `RTM_DELROUTE`. The kernel deletes only routes with this
/// protocol; `Unspec` matches any protocol.
pub(super) fn write(index: u32, route: &Route, protocol: RouteProtocol, out: &mut Vec<u8>) {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = if route.dst.addr().is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    header.destination_prefix_length = route.dst.prefix_len();
    header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    header.protocol = protocol;
    header.scope = RouteScope::from(route.scope);
    header.kind = RouteType::Unicast;
    header.flags = if route.onlink {
        RouteFlags::Onlink
    } else {
        RouteFlags::empty()
    };
    let attributes = &mut message.attributes;
    if route.dst.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(route.dst.network().into()));
    }
    attributes.push(RouteAttribute::Oif(index));
    attributes.push(RouteAttribute::Table(route.table));
    if let Some(gw) = route.gw {
        attributes.push(RouteAttribute::Gateway(RouteAddress::from(gw)));
    }
    if let Some(src) = route.src {
        attributes.push(RouteAttribute::PrefSource(RouteAddress::from(src)));
    }
    if let Some(priority) = route.priority {
        attributes.push(RouteAttribute::Priority(priority));
    }
    let mut metrics = Vec::new();
    if let Some(mtu) = route.mtu {
        metrics.push(RouteMetric::Mtu(mtu));
    }
    if let Some(advmss) = route.advmss {
        metrics.push(RouteMetric::Advmss(advmss));
    }
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    emit(&message, out);
}

/// Lists one family's routes. The returned facts do not contain the requests that restore the
/// routes.
pub fn list(socket: &mut Socket, v4: bool) -> Result<Vec<RouteFact>, KernelError> {
    dump(socket, v4, parse)
}

fn dump(
    socket: &mut Socket,
    v4: bool,
    parse: impl Fn(&[u8]) -> Vec<RouteFact>,
) -> Result<Vec<RouteFact>, KernelError> {
    let mut message = RouteMessage::default();
    message.header.address_family = if v4 {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let mut routes = Vec::new();
    for message in socket.dump(rtnl::GETROUTE, |out| emit(&message, out))? {
        routes.extend(parse(&message.body));
    }
    Ok(routes)
}

/// Reads all routes of a namespace.
#[cold]
pub(crate) fn read(kernel: &mut Kernel, ns: Ns, facts: &mut Facts) -> Result<(), Error> {
    // Plugins delete routes in the container only, and a node may have very many.
    let parse = if ns == Ns::Pod { parse_whole } else { parse };
    let list = |socket: &mut Socket| {
        Ok([dump(socket, true, parse)?, dump(socket, false, parse)?].concat())
    };
    let routes = kernel.route(ns).and_then(list);
    facts
        .routes
        .insert(ns, routes.doing(format_args!("list routes of {ns}"))?);
    Ok(())
}

/// Reads the link of the first default route in the main table, IPv4 before IPv6.
#[cold]
pub(crate) fn read_default_link(
    kernel: &mut Kernel,
    ns: Ns,
    facts: &mut Facts,
) -> Result<(), Error> {
    for v4 in [true, false] {
        let routes = kernel.route(ns).and_then(|socket| Ok(list(socket, v4)?));
        let routes = routes.doing(format_args!("list routes of {ns}"))?;
        if let Some(index) = default_link(&routes) {
            let name = link::name_of(kernel, ns, index);
            let name = name.doing(format_args!(
                "look up the link of the default route of {ns}"
            ))?;
            facts.default_links.insert(ns, name.clone());
            return link::read(kernel, &LinkRef { ns, name }, facts);
        }
    }
    Ok(())
}

/// Returns the index of the link of the first default route in the main table.
fn default_link(routes: &[RouteFact]) -> Option<u32> {
    for route in routes {
        if route.dst.prefix_len() == 0 && route.table == RT_TABLE_MAIN && route.link.is_some() {
            return route.link;
        }
    }
    None
}

/// Parses `RTM_NEWROUTE` and returns a route for each next hop, since the kernel merges several
/// IPv6 routes to one destination. Returns none for a route that is not unicast.
fn parse(body: &[u8]) -> Vec<RouteFact> {
    let Some((route, hops)) = parse_all(body) else {
        return Vec::new();
    };
    if hops.is_empty() {
        return vec![route];
    }
    let mut routes = Vec::with_capacity(hops.len());
    for hop in hops {
        routes.push(RouteFact {
            gw: hop.gw,
            link: hop.link,
            onlink: hop.flags & ONLINK != 0,
            ..route.clone()
        });
    }
    routes
}

/// Parses routes like [`parse`], and adds the request that restores each route.
fn parse_whole(body: &[u8]) -> Vec<RouteFact> {
    let mut routes = parse(body);
    let attributes = body.get(INFO_LEN..).unwrap_or_default();
    let hops = match find(RTA_MULTIPATH, attributes) {
        Some(value) => hops(value),
        None => Vec::new(),
    };
    // Hops on other links must not be deleted with the hop on this link. IPv6 has one object for
    // each hop, IPv4 has one object for all hops.
    let is_one = hops.iter().all(|hop| hop.link == hops[0].link);
    for (at, route) in routes.iter_mut().enumerate() {
        route.request = match route.dst {
            _ if is_one => request_of(body, None),
            IpNet::V6(_) => request_of(body, hops.get(at)),
            IpNet::V4(_) => Vec::new(),
        };
    }
    routes
}

/// Builds the request that restores a dumped route: the message without the attributes that the
/// kernel adds. The route has the next hop `hop`, or all of its next hops if `None`.
fn request_of(body: &[u8], hop: Option<&Hop<'_>>) -> Vec<u8> {
    let Some((head, attributes)) = body.split_first_chunk::<INFO_LEN>() else {
        return Vec::new();
    };
    let has_object = find(RTA_NH_ID, attributes).is_some();
    let mut out = head.to_vec();
    let flags = hop.map_or(head[8], |hop| hop.flags) & ONLINK;
    out[8..].copy_from_slice(&u32::from(flags).to_ne_bytes());
    for (kind, value) in attributes_of(attributes) {
        let is_of_object = matches!(
            kind,
            RTA_OIF | RTA_GATEWAY | RTA_MULTIPATH | RTA_VIA | RTA_ENCAP_TYPE | RTA_ENCAP
        );
        match kind {
            RTA_CACHEINFO => {
                let ticks = value.get(8..).and_then(u32_of).unwrap_or_default();
                if (1..1 << 31).contains(&ticks) {
                    attr(RTA_EXPIRES, &(ticks / TICKS).to_ne_bytes(), &mut out);
                }
            }
            RTA_MULTIPATH if hop.is_some() => {}
            _ if is_of_object && has_object => {}
            _ => attr(kind, value, &mut out),
        }
    }
    if !has_object
        && let Some(Hop {
            link: Some(link),
            attributes,
            ..
        }) = hop
    {
        attr(RTA_OIF, &link.to_ne_bytes(), &mut out);
        for (kind, value) in attributes_of(attributes) {
            attr(kind, value, &mut out);
        }
    }
    out
}

/// A next hop of a multipath route.
struct Hop<'a> {
    flags: u8,
    /// Index of the link.
    link: Option<u32>,
    gw: Option<IpAddr>,
    attributes: &'a [u8],
}

/// Parses the `struct rtnexthop` array of a route, each entry followed by its attributes.
fn hops(mut bytes: &[u8]) -> Vec<Hop<'_>> {
    const HEAD_LEN: usize = 8;
    let mut hops = Vec::new();
    while let Some(&[low, high, flags, ..]) = bytes.first_chunk::<HEAD_LEN>() {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let Some(attributes) = bytes.get(HEAD_LEN..len) else {
            break;
        };
        let gw = find(RTA_GATEWAY, attributes).and_then(ip_of);
        hops.push(Hop {
            flags,
            link: bytes.get(4..).and_then(u32_of),
            gw,
            attributes,
        });
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn parse_all(body: &[u8]) -> Option<(RouteFact, Vec<Hop<'_>>)> {
    let head = body.first_chunk::<INFO_LEN>()?;
    if head[7] != RTN_UNICAST {
        return None;
    }
    let unspecified: IpAddr = if head[0] == AF_INET {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let mut fact = RouteFact {
        dst: IpNet::new(unspecified, 0).ok()?,
        gw: None,
        src: None,
        link: None,
        table: u32::from(head[4]),
        scope: head[6],
        from_router: head[5] == RTPROT_RA,
        priority: None,
        mtu: None,
        advmss: None,
        onlink: head[8] & ONLINK != 0,
        request: Vec::new(),
    };
    let mut several = Vec::new();
    for (kind, value) in attributes_of(&body[INFO_LEN..]) {
        match kind {
            RTA_DST => fact.dst = IpNet::new(ip_of(value)?, head[1]).ok()?,
            RTA_OIF => fact.link = u32_of(value),
            RTA_MULTIPATH => several = hops(value),
            RTA_GATEWAY => fact.gw = ip_of(value),
            RTA_PRIORITY => fact.priority = u32_of(value),
            RTA_PREFSRC => fact.src = ip_of(value),
            RTA_TABLE => fact.table = u32_of(value)?,
            RTA_METRICS => {
                for (metric, value) in attributes_of(value) {
                    match metric {
                        RTAX_MTU => fact.mtu = u32_of(value),
                        RTAX_ADVMSS => fact.advmss = u32_of(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some((fact, several))
}
