//! Ports of the host that lead to a container's.

mod print;

use super::condition::Conditions;
use super::{LinkRef, State, Verb, lines};
use crate::name::{Mac, Ns};
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
}

impl Protocol {
    /// As configurations name it, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| text.eq_ignore_ascii_case(name);
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|protocol| of(protocol.name()))
    }

    /// As `nft` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Its number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// An address, protocol and port of the host that clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostEndpoint {
    /// Of the host; unspecified for all its addresses of this family.
    pub addr: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// Only who meets conditions is led. Another container may have the same without conditions,
    /// for all others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub conditional: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl HostEndpoint {
    /// True if `[::1]` is part of it and eBPF can redirect its sockets. eBPF never sees those of
    /// SCTP, and no program tests conditions.
    pub fn is_at_loopback(&self) -> bool {
        let of_host = |addr: Ipv6Addr| addr.is_loopback() || addr.is_unspecified();
        matches!(self.addr, IpAddr::V6(addr) if of_host(addr))
            && self.protocol != Protocol::Sctp
            && !self.conditional
    }
}

impl fmt::Display for HostEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            SocketAddr::new(self.addr, self.port),
            self.protocol.name()
        )
    }
}

/// One port of the host and where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// On the host.
    pub at: HostEndpoint,
    /// In the container, of the same family.
    pub to: SocketAddr,
}

/// The clients whose source address is rewritten on the way to the container, so that the answer
/// comes back the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rewrite {
    /// Everybody's.
    All,
    /// The container's own and this host's `127.0.0.0/8`.
    Own,
    /// That of all of the container's subnet, and this host's `127.0.0.0/8`: what a bridge carries
    /// back passes no NAT.
    Subnet(IpNet),
}

impl Rewrite {
    /// Name of the chain that does it. `nft` takes no colon in a name.
    pub fn chain(self) -> String {
        match self {
            Self::All => "hostport-all".to_owned(),
            Self::Own => "hostport-own".to_owned(),
            Self::Subnet(net) => format!("hostport-of-{}", net.trunc()).replace(':', "_"),
        }
    }
}

/// An address of the container for which sources are rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The address.
    pub addr: IpAddr,
    /// The clients whose sources are rewritten.
    pub rewrite: Rewrite,
}

/// The backend that redirects clients to the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// nf_tables alone.
    #[default]
    Nftables,
    /// eBPF, where packets come in to a link of the host; nf_tables for the host's own, and for
    /// what eBPF lets pass.
    Ebpf(EbpfPath),
}

/// The path by which eBPF reaches the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EbpfPath {
    /// The host's end of the container's link.
    pub link: LinkRef,
    /// The bridge that this end is a port of.
    pub bridge: Option<LinkRef>,
    /// The container's hardware address.
    pub mac: Mac,
    /// The container's addresses with their prefixes.
    pub nets: Vec<IpNet>,
    /// The container reaches itself.
    pub hairpin: bool,
    /// The container and its neighbours on the bridge reach each other.
    pub neighbours: bool,
}

impl EbpfPath {
    /// The links that run the programs for the sake of this container.
    pub fn links(&self) -> impl Iterator<Item = &LinkRef> {
        [Some(&self.link), self.bridge.as_ref()]
            .into_iter()
            .flatten()
    }
}

/// All ports of one attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// At least one.
    pub ports: Vec<HostPort>,
    /// One for each address of the container; none where no source is rewritten.
    pub targets: Vec<Target>,
    /// Network, container id and interface.
    pub owner: String,
    /// `CNI_CONTAINERID`: its other attachments may have the same ports.
    #[serde(default)]
    pub container_id: String,
    /// The backend that redirects there.
    #[serde(default)]
    pub backend: Backend,
    /// eBPF leads sockets of this host that ask for `[::1]`, from which the kernel routes nothing.
    #[serde(default)]
    pub loopback: bool,
    /// The conditions that a redirected packet meets.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

