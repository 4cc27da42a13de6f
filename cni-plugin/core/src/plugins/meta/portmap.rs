//! `portmap`: host ports forwarded to container ports.

mod adjust;
mod conditions;
mod conf;

pub use conf::Portmap;

use crate::cni::{AddResult, Error, Interface, Owner};
use crate::ipam::Lease;
use crate::name::{Mac, Ns};
use crate::plan::step::{Legacy, OwnedKind, Step};
use crate::plan::thing::host_ports::{
    Backend, EbpfCounts, EbpfPath, HostEndpoint, HostPort, MOST_BY_EBPF, Rewrite, Target,
};
use crate::plan::thing::{Attr, HostPorts, LinkAttr, LinkRef, Sysctl};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{host_end, host_links};
use crate::plugins::{Adjustment, Call, Planned, Plugin};
use conf::RequestedBackend;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Number of requested host ports. From this number on, the plugin counts the used entries of the
/// eBPF maps in advance. With fewer host ports, the kernel's error for a full map suffices.
const MANY: usize = 64;
/// Kernel features that the eBPF backend needs.
const BY_EBPF: &[Feature] = &[Feature::Clsact, Feature::ClsBpf, Feature::Bpf];
/// Kernel features that eBPF needs to redirect this host's own connections to ports at `[::1]`.
const AT_LOOPBACK: &[Feature] = &[Feature::CgroupBpf];

