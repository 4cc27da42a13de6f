//! What was read from the host before deciding.

use super::advertised::Advertised;
use super::feature::Feature;
use super::hostport::{EbpfCounts, Entrance, HostPortFact};
use super::ladder::Queue;
use super::link::{ETHERNET_MTUS, Link, LinkAttr, LinkKind, LinkRef};
use super::name::{IfName, Mac};
use super::nft::{Firewall, PacketGuardFact};
use super::shaping::ShapedFact;
use super::step::{Addr, Ns, Step, Vlan};
use super::xsk::Hold;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// One link.
    Link(LinkRef),
    /// The link of the first default route, and that link.
    DefaultLink(Ns),
    /// The addresses of one link.
    Addrs(LinkRef),
    /// All unicast routes of a namespace, in all tables.
    Routes(Ns),
    /// One sysctl, by its path below `/proc/sys`.
    Sysctl(Ns, String),
    /// Whether the host forwards IPv6; if not, which links accept router advertisements.
    Ipv6Forwarding,
    /// A text file of the node, where it exists.
    File(String),
    /// The VLANs of all bridge ports of the host.
    Vlans,
    /// The masqueraded sources.
    Masquerades,
    /// The bridge ports held to one hardware address.
    MacChecks,
    /// Who has a port of the host.
    HostPort(Entrance),
    /// Whether firewalld runs.
    Firewalld,
    /// What of the firewall is missing.
    Firewall(Firewall),
    /// Who has a port of the host in eBPF.
    EbpfPort(Entrance),
    /// How many ports of the host eBPF leads.
    EbpfCounts,
    /// Whether a link runs the programs for host ports.
    HostPortHook(LinkRef),
    /// Who has a port of the host at `::1`.
    LoopbackPort(Entrance),
    /// Whether the programs for those run.
    LoopbackPrograms,
    /// How a link is shaped.
    Shaped(LinkRef),
    /// What packet sockets may send through a link of the container.
    PacketGuard(LinkRef),
    /// Whose `AF_XDP` sockets are held.
    XskGuards,
    /// The end on the host's side of a veth of the container, that link, and how it is shaped.
    Peer(LinkRef),
    /// The cookie of the container's network namespace.
    Netns,
    /// Which of these features the kernel has.
    Features(&'static [Feature]),
    /// The number of this boot, unless the link is there with a hardware address: only what is new is named by it.
    BootIdWithout(LinkRef),
}

/// What was found. A link that was looked for and is not there is simply absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Links by place and name.
    pub links: BTreeMap<LinkRef, LinkFact>,
    /// The links of default routes.
    pub default_links: BTreeMap<Ns, IfName>,
    /// Addresses by link.
    pub addrs: BTreeMap<LinkRef, Vec<AddrFact>>,
    /// Routes by namespace.
    pub routes: BTreeMap<Ns, Vec<RouteFact>>,
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
    pub host_ports: BTreeMap<Entrance, HostPortFact>,
    /// firewalld runs.
    pub has_firewalld: bool,
    /// What is missing of what is forwarded or dropped, each as a sentence.
    pub firewalls: BTreeMap<Firewall, Vec<String>>,
    /// The same in eBPF.
    pub ebpf_ports: BTreeMap<Entrance, HostPortFact>,
    /// How many there are.
    pub ebpf_counts: EbpfCounts,
    /// Links that run the programs for them.
    pub host_port_hooks: BTreeSet<LinkRef>,
    /// Ports of the host that lead somewhere from `::1`.
    pub loopback_ports: BTreeMap<Entrance, HostPortFact>,
    /// The programs for them run.
    pub has_loopback_programs: bool,
    /// How links are shaped.
    pub shaped: BTreeMap<LinkRef, ShapedFact>,
    /// What packet sockets may send, by link.
    pub packet_guards: BTreeMap<LinkRef, PacketGuardFact>,
    /// Whose `AF_XDP` sockets are held.
    pub xsk_guards: Vec<Hold>,
    /// The ends on the host's side of veths of the container.
    pub peers: BTreeMap<LinkRef, LinkRef>,
    /// Cookie of the container's network namespace; none before Linux 5.14.
    pub netns: Option<u64>,
    /// Features that were asked for: nothing where the kernel has one, otherwise what it said.
    pub features: BTreeMap<Feature, Option<String>>,
    /// Differs between nodes and between boots.
    pub boot_id: String,
}

