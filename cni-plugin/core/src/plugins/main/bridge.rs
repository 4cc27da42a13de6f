//! `bridge`: a veth or netkit with its host end in a bridge, which can be the containers' gateway.

mod gateway;
mod vlan;

use super::device::{Device, Ends};
use crate::cni::{AddResult, Dns, Error, Interface, IpConfig, NetConf};
use crate::ipam::Lease;
use crate::name::{IfName, Mac};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Event, Legacy, Step};
use crate::plan::thing::link::{ETHERNET_MTUS, NetkitMode};
use crate::plan::thing::{Attr, Link, LinkAttr, LinkKind, LinkRef, MacCheck};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::call::bridge_mac;
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};
use ipnet::IpNet;

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
            mtu: mtu::optional_within(mtu::read(json)?, &ETHERNET_MTUS, "")?,
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

    /// Returns the bridge's hardware address, or the planned one if the bridge does not exist.
    fn mac(&self, facts: &Facts) -> Mac {
        let present = facts.link(&self.at()).and_then(|fact| fact.mac);
        present.unwrap_or_else(|| bridge_mac(&self.bridge, &facts.boot_id))
    }

    /// True if the bridge exists and may take over the hardware address of the new port.
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
        for (is_requested, to) in attrs {
            if is_requested {
                let at = port.clone();
                steps.push(Step::add(Attr { at, to }));
            }
        }
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

    /// Returns the steps that set the port up. These steps come after all steps that filter the
    /// port's frames. They also come last for speed, because the kernel's work for a new carrier
    /// would delay every later step.
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

    /// Returns the steps that wait until the bridge has a carrier. The carrier requires a
    /// forwarding port. Before the kernel has processed the first carrier, the bridge drops the
    /// node's packets. Empty for a bridge with a spanning tree, because a new port of such a bridge
    /// takes many seconds to forward.
    fn wait_up(&self, facts: &Facts) -> Vec<Step> {
        if facts.link(&self.at()).is_some_and(|fact| fact.stp) {
            return Vec::new();
        }
        let mut links = vec![self.at()];
        if let Some(gateway) = self.gateway()
            && gateway != self.at()
        {
            links.push(gateway);
        }
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

    /// Adds the interface index, missing gateways and missing default routes to the IPAM's lease.
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
            routes.extend(gateway::missing_default_routes(&ips, &routes));
        }
        Ok(Lease { ips, routes, dns })
    }

    /// Returns the link that carries the gateway addresses: the bridge, or its VLAN's interface.
    fn gateway_link(&self) -> Result<LinkRef, Error> {
        match self.vlan.id {
            Some(id) => Ok(LinkRef::host(vlan::gateway_name(&self.bridge, id)?)),
            None => Ok(self.at()),
        }
    }

    /// Returns [`Self::gateway_link`] if the bridge is a gateway.
    fn gateway(&self) -> Option<LinkRef> {
        if self.is_gateway {
            self.gateway_link().ok()
        } else {
            None
        }
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
            if facts.addrs(&at).iter().any(|fact| fact.net == net) {
                steps.push(gateway::ensure_addr(&at, net));
                continue;
            }
            steps.extend(gateway::del_conflicting(
                &at,
                net,
                self.force_address,
                facts,
            )?);
            let is_foreign = facts.link(&self.at()).is_some();
            if is_foreign && !self.is_changed_by_port(call, facts) {
                let pin = self.pin_mac(facts);
                // The address of the other family may have added this step already.
                if !steps.contains(&pin) {
                    steps.push(pin);
                }
            }
            steps.push(gateway::ensure_addr(&at, net));
        }
        steps.extend(interface::forwarding(ips, facts));
        Ok(steps)
    }

    /// Returns the step that fixes the hardware address of an existing bridge before it becomes a
    /// gateway. Otherwise the bridge's address changes when a port with a lower address is added,
    /// and neighbours lose the gateway.
    fn pin_mac(&self, facts: &Facts) -> Step {
        Step::add(Attr {
            at: self.at(),
            to: LinkAttr::Mac(self.mac(facts)),
        })
    }

    fn interfaces(&self, call: &Call<'_>, facts: &Facts) -> Vec<Interface> {
        let mut interfaces = vec![interface::of_host(&self.bridge, self.mac(facts))];
        interfaces.extend(self.device.interfaces(call, self.pod_mac(call)));
        interfaces
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
        // The container's end was announced when it came up, but the port was down and dropped
        // that.
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
        if let Some(at) = self.gateway() {
            needs.extend([Need::BootIdWithout(at.clone()), Need::Addrs(at)]);
        }
        needs
    }

    fn gateway_at(&self, _call: &Call<'_>) -> Option<LinkRef> {
        self.gateway()
    }

    fn needs_of(&self, lease: &Lease) -> Vec<Need> {
        if !self.is_gateway {
            return Vec::new();
        }
        interface::forwarding_needs(&lease.ips)
            .into_iter()
            .collect()
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
        let mut features = vec![self.device.feature(), Feature::Bridge];
        for (feature, is_asked) in asked {
            if is_asked {
                features.push(feature);
            }
        }
        features
    }

    fn kind(&self) -> Option<&'static str> {
        Some(self.device.kind())
    }
}

/// True if a bridge may change its hardware address when a port with the address `port` is added.
/// Also true for a bridge without an address, which can't even be set up.
fn is_changed_by(bridge: &LinkFact, port: Mac) -> bool {
    bridge.bridge_id.is_none() && !bridge.oper_up || bridge.mac.is_none_or(|mac| mac > port)
}