impl Portmap {
    /// Returns the host ports for the container's first address of each family.
    fn ports(&self, call: &Call<'_>) -> Vec<HostPort> {
        let Some(prev) = call.prev else {
            return Vec::new();
        };
        let (mut ports, mut seen) = (Vec::new(), BTreeSet::new());
        for ip in first_of_each_family(prev, call) {
            let addr = ip.addr();
            let any_addr = match addr {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let conditional = !self.conditions.of(addr.is_ipv4()).is_empty();
            for mapping in &self.mappings {
                let host = mapping.host_ip.unwrap_or(any_addr);
                // As in the reference plugin, a host address of the other family is ignored here.
                if host.is_ipv4() != addr.is_ipv4() {
                    continue;
                }
                let at = HostEndpoint {
                    addr: host,
                    protocol: mapping.protocol,
                    port: mapping.host_port,
                    conditional,
                };
                let port = HostPort {
                    at,
                    to: SocketAddr::new(addr, mapping.container_port),
                };
                if seen.insert((port.at, port.to)) {
                    ports.push(port);
                }
            }
        }
        ports
    }

    /// Returns the backend that redirects clients to the container. The backend is eBPF if the
    /// configuration requests eBPF, the kernel has the features for it, and the container has a
    /// veth or a netkit with a hardware address. eBPF supports neither `masqAll` nor conditions. In
    /// all other cases the backend is nf_tables.
    fn backend(&self, call: &Call<'_>, prev: &AddResult, facts: &Facts) -> Backend {
        if self.asked != RequestedBackend::Ebpf
            || self.masq_all
            || !self.conditions.is_empty()
            || lacking(facts).is_some()
        {
            return Backend::Nftables;
        }
        let own = prev
            .interfaces
            .iter()
            .find(|interface| is_own(interface, call));
        let mac = own.and_then(|own| Mac::parse(&own.mac));
        let (Some(mac), Some(link)) = (mac, host_end(prev, facts)) else {
            return Backend::Nftables;
        };
        let is_isolated = facts.link(&link).is_some_and(|fact| fact.isolated);
        Backend::Ebpf(EbpfPath {
            neighbours: !is_isolated,
            link,
            bridge: bridge(prev, facts),
            mac,
            nets: first_of_each_family(prev, call),
            hairpin: self.snat,
        })
    }

    /// Returns the host ports to add, with their backend, source rewrites and conditions.
    fn host_ports(
        &self,
        call: &Call<'_>,
        prev: &AddResult,
        facts: &Facts,
        ports: Vec<HostPort>,
    ) -> HostPorts {
        HostPorts {
            targets: self.targets(call, prev, facts, &ports),
            owner: call.owner.short(),
            container_id: call.owner.container_id.clone(),
            backend: self.backend(call, prev, facts),
            loopback: is_at_loopback(&ports)
                && AT_LOOPBACK.iter().all(|feature| facts.has(*feature)),
            conditions: self.conditions.clone(),
            ports,
        }
    }

    /// Returns a warning if nf_tables replaces the requested backend for a reason other than
    /// `masqAll`; otherwise `None`. `backend` is the backend that the plan uses.
    fn warning(&self, call: &Call<'_>, backend: &Backend, facts: &Facts) -> Option<String> {
        let (asked, why) = match backend {
            Backend::Nftables if self.asked == RequestedBackend::Iptables => {
                ("iptables", "braid does not use iptables".to_owned())
            }
            Backend::Nftables if self.asked == RequestedBackend::Ebpf && !self.masq_all => {
                match lacking(facts) {
                    _ if !self.conditions.is_empty() => {
                        ("ebpf", "eBPF supports no conditions".to_owned())
                    }
                    Some(lacking) => ("ebpf", lacking),
                    None => (
                        "ebpf",
                        "eBPF redirects only to a veth or a netkit of mode l2".to_owned(),
                    ),
                }
            }
            Backend::Nftables | Backend::Ebpf(_) => return None,
        };
        Some(format!(
            "\"backend\": {asked:?}: {why}, so nf_tables forwards to container {}",
            call.owner.container_id
        ))
    }

    fn targets(
        &self,
        call: &Call<'_>,
        prev: &AddResult,
        facts: &Facts,
        ports: &[HostPort],
    ) -> Vec<Target> {
        if !self.snat {
            return Vec::new();
        }
        let is_bridged = bridge(prev, facts).is_some();
        let mut targets = Vec::new();
        for ip in first_of_each_family(prev, call) {
            let addr = ip.addr();
            if !ports.iter().any(|port| port.to.ip() == addr) {
                continue;
            }
            // If the host's NAT sees bridged packets, replies to a neighbour pass the NAT without a
            // rewrite.
            let rewrite = if self.masq_all {
                Rewrite::All
            } else if is_bridged && !facts.sysctl_is(Ns::Host, bridge_nf(ip), "1") {
                Rewrite::Subnet(ip.trunc())
            } else {
                Rewrite::Own
            };
            targets.push(Target { addr, rewrite });
        }
        targets
    }

    /// Refuses ports that this container cannot have. `own` are those that the attachment has now.
    fn refuse_beside(&self, call: &Call<'_>, facts: &Facts, own: EbpfCounts) -> Result<(), Error> {
        if let Some(error) = &self.refusal
            && !self.mappings.is_empty()
        {
            return Err(error.clone());
        }
        let ports = self.ports(call);
        let mut seen = BTreeSet::new();
        if let Some(port) = ports.iter().find(|port| !seen.insert(port.at)) {
            return Err(Error::config(format!(
                "\"portMappings\": host port {} is mapped to two ports",
                port.at
            )));
        }
        if let Some(prev) = call.prev
            && !ports.is_empty()
        {
            let others = EbpfCounts {
                ports: facts.ebpf_counts.ports.saturating_sub(own.ports),
                at_loopback: facts
                    .ebpf_counts
                    .at_loopback
                    .saturating_sub(own.at_loopback),
            };
            refuse_crowd(&self.host_ports(call, prev, facts, ports.clone()), others)?;
        }
        let owner = call.owner.short();
        for HostPort { at, .. } in &ports {
            let Some(present) = facts.host_ports.get(at) else {
                continue;
            };
            if let Some(refusal) = present.refusal(at, &call.owner.container_id, &owner) {
                return Err(Error::internal(refusal));
            }
        }
        Ok(())
    }
}

/// Returns the reason why eBPF can't redirect clients on this kernel; `None` if it can.
fn lacking(facts: &Facts) -> Option<String> {
    let mut lacking = Vec::new();
    for feature in BY_EBPF {
        if !facts.has(*feature) {
            lacking.push(feature.name());
        }
    }
    (!lacking.is_empty()).then(|| format!("the kernel lacks {}", lacking.join(", ")))
}

/// Returns the number of ports in the eBPF maps.
fn counts(all: &HostPorts) -> EbpfCounts {
    EbpfCounts {
        ports: all.by_ebpf().count(),
        at_loopback: all.at_loopback().count(),
    }
}

/// Refuses more ports than the eBPF maps can hold, before anything is changed. `there` are the ports
/// of other attachments.
fn refuse_crowd(all: &HostPorts, there: EbpfCounts) -> Result<(), Error> {
    let wanted = counts(all);
    for (wanted, there, from) in [
        (wanted.ports, there.ports, ""),
        (wanted.at_loopback, there.at_loopback, " from [::1]"),
    ] {
        let most = format!("eBPF redirects at most {MOST_BY_EBPF} host ports{from} per node");
        if wanted > MOST_BY_EBPF {
            return Err(Error::config(format!(
                "{most}, and container {} requests {wanted}",
                all.container_id
            )));
        }
        if wanted > 0 && wanted + there > MOST_BY_EBPF {
            let more = format!(
                "{there} are in use, and container {} requests {wanted} more",
                all.container_id
            );
            return Err(Error::internal(format!("{most}, {more}")));
        }
    }
    Ok(())
}

/// True if a port includes `[::1]` and eBPF can redirect this host's own connections to it.
fn is_at_loopback(ports: &[HostPort]) -> bool {
    ports.iter().any(|port| port.at.is_at_loopback())
}

/// Returns the first IPv4 and the first IPv6 address of the container's interface.
fn first_of_each_family(prev: &AddResult, call: &Call<'_>) -> Vec<IpNet> {
    let (mut v4, mut v6) = (None, None);
    for ip in &prev.ips {
        let interface = ip.interface.and_then(|index| prev.interfaces.get(index));
        if interface.is_some_and(|interface| !is_own(interface, call)) {
            continue;
        }
        match ip.address {
            IpNet::V4(_) => v4.get_or_insert(ip.address),
            IpNet::V6(_) => v6.get_or_insert(ip.address),
        };
    }
    [v4, v6].into_iter().flatten().collect()
}

/// True if `interface` is the container's interface of this call.
fn is_own(interface: &Interface, call: &Call<'_>) -> bool {
    interface.name == call.ifname.as_str() && !interface.sandbox.is_empty()
}

fn bridge(prev: &AddResult, facts: &Facts) -> Option<LinkRef> {
    host_links(prev).find(|at| facts.link(at).is_some_and(|fact| fact.kind == "bridge"))
}

/// Returns the sysctl that passes bridged packets through the host's NAT.
fn bridge_nf(ip: IpNet) -> &'static str {
    if ip.addr().is_ipv4() {
        "net/bridge/bridge-nf-call-iptables"
    } else {
        "net/bridge/bridge-nf-call-ip6tables"
    }
}

