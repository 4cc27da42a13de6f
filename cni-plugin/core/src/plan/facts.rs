//! Facts: state of the host and of the container's namespace, read before a plan is made.

pub use super::fact::addr::AddrFact;
use super::fact::advertised::Advertised;
use super::fact::device::{Device, DeviceFact};
use super::fact::fdb::Fdb;
use super::fact::firewall::Firewall;
use super::fact::host_port::{EbpfCounts, HostEndpoint, HostPortFact};
pub use super::fact::link::LinkFact;
use super::fact::link_ref::LinkRef;
use super::fact::neigh::Neigh;
use super::fact::packet_guard::PacketGuardFact;
use super::fact::route::Route;
pub use super::fact::route::RouteFact;
use super::fact::rule::Rule;
use super::fact::shaped::ShapedFact;
use super::fact::vlan::Vlan;
use super::fact::xsk::XskBinding;
use super::feature::Feature;
use super::queue_fallback::Queue;
use crate::name::{IfName, LinkName, Mac, Ns};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::kernel_numbers::RT_TABLE_MAIN;

/// A fact that a plan needs, to be read from the kernel or from a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The properties of a link.
    Link(LinkRef),
    /// The properties of the link with this name or alternative name, stored under the link's main
    /// name.
    NamedLink(Ns, LinkName),
    /// The name and the properties of the link of the first default route.
    DefaultLink(Ns),
    /// The addresses of a link.
    Addrs(LinkRef),
    /// The unicast routes of a namespace, in all tables.
    Routes(Ns),
    /// The policy routing rules of a namespace. A rule without an address counts as a rule for
    /// packets from everywhere.
    Rules(Ns),
    /// The permanent neighbour entries of a link.
    Neighs(LinkRef),
    /// The permanent entries with a remote end in the forwarding database of a link.
    Fdb(LinkRef),
    /// The VRFs of the container, with their routing tables.
    Vrfs,
    /// A sysctl, by its path below `/proc/sys`.
    Sysctl(Ns, String),
    /// The host's IPv6 forwarding; if it is off, also the links that accept router advertisements.
    Ipv6Forwarding,
    /// A text file of the node, if it exists.
    File(String),
    /// The VLANs of all bridge ports of the host.
    Vlans,
    /// The masqueraded source addresses.
    Masquerades,
    /// The bridge ports restricted to a single hardware address.
    MacChecks,
    /// The target and the owner of a host port in nf_tables.
    HostPort(HostEndpoint),
    /// The state of firewalld: running or not.
    Firewalld,
    /// The parts of a container's forwarding rules that are missing on the host.
    Firewall(Firewall),
    /// The target and the owner of a host port in eBPF.
    EbpfPort(HostEndpoint),
    /// The number of host ports that eBPF redirects.
    EbpfCounts,
    /// The presence of the eBPF programs for host ports on a link.
    HostPortHook(LinkRef),
    /// The target and the owner of a host port that eBPF redirects from `::1`.
    LoopbackPort(HostEndpoint),
    /// The presence of the eBPF programs for host ports at `::1`.
    LoopbackPrograms,
    /// The shaping (rate limits) of a link.
    Shaped(LinkRef),
    /// The rate limit of packet sockets on a link of the container.
    PacketGuard(LinkRef),
    /// The guards against `AF_XDP` sockets of all attachments.
    XskGuards,
    /// The host end of a veth or netkit of the container: its name, properties and shaping.
    Peer(LinkRef),
    /// The cookie of the container's network namespace.
    Netns,
    /// The availability of these kernel features.
    Features(&'static [Feature]),
    /// The properties of a link. If the link does not exist or has no hardware address, also the
    /// boot id, from which a new link derives its address.
    BootIdWithout(LinkRef),
    /// The host link that a configuration identifies as a [`Device`], and the properties of that
    /// link.
    Device(Device),
}

