//! Routes and rules of a lost address, carried over to the next address of the lease. Plugins after
//! the IPAM placed them: `sbr` in a separate table of the address with a rule for its packets,
//! `vrf` in the table of the VRF.
//!
//! ```text
//!  facts, lost address ─► Routing::of ─► steps that delete ─► … ─► next lease ─► arrive ─► steps that add
//! ```

use super::interface::{self, Dad};
use crate::cni::{self, IpConfig};
use crate::kernel_numbers::RT_TABLE_MAIN;
use crate::name::Ns;
use crate::plan::step::Step;
use crate::plan::thing::rule::{Packets, Rule};
use crate::plan::thing::{Addr, LinkRef, Route, Thing};
use crate::plan::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Routing of one address, as the kernel listed it before the address was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routing {
    net: IpNet,
    gateway: Option<IpAddr>,
    /// Rules for packets from the address.
    rules: Vec<Rule>,
    /// True if the kernel's own route to the address's network existed.
    has_own: bool,
    /// Tables that contained the lease's routes.
    tables: Vec<u32>,
    /// Routes of the lease.
    leased: Vec<Route>,
    /// Other routes from the address, to its network or through its gateway, except the kernel's
    /// own.
    others: Vec<Route>,
}

/// Returns the facts needed before [`Routing::of`] and [`arrive`]; [`vrf_needs`] follow from them.
pub fn needs(at: &LinkRef) -> Vec<Need> {
    vec![
        Need::Link(at.clone()),
        Need::Routes(Ns::Pod),
        Need::Rules(Ns::Pod),
        Need::Vrfs,
    ]
}

/// Returns the needs for the VRF links; the link may be a member of one.
pub fn vrf_needs(facts: &Facts) -> Vec<Need> {
    facts
        .vrfs
        .keys()
        .map(|name| Need::Link(LinkRef::pod(name.clone())))
        .collect()
}

/// Returns the table in which the kernel creates the routes to the networks of the link's
/// addresses.
fn table_of(at: &LinkRef, facts: &Facts) -> u32 {
    let master = facts.link(at).and_then(|link| link.master);
    let is_master = |index: u32| master == Some(index);
    let of_master = facts.vrfs.iter().find(|(name, _)| {
        facts
            .link(&LinkRef::pod((*name).clone()))
            .is_some_and(|vrf| is_master(vrf.index))
    });
    of_master.map_or(RT_TABLE_MAIN, |(_, table)| *table)
}

fn is_same_family(one: &IpNet, other: &IpNet) -> bool {
    one.addr().is_ipv4() == other.addr().is_ipv4()
}

impl Routing {
    /// Collects the routing of an address of the link `at`, with the routes of its lease.
    pub fn of(at: &LinkRef, ip: &IpConfig, routes: &[cni::Route], facts: &Facts) -> Self {
        let (net, gateway) = (ip.address, ip.gateway);
        let ips = std::slice::from_ref(ip);
        let of_lease: Vec<Route> = routes
            .iter()
            .map(|route| interface::program(at, route, ips))
            .collect();
        let is_leased = |route: &Route| {
            of_lease
                .iter()
                .any(|of| of.dst == route.dst && of.gw == route.gw)
        };
        let is_kernels = |route: &Route| is_to(route, &net) && route.table == table_of(at, facts);
        let is_about = |route: &Route| {
            let is_through = route.gw.is_some() && route.gw == gateway;
            is_same_family(&route.dst, &net)
                && (route.src == Some(net.addr()) || is_to(route, &net) || is_through)
        };
        let (own, shown): (Vec<Route>, Vec<Route>) =
            facts.routes_through(at).into_iter().partition(is_kernels);
        let (leased, others): (Vec<Route>, Vec<Route>) = shown.into_iter().partition(is_leased);
        let mut tables: Vec<u32> = leased.iter().map(|route| route.table).collect();
        tables.sort_unstable();
        tables.dedup();
        let from = Packets::From(IpNet::from(net.addr()));
        let rules = facts
            .rules
            .get(&Ns::Pod)
            .into_iter()
            .flatten()
            .filter(|rule| rule.of == from)
            .cloned()
            .collect();
        let others = others.into_iter().filter(is_about).collect();
        Self {
            net,
            gateway,
            rules,
            has_own: !own.is_empty(),
            tables,
            leased,
            others,
        }
    }

    /// True if both are of the same family.
    pub fn is_same_family(&self, other: &Self) -> bool {
        is_same_family(&self.net, &other.net)
    }