/// Returns the step that lets this host's packets from `127.0.0.1` leave through the link to the
/// container.
fn route_localnet(prev: &AddResult, facts: &Facts) -> Option<Step> {
    let at =
        bridge(prev, facts).or_else(|| host_links(prev).find(|at| facts.link(at).is_some()))?;
    let key = format!("net/ipv4/conf/{}/route_localnet", at.name);
    Some(Step::ensure(Sysctl {
        ns: Ns::Host,
        key,
        value: "1".to_owned(),
        optional: false,
    }))
}

/// Returns the step that enables hairpin on the container's bridge port, if the host's NAT sees
/// bridged packets. With such a NAT, a container's packet to its own host port never leaves the
/// bridge. The bridge must return the packet through the port that it came from.
fn hairpin(prev: &AddResult, facts: &Facts, targets: &[Target]) -> Option<Step> {
    bridge(prev, facts)?;
    let is_carried =
        |target: &&Target| facts.sysctl_is(Ns::Host, bridge_nf(target.addr.into()), "1");
    targets.iter().find(is_carried)?;
    let at = host_end(prev, facts)?;
    Some(Step::ensure(Attr {
        at,
        to: LinkAttr::Hairpin(true),
    }))
}

impl Plugin for Portmap {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let ports = self.ports(call);
        let (Some(prev), false) = (call.prev, ports.is_empty()) else {
            return Vec::new();
        };
        let mut needs: Vec<Need> = ports.iter().map(|port| Need::HostPort(port.at)).collect();
        needs.extend(host_links(prev).map(Need::Link));
        if self.asked == RequestedBackend::Ebpf && !self.masq_all {
            needs.push(Need::Features(BY_EBPF));
        }
        if is_at_loopback(&ports) {
            needs.push(Need::Features(AT_LOOPBACK));
        }
        if ports.len() >= MANY {
            needs.push(Need::EbpfCounts);
        }
        if self.snat {
            for ip in first_of_each_family(prev, call) {
                needs.push(Need::Sysctl(Ns::Host, bridge_nf(ip).to_owned()));
            }
        }
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.refuse_beside(call, facts, EbpfCounts::default())
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let result = match call.prev {
            Some(prev) => prev.clone(),
            None if self.mappings.is_empty() => AddResult::default(),
            None => return Err(Error::config("must be called as chained plugin")),
        };
        let ports = self.ports(call);
        if ports.is_empty() {
            return Ok(Planned {
                result,
                ..Planned::default()
            });
        }
        let all = self.host_ports(call, &result, facts, ports);
        let mut steps: Vec<Step> = hairpin(&result, facts, &all.targets).into_iter().collect();
        let has_loopback = all.targets.iter().any(|target| target.addr.is_ipv4());
        let warnings = self
            .warning(call, &all.backend, facts)
            .into_iter()
            .collect();
        steps.push(Step::add(all));
        // Follows the ports, because their table drops packets from outside to 127.0.0.0/8.
        if has_loopback {
            steps.extend(route_localnet(&result, facts));
        }
        Ok(Planned {
            steps,
            result,
            warnings,
        })
    }

    fn adjusts(&self, _present: &[Step]) -> bool {
        true
    }

    fn adjust(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        present: &[Step],
    ) -> Result<Adjustment, Error> {
        let own = adjust::ports(present).map(counts).unwrap_or_default();
        self.refuse_beside(call, facts, own)?;
        Ok(adjust::adjusted(self.plan(call, facts, None)?, present))
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        let Owner {
            network,
            container_id,
            ..
        } = call.owner.clone();
        vec![
            Step::Forget(OwnedKind::HostPorts, call.owner.short()),
            Step::Legacy(Legacy::HostPorts {
                network,
                container_id,
            }),
        ]
    }

    fn is_reconstructible(&self) -> bool {
        false
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::NfTables, Feature::HostPorts]
    }

    fn status_needs(&self) -> Vec<Need> {
        if self.asked == RequestedBackend::Ebpf {
            vec![Need::Features(BY_EBPF)]
        } else {
            Vec::new()
        }
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        let why = if self.asked == RequestedBackend::Ebpf {
            lacking(facts)
        } else {
            None
        };
        Ok(why.map(|why| format!("portmap uses nf_tables: {why}")))
    }
}

#[cfg(test)]
mod tests;
