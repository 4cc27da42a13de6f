//! Facts about the host, read before deciding.

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
use super::thing::{Fdb, Firewall, LinkRef, Neigh, Route, Rule};
use crate::name::{IfName, LinkName, Mac, Ns};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use super::thing::addr::AddrFact;
pub use super::thing::link::LinkFact;
pub use super::thing::route::RouteFact;
use crate::kernel_numbers::RT_TABLE_MAIN;

/// A fact to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A link.
    Link(LinkRef),
    /// The link with this name or alternative name, stored under its own name.
    NamedLink(Ns, LinkName),
    /// The name of the first default route's link, and that link.
    DefaultLink(Ns),
    /// The addresses of a link.
    Addrs(LinkRef),
    /// The unicast routes of a namespace, in all tables.
    Routes(Ns),
    /// The policy routing rules of a namespace. A rule without an address counts as one from
    /// everywhere.
    Rules(Ns),
    /// The permanent neighbours of a link.
    Neighs(LinkRef),
    /// The permanent entries with a remote end in the forwarding database of a link.
    Fdb(LinkRef),
    /// The tables of the container's VRFs.
    Vrfs,
    /// A sysctl, by its path below `/proc/sys`.
    Sysctl(Ns, String),
    /// The host's IPv6 forwarding; if it is off, also the links that accept router advertisements.
    Ipv6Forwarding,
    /// A text file of the node, if it exists.
    File(String),
    /// The VLANs of all bridge ports of the host.
    Vlans,
    /// The masqueraded sources.
    Masquerades,
    /// The bridge ports restricted to a single hardware address.
    MacChecks,
    /// The owner of a host port.
    HostPort(HostEndpoint),
    /// The state of firewalld: running or not.
    Firewalld,
    /// The missing parts of the firewall.
    Firewall(Firewall),
    /// The owner of a host port in eBPF.
    EbpfPort(HostEndpoint),
    /// The number of host ports that eBPF redirects.
    EbpfCounts,
    /// The programs for host ports on a link: running or not.
    HostPortHook(LinkRef),
    /// The owner of a host port at `::1`.
    LoopbackPort(HostEndpoint),
    /// The programs for host ports at `::1`: running or not.
    LoopbackPrograms,
    /// The shaping of a link.
    Shaped(LinkRef),
    /// The limit of packet sockets on a link of the container.
    PacketGuard(LinkRef),
    /// The attachments with guarded `AF_XDP` sockets.
    XskGuards,
    /// The host end of a veth of the container, that link, and its shaping.
    Peer(LinkRef),
    /// The cookie of the container's network namespace.
    Netns,
    /// Availability of the features of this list.
    Features(&'static [Feature]),
    /// The id of this boot, unless the link exists with a hardware address: only new links derive
    /// their address from it.
    BootIdWithout(LinkRef),
    /// The host link that a configuration identifies by any of its keys, and that link's fact.
    Device(Device),
}

