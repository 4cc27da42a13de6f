//! Routes and rules of a lost address, carried over to the new address of the lease. Plugins after
//! the IPAM created these routes and rules. `sbr` uses a separate table, and a rule for packets
//! from the address. `vrf` uses the table of the VRF.
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

/// Routes and rules of one address, as the kernel reported them before the address was deleted.
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
    /// Routes from the address, to its network or through its gateway. Excludes the routes of the
    /// lease and the kernel's own route.
    others: Vec<Route>,
}

/// Returns the facts needed before [`vrf_needs`], [`Routing::of`] and [`arrive`].
pub fn needs(at: &LinkRef) -> Vec<Need> {
    vec![
        Need::Link(at.clone()),
        Need::Routes(Ns::Pod),
        Need::Rules(Ns::Pod),
        Need::Vrfs,
    ]
}

/// Returns the needs for the links of all VRFs, because the container's interface may be a member
/// of a VRF.
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
    let Some(master) = facts.link(at).and_then(|link| link.master) else {
        return RT_TABLE_MAIN;
    };
    for (name, table) in &facts.vrfs {
        let vrf = facts.link(&LinkRef::pod(name.clone()));
        if vrf.is_some_and(|vrf| vrf.index == master) {
            return *table;
        }
    }
    RT_TABLE_MAIN
}

fn is_same_family(first: &IpNet, second: &IpNet) -> bool {
    first.addr().is_ipv4() == second.addr().is_ipv4()
}

impl Routing {
    /// Collects the routes and rules of the address `ip` on the link `at`. `routes` are the routes
    /// of its lease.
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
                .any(|leased| leased.dst == route.dst && leased.gw == route.gw)
        };
        let is_kernels = |route: &Route| is_to(route, &net) && route.table == table_of(at, facts);
        let is_about = |route: &Route| {
            let is_through = route.gw.is_some() && route.gw == gateway;
            is_same_family(&route.dst, &net)
                && (route.src == Some(net.addr()) || is_to(route, &net) || is_through)
        };
        let (own, shown): (Vec<Route>, Vec<Route>) =
            facts.routes_through(at).into_iter().partition(is_kernels);
        let (leased, mut others): (Vec<Route>, Vec<Route>) = shown.into_iter().partition(is_leased);
        others.retain(is_about);
        let mut tables: Vec<u32> = leased.iter().map(|route| route.table).collect();
        tables.sort_unstable();
        tables.dedup();
        let from = Packets::From(IpNet::from(net.addr()));
        let mut rules = Vec::new();
        for rule in facts.rules.get(&Ns::Pod).into_iter().flatten() {
            if rule.of == from {
                rules.push(rule.clone());
            }
        }
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

    /// True if both addresses are of the same family.
    pub fn is_same_family(&self, other: &Self) -> bool {
        is_same_family(&self.net, &other.net)
    }

    /// Returns the steps that delete the address with its rules and routes.
    pub fn leave(&self, at: &LinkRef) -> Vec<Step> {
        let mut steps = Vec::new();
        for rule in &self.rules {
            steps.push(Step::del(rule.clone()));
        }
        for route in self.others.iter().chain(&self.leased) {
            steps.push(Step::del(route.clone()));
        }
        steps.push(Step::del(Addr {
            at: at.clone(),
            net: self.net,
            no_prefix_route: false,
            no_dad: false,
        }));
        steps
    }

    /// Converts the routes in `others` from the lost address to the new address `ip`. Leaves out
    /// routes that `leased` already has.
    fn followers(&self, ip: &IpConfig, at: &LinkRef, leased: &[Route]) -> Vec<Route> {
        let mut followers = Vec::new();
        for route in &self.others {
            let Some(route) = self.follow(route, ip, at) else {
                continue;
            };
            let is_leased = leased
                .iter()
                .any(|leased| leased.dst == route.dst && leased.table == route.table);
            if !is_leased {
                followers.push(route);
            }
        }
        followers
    }

    /// True if a route to the address's network existed, but only outside the kernel's own table.
    fn is_moved(&self) -> bool {
        !self.has_own && self.others.iter().any(|route| is_to(route, &self.net))
    }

    /// Converts a route of the lost address to the new address `ip`; `None` if the new address
    /// can't reach the route's gateway.
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

/// True if `route` is a route to `net` without a gateway.
fn is_to(route: &Route, net: &IpNet) -> bool {
    route.dst == net.trunc() && route.gw.is_none()
}

/// Returns the entry of `lost` for the address family of `net`.
fn routing_of<'a>(lost: &'a [Routing], net: &IpNet) -> Option<&'a Routing> {
    lost.iter()
        .find(|routing| is_same_family(&routing.net, net))
}

/// Returns the tables that get a route of the new lease. These are the tables that contained the
/// lost lease's routes. If there are none, it is the table of the link.
fn tables(routing: Option<&Routing>, at: &LinkRef, facts: &Facts) -> Vec<u32> {
    match routing {
        Some(routing) if !routing.tables.is_empty() => routing.tables.clone(),
        _ => vec![table_of(at, facts)],
    }
}

/// Returns the steps that add the addresses and routes of a new lease to the link `at`. Adds only
/// the families in `lost`, or all families if `lost` is empty.
pub fn arrive(
    at: &LinkRef,
    ips: &[IpConfig],
    routes: &[cni::Route],
    lost: &[Routing],
    facts: &Facts,
) -> Vec<Step> {
    let is_new = |net: &IpNet| lost.is_empty() || routing_of(lost, net).is_some();
    let (mut ips, mut routes) = (ips.to_vec(), routes.to_vec());
    ips.retain(|ip| is_new(&ip.address));
    routes.retain(|route| is_new(&route.dst));
    let mut steps = Vec::new();
    let mut leased: Vec<Route> = Vec::new();
    for step in interface::configure(at, &ips, &routes, Dad::Off) {
        if let Step::Add(Thing::Addr(addr)) = &step {
            let no_prefix_route = routing_of(lost, &addr.net).is_some_and(Routing::is_moved);
            steps.push(Step::add(Addr {
                no_prefix_route,
                ..addr.clone()
            }));
        } else if let Step::Add(Thing::Route(route)) = &step
            && route.table == RT_TABLE_MAIN
        {
            for table in tables(routing_of(lost, &route.dst), at, facts) {
                leased.push(Route {
                    table,
                    ..route.clone()
                });
            }
        } else {
            steps.push(step);
        }
    }
    let mut rules = Vec::new();
    for ip in &ips {
        let Some(routing) = routing_of(lost, &ip.address) else {
            continue;
        };
        let followers = routing.followers(ip, at, &leased);
        leased.extend(followers);
        let of = Packets::From(IpNet::from(ip.address.addr()));
        for rule in &routing.rules {
            rules.push(Step::add(Rule { of, ..rule.clone() }));
        }
    }
    // A gateway must be on the link before a route through it is added.
    leased.sort_by_key(|route| route.gw.is_some());
    steps.extend(leased.into_iter().map(Step::add));
    steps.extend(rules);
    steps
}

#[cfg(test)]
mod tests;
