//! `sbr`, source-based routing: packets from an address of an interface leave through that
//! interface.

use crate::cni::address::parse_ip;
use crate::cni::{AddResult, Error, IpConfig, NetConf};
use crate::ipam::Lease;
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{IfName, Ns};
use crate::plan::step::{Legacy, Step};
use crate::plan::thing::rule::{Packets, Rule};
use crate::plan::thing::{LinkRef, NoRoute, Route};
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Planned, Plugin};
use ipnet::IpNet;
use std::net::IpAddr;

/// First routing table to try if `table` is not configured.
const FIRST_TABLE: u32 = 100;
/// Default metric of an IPv6 route (`IP6_RT_PRIO_USER`).
const IPV6_METRIC: u32 = 1024;

/// An `sbr` configuration.
#[derive(Debug)]
pub struct Sbr {
    /// `table`: routing table of the rules. With this key the plugin adds only rules; other
    /// programs fill the table.
    table: Option<u32>,
    /// `gateways`: at most one per family, instead of the gateways of the addresses.
    gateways: Vec<IpAddr>,
    /// `addSourceHints`: keeps the routes to the addresses' networks in the main table. Each route
    /// has its address as the source.
    source_hints: bool,
}

impl Sbr {
    /// Reads the configuration. With `table` the other keys have no effect.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let (table, given) = (json.u32("table")?, json.strings("gateways")?);
        if table == Some(0) {
            return Err(Error::config("\"table\": 0 is not a routing table").at_key("table"));
        }
        let gateways = if table.is_none() {
            gateways(&given).map_err(|e| e.at_key("gateways"))?
        } else {
            Vec::new()
        };
        let source_hints = json.bool_or("addSourceHints", false)? && table.is_none();
        Ok(Self {
            table,
            gateways,
            source_hints,
        })
    }

    /// Returns the routes for an address's separate table: the default route, and copies of the
    /// main table's routes for this address.
    fn routes_of(&self, ip: &IpConfig, table: u32, at: &LinkRef, main: &[Route]) -> Vec<Route> {
        let own = self
            .gateways
            .iter()
            .copied()
            .find(|gw| gw.is_ipv4() == ip.address.addr().is_ipv4());
        let mut routes = Vec::new();
        if let Some(gw) = own.or(ip.gateway) {
            routes.push(Route {
                gw: Some(gw),
                ..plain(at, everywhere(gw), table)
            });
        }
        // Configured gateways override the main table's default route. In the reference plugin that
        // route wins.
        let is_overruled = |route: &Route| own.is_some() && route.dst.prefix_len() == 0;
        for route in main {
            if !is_about(route, ip) || is_overruled(route) {
                continue;
            }
            // Replaces a route, like `ip route replace`.
            routes.retain(|other| !is_in_place_of(route, other));
            routes.push(Route {
                table,
                ..route.clone()
            });
        }
        // A gateway must be on the link before a route through it is added.
        routes.sort_by_key(|route| route.gw.is_some());
        routes
    }

    /// Returns the steps that delete the interface's routes from the main table. With
    /// `addSourceHints` they keep or add the routes with a source hint.
    fn leave_main(
        &self,
        ips: &[&IpConfig],
        at: &LinkRef,
        main: &[Route],
        facts: &Facts,
    ) -> Vec<Step> {
        let hints = if self.source_hints {
            source_hints(ips, at)
        } else {
            Vec::new()
        };
        let is_hint = |route: &Route| {
            hints.iter().any(|hint| {
                is_in_place_of(hint, route) && hint.src == route.src && hint.scope == route.scope
            })
        };
        let is_replaced = |route: &Route| hints.iter().any(|hint| is_in_place_of(hint, route));
        let stays = |route: &Route| {
            self.source_hints && route.scope == RT_SCOPE_LINK && !is_replaced(route)
        };
        let mut gone: Vec<&Route> = main
            .iter()
            .filter(|route| !is_hint(route) && !stays(route))
            .collect();
        // A rollback runs in reverse: the networks of gateways are restored first.
        gone.sort_by_key(|route| route.gw.is_none());
        let mut steps = Vec::new();
        for route in gone {
            steps.push(Step::add(NoRoute::of(route.clone(), facts)));
        }
        for hint in &hints {
            let is_there = main
                .iter()
                .any(|route| is_in_place_of(hint, route) && is_hint(route));
            if !is_there {
                steps.push(Step::add(hint.clone()));
            }
        }
        steps
    }

    /// Returns the steps that move the routes of each address to a separate table.
    fn move_routes(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        ips: &[&IpConfig],
    ) -> Result<Vec<Step>, Error> {
        let at = call.pod();
        let is_moved =
            |route: &Route| route.table == RT_TABLE_MAIN && !is_of_link_itself(&route.dst);
        let mut main = facts.routes_through(&at);
        main.retain(is_moved);
        let mut tables = (FIRST_TABLE..).filter(|table| !facts.is_table_used(*table));
        let (mut routes, mut rules) = (Vec::new(), Vec::new());
        for ip in ips {
            let table = tables
                .next()
                .ok_or_else(|| Error::internal("all routing tables are used"))?;
            for route in self.routes_of(ip, table, &at, &main) {
                routes.push(Step::add(route));
            }
            rules.push(Step::add(rule(ip, table)));
        }
        routes.extend(rules);
        routes.extend(self.leave_main(ips, &at, &main, facts));
        Ok(routes)
    }
}

