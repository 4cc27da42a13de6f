//! `portmap`: host ports forwarded to container ports.

mod conditions;

use crate::cni::{AddResult, Error, Interface, Json, NetConf, Owner};
use crate::ipam::Lease;
use crate::name::{Mac, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Legacy, OwnedKind, Step};
use crate::plan::thing::condition::Conditions;
use crate::plan::thing::host_ports::{
    Backend, EbpfCounts, EbpfPath, HostEndpoint, HostPort, MOST_BY_EBPF, Protocol, Rewrite, Target,
};
use crate::plan::thing::{Attr, HostPorts, LinkAttr, LinkRef, Sysctl};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::host_links;
use crate::plugins::{Call, Planned, Plugin};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Highest bit of a packet mark.
const LAST_MARK_BIT: i64 = 31;
/// Number of ports from which the ports in eBPF maps are counted in advance. With fewer, a full map
/// reports itself.
const MANY: usize = 64;
/// Kernel features that eBPF needs to redirect clients.
const BY_EBPF: &[Feature] = &[Feature::Clsact, Feature::ClsBpf, Feature::Bpf];
/// Kernel features that eBPF needs to redirect this host's own clients from `[::1]`.
const AT_LOOPBACK: &[Feature] = &[Feature::CgroupBpf];

/// A `portmap` configuration.
#[derive(Debug)]
pub struct Portmap {
    mappings: Vec<Mapping>,
    /// Rewrites a source if replies would otherwise bypass the host.
    snat: bool,
    /// Rewrites all sources.
    masq_all: bool,
    /// The requested backend.
    asked: RequestedBackend,
    /// Conditions for packets to be redirected.
    conditions: Conditions,
    /// The reason to refuse an ADD with ports. A DEL is not refused: the reference plugin may have
    /// created the attachment.
    refusal: Option<Error>,
}

/// The backend named by `backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedBackend {
    Nftables,
    /// iptables, which braid does not use: nf_tables replaces it.
    Iptables,
    /// eBPF if possible, otherwise nf_tables.
    Ebpf,
}

/// An entry of `portMappings`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    host_port: u16,
    container_port: u16,
    protocol: Protocol,
    host_ip: Option<IpAddr>,
}