impl HostPorts {
    /// The path by which eBPF reaches the container; none where nf_tables alone redirects.
    pub fn way(&self) -> Option<&EbpfPath> {
        match &self.backend {
            Backend::Nftables => None,
            Backend::Ebpf(way) => Some(way),
        }
    }

    /// The ports that eBPF leads.
    pub fn by_ebpf(&self) -> impl Iterator<Item = &HostPort> {
        let leads = |port: &&HostPort| self.way().is_some() && port.at.protocol != Protocol::Sctp;
        self.ports.iter().filter(leads)
    }

    /// The ports that eBPF leads from `[::1]`.
    pub fn at_loopback(&self) -> impl Iterator<Item = &HostPort> {
        self.ports
            .iter()
            .filter(|port| self.loopback && port.at.is_at_loopback())
    }

    /// Those that no other attachment of the container has.
    #[must_use]
    pub fn own(&self, facts: &BTreeMap<HostEndpoint, HostPortFact>) -> Self {
        let is_siblings = |at| {
            facts
                .get(at)
                .is_some_and(|fact| fact.is_siblings(&self.container_id, &self.owner))
        };
        Self {
            ports: self
                .ports
                .iter()
                .filter(|port| !is_siblings(&port.at))
                .copied()
                .collect(),
            ..self.clone()
        }
    }

    /// Checks that the ports of `[::1]` redirect as they should; the error says what differs.
    fn lead_from_loopback(
        &self,
        facts: &BTreeMap<HostEndpoint, HostPortFact>,
        has_programs: bool,
    ) -> Result<(), String> {
        let at_loopback = Self {
            ports: self.at_loopback().copied().collect(),
            ..self.clone()
        };
        at_loopback
            .lead(facts)
            .map_err(|differs| format!("{differs} ([::1])"))?;
        if at_loopback.ports.is_empty() || has_programs {
            return Ok(());
        }
        Err("a program that leads host ports from [::1] is not at the root of cgroup2".to_owned())
    }

    /// Checks that eBPF redirects as it should; the error says what differs.
    fn lead_by_ebpf(
        &self,
        facts: &BTreeMap<HostEndpoint, HostPortFact>,
        hooked: &BTreeSet<LinkRef>,
    ) -> Result<(), String> {
        let by_ebpf = Self {
            ports: self.by_ebpf().copied().collect(),
            ..self.clone()
        };
        by_ebpf
            .lead(facts)
            .map_err(|differs| format!("{differs} (eBPF)"))?;
        let bare = self
            .way()
            .and_then(|way| way.links().find(|link| !hooked.contains(link)));
        bare.map_or(Ok(()), |link| {
            Err(format!(
                "link {link} does not run the programs for host ports"
            ))
        })
    }

