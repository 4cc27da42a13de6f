//! `bridge`: a veth or netkit with its host end in a bridge, which can be the containers' gateway.

mod vlan;

use super::device::{Device, Ends};
use crate::cni::{AddResult, Dns, Error, Interface, IpConfig, NetConf, Route};
use crate::ipam::Lease;
use crate::name::{IfName, Mac};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Event, Legacy, Step};
use crate::plan::thing::link::{ETHERNET_MTUS, NetkitMode};
use crate::plan::thing::{Addr, Attr, Link, LinkAttr, LinkKind, LinkRef, MacCheck};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::call::bridge_mac;
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A `bridge` configuration.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the keys of the configuration, each with its own name"
)]
pub struct Bridge {
    /// `bridge`, default `cni0`.
    bridge: IfName,
    /// `isGateway`, implied by `isDefaultGateway`.
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    ip_masq: bool,
    mtu: Option<u32>,
    /// `device`, default veth.
    device: Device,
    hairpin: bool,
    promisc: bool,
    vlan: vlan::Vlans,
    mac_spoof_check: bool,
    enable_dad: bool,
    /// `disableContainerInterface`: the container's end stays down.
    disable_container: bool,
    port_isolation: bool,
    mac: Option<Mac>,
    dns: Option<Dns>,
}

/// Index of the container's interface in the result.
const CONTAINER: usize = 2;

impl Bridge {
    /// Reads the configuration. Precedence of the hardware address: `CNI_ARGS` < `args.cni` <
    /// `runtimeConfig`.
    pub fn parse(conf: &NetConf, args: &str) -> Result<Self, Error> {
        let json = &conf.json;
        let is_default_gateway = json.bool_or("isDefaultGateway", false)?;
        let default_name = || IfName::parse("cni0").map_err(|err| Error::internal(err.to_string()));
        let bridge = Self {
            bridge: interface::ifname(json, "bridge")?.map_or_else(default_name, Ok)?,
            is_gateway: json.bool_or("isGateway", false)? || is_default_gateway,
            is_default_gateway,
            force_address: json.bool_or("forceAddress", false)?,
            ip_masq: interface::ip_masq(json)?,
            mtu: mtu::read(json)?
                .map(|mtu| mtu::within(mtu, &ETHERNET_MTUS, ""))
                .transpose()?,
            device: Device::parse(json, NetkitMode::L2)?,
            hairpin: json.bool_or("hairpinMode", false)?,
            promisc: json.bool_or("promiscMode", false)?,
            vlan: vlan::Vlans::parse(json)?,
            mac_spoof_check: json.bool_or("macspoofchk", false)?,
            enable_dad: json.bool_or("enabledad", false)?,
            disable_container: json.bool_or("disableContainerInterface", false)?,
            port_isolation: json.bool_or("portIsolation", false)?,
            mac: None,
            dns: conf.dns.clone(),
        };
        if bridge.hairpin && bridge.promisc {
            return Err(Error::config(
                "cannot set hairpin mode and promiscuous mode at the same time",
            )
            .at_key("promiscMode"));
        }
        if bridge.disable_container && !conf.ipam.is_empty() {
            return Err(Error::config(
                "cannot use IPAM when DisableContainerInterface flag is set",
            )
            .at_key("disableContainerInterface"));
        }
        if bridge.device == Device::Netkit(NetkitMode::L3) {
            let sentence =
                "has no hardware address, so it can't be a port of a bridge; mode l2 can";
            return Err(
                Error::config(format!("\"mode\": a netkit of mode l3 {sentence}")).at_key("mode"),
            );
        }
        let from_args = interface::mac_of_args(args)?;
        let mac = interface::mac_of_runtime(conf)?
            .or(interface::mac_of_cni_args(conf)?)
            .or(from_args);
        Ok(Self { mac, ..bridge })
    }

    fn at(&self) -> LinkRef {
        LinkRef::host(self.bridge.clone())
    }

    /// Returns the link that carries the gateway addresses: the bridge, or its VLAN's interface.
    fn gateway_link(&self) -> Result<LinkRef, Error> {
        match self.vlan.id {
            Some(id) => vlan::gateway_name(&self.bridge, id).map(LinkRef::host),
            None => Ok(self.at()),
        }
    }

