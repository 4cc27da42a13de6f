//! Host ports forwarded to container ports.

pub use crate::plan::fact::host_port::{EbpfCounts, Holder, HostEndpoint, HostPortFact, Protocol};
mod print;

use super::condition::Conditions;
use super::state::{State, Verb, lines};
use crate::name::{Mac, Ns};
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A host port, and the container port that it is forwarded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// Address, protocol and port on the host.
    pub at: HostEndpoint,
    /// Address and port in the container, of the same family as `at`.
    pub to: SocketAddr,
}

/// Clients that get a rewritten source address (SNAT) on the way to the container, so that replies
/// return through the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rewrite {
    /// Every client.
    All,
    /// The container itself and this host's `127.0.0.0/8`.
    Own,
    /// Clients in the container's subnet and this host's `127.0.0.0/8`. Replies within a subnet
    /// cross only the bridge, which applies no NAT.
    Subnet(IpNet),
}

impl Rewrite {
    /// Returns the name of the nf_tables chain that rewrites the sources. Colons become `_`,
    /// because `nft` accepts none in a name.
    pub fn chain(self) -> String {
        match self {
            Self::All => "hostport-all".to_owned(),
            Self::Own => "hostport-own".to_owned(),
            Self::Subnet(net) => format!("hostport-of-{}", net.trunc()).replace(':', "_"),
        }
    }
}

/// A container address, and the clients that get a rewritten source address on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Address of the container.
    pub addr: IpAddr,
    /// Clients that get a rewritten source address.
    pub rewrite: Rewrite,
}

/// The mechanism that redirects clients to the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// nf_tables alone.
    #[default]
    Nftables,
    /// eBPF redirects packets that a link of the host receives. nf_tables redirects the host's own
    /// packets, and packets that the eBPF programs pass on.
    Ebpf(EbpfPath),
}

/// The path by which eBPF reaches the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EbpfPath {
    /// The host's end of the container's link.
    pub link: LinkRef,
    /// The bridge that has `link` as a port, if any.
    pub bridge: Option<LinkRef>,
    /// The container's hardware address.
    pub mac: Mac,
    /// The container's addresses with their prefixes.
    pub nets: Vec<IpNet>,
    /// True if the container can connect to its own host ports.
    pub hairpin: bool,
    /// True if the container and its neighbours on the bridge can connect to each other's host
    /// ports.
    pub neighbours: bool,
}

impl EbpfPath {
    /// Returns the host links that run the eBPF programs for this container.
    pub fn links(&self) -> impl Iterator<Item = &LinkRef> {
        [Some(&self.link), self.bridge.as_ref()]
            .into_iter()
            .flatten()
    }
}

/// The host ports of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// Host ports with their targets; at least one.
    pub ports: Vec<HostPort>,
    /// Addresses of the container with the clients to rewrite; empty if no source is rewritten.
    pub targets: Vec<Target>,
    /// Owner: network, container id and interface.
    pub owner: String,
    /// `CNI_CONTAINERID`. Other attachments of the same container may have the same ports.
    #[serde(default)]
    pub container_id: String,
    /// The backend that redirects to the container.
    #[serde(default)]
    pub backend: Backend,
    /// True if eBPF redirects sockets of this host that connect to `[::1]`. The kernel can't route
    /// packets from that address to a container.
    #[serde(default)]
    pub loopback: bool,
    /// Conditions that a packet must meet to be redirected.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

impl HostPorts {
    /// Returns the eBPF path to the container; `None` if nf_tables alone redirects.
    pub fn way(&self) -> Option<&EbpfPath> {
        match &self.backend {
            Backend::Nftables => None,
            Backend::Ebpf(way) => Some(way),
        }
    }

    /// Returns the ports that eBPF redirects.
    pub fn by_ebpf(&self) -> impl Iterator<Item = &HostPort> {
        let leads = |port: &&HostPort| self.way().is_some() && port.at.protocol != Protocol::Sctp;
        self.ports.iter().filter(leads)
    }

    /// Returns the ports that eBPF redirects for connections to `[::1]`.
    pub fn at_loopback(&self) -> impl Iterator<Item = &HostPort> {
        self.ports
            .iter()
            .filter(|port| self.loopback && port.at.is_at_loopback())
    }

    /// Returns a copy without the ports that another attachment of the same container has.
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

    /// Checks that connections to the ports at `[::1]` are redirected; the error names the
    /// difference.
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
        Err(
            "a program that redirects host ports from [::1] is not attached to the root of cgroup2"
                .to_owned(),
        )
    }

    /// Checks that eBPF redirects the ports; the error names the difference.
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

    /// Checks that `facts` have all ports, with this owner and these targets; the error names the
    /// difference.
    fn lead(&self, facts: &BTreeMap<HostEndpoint, HostPortFact>) -> Result<(), String> {
        for HostPort { at, to } in &self.ports {
            match facts.get(at) {
                None => return Err(format!("host port {at} is not forwarded")),
                Some(fact) if !fact.is_of(&self.owner) => {
                    return Err(format!("host port {at} belongs to {}", fact.owner));
                }
                Some(fact) if fact.to != Some(*to) => {
                    let found = fact
                        .to
                        .map_or_else(|| "elsewhere".to_owned(), |to| format!("to {to}"));
                    return Err(format!("host port {at} is forwarded {found}, not to {to}"));
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

/// Maximum number of host ports of a node that eBPF redirects. The ports redirected from `[::1]`
/// have a separate limit of the same size.
pub const MOST_BY_EBPF: usize = 16_384;

/// Maximum length in bytes of the owner stored with an element, equal to the longest comment that
/// `nft` accepts.
pub const OWNER_LEN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_parsed_in_any_case() {
        assert_eq!(
            ["tcp", "UDP", "Sctp"].map(Protocol::parse),
            [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(Some)
        );
        assert_eq!(["", "icmp", "tcp "].map(Protocol::parse), [None; 3]);
    }

    #[test]
    fn loopback_matches_its_own_address_and_the_unspecified_one() {
        let is_loopback = |addr: &str, protocol| {
            HostEndpoint {
                addr: addr.parse().expect("an address"),
                protocol,
                port: 80,
                conditional: false,
            }
            .is_at_loopback()
        };
        assert!(is_loopback("::", Protocol::Tcp) && is_loopback("::1", Protocol::Udp));
        assert!(!is_loopback("::", Protocol::Sctp) && !is_loopback("fd00::1", Protocol::Tcp));
        assert!(!is_loopback("0.0.0.0", Protocol::Tcp) && !is_loopback("127.0.0.1", Protocol::Tcp));
    }

    #[test]
    fn each_subnet_has_a_separate_chain() {
        let net = |text: &str| Rewrite::Subnet(text.parse().expect("a net")).chain();
        assert_eq!(net("10.1.0.5/24"), "hostport-of-10.1.0.0/24");
        assert_eq!(net("fd00::5/64"), "hostport-of-fd00__/64");
    }

    #[test]
    fn an_endpoint_prints_address_port_and_protocol() {
        let endpoint = |addr: &str| HostEndpoint {
            addr: addr.parse().expect("an address"),
            protocol: Protocol::Tcp,
            port: 80,
            conditional: false,
        };
        assert_eq!(endpoint("0.0.0.0").to_string(), "0.0.0.0:80/tcp");
        assert_eq!(endpoint("fd00::1").to_string(), "[fd00::1]:80/tcp");
    }
}