impl Portmap {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let runtime = json.object("runtimeConfig")?;
        let mappings = match runtime {
            Some(runtime) => runtime
                .each_object("portMappings", Mapping::parse)
                .map_err(|e| e.at_key("runtimeConfig"))?,
            None => Vec::new(),
        };
        let (snat, masq_all) = (json.bool_or("snat", true)?, json.bool_or("masqAll", false)?);
        let asked = match json.str_or("backend", "")? {
            "iptables" => RequestedBackend::Iptables,
            "ebpf" => RequestedBackend::Ebpf,
            _ => RequestedBackend::Nftables,
        };
        let conditions = refuse_backend(json).and_then(|()| conditions_of(json));
        let refusal = conditions.as_ref().err().cloned();
        Ok(Self {
            mappings,
            snat,
            masq_all,
            asked,
            conditions: conditions.unwrap_or_default(),
            refusal,
        })
    }

    /// Returns the host ports for the container's first address of each family.
    fn ports(&self, call: &Call<'_>) -> Vec<HostPort> {
        let (mut ports, mut seen) = (Vec::new(), BTreeSet::new());
        for ip in call
            .prev
            .map(|prev| first_of_each_family(prev, call))
            .unwrap_or_default()
        {
            let addr = ip.addr();
            let any_addr = || {
                if addr.is_ipv4() {
                    Ipv4Addr::UNSPECIFIED.into()
                } else {
                    Ipv6Addr::UNSPECIFIED.into()
                }
            };
            for mapping in &self.mappings {
                // As in the reference plugin, a host address of the other family is ignored here.
                let Some(host) = Some(mapping.host_ip.unwrap_or_else(any_addr))
                    .filter(|host| host.is_ipv4() == addr.is_ipv4())
                else {
                    continue;
                };
                let conditional = !self.conditions.of(addr.is_ipv4()).is_empty();
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

    /// Returns the backend that redirects clients to the container. eBPF rewrites only sources
    /// whose replies would bypass the host, and tests no conditions. It redirects only to a veth,
    /// or to a netkit with a hardware address.
    fn backend(&self, call: &Call<'_>, prev: &AddResult, facts: &Facts) -> Backend {
        if self.asked != RequestedBackend::Ebpf
            || self.masq_all
            || !self.conditions.is_empty()
            || lacking(facts).is_some()
        {
            return Backend::Nftables;
        }
        let is_own = |interface: &&Interface| {
            interface.name == call.ifname.as_str() && !interface.sandbox.is_empty()
        };
        let mac = prev
            .interfaces
            .iter()
            .find(is_own)
            .and_then(|own| Mac::parse(&own.mac));
        let end = host_links(prev).find_map(|at| {
            facts
                .link(&at)
                .filter(|fact| fact.is_end())
                .map(|f| (at, f))
        });
        let (Some(mac), Some((link, fact))) = (mac, end) else {
            return Backend::Nftables;
        };
        Backend::Ebpf(EbpfPath {
            neighbours: !fact.isolated,
            link,
            bridge: bridge(prev, facts),
            mac,
            nets: first_of_each_family(prev, call),
            hairpin: self.snat,
        })
    }

    /// Returns the thing to add, with everything that its step needs.
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

    /// Returns the warning that a different backend is used than `backend` requests; `None`
    /// otherwise.
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
        let mut ips = first_of_each_family(prev, call);
        ips.retain(|ip| ports.iter().any(|port| port.to.ip() == ip.addr()));
        let target = |ip: IpNet| {
            // If the host's NAT sees bridged packets, a neighbour's reply passes it without a
            // rewrite.
            let rewrite = match self.masq_all {
                true => Rewrite::All,
                false if is_bridged && !facts.sysctl_is(Ns::Host, bridge_nf(ip), "1") => {
                    Rewrite::Subnet(ip.trunc())
                }
                false => Rewrite::Own,
            };
            Target {
                addr: ip.addr(),
                rewrite,
            }
        };
        ips.into_iter().map(target).collect()
    }
}

/// Refuses an unknown `backend`, and bad values of keys that only one backend uses.
fn refuse_backend(json: &Json) -> Result<(), Error> {
    match json.str_or("backend", "")? {
        "" | "auto" | "nftables" | "ebpf" | "iptables" => {}
        backend => return Err(Error::config(format!("unrecognized backend {backend:?}"))),
    }
    // braid marks no packet, so every valid bit and chain is accepted.
    let bit = json.i64("markMasqBit")?;
    if bit.is_some() && json.str("externalSetMarkChain")?.is_some() {
        return Err(Error::config(
            "Cannot specify externalSetMarkChain and markMasqBit",
        ));
    }
    if let Some(bit) = bit.filter(|bit| !(0..=LAST_MARK_BIT).contains(bit)) {
        return Err(Error::config(format!(
            "MasqMarkBit must be between 0 and 31: \"markMasqBit\" is {bit}"
        )));
    }
    Ok(())
}

fn conditions_of(json: &Json) -> Result<Conditions, Error> {
    let parsed = |key: &str, is_v4| {
        let words = json.strings(key)?;
        conditions::parse(&words, is_v4)
            .map_err(|why| Error::config(format!("{key:?}: {:?}: {why}", words.join(" "))))
    };
    Ok(Conditions {
        v4: parsed("conditionsV4", true)?,
        v6: parsed("conditionsV6", false)?,
    })
}

impl Mapping {
    fn parse(json: &Json) -> Result<Self, Error> {
        let port = |key: &str, name: &str| {
            let number = json.i64(key)?.unwrap_or(0);
            let port = u16::try_from(number).ok().filter(|port| *port > 0);
            port.ok_or_else(|| {
                Error::config(format!("Invalid {name} port number: {number}")).at_key(key)
            })
        };
        let protocol = json.str_or("protocol", "tcp")?;
        let host_ip = json.str("hostIP")?.filter(|text| !text.is_empty());
        let host_ip = host_ip.map(|text| {
            text.parse().map_err(|err| {
                Error::config(format!("\"hostIP\": bad address {text:?}: {err}")).at_key("hostIP")
            })
        });
        Ok(Self {
            container_port: port("containerPort", "container")?,
            host_port: port("hostPort", "host")?,
            protocol: Protocol::parse(protocol).ok_or_else(|| {
                Error::config(format!(
                    "\"protocol\": {protocol:?} is not \"tcp\", \"udp\" or \"sctp\""
                ))
                .at_key("protocol")
            })?,
            host_ip: host_ip.transpose()?,
        })
    }
}

/// Returns the reason why eBPF can't redirect clients on this kernel; `None` if it can.
fn lacking(facts: &Facts) -> Option<String> {
    let lacking: Vec<_> = BY_EBPF
        .iter()
        .filter(|feature| !facts.has(**feature))
        .map(|feature| feature.name())
        .collect();
    (!lacking.is_empty()).then(|| format!("the kernel lacks {}", lacking.join(", ")))
}

/// Refuses more ports than the eBPF maps hold, before anything is changed.
fn refuse_crowd(all: &HostPorts, there: EbpfCounts) -> Result<(), Error> {
    let wanted = EbpfCounts {
        ports: all.by_ebpf().count(),
        at_loopback: all.at_loopback().count(),
    };
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

/// True if one of the ports includes `[::1]`, whose sockets eBPF can redirect.
fn is_at_loopback(ports: &[HostPort]) -> bool {
    ports.iter().any(|port| port.at.is_at_loopback())
}

/// Returns the first IPv4 and the first IPv6 address of the container's interface.
fn first_of_each_family(prev: &AddResult, call: &Call<'_>) -> Vec<IpNet> {
    let is_own = |interface: Option<usize>| match interface.and_then(|at| prev.interfaces.get(at)) {
        None => true,
        Some(interface) => interface.name == call.ifname.as_str() && !interface.sandbox.is_empty(),
    };
    let own = || {
        prev.ips
            .iter()
            .filter(|ip| is_own(ip.interface))
            .map(|ip| ip.address)
    };
    let first = |is_v4: bool| own().find(|ip| ip.addr().is_ipv4() == is_v4);
    [true, false].into_iter().filter_map(first).collect()
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

/// Lets this host's packets from `127.0.0.1` leave through the link to the container.
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

/// Enables hairpin on the container's bridge port if the host's NAT sees bridged packets. A
/// container's packet to its own host port then never leaves the bridge.
fn hairpin(prev: &AddResult, facts: &Facts, targets: &[Target]) -> Option<Step> {
    bridge(prev, facts)?;
    let is_carried =
        |target: &&Target| facts.sysctl_is(Ns::Host, bridge_nf(target.addr.into()), "1");
    targets.iter().find(is_carried)?;
    let at = host_links(prev).find(|at| facts.link(at).is_some_and(LinkFact::is_end))?;
    Some(Step::ensure(Attr {
        at,
        to: LinkAttr::Hairpin(true),
    }))
}

impl Plugin for Portmap {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let ports = self.ports(call);
        let Some(prev) = call.prev.filter(|_| !ports.is_empty()) else {
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
            let ips = first_of_each_family(prev, call).into_iter();
            needs.extend(ips.map(|ip| Need::Sysctl(Ns::Host, bridge_nf(ip).to_owned())));
        }
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        if let Some(error) = self.refusal.as_ref().filter(|_| !self.mappings.is_empty()) {
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
        if let Some(prev) = call.prev.filter(|_| !ports.is_empty()) {
            refuse_crowd(
                &self.host_ports(call, prev, facts, ports.clone()),
                facts.ebpf_counts,
            )?;
        }
        let owner = call.owner.short();
        let refusal = ports.iter().find_map(|HostPort { at, .. }| {
            facts
                .host_ports
                .get(at)?
                .refusal(at, &call.owner.container_id, &owner)
        });
        refusal.map_or(Ok(()), |refusal| Err(Error::internal(refusal)))
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
        // After the ports, whose table drops packets from outside for 127.0.0.0/8.
        if has_loopback {
            steps.extend(route_localnet(&result, facts));
        }
        Ok(Planned {
            steps,
            result,
            warnings,
        })
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
mod tests {
    use super::*;
    use crate::cni::{Interface, IpConfig};
    use crate::name::IfName;
    use crate::plugins::call::tests::call;

    fn parse(keys: &str, mappings: &str) -> Result<Portmap, String> {
        let text = format!(
            r#"{{"cniVersion":"1.1.0","name":"net","type":"portmap",{keys}"runtimeConfig":{{"portMappings":{mappings}}}}}"#
        );
        Portmap::parse(&NetConf::parse(text.as_bytes()).expect("json")).map_err(|err| err.msg)
    }

    fn ports(mappings: &str, ips: &[&str]) -> Vec<String> {
        let eth0 = IfName::parse("eth0").expect("a name");
        let interface = Interface {
            name: "eth0".to_owned(),
            sandbox: "/run/netns/pod".to_owned(),
            ..Interface::default()
        };
        let ip = |text: &&str| IpConfig {
            address: text.parse().expect("a net"),
            gateway: None,
            interface: Some(0),
        };
        let prev = AddResult {
            interfaces: vec![interface],
            ips: ips.iter().map(ip).collect(),
            ..AddResult::default()
        };
        let mut call = call(&eth0);
        call.prev = Some(&prev);
        let ports = parse("", mappings).expect("parsed").ports(&call);
        ports
            .iter()
            .map(|port| format!("{} {}", port.at, port.to))
            .collect()
    }

    #[test]
    fn a_mapping_applies_to_the_families_of_container_and_host_address() {
        let both = ["10.1.0.5/24", "10.1.0.6/24", "fd00::5/64"];
        let all = r#"[{"hostPort":8080,"containerPort":80,"protocol":"TCP"}]"#;
        assert_eq!(
            ports(all, &both),
            ["0.0.0.0:8080/tcp 10.1.0.5:80", "[::]:8080/tcp [fd00::5]:80"]
        );
        assert_eq!(ports(all, &both[..1]), ["0.0.0.0:8080/tcp 10.1.0.5:80"]);
        let ports_at = |host: &str| {
            ports(
                &format!(
                    r#"[{{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"{host}"}}]"#
                ),
                &both,
            )
        };
        assert_eq!(ports_at("192.0.2.1"), ["192.0.2.1:53/udp 10.1.0.5:53"]);
        assert_eq!(ports_at("0.0.0.0"), ["0.0.0.0:53/udp 10.1.0.5:53"]);
        assert_eq!(ports_at("::"), ["[::]:53/udp [fd00::5]:53"]);
        assert_eq!(
            ports_at(""),
            ["0.0.0.0:53/udp 10.1.0.5:53", "[::]:53/udp [fd00::5]:53"]
        );
        let twice = format!("{},{}", &all[..all.len() - 1], &all[1..]);
        assert_eq!(ports(&twice, &both[..1]), ["0.0.0.0:8080/tcp 10.1.0.5:80"]);
    }

    #[test]
    fn a_refusal_names_the_key_and_the_value() {
        let refusal_of = |mapping: &str| {
            let said = parse("", &format!("[{mapping}]")).expect_err("refused");
            said.strip_prefix("portMappings[0]: ")
                .expect("which one")
                .to_owned()
        };
        assert_eq!(
            refusal_of(r#"{"hostPort":80}"#),
            "Invalid container port number: 0"
        );
        assert_eq!(
            refusal_of(r#"{"containerPort":80}"#),
            "Invalid host port number: 0"
        );
        assert_eq!(
            refusal_of(r#"{"containerPort":80,"hostPort":65536}"#),
            "Invalid host port number: 65536"
        );
        let full =
            |more: &str| refusal_of(&format!(r#"{{"containerPort":80,"hostPort":80,{more}}}"#));
        assert_eq!(
            full(r#""protocol":"icmp""#),
            r#""protocol": "icmp" is not "tcp", "udp" or "sctp""#
        );
        assert!(full(r#""hostIP":"1.2.3""#).starts_with(r#""hostIP": bad address "1.2.3""#));
        let key = |keys: &str| {
            parse(keys, "[]")
                .expect("DEL can go on")
                .refusal
                .expect("refused")
                .msg
        };
        assert_eq!(key(r#""backend":"x","#), r#"unrecognized backend "x""#);
        assert!(key(r#""markMasqBit":32,"#).contains("32"));
        let both = r#""externalSetMarkChain":"KUBE","markMasqBit":5,"#;
        assert_eq!(
            key(both),
            "Cannot specify externalSetMarkChain and markMasqBit"
        );
        let words = key(r#""conditionsV4":["-s","10.0.0.0/8","-j"],"#);
        assert!(
            words
                .starts_with(r#""conditionsV4": "-s 10.0.0.0/8 -j": unknown iptables option "-j""#),
            "{words}"
        );
        for fine in [
            r#""markMasqBit":5,"conditionsV6":[],"backend":"nftables","#,
            r#""externalSetMarkChain":"KUBE","conditionsV4":["-s","10.0.0.0/8"],"backend":"iptables","#,
        ] {
            assert_eq!(parse(fine, "[]").map(|portmap| portmap.refusal), Ok(None));
        }
    }
}
