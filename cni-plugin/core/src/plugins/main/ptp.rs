//! `ptp`, also named `veth`: a veth or netkit. Its host end routes to the container, without a
//! bridge.

mod routed;

use super::device::{Device, Ends};
use crate::cni::{AddResult, Dns, Error, IpConfig, NetConf};
use crate::ipam::Lease;
use crate::kernel_numbers::{RT_SCOPE_HOST, RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{Mac, Ns};
use crate::plan::step::{Event, Legacy, Step};
use crate::plan::thing::link::{ETHERNET_MTUS, NetkitMode};
use crate::plan::thing::{Addr, LinkRef, Route, Thing};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Planned, Plugin, mtu};
use ipnet::IpNet;
use routed::Routed;
use std::net::IpAddr;

/// Index of the container's interface in the result.
const CONTAINER: usize = 1;

/// A `ptp` configuration.
#[derive(Debug)]
pub struct Ptp {
    ip_masq: bool,
    pub(super) mtu: Option<u32>,
    pub(super) dns: Option<Dns>,
    /// `device`, default veth.
    pub(super) device: Device,
    /// Hardware address of the container's end, if configured.
    pub(super) mac: Option<Mac>,
    /// Keys of the routed form; `None` if `routed` is false.
    routed: Option<Routed>,
}

impl Ptp {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let mtu = mtu::optional_within(mtu::read(json)?, &ETHERNET_MTUS, "")?;
        let device = Device::parse(json, NetkitMode::L3)?;
        let (ip_masq, routed) = (interface::ip_masq(json)?, Routed::parse(json)?);
        Ok(Self {
            ip_masq,
            mtu,
            dns: conf.dns.clone(),
            device,
            mac: None,
            routed,
        })
    }

    pub(super) fn pod_mac(&self, call: &Call<'_>) -> Mac {
        self.mac.unwrap_or_else(|| call.pod_mac())
    }

    /// Plans the container's side. The container reaches its own prefix only through the gateway,
    /// which is directly on the link.
    fn container(call: &Call<'_>, ips: &[IpConfig], lease: &Lease) -> Result<Vec<Step>, Error> {
        let mut steps = interface::configure(&call.pod(), ips, &lease.routes, Dad::Off);
        let mut routes = Vec::new();
        for ip in ips {
            let gateway = gateway(ip)?;
            let route = |dst: IpNet, gw: Option<IpAddr>, scope: u8| {
                Step::add(Route {
                    at: call.pod(),
                    dst,
                    gw,
                    src: Some(ip.address.addr()),
                    table: RT_TABLE_MAIN,
                    scope: if dst.addr().is_ipv4() { scope } else { 0 },
                    priority: None,
                    mtu: None,
                    advmss: None,
                    onlink: false,
                })
            };
            routes.push(route(IpNet::from(gateway), None, RT_SCOPE_LINK));
            routes.push(route(ip.address.trunc(), Some(gateway), 0));
        }
        for step in &mut steps {
            if let Step::Add(Thing::Addr(addr)) = step {
                addr.no_prefix_route = true;
            }
        }
        // The configuration's routes may use the gateway, so the routes to it precede them.
        let first_route = steps
            .iter()
            .position(|step| matches!(step, Step::Add(Thing::Route(_))))
            .unwrap_or(steps.len());
        steps.splice(first_route..first_route, routes);
        Ok(steps)
    }

    fn table(&self) -> Option<u32> {
        self.routed.and_then(|routed| routed.table)
    }

    /// Returns the steps that set the host's end up.
    fn port(call: &Call<'_>, port: &LinkRef, ips: &[IpConfig]) -> Vec<Step> {
        let mut steps = vec![Step::add(interface::without_advertisements(port))];
        steps.extend(interface::without_detection(port, ips).map(Step::add));
        steps.extend([call.mark(port.clone()), interface::up(port)]);
        steps
    }

    /// Plans the host's side: the gateway address on the host's end, and the route to the
    /// container.
    fn host(port: &LinkRef, ips: &[IpConfig]) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for ip in ips {
            let net = IpNet::from(gateway(ip)?);
            steps.push(Step::ensure(Addr {
                at: port.clone(),
                net,
                no_prefix_route: false,
                no_dad: true,
            }));
            steps.push(Step::add(Route {
                at: port.clone(),
                dst: IpNet::from(ip.address.addr()),
                gw: None,
                src: None,
                table: RT_TABLE_MAIN,
                scope: if ip.address.addr().is_ipv4() {
                    RT_SCOPE_HOST
                } else {
                    0
                },
                priority: None,
                mtu: None,
                advmss: None,
                onlink: false,
            }));
        }
        Ok(steps)
    }
}