/// A link as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's flags, each with its own name")]
pub struct LinkFact {
    /// Interface index.
    pub index: u32,
    /// Kind, `""` for hardware.
    pub kind: String,
    /// Mode of a macvlan or ipvlan.
    pub mode: Option<&'static str>,
    /// Hardware address; none where all its bytes are 0, which is how `lo` and a bridge without ports show that.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// MTUs that it can have.
    pub mtus: RangeInclusive<u32>,
    /// IPv6 is on; none where the kernel shows nothing of IPv6, as for a link that is too small for it.
    pub has_ipv6: Option<bool>,
    /// Administratively up.
    pub up: bool,
    /// Operationally up.
    pub oper_up: bool,
    /// The same, or the kernel has seen no change of its carrier yet (`IFF_RUNNING`): a bridge without an address of its own
    /// that was set up before its first port.
    pub running: bool,
    /// Receives everything.
    pub promisc: bool,
    /// Receives all multicast.
    pub all_multi: bool,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: u32,
    /// Largest packet that the stack hands over in one piece, in bytes.
    pub gso_max_size: u32,
    /// Index of the bridge it is a port of.
    pub master: Option<u32>,
    /// Index of its parent or peer.
    pub parent: Option<u32>,
    /// The number by which this one's namespace knows that one's, where it is another.
    pub parent_netns: Option<i32>,
    /// Bridge: ports are separated by VLAN.
    pub vlan_filtering: bool,
    /// Bridge: the spanning tree protocol decides when a port forwards.
    pub stp: bool,
    /// Bridge: the hardware address in its identifier. None before its first port and after its last one, unless it was made
    /// with an address: then the next port changes the bridge's (v6.12 `net/bridge/br_stp_if.c`,
    /// `br_stp_recalculate_bridge_id()`).
    pub bridge_id: Option<Mac>,
    /// Bridge: the VLAN that a new port is put on; 0 for none.
    pub default_pvid: u16,
    /// Bridge port: frames may leave where they came from.
    pub hairpin: bool,
    /// Bridge port: no frames between isolated ports.
    pub isolated: bool,
    /// Text that tells whose it is.
    pub alias: String,
}

/// An address as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddrFact {
    /// Address with its prefix.
    pub net: IpNet,
    /// Not yet usable: duplicate address detection runs.
    pub tentative: bool,
    /// Duplicate address detection found another owner.
    pub dad_failed: bool,
    /// Scope as the kernel numbers it.
    pub scope: u8,
}

/// A route as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFact {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    pub gw: Option<IpAddr>,
    /// Index of the link.
    pub link: Option<u32>,
    /// Table.
    pub table: u32,
    /// Scope as the kernel numbers it.
    pub scope: u8,
    /// It came by router advertisement.
    pub from_router: bool,
    /// Metric; unset where the kernel shows none.
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    pub mtu: Option<u32>,
    /// Maximal segment size in bytes.
    pub advmss: Option<u32>,
}

impl Facts {
    /// The link at `at`.
    pub fn link(&self, at: &LinkRef) -> Option<&LinkFact> {
        self.links.get(at)
    }

    /// The addresses of the link at `at`.
    pub fn addrs(&self, at: &LinkRef) -> &[AddrFact] {
        self.addrs.get(at).map_or(&[], Vec::as_slice)
    }

    /// Whether the sysctl has the value.
    pub fn sysctl_is(&self, ns: Ns, key: &str, value: &str) -> bool {
        self.sysctls.get(&(ns, key.to_owned())).is_some_and(|found| found == value)
    }