/// The facts that were read. A requested link that does not exist has no entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Properties of links, by namespace and name.
    pub links: BTreeMap<LinkRef, LinkFact>,
    /// Main names of links that were requested by an alternative name.
    pub named_links: BTreeMap<(Ns, LinkName), IfName>,
    /// Links of the first default routes, by namespace.
    pub default_links: BTreeMap<Ns, IfName>,
    /// Addresses, by link.
    pub addrs: BTreeMap<LinkRef, Vec<AddrFact>>,
    /// Routes that the kernel reported, by namespace.
    pub routes: BTreeMap<Ns, Vec<RouteFact>>,
    /// Policy routing rules, by namespace.
    pub rules: BTreeMap<Ns, Vec<Rule>>,
    /// Permanent neighbour entries, by link.
    pub neighs: BTreeMap<LinkRef, Vec<Neigh>>,
    /// Permanent entries of forwarding databases, by link.
    pub fdb: BTreeMap<LinkRef, Vec<Fdb>>,
    /// Routing tables of the container's VRFs, by name of the VRF.
    pub vrfs: BTreeMap<IfName, u32>,
    /// Routes that the plan adds, and routes that the kernel will add for the plan's addresses.
    pub planned_routes: Vec<Route>,
    /// Values of sysctls, by namespace and path. A sysctl that the kernel lacks has no entry.
    pub sysctls: BTreeMap<(Ns, String), String>,
    /// Links of the host that accept router advertisements only until the host forwards IPv6.
    pub advertised: Vec<Advertised>,
    /// Text files by path; a missing file has no entry.
    pub files: BTreeMap<String, String>,
    /// VLANs by bridge port of the host.
    pub vlans: BTreeMap<IfName, Vec<Vlan>>,
    /// Owners of masqueraded source addresses.
    pub masquerades: BTreeMap<IpAddr, String>,
    /// The only hardware addresses allowed on bridge ports, by port.
    pub mac_checks: BTreeMap<IfName, Mac>,
    /// Host ports that nf_tables forwards.
    pub host_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// True if firewalld runs.
    pub has_firewalld: bool,
    /// Missing parts of a container's forwarding rules, each as a sentence; empty if complete.
    pub firewalls: BTreeMap<Firewall, Vec<String>>,
    /// Host ports that eBPF redirects.
    pub ebpf_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// Number of host ports that eBPF redirects.
    pub ebpf_counts: EbpfCounts,
    /// Links that run the eBPF programs for host ports.
    pub host_port_hooks: BTreeSet<LinkRef>,
    /// Host ports that eBPF redirects from `::1`.
    pub loopback_ports: BTreeMap<HostEndpoint, HostPortFact>,
    /// True if the eBPF programs for host ports at `::1` run.
    pub has_loopback_programs: bool,
    /// Shaping (rate limits), by link.
    pub shaped: BTreeMap<LinkRef, ShapedFact>,
    /// Rate limits of packet sockets, by link.
    pub packet_guards: BTreeMap<LinkRef, PacketGuardFact>,
    /// Guards against `AF_XDP` sockets of all attachments.
    pub xsk_guards: Vec<XskBinding>,
    /// Host ends of pairs, by the container's end.
    pub peers: BTreeMap<LinkRef, LinkRef>,
    /// Cookie of the container's network namespace; `None` before Linux 5.14.
    pub netns: Option<u64>,
    /// Requested kernel features: `None` if the kernel has the feature, otherwise its error.
    pub features: BTreeMap<Feature, Option<String>>,
    /// Boot id, which differs between nodes and between boots.
    pub boot_id: String,
    /// Devices that were requested, with the outcome of the search.
    pub devices: BTreeMap<Device, DeviceFact>,
}

impl Facts {
    /// Returns the properties of the link at `at`; `None` if it does not exist.
    pub fn link(&self, at: &LinkRef) -> Option<&LinkFact> {
        self.links.get(at)
    }

    /// Returns the link with this name or alternative name. An alternative name must belong to an
    /// existing link. Any other name is taken as the interface name of a link that may only be
    /// planned. `None` if such a name is too long for an interface name.
    pub fn place_of(&self, ns: Ns, name: &LinkName) -> Option<LinkRef> {
        let own = self
            .named_links
            .get(&(ns, name.clone()))
            .cloned()
            .or_else(|| name.short());
        own.map(|name| LinkRef { ns, name })
    }

    /// Returns the link that a [`Need::Link`] or [`Need::NamedLink`] requests; `None` for other
    /// needs.
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

    /// True if `need` is for a missing link that an earlier network of the same call may create.
    /// `earlier` has the needs of the earlier networks. A network may create a link if it needs
    /// that link. Any earlier network may create the container's default route.
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

    /// Returns the routes through the link at `at` in all tables. Routes of the kernel precede the
    /// planned ones.
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

    /// True if a route, a rule or a VRF of the container uses the routing table.
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

    /// True if `feature` was requested and the kernel has it.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.get(&feature).is_some_and(Option::is_none)
    }

    /// Returns the best qdisc for shaping that the kernel has; `None` if the kernel can't shape.
    /// The features in [`super::queue_fallback::LADDER`] must have been requested.
    pub fn best_queue(&self) -> Option<Queue> {
        Queue::best(|feature| self.has(feature))
    }

    /// Adds facts that were read later. They replace older facts about the same objects.
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
}