    /// Checks that the kernel shows all of them; the error says what differs.
    fn lead(&self, facts: &BTreeMap<HostEndpoint, HostPortFact>) -> Result<(), String> {
        for HostPort { at, to } in &self.ports {
            match facts.get(at) {
                None => return Err(format!("host port {at} leads nowhere")),
                Some(fact) if !fact.is_of(&self.owner) => {
                    return Err(format!("host port {at} belongs to {}", fact.owner));
                }
                Some(fact) if fact.to != Some(*to) => {
                    let found = fact
                        .to
                        .map_or_else(|| "elsewhere".to_owned(), |to| format!("to {to}"));
                    return Err(format!("host port {at} leads {found}, not to {to}"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl State for HostPorts {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines(
            f,
            print::commands(self, verb)
                .into_iter()
                .map(|line| (Ns::Host, line)),
        )
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = self
            .ports
            .iter()
            .map(|port| Need::HostPort(port.at))
            .collect();
        needs.extend(self.by_ebpf().map(|port| Need::EbpfPort(port.at)));
        needs.extend(
            self.way()
                .into_iter()
                .flat_map(EbpfPath::links)
                .cloned()
                .map(Need::HostPortHook),
        );
        needs.extend(
            self.at_loopback()
                .flat_map(|port| [Need::LoopbackPort(port.at), Need::LoopbackPrograms]),
        );
        needs
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let own = self.own(&facts.host_ports);
        own.lead(&facts.host_ports)?;
        own.lead_by_ebpf(&facts.ebpf_ports, &facts.host_port_hooks)?;
        own.lead_from_loopback(&facts.loopback_ports, facts.has_loopback_programs)
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}

/// A port of the host, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPortFact {
    /// The address and port that it redirects to.
    pub to: Option<SocketAddr>,
    /// Network, container id and interface, as elements keep it.
    pub owner: String,
    /// The container behind the owner.
    pub holder: Holder,
}

/// The container behind an owner, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody any more: there is no record, or the container's namespace is gone.
    Nobody,
    /// The container of this id.
    Container(String),
    /// Nobody can tell.
    Somebody,
}

/// Most ports of a node that eBPF leads, and most that it leads from `[::1]`.
pub const MOST_BY_EBPF: usize = 16_384;

/// The number of a node's ports that eBPF redirects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EbpfCounts {
    /// Those redirected where packets come in.
    pub ports: usize,
    /// From `[::1]`.
    pub at_loopback: usize,
}

/// Longest text of an owner that an element keeps, which is the longest comment that `nft` accepts,
/// in bytes.
pub const OWNER_LEN: usize = 128;

impl HostPortFact {
    /// True if it belongs to this owner.
    pub fn is_of(&self, owner: &str) -> bool {
        self.owner == owner
    }

    /// True if it belongs to another attachment of the container.
    pub fn is_siblings(&self, container_id: &str, owner: &str) -> bool {
        !self.is_of(owner) && matches!(&self.holder, Holder::Container(id) if id == container_id)
    }

    /// The reason why this owner can't have the port: another container has it.
    pub fn refusal(&self, at: &HostEndpoint, container_id: &str, owner: &str) -> Option<String> {
        let is_free = self.holder == Holder::Nobody
            || self.is_of(owner)
            || self.is_siblings(container_id, owner);
        (!is_free).then(|| format!("host port {at} is taken by {:?}", self.owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_named_in_any_case() {
        assert_eq!(
            ["tcp", "UDP", "Sctp"].map(Protocol::parse),
            [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(Some)
        );
        assert_eq!(["", "icmp", "tcp "].map(Protocol::parse), [None; 3]);
    }

    #[test]
    fn the_loopback_address_is_part_of_itself_and_of_all() {
        let of = |addr: &str, protocol| {
            HostEndpoint {
                addr: addr.parse().expect("an address"),
                protocol,
                port: 80,
                conditional: false,
            }
            .is_at_loopback()
        };
        assert!(of("::", Protocol::Tcp) && of("::1", Protocol::Udp));
        assert!(!of("::", Protocol::Sctp) && !of("fd00::1", Protocol::Tcp));
        assert!(!of("0.0.0.0", Protocol::Tcp) && !of("127.0.0.1", Protocol::Tcp));
    }

    #[test]
    fn a_subnet_has_a_chain_of_its_own() {
        let net = |text: &str| Rewrite::Subnet(text.parse().expect("a net")).chain();
        assert_eq!(net("10.1.0.5/24"), "hostport-of-10.1.0.0/24");
        assert_eq!(net("fd00::5/64"), "hostport-of-fd00__/64");
    }

    #[test]
    fn an_entrance_is_shown_as_it_is_written() {
        let at = |addr: &str| HostEndpoint {
            addr: addr.parse().expect("an address"),
            protocol: Protocol::Tcp,
            port: 80,
            conditional: false,
        };
        assert_eq!(at("0.0.0.0").to_string(), "0.0.0.0:80/tcp");
        assert_eq!(at("fd00::1").to_string(), "[fd00::1]:80/tcp");
    }
}
