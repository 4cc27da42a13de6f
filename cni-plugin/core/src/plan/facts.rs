//! The facts that were read from the host before deciding.

use super::feature::Feature;
use super::queue_fallback::Queue;
use super::step::Step;
use super::thing::advertised::Advertised;
use super::thing::host_ports::{EbpfCounts, HostEndpoint, HostPortFact};
use super::thing::moved::{Device, DeviceFact};
use super::thing::packet_guard::PacketGuardFact;
use super::thing::shaping::ShapedFact;
use super::thing::vlan::Vlan;
use super::thing::xsk_guard::XskBinding;
use super::thing::{Firewall, LinkRef, Neigh, Route, Rule};
use crate::name::{IfName, LinkName, Mac, Ns};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use super::thing::addr::AddrFact;
pub use super::thing::link::LinkFact;
pub use super::thing::route::RouteFact;
use crate::kernel_numbers::RT_TABLE_MAIN;

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// One link.
    Link(LinkRef),
    /// The link with this name or alternative name, under its own name.
    NamedLink(Ns, LinkName),
    /// The link of the first default route, and that link.
    DefaultLink(Ns),
    /// The addresses of one link.
    Addrs(LinkRef),
    /// All unicast routes of a namespace, in all tables.
    Routes(Ns),
    /// The rules of policy routing of a namespace; one that is about neither address counts as one
    /// from everywhere.
    Rules(Ns),
    /// The permanent neighbours at a link.
    Neighs(LinkRef),
    /// The tables of the container's VRFs.
    Vrfs,
    /// One sysctl, by its path below `/proc/sys`.
    Sysctl(Ns, String),
    /// The host's IPv6 forwarding; if it is off, also the links that accept router advertisements.
    Ipv6Forwarding,
    /// A text file of the node, where it exists.
    File(String),
    /// The VLANs of all bridge ports of the host.
    Vlans,
    /// The masqueraded sources.
    Masquerades,
    /// The bridge ports held to one hardware address.
    MacChecks,
    /// The owner of a port of the host.
    HostPort(HostEndpoint),
    /// The state of firewalld: it runs or not.
    Firewalld,
    /// The missing parts of the firewall.
    Firewall(Firewall),
    /// The owner of a port of the host in eBPF.
    EbpfPort(HostEndpoint),
    /// The number of the host's ports that eBPF redirects.
    EbpfCounts,
    /// The programs for host ports on a link: they run or not.
    HostPortHook(LinkRef),
    /// The owner of a port of the host at `::1`.
    LoopbackPort(HostEndpoint),
    /// The programs for those: they run or not.
    LoopbackPrograms,
    /// The shaping of a link.
    Shaped(LinkRef),
    /// The limit of what packet sockets send through a link of the container.
    PacketGuard(LinkRef),
    /// The attachments whose `AF_XDP` sockets are guarded.
    XskGuards,
    /// The end on the host's side of a veth of the container, that link, and how it is shaped.
    Peer(LinkRef),
    /// The cookie of the container's network namespace.
    Netns,
    /// The features of this list that the kernel has.
    Features(&'static [Feature]),
    /// The number of this boot, unless the link is there with a hardware address: only what is new
    /// is named by it.
    BootIdWithout(LinkRef),
    /// The link of the host that a configuration names in one way or another, and that link.
    Device(Device),
}

