//! Routed form of `ptp`: each container has a single address without a network, and a gateway
//! address that no host has.
//!
//! The container sends to the node's end through a permanent neighbour entry, and the node
//! forwards. No address is resolved, and the containers of a node may have addresses of any
//! networks.

use crate::cni::{self, Error, IpConfig, Json};
use crate::ipam::Lease;
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{Mac, Ns};
use crate::plan::step::Step;
use crate::plan::thing::rule::{Packets, Rule};
use crate::plan::thing::{LinkRef, Neigh, Route, Thing};
use crate::plugins::Call;
use crate::plugins::interface::{self, Dad};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The container's IPv4 gateway. No link has this address.
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The container's IPv6 gateway. No link has this address.
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// Priority of the rules for packets to other containers. These rules precede the rules for the
/// configured table.
const TO_CONTAINERS: u32 = 1535;
/// Priority of the rules for a container's other packets, which are not addressed to a container.
/// These rules precede the main table's rule.
const FROM_CONTAINER: u32 = 1536;

/// Keys of the routed form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Routed {
    /// `table`: routing table for packets from the container, used before the main table. Packets
    /// to other containers skip it.
    pub(super) table: Option<u32>,
}

impl Routed {
    /// Reads `routed` and `table`.
    pub(super) fn parse(json: &Json) -> Result<Option<Self>, Error> {
        let table = json.u32("table")?;
        match (json.bool_or("routed", false)?, table) {
            (_, Some(0)) => {
                Err(Error::config("\"table\": 0 is not a routing table").at_key("table"))
            }
            (false, Some(_)) => Err(Error::config(
                "\"table\" is for the routed form: it needs \"routed\": true",
            )
            .at_key("table")),
            (false, None) => Ok(None),
            (true, table) => Ok(Some(Self { table })),
        }
    }

    /// Converts the lease for the container. Each address loses its network. If the IPAM gives a
    /// family no default route, the family gets a default route through its gateway.
    pub(super) fn lease(mut lease: Lease) -> Lease {
        for ip in &mut lease.ips {
            let addr = ip.address.addr();
            *ip = IpConfig {
                address: IpNet::from(addr),
                gateway: Some(gateway(addr)),
                interface: ip.interface,
            };
        }
        for gw in lease.ips.iter().filter_map(|ip| ip.gateway) {
            let dst = everywhere(gw);
            if !lease.routes.iter().any(|route| route.dst == dst) {
                lease.routes.push(cni::Route {
                    gw: Some(gw),
                    ..cni::Route::to(dst)
                });
            }
        }
        lease
    }

    /// Plans the container's side. The gateways get permanent neighbour entries with `mac`, the
    /// hardware address of the node's end. `mac` is `None` for ends without hardware addresses,
    /// which resolve no neighbours.
    pub(super) fn container(call: &Call<'_>, mac: Option<Mac>, lease: &Lease) -> Vec<Step> {
        let at = call.pod();
        let mut steps = interface::configure(&at, &lease.ips, &lease.routes, Dad::Off);
        let mut gateways: Vec<IpAddr> = lease.ips.iter().filter_map(|ip| ip.gateway).collect();
        gateways.sort_unstable();
        gateways.dedup();
        let mut way = Vec::new();
        for gw in gateways {
            if gw.is_ipv4() {
                way.push(Step::add(plain(&at, gw)));
            }
            if let Some(mac) = mac {
                way.push(Step::add(Neigh {
                    at: at.clone(),
                    addr: gw,
                    mac,
                }));
            }
        }
        let first = steps
            .iter()
            .position(|step| matches!(step, Step::Add(Thing::Route(_))))
            .unwrap_or(steps.len());
        steps.splice(first..first, way);
        steps
    }

    /// Plans the host's side: the route to the container and, with `table`, rules for the
    /// container's packets. The rules send packets to other containers through the main table, and
    /// all other packets through the configured table. Each rule names the link, so a later
    /// container with the same address never has equal rules.
    pub(super) fn host(self, port: &LinkRef, ips: &[IpConfig]) -> Vec<Step> {
        let mut steps = Vec::new();
        for ip in ips {
            let addr = ip.address.addr();
            steps.push(Step::add(plain(port, addr)));
            if let Some(table) = self.table {
                let (of, iif) = (Packets::From(addr.into()), Some(port.name.clone()));
                let rule = Rule {
                    ns: Ns::Host,
                    of,
                    table,
                    iif,
                    suppress: None,
                    priority: Some(FROM_CONTAINER),
                };
                // Ignores routes of the main table, except routes to a single address.
                let suppress = Some(u32::from(IpNet::from(addr).max_prefix_len()) - 1);
                let first = Rule {
                    table: RT_TABLE_MAIN,
                    suppress,
                    priority: Some(TO_CONTAINERS),
                    ..rule.clone()
                };
                steps.push(Step::add(first));
                steps.push(Step::add(rule));
            }
        }
        steps
    }
}

/// Returns a route to a single address on the link.
fn plain(at: &LinkRef, addr: IpAddr) -> Route {
    let (gw, src, priority, mtu, advmss) = (None, None, None, None, None);
    let scope = if addr.is_ipv4() { RT_SCOPE_LINK } else { 0 };
    Route {
        at: at.clone(),
        dst: addr.into(),
        gw,
        src,
        table: RT_TABLE_MAIN,
        scope,
        priority,
        mtu,
        advmss,
        onlink: false,
    }
}

fn gateway(addr: IpAddr) -> IpAddr {
    if addr.is_ipv4() {
        GATEWAY4.into()
    } else {
        GATEWAY6.into()
    }
}

fn everywhere(gw: IpAddr) -> IpNet {
    if gw.is_ipv4() {
        Ipv4Net::default().into()
    } else {
        Ipv6Net::default().into()
    }
}