    /// Returns the steps that delete the address with its rules and routes.
    pub fn leave(&self, at: &LinkRef) -> Vec<Step> {
        let routes = self
            .others
            .iter()
            .chain(&self.leased)
            .cloned()
            .map(Step::del);
        let rules = self.rules.iter().cloned().map(Step::del);
        let addr = Addr {
            at: at.clone(),
            net: self.net,
            no_prefix_route: false,
            no_dad: false,
        };
        rules.chain(routes).chain([Step::del(addr)]).collect()
    }

    /// True if a route to the address's network existed, but only outside the kernel's own table.
    fn is_moved(&self) -> bool {
        !self.has_own && self.others.iter().any(|route| is_to(route, &self.net))
    }

    /// Converts a route of the lost address for the next one; `None` if it does not apply to that.
    fn follow(&self, route: &Route, ip: &IpConfig, at: &LinkRef) -> Option<Route> {
        let src = if route.src == Some(self.net.addr()) {
            Some(ip.address.addr())
        } else {
            route.src
        };
        let dst = if is_to(route, &self.net) {
            ip.address.trunc()
        } else {
            route.dst
        };
        let gw = match route.gw {
            Some(gw) if Some(gw) == self.gateway => Some(ip.gateway?),
            Some(gw) if self.net.contains(&gw) && !ip.address.contains(&gw) => return None,
            gw => gw,
        };
        Some(Route {
            at: at.clone(),
            dst,
            gw,
            src,
            ..route.clone()
        })
    }
}

/// True if it is a route to the network itself.
fn is_to(route: &Route, net: &IpNet) -> bool {
    route.dst == net.trunc() && route.gw.is_none()
}

/// Returns the steps that add the addresses of a lease to the link `at` in place of the `lost`
/// ones, or all addresses if `lost` is empty.
pub fn arrive(
    at: &LinkRef,
    ips: &[IpConfig],
    routes: &[cni::Route],
    lost: &[Routing],
    facts: &Facts,
) -> Vec<Step> {
    let is_new = |net: &IpNet| {
        lost.is_empty() || lost.iter().any(|routing| is_same_family(&routing.net, net))
    };
    let ips: Vec<IpConfig> = ips
        .iter()
        .filter(|ip| is_new(&ip.address))
        .cloned()
        .collect();
    let routes: Vec<cni::Route> = routes
        .iter()
        .filter(|route| is_new(&route.dst))
        .cloned()
        .collect();
    let routing_of = |net: &IpNet| {
        lost.iter()
            .find(|routing| is_same_family(&routing.net, net))
    };
    let mut steps = Vec::new();
    let mut leased: Vec<Route> = Vec::new();
    for step in interface::configure(at, &ips, &routes, Dad::Off) {
        if let Step::Add(Thing::Addr(addr)) = &step {
            let no_prefix_route = routing_of(&addr.net).is_some_and(Routing::is_moved);
            steps.push(Step::add(Addr {
                no_prefix_route,
                ..addr.clone()
            }));
        } else if let Step::Add(Thing::Route(route)) = &step
            && route.table == RT_TABLE_MAIN
        {
            let tables = routing_of(&route.dst)
                .map(|routing| routing.tables.clone())
                .unwrap_or_default();
            let tables = if tables.is_empty() {
                vec![table_of(at, facts)]
            } else {
                tables
            };
            leased.extend(tables.into_iter().map(|table| Route {
                table,
                ..route.clone()
            }));
        } else {
            steps.push(step);
        }
    }
    let mut rules = Vec::new();
    for (routing, ip) in ips
        .iter()
        .filter_map(|ip| Some((routing_of(&ip.address)?, ip)))
    {
        let followers = routing
            .others
            .iter()
            .filter_map(|route| routing.follow(route, ip, at));
        let is_leased = |route: &Route| {
            leased
                .iter()
                .any(|of| of.dst == route.dst && of.table == route.table)
        };
        let new: Vec<Route> = followers.filter(|route| !is_leased(route)).collect();
        leased.extend(new);
        let of = Packets::From(IpNet::from(ip.address.addr()));
        rules.extend(
            routing
                .rules
                .iter()
                .map(|rule| Step::add(Rule { of, ..rule.clone() })),
        );
    }
    // A gateway must be on the link before a route through it is added.
    leased.sort_by_key(|route| route.gw.is_some());
    steps.extend(leased.into_iter().map(Step::add));
    steps.extend(rules);
    steps
}

#[cfg(test)]
mod tests;