/// The facts that were found. A link that was looked for and is not there is simply absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Links by place and name.
    pub links: BTreeMap<LinkRef, LinkFact>,
    /// The names of links that were looked for by an alternative name.
    pub named_links: BTreeMap<(Ns, LinkName), IfName>,
    /// The links of default routes.
    pub default_links: BTreeMap<Ns, IfName>,
    /// Addresses by link.
    pub addrs: BTreeMap<LinkRef, Vec<AddrFact>>,
    /// Routes by namespace.
    pub routes: BTreeMap<Ns, Vec<RouteFact>>,
    /// Rules of policy routing by namespace.
    pub rules: BTreeMap<Ns, Vec<Rule>>,
    /// Permanent neighbours by link.
    pub neighs: BTreeMap<LinkRef, Vec<Neigh>>,
    /// Tables by VRF of the container.
    pub vrfs: BTreeMap<IfName, u32>,
    /// Routes that the plan makes, with those that the kernel makes for its addresses.
    pub planned_routes: Vec<Route>,
    /// Sysctls; a kernel without one has no entry.
    pub sysctls: BTreeMap<(Ns, String), String>,
    /// Links of the host that accept router advertisements until it forwards IPv6.
    pub advertised: Vec<Advertised>,
    /// Text files by path; one that does not exist has no entry.
    pub files: BTreeMap<String, String>,
    /// VLANs by bridge port of the host.
    pub vlans: BTreeMap<IfName, Vec<Vlan>>,
    /// Masqueraded sources and whose they are.
    pub masquerades: BTreeMap<IpAddr, String>,
    /// Bridge ports held to one hardware address.
    pub mac_checks: BTreeMap<IfName, Mac>,
    /// Ports of the host that lead somewhere.
    pub host_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// firewalld runs.
    pub has_firewalld: bool,
    /// Missing parts by firewall, each as a sentence.
    pub firewalls: BTreeMap<Firewall, Vec<String>>,
    /// The same in eBPF.
    pub ebpf_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// Number of them.
    pub ebpf_counts: EbpfCounts,
    /// Links that run the programs for them.
    pub host_port_hooks: BTreeSet<LinkRef>,
    /// Ports of the host that lead somewhere from `::1`.
    pub loopback_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// The programs for them run.
    pub has_loopback_programs: bool,
    /// Shaping by link.
    pub shaped: BTreeMap<LinkRef, ShapedFact>,
    /// Limits of packet sockets by link.
    pub packet_guards: BTreeMap<LinkRef, PacketGuardFact>,
    /// Attachments whose `AF_XDP` sockets are guarded.
    pub xsk_guards: Vec<XskBinding>,
    /// The ends on the host's side of veths of the container.
    pub peers: BTreeMap<LinkRef, LinkRef>,
    /// Cookie of the container's network namespace; none before Linux 5.14.
    pub netns: Option<u64>,
    /// Features that were asked for: nothing where the kernel has one, otherwise what it said.
    pub features: BTreeMap<Feature, Option<String>>,
    /// Differs between nodes and between boots.
    pub boot_id: String,
    /// Devices that were looked for.
    pub devices: BTreeMap<Device, DeviceFact>,
}

impl Facts {
    /// The link at `at`.
    pub fn link(&self, at: &LinkRef) -> Option<&LinkFact> {
        self.links.get(at)
    }

    /// The place of a link with this name or alternative name: one that is there, else one that the
    /// plan makes. `None` for an alternative name that no link has.
    pub fn place_of(&self, ns: Ns, name: &LinkName) -> Option<LinkRef> {
        let own = self
            .named_links
            .get(&(ns, name.clone()))
            .cloned()
            .or_else(|| name.short());
        own.map(|name| LinkRef { ns, name })
    }

    /// The place of the link that a need is for, by name.
    pub fn place_in(&self, need: &Need) -> Option<LinkRef> {
        if let Need::NamedLink(ns, name) = need {
            return self.place_of(*ns, name);
        }
        if let Need::Link(at) = need {
            Some(at.clone())
        } else {
            None
        }
    }

    /// The link of the first default route of a namespace: one that is there, else one that the
    /// plan makes.
    pub fn default_link(&self, ns: Ns) -> Option<&IfName> {
        let is_default = |route: &&Route| {
            route.at.ns == ns && route.dst.prefix_len() == 0 && route.table == RT_TABLE_MAIN
        };
        let planned = || {
            self.planned_routes
                .iter()
                .find(is_default)
                .map(|route| &route.at.name)
        };
        self.default_links.get(&ns).or_else(planned)
    }

    /// True if `need` is for a link that is not there, and that a network with these `earlier`
    /// needs may make: it has asked for the link as well. Any earlier network may make the
    /// container's default route.
    pub fn is_awaited(&self, need: &Need, earlier: &[Need]) -> bool {
        if let Some(at) = self.place_in(need) {
            let is_of_it = |other: &Need| matches!(other, Need::Link(it) | Need::BootIdWithout(it) if *it == at);
            return self.link(&at).is_none() && earlier.iter().any(is_of_it);
        }
        *need == Need::DefaultLink(Ns::Pod)
            && self.default_link(Ns::Pod).is_none()
            && !earlier.is_empty()
    }

    /// The addresses of the link at `at`.
    pub fn addrs(&self, at: &LinkRef) -> &[AddrFact] {
        self.addrs.get(at).map_or(&[], Vec::as_slice)
    }