fn gateway(ip: &IpConfig) -> Result<IpAddr, Error> {
    ip.gateway.ok_or_else(|| {
        Error::internal(format!(
            "a routed link needs a gateway for {}: the IPAM returned none",
            ip.address
        ))
    })
}

impl Plugin for Ptp {
    fn addresses(&self) -> Addresses {
        Addresses::Required
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs = vec![Need::Link(call.pod())];
        needs.extend(self.device.need());
        needs
    }

    fn gateway_at(&self, call: &Call<'_>) -> Option<LinkRef> {
        Some(LinkRef::host(self.device.host(call)))
    }

    fn needs_of(&self, lease: &Lease) -> Vec<Need> {
        interface::forwarding_needs(&lease.ips)
            .into_iter()
            .collect()
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.device.refuse(facts)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        let mut given = lease.unwrap_or_default();
        interface::refuse_no_addresses(&given.ips)?;
        mtu::refuse_ipv6_below(self.mtu, &given.ips)?;
        for ip in &mut given.ips {
            ip.interface = Some(CONTAINER);
        }
        let lease = if self.routed.is_some() {
            Routed::lease(given.clone())
        } else {
            given.clone()
        };
        let ips = lease.ips.clone();
        let (port, pod_mac) = (LinkRef::host(self.device.host(call)), self.pod_mac(call));
        let mut steps = interface::forwarding(&ips, facts);
        steps.push(self.device.add(
            call,
            Ends {
                mtu: self.mtu,
                master: None,
                pod_mac,
            },
        ));
        steps.extend(Self::port(call, &port, &ips));
        steps.extend(self.routed.map_or_else(
            || Self::host(&port, &ips),
            |routed| Ok(routed.host(&port, &ips)),
        )?);
        if self.ip_masq {
            // Masquerading needs the IPAM's networks. The routed form has replaced them by single
            // addresses.
            steps.extend(interface::masquerade(call, &given.ips));
        }
        // The container's end comes up last, so no packet passes before the rules and routes exist.
        // The kernel's work for a new carrier then delays no step except the final wait.
        steps.extend(match self.routed {
            Some(_) => Routed::container(call, self.device.addressed(call.host_mac()), &lease),
            None => Self::container(call, &ips, &lease)?,
        });
        steps.push(Step::Wait(Event::Up(port)));
        let interfaces = self.device.interfaces(call, pod_mac).into();
        let dns = interface::dns(self.dns.as_ref(), lease.dns);
        Ok(Planned {
            steps,
            result: AddResult {
                interfaces,
                ips,
                routes: lease.routes,
                dns,
            },
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.table().is_some() {
            steps.push(Step::Legacy(Legacy::Rules {
                at: LinkRef::host(self.device.host(call)),
                addrs: Vec::new(),
                table: None,
            }));
        }
        steps.extend(self.device.teardown_without_record(call, self.ip_masq));
        steps
    }

    fn status_needs(&self) -> Vec<Need> {
        if self.table().is_some() {
            vec![Need::Routes(Ns::Host)]
        } else {
            Vec::new()
        }
    }

    /// Warns if the configured table has no route. The container's packets then follow the next
    /// rule.
    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        let routes = facts.routes.get(&Ns::Host).map_or(&[][..], Vec::as_slice);
        let Some(table) = self.table() else {
            return Ok(None);
        };
        if routes.iter().any(|route| route.table == table) {
            return Ok(None);
        }
        Ok(Some(format!(
            "table {table} has no route: packets of containers use the main table"
        )))
    }

    fn features(&self) -> Vec<Feature> {
        let mut features = vec![self.device.feature()];
        if self.ip_masq {
            features.push(Feature::Masquerade);
        }
        features
    }

    fn kind(&self) -> Option<&'static str> {
        Some(self.device.kind())
    }
}