    /// Whether the kernel has a feature that was asked for.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.get(&feature).is_some_and(Option::is_none)
    }

    /// The best that the kernel shapes by; none where it can't. Known where [`super::ladder::LADDER`] was asked for.
    pub fn best_queue(&self) -> Option<Queue> {
        Queue::best(|feature| self.has(feature))
    }

    /// Takes over what another reading found.
    pub fn merge(&mut self, other: Self) {
        // None is forgotten: this names all.
        let Self {
            links,
            default_links,
            addrs,
            routes,
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
        } = other;
        self.links.extend(links);
        self.default_links.extend(default_links);
        self.addrs.extend(addrs);
        self.routes.extend(routes);
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
        if !boot_id.is_empty() {
            self.boot_id = boot_id;
        }
    }

    /// The facts as they will be once `steps` are applied, as far as a later plugin of the same plan may ask.
    #[must_use]
    pub fn after(mut self, steps: &[Step]) -> Self {
        for step in steps {
            match step {
                Step::AddLink(link) => self.will_have(link),
                Step::EnsureLink(link) if !self.links.contains_key(&link.at) => self.will_have(link),
                Step::SetLink { at, to, .. } | Step::EnsureAttr { at, to } => {
                    if let Some(fact) = self.links.get_mut(at) {
                        fact.set(to);
                    }
                }
                Step::AddAddr(Addr { at, net, .. }) | Step::EnsureAddr(Addr { at, net, .. }) => {
                    let fact = AddrFact { net: *net, tentative: false, dad_failed: false, scope: 0 };
                    self.addrs.entry(at.clone()).or_default().push(fact);
                }
                Step::AddShaping(shaping) => {
                    for at in shaping.shapers.iter().map(|shaper| &shaper.at) {
                        let fact = self.shaped.entry(at.clone()).or_default();
                        (fact.is_chosen, fact.queue) = (true, "bandwidth".to_owned());
                    }
                }
                _ => {}
            }
        }
        self
    }

    fn will_have(&mut self, link: &Link) {
        // A child has its parent's MTU unless it is given another.
        let below = match &link.kind {
            LinkKind::Macvlan { parent, .. } | LinkKind::Ipvlan { parent, .. } => Some(parent),
            _ => None,
        };
        let parent = below.and_then(|below| self.links.get(below));
        let mtu = link.mtu.or(parent.map(|parent| parent.mtu)).unwrap_or(1500);
        let mut fact = LinkFact::planned(link.kind.name(), link.mac, mtu, link.up);
        if let (LinkKind::Macvlan { .. }, Some(parent)) = (&link.kind, parent) {
            fact.mtus = *fact.mtus.start()..=parent.mtu;
        }
        match &link.kind {
            LinkKind::Veth { peer, peer_mac } => {
                self.links.insert(peer.clone(), LinkFact::planned("veth", *peer_mac, fact.mtu, false));
            }
            LinkKind::Bridge { vlan_filtering } => fact.vlan_filtering = *vlan_filtering,
            LinkKind::Macvlan { mode, .. } => fact.mode = Some(mode.name()),
            LinkKind::Ipvlan { mode, .. } => fact.mode = Some(mode.name()),
            LinkKind::Ifb | LinkKind::Other(_) => {}
        }
        self.links.insert(link.at.clone(), fact);
    }
}

impl LinkFact {
    /// A link that does not exist yet.
    pub fn planned(kind: &str, mac: Option<Mac>, mtu: u32, up: bool) -> Self {
        Self {
            index: 0,
            kind: kind.to_owned(),
            mode: None,
            mac,
            mtu,
            mtus: ETHERNET_MTUS,
            has_ipv6: None,
            up,
            oper_up: up,
            running: up,
            promisc: false,
            all_multi: false,
            tx_queue_len: 1000,
            gso_max_size: 65_536,
            master: None,
            parent: None,
            parent_netns: None,
            vlan_filtering: false,
            stp: false,
            bridge_id: None,
            default_pvid: 1,
            hairpin: false,
            isolated: false,
            alias: String::new(),
        }
    }

    /// Whether the attribute has the value.
    pub fn has(&self, attr: &LinkAttr) -> bool {
        match attr {
            LinkAttr::Up(up) => self.up == *up,
            LinkAttr::Mac(mac) => self.mac == Some(*mac),
            LinkAttr::Mtu(mtu) => self.mtu == *mtu,
            LinkAttr::Promisc(on) => self.promisc == *on,
            LinkAttr::AllMulti(on) => self.all_multi == *on,
            LinkAttr::TxQueueLen(len) => self.tx_queue_len == *len,
            LinkAttr::Hairpin(on) => self.hairpin == *on,
            LinkAttr::Isolated(on) => self.isolated == *on,
            // Not judged: who changes it later knows why.
            LinkAttr::GsoMaxSize(_) | LinkAttr::ArpNotify(_) | LinkAttr::Alias(_) | LinkAttr::Announce(_) => true,
        }
    }

    fn set(&mut self, attr: &LinkAttr) {
        match attr {
            LinkAttr::Up(up) => self.up = *up,
            LinkAttr::Mac(mac) => self.mac = Some(*mac),
            LinkAttr::Mtu(mtu) => self.mtu = *mtu,
            LinkAttr::Promisc(on) => self.promisc = *on,
            LinkAttr::AllMulti(on) => self.all_multi = *on,
            LinkAttr::TxQueueLen(len) => self.tx_queue_len = *len,
            LinkAttr::Hairpin(on) => self.hairpin = *on,
            LinkAttr::Isolated(on) => self.isolated = *on,
            LinkAttr::Alias(text) => self.alias.clone_from(text),
            LinkAttr::GsoMaxSize(size) => self.gso_max_size = *size,
            LinkAttr::ArpNotify(_) | LinkAttr::Announce(_) => {}
        }
    }
}
