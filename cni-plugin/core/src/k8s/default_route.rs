//! Default routes of a pod, moved per address family to the network selected with `default-route`.

use crate::cni::{AddResult, IpConfig, Route};
use crate::kernel_numbers::RT_TABLE_MAIN;
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::IpAddr;

/// A set of address families.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Families {
    /// True if IPv4 is in the set.
    pub v4: bool,
    /// True if IPv6 is in the set.
    pub v6: bool,
}

impl Families {
    /// Both families.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// Returns the families of these addresses.
    pub fn of<'a>(addresses: impl IntoIterator<Item = &'a IpAddr> + Copy) -> Self {
        let any = |is: fn(&IpAddr) -> bool| addresses.into_iter().any(is);
        Self {
            v4: any(IpAddr::is_ipv4),
            v6: any(IpAddr::is_ipv6),
        }
    }

    /// True if the family of `address` is in the set.
    pub fn has(self, address: &IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// A gateway of a default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gateway {
    /// Gateway address.
    pub address: IpAddr,
    /// Metric of the route; 0 leaves the choice to the kernel.
    pub metric: u32,
}

/// Change to the default routes of one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultRoutes {
    /// Keeps the default routes of the network's own configuration.
    Keep,
    /// Deletes the default routes of these families.
    Clear(Families),
    /// Replaces the default routes by routes through these gateways, in the gateways' families.
    Via(Vec<Gateway>),
}

/// Returns the change for each network of a pod. `asked` has the gateways in `default-route` of
/// each network. `own` has the families of each network's configured default routes.
///
/// The first network with `default-route` gets the pod's default routes. All other networks lose
/// their default routes in some families. These are the families of the first network's gateways.
/// If it lists no gateways, they are the families of its configured default routes. If it has none
/// either, they are both families.
pub fn decide(asked: &[Option<&[IpAddr]>], own: &[Families]) -> Vec<DefaultRoutes> {
    let Some((chosen, gateways)) = asked
        .iter()
        .enumerate()
        .find_map(|(at, asked)| Some((at, (*asked)?)))
    else {
        return vec![DefaultRoutes::Keep; asked.len()];
    };
    let mut moved = Families::of(gateways);
    if gateways.is_empty() {
        moved = own.get(chosen).copied().unwrap_or_default();
    }
    if moved == Families::default() {
        moved = Families::BOTH;
    }
    let change = |at| match () {
        () if at != chosen => DefaultRoutes::Clear(moved),
        () if gateways.is_empty() => DefaultRoutes::Keep,
        () => DefaultRoutes::Via(with_metrics(gateways)),
    };
    (0..asked.len()).map(change).collect()
}

/// Numbers the metrics from 1, so that the first gateway is preferred. A single gateway has metric
/// 0.
fn with_metrics(gateways: &[IpAddr]) -> Vec<Gateway> {
    let are_several = gateways.len() > 1;
    let mut numbered = Vec::with_capacity(gateways.len());
    for (number, address) in (1..).zip(gateways) {
        numbered.push(Gateway {
            address: *address,
            metric: if are_several { number } else { 0 },
        });
    }
    numbered
}

impl DefaultRoutes {
    /// Returns the families in which the network's own default routes are deleted.
    pub fn families(&self) -> Families {
        match self {
            Self::Keep => Families::default(),
            Self::Clear(families) => *families,
            Self::Via(gateways) => Families {
                v4: gateways.iter().any(|gateway| gateway.address.is_ipv4()),
                v6: gateways.iter().any(|gateway| gateway.address.is_ipv6()),
            },
        }
    }

    /// Applies the change to the routes in a network's result.
    pub fn apply(&self, result: &mut AddResult) {
        let gateways = match self {
            Self::Keep => return,
            Self::Clear(families) => return clear(result, *families),
            Self::Via(gateways) => gateways,
        };
        clear(result, self.families());
        for Gateway { address, metric } in gateways {
            let dst = if address.is_ipv4() {
                Ipv4Net::default().into()
            } else {
                Ipv6Net::default().into()
            };
            result.routes.push(Route {
                gw: Some(*address),
                priority: *metric,
                ..Route::to(dst)
            });
        }
    }
}

fn clear(result: &mut AddResult, families: Families) {
    result
        .routes
        .retain(|route| !is_default(route) || !families.has(&route.dst.addr()));
}

fn is_default(route: &Route) -> bool {
    route.dst.prefix_len() == 0 && route.table.is_none_or(|table| table == RT_TABLE_MAIN)
}

/// Returns the families of the default routes in a result.
pub fn families(result: &AddResult) -> Families {
    let all: Vec<IpAddr> = result
        .routes
        .iter()
        .filter(|route| is_default(route))
        .map(|route| route.dst.addr())
        .collect();
    Families::of(&all)
}

/// Returns the gateways of the default routes in a result, ordered by metric. A route without a
/// gateway counts with the gateway of the first address in the route's family.
pub fn gateways(result: &AddResult) -> Vec<IpAddr> {
    let mut routes: Vec<&Route> = result
        .routes
        .iter()
        .filter(|route| is_default(route))
        .collect();
    routes.sort_by_key(|route| route.priority);
    let mut gateways = Vec::new();
    for route in routes {
        let Some(gateway) = route.gw.or_else(|| gateway_of_addresses(result, route)) else {
            continue;
        };
        if !gateways.contains(&gateway) {
            gateways.push(gateway);
        }
    }
    gateways
}