/// Returns the routes to the networks of the addresses, each with its address as the source.
fn source_hints(ips: &[&IpConfig], at: &LinkRef) -> Vec<Route> {
    let mut hints: Vec<Route> = Vec::new();
    for ip in ips {
        let (net, addr) = (ip.address.trunc(), ip.address.addr());
        hints.retain(|other| other.dst != net);
        hints.push(Route {
            src: Some(addr),
            scope: if addr.is_ipv4() { RT_SCOPE_LINK } else { 0 },
            ..plain(at, net, RT_TABLE_MAIN)
        });
    }
    hints
}

fn gateways(given: &[String]) -> Result<Vec<IpAddr>, Error> {
    if given.len() > 2 {
        return Err(Error::config(
            "gateways list cannot contain more than 2 entries (one IPv4, one IPv6)",
        ));
    }
    let mut gateways: Vec<IpAddr> = Vec::new();
    for (index, text) in given.iter().enumerate() {
        let gateway = parse_ip(text).map_err(|err| {
            Error::config(format!("invalid static gateway IP address: {}", err.msg)).at_index(index)
        })?;
        if let Some(other) = gateways
            .iter()
            .find(|other| other.is_ipv4() == gateway.is_ipv4())
        {
            let family = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
            let sentence = format!(
                "gateways list contains multiple {family} addresses: {other} and {gateway}"
            );
            return Err(Error::config(sentence).at_index(index));
        }
        gateways.push(gateway);
    }
    Ok(gateways)
}

/// Returns the addresses of the interface `ifname` in `prev`. Includes addresses that `prev`
/// assigns to no interface.
fn own<'a>(prev: &'a AddResult, ifname: &IfName) -> Result<Vec<&'a IpConfig>, Error> {
    if prev.ips.is_empty() {
        return Err(Error::config(format!(
            "No IP addresses supplied on interface: {ifname}"
        )));
    }
    let is_others = |at: usize| {
        prev.interfaces
            .get(at)
            .is_some_and(|other| other.name != ifname.as_str())
    };
    let mut own = Vec::new();
    for ip in &prev.ips {
        if !ip.interface.is_some_and(is_others) {
            own.push(ip);
        }
    }
    Ok(own)
}

fn rule(ip: &IpConfig, table: u32) -> Rule {
    let of = Packets::From(IpNet::from(ip.address.addr()));
    Rule {
        ns: Ns::Pod,
        of,
        table,
        iif: None,
        suppress: None,
        priority: None,
    }
}

fn plain(at: &LinkRef, dst: IpNet, table: u32) -> Route {
    let (gw, src, priority, mtu, advmss) = (None, None, None, None, None);
    Route {
        at: at.clone(),
        dst,
        gw,
        src,
        table,
        scope: 0,
        priority,
        mtu,
        advmss,
        onlink: false,
    }
}

/// Returns the destination of a default route in the family of `gw`.
fn everywhere(gw: IpAddr) -> IpNet {
    match gw {
        IpAddr::V4(_) => ipnet::Ipv4Net::default().into(),
        IpAddr::V6(_) => ipnet::Ipv6Net::default().into(),
    }
}

/// True if `dst` is IPv6 link-local or multicast. Every link has routes to these destinations, for
/// packets from any address.
fn is_of_link_itself(dst: &IpNet) -> bool {
    match dst {
        IpNet::V4(_) => false,
        IpNet::V6(net) => net.addr().is_unicast_link_local() || net.addr().is_multicast(),
    }
}

/// True if a route belongs in the table of the address `ip`. Such a route has a source or gateway
/// in the address's network, or has neither source nor gateway.
fn is_about(route: &Route, ip: &IpConfig) -> bool {
    let is_within = |addr: Option<IpAddr>| addr.is_some_and(|addr| ip.address.contains(&addr));
    let is_same_family = route.dst.addr().is_ipv4() == ip.address.addr().is_ipv4();
    is_same_family
        && (is_within(route.src)
            || is_within(route.gw)
            || (route.src.is_none() && route.gw.is_none()))
}

/// True if both routes have the same destination and metric. A table holds only one such route,
/// unless a request explicitly adds both.
fn is_in_place_of(one: &Route, other: &Route) -> bool {
    let metric = |route: &Route| match route.priority {
        Some(metric @ 1..) => metric,
        _ if route.dst.addr().is_ipv4() => 0,
        _ => IPV6_METRIC,
    };
    one.dst == other.dst && metric(one) == metric(other)
}

impl Plugin for Sbr {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        match self.table {
            Some(_) => Vec::new(),
            None => vec![
                Need::Link(call.pod()),
                Need::Routes(Ns::Pod),
                Need::Rules(Ns::Pod),
            ],
        }
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        let prev = call
            .prev
            .ok_or_else(|| Error::config("This plugin must be called as chained plugin"))?;
        own(prev, call.ifname)?;
        if self.table.is_none() && facts.link(&call.pod()).is_none() {
            return Err(Error::internal(format!(
                "Cannot find network interface {}",
                call.ifname
            )));
        }
        Ok(())
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let prev = call
            .prev
            .ok_or_else(|| Error::config("This plugin must be called as chained plugin"))?;
        let ips = own(prev, call.ifname)?;
        let steps = match self.table {
            Some(table) => ips.iter().map(|ip| Step::add(rule(ip, table))).collect(),
            None => self.move_routes(call, facts, &ips)?,
        };
        Ok(Planned {
            steps,
            result: prev.clone(),
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        let ips = call
            .prev
            .and_then(|prev| own(prev, call.ifname).ok())
            .unwrap_or_default();
        let addrs = ips.iter().map(|ip| ip.address.addr()).collect();
        vec![Step::Legacy(Legacy::Rules {
            at: call.pod(),
            addrs,
            table: self.table,
        })]
    }

    /// False: the result does not show which tables were free.
    fn is_reconstructible(&self) -> bool {
        false
    }
}
