//! Gateway addresses of a bridge or its VLAN's interface, and the default routes to them.

use crate::cni::{Error, IpConfig, Route};
use crate::plan::Facts;
use crate::plan::step::Step;
use crate::plan::thing::{Addr, LinkRef};
use crate::plugins::interface;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the step that adds a gateway's address if missing.
pub(super) fn ensure_addr(at: &LinkRef, net: IpNet) -> Step {
    Step::ensure(Addr {
        at: at.clone(),
        net,
        no_prefix_route: false,
        no_dad: true,
    })
}

/// True if an existing address of the bridge conflicts with the wanted address. Two IPv4 addresses
/// always conflict. Two IPv6 addresses conflict if their networks overlap and the existing address
/// is not link-local.
fn conflicts(existing: &IpNet, wanted: &IpNet) -> bool {
    match (existing, wanted) {
        (IpNet::V4(_), IpNet::V4(_)) => true,
        (IpNet::V6(existing), IpNet::V6(wanted)) => {
            !existing.addr().is_unicast_link_local()
                && (existing.contains(&wanted.addr()) || wanted.contains(&existing.addr()))
        }
        _ => false,
    }
}

/// Returns a default route for each family that has a gateway in `ips` and no default route in
/// `routes`.
pub(super) fn missing_default_routes(ips: &[IpConfig], routes: &[Route]) -> Vec<Route> {
    let is_v4 = |route: &Route| route.dst.addr().is_ipv4();
    let has = |v4: bool| {
        routes
            .iter()
            .any(|r| r.dst.prefix_len() == 0 && is_v4(r) == v4)
    };
    let mut missing = Vec::new();
    for (v4, any) in [
        (true, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (false, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    ] {
        let gateway = interface::first_gateway(ips, v4);
        if let (Some(gw), false, Ok(dst)) = (gateway, has(v4), IpNet::new(any, 0)) {
            missing.push(Route {
                dst,
                gw: Some(gw),
                mtu: 0,
                advmss: 0,
                priority: 0,
                table: None,
                scope: None,
            });
        }
    }
    missing
}

/// Returns the steps that delete the addresses on `at` that conflict with the gateway address
/// `net`. Without `is_forced`, a conflict is an error.
pub(super) fn del_conflicting(
    at: &LinkRef,
    net: IpNet,
    is_forced: bool,
    facts: &Facts,
) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    for fact in facts.addrs(at) {
        let other = fact.net;
        if !conflicts(&other, &net) {
            continue;
        }
        if !is_forced {
            let name = at.name.as_str();
            let sentence =
                format!("{name:?} already has an IP address different from {net}: {other}");
            return Err(Error::internal(sentence));
        }
        steps.push(Step::del(Addr {
            at: at.clone(),
            net: other,
            no_prefix_route: false,
            no_dad: false,
        }));
    }
    Ok(steps)
}