    /// Returns the bridge's hardware address, present or planned.
    fn mac(&self, facts: &Facts) -> Mac {
        let present = facts.link(&self.at()).and_then(|fact| fact.mac);
        present.unwrap_or_else(|| bridge_mac(&self.bridge, &facts.boot_id))
    }

    /// True if the bridge exists without a set hardware address, and would take the new port's.
    fn is_changed_by_port(&self, call: &Call<'_>, facts: &Facts) -> bool {
        facts
            .link(&self.at())
            .is_some_and(|fact| is_changed_by(fact, call.host_mac()))
    }

    /// Returns the steps that create the bridge if missing.
    fn ensure_bridge(&self, call: &Call<'_>, facts: &Facts) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.is_changed_by_port(call, facts) {
            steps.push(self.pin_mac(facts));
        }
        steps.push(Step::ensure(Link {
            at: self.at(),
            mac: Some(self.mac(facts)),
            mtu: self.mtu,
            up: true,
            master: None,
            kind: LinkKind::Bridge {
                vlan_filtering: self.vlan.is_filtering(),
            },
        }));
        if facts.link(&self.at()).is_none() {
            steps.push(Step::ensure(interface::without_advertisements(&self.at())));
        }
        if self.promisc {
            steps.push(Step::ensure(Attr {
                at: self.at(),
                to: LinkAttr::Promisc(true),
            }));
        }
        steps
    }

    /// Returns the steps that create the pair of links, with its host end in the bridge.
    fn add_port(&self, call: &Call<'_>, facts: &Facts) -> Vec<Step> {
        let (port, pod_mac) = (self.port(call), self.pod_mac(call));
        let mut steps = vec![self.device.add(
            call,
            Ends {
                mtu: self.mtu,
                master: Some(&self.bridge),
                pod_mac,
            },
        )];
        // A new port has both attributes off.
        let attrs = [
            (self.hairpin, LinkAttr::Hairpin(true)),
            (self.port_isolation, LinkAttr::Isolated(true)),
        ];
        steps.extend(
            attrs
                .into_iter()
                .filter(|(wanted, _)| *wanted)
                .map(|(_, to)| {
                    Step::add(Attr {
                        at: port.clone(),
                        to,
                    })
                }),
        );
        let default_pvid = facts.link(&self.at()).map_or(1, |fact| fact.default_pvid);
        steps.extend(self.vlan.on_port(&port, default_pvid));
        if self.mac_spoof_check {
            let check = MacCheck {
                port: port.name,
                mac: pod_mac,
                owner: call.owner.short(),
            };
            steps.push(Step::add(check));
        }
        steps
    }

    /// Sets the port up after everything that filters its frames exists. Last also for speed: the
    /// kernel's work for a new carrier would delay every later step.
    fn open_port(&self, call: &Call<'_>, facts: &Facts) -> Vec<Step> {
        let port = self.port(call);
        let mut steps = vec![call.mark(port.clone()), interface::up(&port)];
        if self.disable_container {
            return steps;
        }
        steps.push(Step::Wait(Event::Up(port)));
        steps.extend(self.wait_up(facts));
        steps.push(Step::Wait(Event::Up(call.pod())));
        steps
    }

    /// Waits until the bridge has a carrier, which takes a forwarding port. Before the kernel has
    /// processed the first carrier, it drops the node's packets. Does not wait with a spanning
    /// tree, where that takes many seconds.
    fn wait_up(&self, facts: &Facts) -> Vec<Step> {
        if facts.link(&self.at()).is_some_and(|fact| fact.stp) {
            return Vec::new();
        }
        let gateway = if self.is_gateway {
            self.gateway_link().ok()
        } else {
            None
        };
        let mut links = vec![self.at()];
        links.extend(gateway.filter(|gateway| *gateway != self.at()));
        links.retain(|at| facts.link(at).is_none_or(|fact| !fact.running));
        links
            .into_iter()
            .map(|at| Step::Wait(Event::Up(at)))
            .collect()
    }

    fn dad(&self) -> Dad {
        if self.enable_dad { Dad::On } else { Dad::Off }
    }

    /// Returns the host end of the pair.
    fn port(&self, call: &Call<'_>) -> LinkRef {
        LinkRef::host(self.device.host(call))
    }

    fn pod_mac(&self, call: &Call<'_>) -> Mac {
        self.mac.unwrap_or_else(|| call.pod_mac())
    }

    /// Completes the IPAM's lease: interface, gateways, default routes.
    fn complete_lease(&self, lease: Lease) -> Result<Lease, Error> {
        interface::refuse_no_addresses(&lease.ips)?;
        mtu::refuse_ipv6_below(self.mtu, &lease.ips)?;
        let Lease {
            mut ips,
            mut routes,
            dns,
        } = lease;
        for ip in &mut ips {
            ip.interface = Some(CONTAINER);
            if self.is_gateway && ip.gateway.is_none() {
                ip.gateway = interface::first_address(&ip.address);
            }
        }
        if self.is_default_gateway {
            routes.extend(missing_default_routes(&ips, &routes));
        }
        Ok(Lease { ips, routes, dns })
    }

    /// Returns the steps that add the gateway addresses of `ips` to the bridge or its VLAN's
    /// interface.
    fn ensure_gateways(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        ips: &[IpConfig],
    ) -> Result<Vec<Step>, Error> {
        let at = self.gateway_link()?;
        let mut steps = Vec::new();
        if facts.link(&at).is_none() {
            if let Some(id) = self.vlan.id {
                steps.extend(vlan::gateway(&self.bridge, id, facts)?);
            }
            steps.extend(interface::without_detection(&at, ips).map(Step::ensure));
            if self.vlan.id.is_some() {
                steps.push(interface::up(&at));
            }
        }
        for ip in ips {
            let Some(gateway) = ip.gateway else { continue };
            let net = IpNet::new(gateway, ip.address.prefix_len())
                .map_err(|err| Error::internal(err.to_string()))?;
            let existing = facts.addrs(&at).iter().map(|fact| fact.net);
            if existing.clone().any(|other| other == net) {
                steps.push(ensure_addr(&at, net));
                continue;
            }
            for other in existing.filter(|other| conflicts(other, &net)) {
                if !self.force_address {
                    let name = at.name.as_str();
                    let sentence =
                        format!("{name:?} already has an IP address different from {net}: {other}");
                    return Err(Error::internal(sentence));
                }
                let old = Addr {
                    at: at.clone(),
                    net: other,
                    no_prefix_route: false,
                    no_dad: false,
                };
                steps.push(Step::del(old));
            }
            // The port, or the address of the other family, may have added this step already.
            let is_foreign = facts.link(&self.at()).is_some();
            let pin = (is_foreign && !self.is_changed_by_port(call, facts))
                .then(|| self.pin_mac(facts))
                .filter(|pin| !steps.contains(pin));
            steps.extend(pin);
            steps.push(ensure_addr(&at, net));
        }
        steps.extend(interface::forwarding(ips, facts));
        Ok(steps)
    }

    /// Sets a foreign bridge's hardware address permanently before it becomes a gateway. Otherwise
    /// its address changes when a port with a lower one is added, and neighbours lose it.
    fn pin_mac(&self, facts: &Facts) -> Step {
        Step::add(Attr {
            at: self.at(),
            to: LinkAttr::Mac(self.mac(facts)),
        })
    }

    fn interfaces(&self, call: &Call<'_>, facts: &Facts) -> Vec<Interface> {
        let bridge = interface::of_host(&self.bridge, self.mac(facts));
        [bridge]
            .into_iter()
            .chain(self.device.interfaces(call, self.pod_mac(call)))
            .collect()
    }
}