/// Returns the gateway of the result's first address in the route's family.
fn gateway_of_addresses(result: &AddResult, route: &Route) -> Option<IpAddr> {
    let is_ipv4 = route.dst.addr().is_ipv4();
    let same_family = |ip: &&IpConfig| ip.address.addr().is_ipv4() == is_ipv4;
    result.ips.iter().find(same_family)?.gateway
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Json, Version};

    const V4: Families = Families {
        v4: true,
        v6: false,
    };
    const V6: Families = Families {
        v4: false,
        v6: true,
    };
    const BOTH: Families = Families { v4: true, v6: true };
    const NONE: Families = Families {
        v4: false,
        v6: false,
    };

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn via(all: &[(&str, u32)]) -> DefaultRoutes {
        let gateway = |(address, metric): &(&str, u32)| Gateway {
            address: address.parse().unwrap(),
            metric: *metric,
        };
        DefaultRoutes::Via(all.iter().map(gateway).collect())
    }

    fn result(routes: &str) -> AddResult {
        let text = format!(
            r#"{{"ips":[{{"address":"10.0.0.5/24","gateway":"10.0.0.1"}},{{"address":"::5/64"}}],"routes":[{routes}]}}"#
        );
        AddResult::parse(
            &Json::parse(text.as_bytes(), "test").unwrap(),
            Version::V1_1_0,
        )
        .unwrap()
    }

    // Conformance: S26, S27, S28, S29
    #[test]
    fn default_routes_move_to_the_selected_network() {
        use DefaultRoutes::{Clear, Keep};
        for (gateways, own, chosen, others) in [
            (vec!["10.1.0.1"], NONE, via(&[("10.1.0.1", 0)]), Clear(V4)),
            (vec!["10.1.0.1"], BOTH, via(&[("10.1.0.1", 0)]), Clear(V4)),
            (vec!["::1"], NONE, via(&[("::1", 0)]), Clear(V6)),
            (
                vec!["10.1.0.1", "10.1.0.2", "::1"],
                V4,
                via(&[("10.1.0.1", 1), ("10.1.0.2", 2), ("::1", 3)]),
                Clear(BOTH),
            ),
            (vec![], V4, Keep, Clear(V4)),
            (vec![], V6, Keep, Clear(V6)),
            (vec![], BOTH, Keep, Clear(BOTH)),
            (vec![], NONE, Keep, Clear(BOTH)),
        ] {
            let gateways = ips(&gateways);
            let decided = decide(&[None, Some(&gateways), None], &[BOTH, own, NONE]);
            assert_eq!(
                decided,
                [others.clone(), chosen, others],
                "{gateways:?} {own:?}"
            );
        }
    }

    // Conformance: C2
    #[test]
    fn default_routes_stay_without_a_selected_network() {
        assert_eq!(
            decide(&[None, None], &[V4, V6]),
            [DefaultRoutes::Keep, DefaultRoutes::Keep]
        );
        assert_eq!(decide(&[], &[]), []);
        assert_eq!(
            decide(&[None, Some(&[])], &[])[0],
            DefaultRoutes::Clear(BOTH)
        );
    }

    // Conformance: S26, S27
    #[test]
    fn result_has_the_decided_default_routes() {
        let own = concat!(
            r#"{"dst":"0.0.0.0/0","gw":"10.0.0.1"},{"dst":"10.9.0.0/16"},{"dst":"::/0"},"#,
            r#"{"dst":"0.0.0.0/0","gw":"10.0.0.9","table":100}"#
        );
        let routes = |decided: &DefaultRoutes| {
            let mut result = result(own);
            decided.apply(&mut result);
            let gw = |route: &Route| route.gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
            let shown = |route: &Route| format!("{}{} {}", route.dst, gw(route), route.priority);
            result
                .routes
                .iter()
                .map(shown)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let all = "0.0.0.0/0 via 10.0.0.1 0, 10.9.0.0/16 0, ::/0 0, 0.0.0.0/0 via 10.0.0.9 0";
        assert_eq!(routes(&DefaultRoutes::Keep), all);
        assert_eq!(
            routes(&DefaultRoutes::Clear(V4)),
            "10.9.0.0/16 0, ::/0 0, 0.0.0.0/0 via 10.0.0.9 0"
        );
        assert_eq!(
            routes(&DefaultRoutes::Clear(BOTH)),
            "10.9.0.0/16 0, 0.0.0.0/0 via 10.0.0.9 0"
        );
        let moved = "10.9.0.0/16 0, ::/0 0, 0.0.0.0/0 via 10.0.0.9 0, 0.0.0.0/0 via 10.1.0.1 1, 0.0.0.0/0 via 10.1.0.2 2";
        assert_eq!(routes(&via(&[("10.1.0.1", 1), ("10.1.0.2", 2)])), moved);
    }

    #[test]
    fn gateways_are_ordered_by_metric() {
        for (routes, expected, has) in [
            ("", vec![], NONE),
            (r#"{"dst":"10.9.0.0/16","gw":"10.0.0.1"}"#, vec![], NONE),
            (
                r#"{"dst":"0.0.0.0/0"},{"dst":"::/0"}"#,
                vec!["10.0.0.1"],
                BOTH,
            ),
            (
                r#"{"dst":"0.0.0.0/0","gw":"10.0.0.2","priority":2},{"dst":"::/0","gw":"::1","priority":3},
                   {"dst":"0.0.0.0/0","gw":"10.0.0.3","priority":1},{"dst":"0.0.0.0/0","gw":"10.0.0.3","priority":9}"#,
                vec!["10.0.0.3", "10.0.0.2", "::1"],
                BOTH,
            ),
            (
                r#"{"dst":"0.0.0.0/0","gw":"10.0.0.2","table":7}"#,
                vec![],
                NONE,
            ),
        ] {
            let result = result(routes);
            assert_eq!(
                (gateways(&result), families(&result)),
                (ips(&expected), has),
                "{routes}"
            );
        }
    }
}