/// The facts that were found. A requested link that does not exist has no entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Links by place and name.
    pub links: BTreeMap<LinkRef, LinkFact>,
    /// Names of links that were requested by an alternative name.
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
    /// Permanent entries of forwarding databases by link.
    pub fdb: BTreeMap<LinkRef, Vec<Fdb>>,
    /// Tables by VRF of the container.
    pub vrfs: BTreeMap<IfName, u32>,
    /// Routes that the plan adds, with those that the kernel adds for its addresses.
    pub planned_routes: Vec<Route>,
    /// Sysctls; a kernel without one has no entry.
    pub sysctls: BTreeMap<(Ns, String), String>,
    /// Links of the host that accept router advertisements until it forwards IPv6.
    pub advertised: Vec<Advertised>,
    /// Text files by path; a missing file has no entry.
    pub files: BTreeMap<String, String>,
    /// VLANs by bridge port of the host.
    pub vlans: BTreeMap<IfName, Vec<Vlan>>,
    /// Owners by masqueraded source.
    pub masquerades: BTreeMap<IpAddr, String>,
    /// Hardware addresses by bridge port restricted to one.
    pub mac_checks: BTreeMap<IfName, Mac>,
    /// Host ports that are forwarded.
    pub host_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// True if firewalld runs.
    pub has_firewalld: bool,
    /// Missing parts by firewall, each as a sentence.
    pub firewalls: BTreeMap<Firewall, Vec<String>>,
    /// Host ports that eBPF redirects.
    pub ebpf_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// Number of host ports that eBPF redirects.
    pub ebpf_counts: EbpfCounts,
    /// Links that run the programs for host ports.
    pub host_port_hooks: BTreeSet<LinkRef>,
    /// Host ports that are forwarded from `::1`.
    pub loopback_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// True if the programs for `::1` run.
    pub has_loopback_programs: bool,
    /// Shaping by link.
    pub shaped: BTreeMap<LinkRef, ShapedFact>,
    /// Limits of packet sockets by link.
    pub packet_guards: BTreeMap<LinkRef, PacketGuardFact>,
    /// Attachments with guarded `AF_XDP` sockets.
    pub xsk_guards: Vec<XskBinding>,
    /// Host ends by veth of the container.
    pub peers: BTreeMap<LinkRef, LinkRef>,
    /// Cookie of the container's network namespace; `None` before Linux 5.14.
    pub netns: Option<u64>,
    /// Requested features: `None` if the kernel has the feature, otherwise its error.
    pub features: BTreeMap<Feature, Option<String>>,
    /// Boot id, which differs between nodes and between boots.
    pub boot_id: String,
    /// Requested devices.
    pub devices: BTreeMap<Device, DeviceFact>,
}

impl Facts {
    /// Returns the link at `at`.
    pub fn link(&self, at: &LinkRef) -> Option<&LinkFact> {
        self.links.get(at)
    }

    /// Returns the place of a link with this name or alternative name, existing or planned. `None`
    /// for an alternative name that no link has.
    pub fn place_of(&self, ns: Ns, name: &LinkName) -> Option<LinkRef> {
        let own = self
            .named_links
            .get(&(ns, name.clone()))
            .cloned()
            .or_else(|| name.short());
        own.map(|name| LinkRef { ns, name })
    }

    /// Returns the place of the link that `need` requests by name.
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

    /// Returns the link of the first default route of a namespace, existing or planned.
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

    /// True if `need` is for a missing link that an earlier network may create, because its needs
    /// include the link. Any earlier network may create the container's default route.
    pub fn is_awaited(&self, need: &Need, earlier: &[Need]) -> bool {
        if let Some(at) = self.place_in(need) {
            let is_of_it = |other: &Need| matches!(other, Need::Link(it) | Need::BootIdWithout(it) if *it == at);
            return self.link(&at).is_none() && earlier.iter().any(is_of_it);
        }
        *need == Need::DefaultLink(Ns::Pod)
            && self.default_link(Ns::Pod).is_none()
            && !earlier.is_empty()
    }

    /// Returns the addresses of the link at `at`.
    pub fn addrs(&self, at: &LinkRef) -> &[AddrFact] {
        self.addrs.get(at).map_or(&[], Vec::as_slice)
    }

    /// Returns the routes through the link at `at` in all tables: the kernel's, then the planned
    /// ones.
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

    /// True if a route, a rule or a VRF of the container uses the table.
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

    /// True if the kernel has a requested feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.get(&feature).is_some_and(Option::is_none)
    }

    /// Returns the best queue of the kernel; `None` if it can't shape. Requires the features of
    /// [`super::queue_fallback::LADDER`].
    pub fn best_queue(&self) -> Option<Queue> {
        Queue::best(|feature| self.has(feature))
    }

    /// Adds the facts of another reading.
    pub fn merge(&mut self, other: Self) {
        // The pattern names every field, so none is forgotten.
        let Self {
            links,
            named_links,
            default_links,
            addrs,
            routes,
            rules,
            neighs,
            fdb,
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
        self.fdb.extend(fdb);
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

    /// Predicts the facts after `steps` are applied, as far as a later plugin of the same plan may
    /// need them.
    #[must_use]
    pub fn after(mut self, steps: &[Step]) -> Self {
        for step in steps {
            step.predict(&mut self);
        }
        self
    }
}