impl ThroughLink for Bridge {
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error> {
        let mut made = self.ensure_bridge(call, facts);
        made.extend(self.add_port(call, facts));
        let result = AddResult {
            interfaces: self.interfaces(call, facts),
            dns: self.dns.clone().unwrap_or_default(),
            ..AddResult::default()
        };
        Ok(Linked {
            made,
            up: (!self.disable_container).then(|| interface::up(&call.pod())),
            opened: self.open_port(call, facts),
            result,
            warnings: self.vlan.warnings(&self.bridge, facts.link(&self.at())),
        })
    }

    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let Some(lease) = lease.map(|lease| self.complete_lease(lease)).transpose()? else {
            return linked.attached(call, None, self.dad());
        };
        let mac = linked.mac(call).unwrap_or_else(|| self.pod_mac(call));
        let Linked {
            made: mut steps,
            up,
            opened,
            mut result,
            warnings,
        } = linked;
        let Lease { ips, routes, dns } = lease;
        let pod = call.pod();
        steps.extend(interface::configure_with(
            &pod,
            up,
            &ips,
            &routes,
            self.dad(),
        ));
        if self.is_gateway {
            steps.extend(self.ensure_gateways(call, facts, &ips)?);
        }
        if self.ip_masq {
            steps.extend(interface::masquerade(call, &ips));
        }
        if let Some(id) = self.vlan.id.filter(|_| self.is_gateway) {
            let name = vlan::gateway_name(&self.bridge, id)?;
            let mac = vlan::gateway_mac(&name, facts);
            result.interfaces.push(interface::of_host(&name, mac));
        }
        steps.extend(opened);
        // The announcement of the container's end, when it came up, met a port that was down.
        steps.push(Step::add(Attr {
            at: pod.clone(),
            to: LinkAttr::Announce(mac),
        }));
        steps.extend(interface::settle(&pod, &ips, self.dad()));
        result.dns = interface::dns(self.dns.as_ref(), dns);
        (result.ips, result.routes) = (ips, routes);
        Ok(Planned {
            steps,
            result,
            warnings,
        })
    }
}