    /// The routes through the link at `at`, of all tables: those of the kernel, then those that the
    /// plan makes.
    pub fn routes_through(&self, at: &LinkRef) -> Vec<Route> {
        let index = self
            .link(at)
            .map(|link| link.index)
            .filter(|index| *index != 0);
        let is_its = |fact: &&RouteFact| index.is_some() && fact.link == index;
        let there = self.routes.get(&at.ns).into_iter().flatten().filter(is_its);
        let planned = self
            .planned_routes
            .iter()
            .filter(|route| route.at == *at)
            .cloned();
        there
            .map(|fact| Route::of_fact(at, fact))
            .chain(planned)
            .collect()
    }

    /// True if a route, a rule or a VRF of the container has to do with the table.
    pub fn is_table_used(&self, table: u32) -> bool {
        let routes = self
            .routes
            .get(&Ns::Pod)
            .into_iter()
            .flatten()
            .map(|route| route.table);
        let planned = self
            .planned_routes
            .iter()
            .filter(|route| route.at.ns == Ns::Pod)
            .map(|route| route.table);
        let rules = self
            .rules
            .get(&Ns::Pod)
            .into_iter()
            .flatten()
            .map(|rule| rule.table);
        routes
            .chain(planned)
            .chain(rules)
            .chain(self.vrfs.values().copied())
            .any(|used| used == table)
    }

    /// True if the sysctl has the value.
    pub fn sysctl_is(&self, ns: Ns, key: &str, value: &str) -> bool {
        self.sysctls
            .get(&(ns, key.to_owned()))
            .is_some_and(|found| found == value)
    }

    /// True if the kernel has a feature that was asked for.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.get(&feature).is_some_and(Option::is_none)
    }

    /// The best that the kernel shapes by; none where it can't. Known where
    /// [`super::queue_fallback::LADDER`] was asked for.
    pub fn best_queue(&self) -> Option<Queue> {
        Queue::best(|feature| self.has(feature))
    }

    /// Takes over what another reading found.
    pub fn merge(&mut self, other: Self) {
        // None is forgotten: this names all.
        let Self {
            links,
            named_links,
            default_links,
            addrs,
            routes,
            rules,
            neighs,
            vrfs,
            planned_routes,
            sysctls,
            advertised,
            files,
            vlans,
            masquerades,
            mac_checks,
            host_ports,
            ebpf_ports,
            ebpf_counts,
            host_port_hooks,
            loopback_ports,
            has_loopback_programs,
            firewalls,
            shaped,
            packet_guards,
            xsk_guards,
            peers,
            netns,
            features,
            has_firewalld,
            boot_id,
            devices,
        } = other;
        self.links.extend(links);
        self.named_links.extend(named_links);
        self.default_links.extend(default_links);
        self.addrs.extend(addrs);
        self.routes.extend(routes);
        self.rules.extend(rules);
        self.neighs.extend(neighs);
        self.vrfs.extend(vrfs);
        self.planned_routes.extend(planned_routes);
        self.sysctls.extend(sysctls);
        self.advertised.extend(advertised);
        self.files.extend(files);
        self.vlans.extend(vlans);
        self.masquerades.extend(masquerades);
        self.mac_checks.extend(mac_checks);
        self.host_ports.extend(host_ports);
        self.ebpf_ports.extend(ebpf_ports);
        if ebpf_counts != EbpfCounts::default() {
            self.ebpf_counts = ebpf_counts;
        }
        self.host_port_hooks.extend(host_port_hooks);
        self.loopback_ports.extend(loopback_ports);
        self.has_loopback_programs |= has_loopback_programs;
        self.firewalls.extend(firewalls);
        self.shaped.extend(shaped);
        self.packet_guards.extend(packet_guards);
        self.xsk_guards.extend(xsk_guards);
        self.peers.extend(peers);
        self.netns = netns.or(self.netns);
        self.features.extend(features);
        self.has_firewalld |= has_firewalld;
        self.devices.extend(devices);
        if !boot_id.is_empty() {
            self.boot_id = boot_id;
        }
    }

    /// The facts as they will be once `steps` are applied, as far as a later plugin of the same
    /// plan may ask.
    #[must_use]
    pub fn after(mut self, steps: &[Step]) -> Self {
        for step in steps {
            step.predict(&mut self);
        }
        self
    }
}