impl Plugin for Bridge {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs = vec![Need::BootIdWithout(self.at()), Need::Link(call.pod())];
        needs.extend(self.device.need());
        if self.is_gateway {
            let gateway = self.gateway_link().ok();
            needs.extend(
                gateway
                    .into_iter()
                    .flat_map(|at| [Need::BootIdWithout(at.clone()), Need::Addrs(at)]),
            );
        }
        needs
    }

    fn gateway_at(&self, _call: &Call<'_>) -> Option<LinkRef> {
        self.gateway_link().ok().filter(|_| self.is_gateway)
    }

    fn needs_of(&self, lease: &Lease) -> Vec<Need> {
        let forwards = self
            .is_gateway
            .then(|| interface::forwarding_needs(&lease.ips));
        forwards.flatten().into_iter().collect()
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.device.refuse(facts)?;
        match facts.link(&self.at()) {
            Some(fact) if fact.kind != "bridge" => {
                let name = self.bridge.as_str();
                Err(Error::internal(format!(
                    "{name:?} already exists but is not a bridge: it is of kind {:?}",
                    fact.kind
                )))
            }
            _ => interface::refuse_taken(call, facts),
        }
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Ok(self)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        self.complete(call, facts, self.plan_link(call, facts)?, lease)
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.mac_spoof_check {
            let check = MacCheck {
                port: self.device.host(call),
                mac: self.pod_mac(call),
                owner: call.owner.short(),
            };
            let (container_id, ifname) = (call.owner.container_id.clone(), call.ifname.clone());
            steps.extend([
                Step::del(check),
                Step::Legacy(Legacy::MacCheck {
                    container_id,
                    ifname,
                }),
            ]);
        }
        steps.extend(self.device.teardown_without_record(call, self.ip_masq));
        steps
    }

    fn features(&self) -> Vec<Feature> {
        let asked = [
            (Feature::VlanFiltering, self.vlan.is_filtering()),
            (Feature::Masquerade, self.ip_masq),
            (Feature::MacCheck, self.mac_spoof_check),
        ];
        let asked = asked
            .into_iter()
            .filter_map(|(feature, is_asked)| is_asked.then_some(feature));
        [self.device.feature(), Feature::Bridge]
            .into_iter()
            .chain(asked)
            .collect()
    }

    fn kind(&self) -> Option<&'static str> {
        Some(self.device.kind())
    }
}

/// True if a bridge without a set hardware address changes its address when a port with this
/// address is added. A bridge without any address can't even be set up.
fn is_changed_by(bridge: &LinkFact, port: Mac) -> bool {
    bridge.bridge_id.is_none() && !bridge.oper_up || bridge.mac.is_none_or(|mac| mac > port)
}

fn ensure_addr(at: &LinkRef, net: IpNet) -> Step {
    Step::ensure(Addr {
        at: at.clone(),
        net,
        no_prefix_route: false,
        no_dad: true,
    })
}

/// True if an address on the bridge conflicts with the wanted one: any other IPv4 address, an
/// overlapping IPv6 one.
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

/// Returns a default route for each family in `ips` that has none in `routes`.
fn missing_default_routes(ips: &[IpConfig], routes: &[Route]) -> Vec<Route> {
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
        let gateway = ips
            .iter()
            .filter_map(|ip| ip.gateway)
            .find(|gw| gw.is_ipv4() == v4);
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
