//! `firewall`: forwarding rules for the container, and isolation between bridges.

use crate::cni::{AddResult, Error, NetConf};
use crate::ipam::Lease;
use crate::name::IfName;
use crate::plan::step::{Legacy, OwnedKind, Step};
use crate::plan::thing::firewall::{Gate, Isolation, LegacyTable};
use crate::plan::thing::{Attr, Firewall as Rules, LinkAttr};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{host_end, host_links};
use crate::plugins::{Call, Planned, Plugin};
use std::net::IpAddr;

/// Files that list the tables of legacy iptables, which nf_tables does not show. The flag is true
/// for IPv4.
pub const LEGACY: [(&str, bool); 2] = [
    ("/proc/net/ip_tables_names", true),
    ("/proc/net/ip6_tables_names", false),
];

/// Names that `iptablesAdminChainName` can't have.
const RESERVED: [&str; 12] = [
    "INPUT",
    "FORWARD",
    "OUTPUT",
    "PREROUTING",
    "POSTROUTING",
    "CNI-FORWARD",
    "ACCEPT",
    "DROP",
    "RETURN",
    "QUEUE",
    "REJECT",
    "LOG",
];

/// A `firewall` configuration.
#[derive(Debug)]
pub struct Firewall {
    backend: Backend,
    admin_chain: String,
    zone: String,
    policy: Policy,
    /// The reason to refuse an ADD. A DEL is not refused: the reference plugin may have created the
    /// attachment.
    refusal: Option<Error>,
}

/// Firewall of the host that gets the container's forwarding rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    /// firewalld if it runs, otherwise chains.
    Found,
    Chains,
    Firewalld,
}

/// Policy for packets between containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Open,
    SameBridge,
    Isolated,
}

impl Firewall {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let named = |key, default: &str| -> Result<String, Error> {
            let text = json.str_or(key, default)?;
            Ok(if text.is_empty() { default } else { text }.to_owned())
        };
        let admin_chain = named("iptablesAdminChainName", "CNI-ADMIN")?;
        let policy = policy(&named("ingressPolicy", "open")?);
        // As in the reference plugin, any other word selects the backend automatically.
        let backend = match json.str_or("backend", "")? {
            "iptables" | "nftables" => Backend::Chains,
            "firewalld" => Backend::Firewalld,
            _ => Backend::Found,
        };
        let zone = named("firewalldZone", "trusted")?;
        let refusal = refuse_name(&admin_chain)
            .err()
            .or(policy.as_ref().err().cloned());
        Ok(Self {
            backend,
            admin_chain,
            zone,
            policy: policy.unwrap_or(Policy::Open),
            refusal,
        })
    }

    /// Returns the required rules; `None` if the container has no address.
    fn rules(&self, call: &Call<'_>, facts: &Facts) -> Result<Option<Rules>, Error> {
        let Some(prev) = call.prev else {
            return Ok(None);
        };
        let addrs = addrs(prev);
        if addrs.is_empty() {
            return Ok(None);
        }
        let isolation = match self.policy {
            Policy::Open => None,
            Policy::SameBridge => Some(Isolation {
                bridge: bridge(prev)?,
                within: false,
            }),
            Policy::Isolated => Some(Isolation {
                bridge: bridge(prev)?,
                within: true,
            }),
        };
        let gate = if facts.has_firewalld && self.backend != Backend::Chains {
            Gate::Firewalld {
                zone: self.zone.clone(),
            }
        } else {
            Gate::Chains {
                admin: self.admin_chain.clone(),
            }
        };
        let legacy = if matches!(gate, Gate::Chains { .. }) {
            legacy(&addrs, facts)
        } else {
            Vec::new()
        };
        Ok(Some(Rules {
            addrs,
            isolation,
            gate,
            legacy,
            owner: call.owner.short(),
        }))
    }
}

/// Returns the bridge of a result: its first interface, which must be on the host.
fn bridge(prev: &AddResult) -> Result<IfName, Error> {
    let name = match prev.interfaces.first() {
        Some(first) if first.sandbox.is_empty() => first.name.as_str(),
        _ => "",
    };
    IfName::parse(name).map_err(|err| {
        Error::config(format!(
            "\"ingressPolicy\" requires a bridge of the host as first interface of prevResult: {name:?}: {err}"
        ))
    })
}

/// Returns the legacy iptables tables that can drop packets, for the address families in `addrs`.
/// NAT tables drop nothing and are left out.
fn legacy(addrs: &[IpAddr], facts: &Facts) -> Vec<LegacyTable> {
    let mut dropping = Vec::new();
    for (path, is_ipv4) in LEGACY {
        if !addrs.iter().any(|addr| addr.is_ipv4() == is_ipv4) {
            continue;
        }
        let Some(tables) = facts.files.get(path) else {
            continue;
        };
        for name in tables.lines() {
            if ["filter", "mangle", "security"].contains(&name) {
                dropping.push(LegacyTable {
                    is_ipv4,
                    name: name.to_owned(),
                });
            }
        }
    }
    dropping
}

fn policy(text: &str) -> Result<Policy, Error> {
    match text {
        "open" => Ok(Policy::Open),
        "same-bridge" => Ok(Policy::SameBridge),
        "isolated" => Ok(Policy::Isolated),
        _ => Err(Error::config(format!("unknown ingress policy: {text:?}"))),
    }
}

fn refuse_name(admin_chain: &str) -> Result<(), Error> {
    /// Longest chain name that iptables accepts, in bytes.
    const CHAIN_LEN: usize = 28;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if admin_chain.len() > CHAIN_LEN
        || !admin_chain.chars().all(is_name)
        || !admin_chain.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        let sentence = format!(
            "is not a chain name: a letter, then up to {} letters, digits, '_', '-' or '.'",
            CHAIN_LEN - 1
        );
        return Err(Error::config(format!(
            "\"iptablesAdminChainName\": {admin_chain:?} {sentence}"
        )));
    }
    if RESERVED.contains(&admin_chain) {
        let sentence = "is reserved by iptables or this plugin";
        return Err(Error::config(format!(
            "\"iptablesAdminChainName\": {admin_chain:?} {sentence}"
        )));
    }
    Ok(())
}

fn addrs(prev: &AddResult) -> Vec<IpAddr> {
    let mut addrs: Vec<IpAddr> = prev.ips.iter().map(|ip| ip.address.addr()).collect();
    addrs.sort_unstable();
    addrs.dedup();
    addrs
}

impl Plugin for Firewall {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs: Vec<Need> = LEGACY.map(|(path, _)| Need::File(path.to_owned())).into();
        if self.backend != Backend::Chains {
            needs.push(Need::Firewalld);
        }
        if let (Policy::Isolated, Some(prev)) = (self.policy, call.prev) {
            needs.extend(host_links(prev).map(Need::Link));
        }
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        if let Some(error) = &self.refusal {
            return Err(error.clone());
        }
        if self.backend == Backend::Firewalld && !facts.has_firewalld {
            let sentence = "but firewalld does not run: its name has no owner on the system bus";
            return Err(Error::internal(format!(
                "\"backend\": \"firewalld\", {sentence}"
            )));
        }
        self.rules(call, facts).map(drop)
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let result = call
            .prev
            .cloned()
            .ok_or_else(|| Error::config("missing prevResult from earlier plugin"))?;
        let Some(rules) = self.rules(call, facts)? else {
            return Ok(Planned {
                result,
                ..Planned::default()
            });
        };
        let is_within = rules
            .isolation
            .as_ref()
            .is_some_and(|isolation| isolation.within);
        let mut steps = Vec::new();
        if is_within && let Some(port) = host_end(&result, facts) {
            steps.push(Step::ensure(Attr {
                at: port,
                to: LinkAttr::Isolated(true),
            }));
        }
        steps.push(Step::add(rules));
        Ok(Planned {
            steps,
            result,
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        let addrs = call.prev.map(addrs).unwrap_or_default();
        vec![
            Step::Forget(OwnedKind::Firewall, call.owner.short()),
            Step::Legacy(Legacy::Firewall {
                addrs,
                zone: self.zone.clone(),
            }),
        ]
    }

    fn is_reconstructible(&self) -> bool {
        false
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::NfTables, Feature::Forwarding]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Interface, IpConfig};
    use crate::plugins::call::tests::call;

    fn parse(keys: &str) -> Firewall {
        let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"firewall"{keys}}}"#);
        Firewall::parse(&NetConf::parse(text.as_bytes()).expect("json")).expect("parsed")
    }

    #[test]
    fn an_add_names_the_refused_key_and_a_del_still_parses() {
        let refused = |keys: &str| parse(keys).refusal.expect("refused").msg;
        assert_eq!(
            refused(r#","ingressPolicy":"x""#),
            r#"unknown ingress policy: "x""#
        );
        assert!(refused(r#","iptablesAdminChainName":"two words""#).contains(r#""two words""#));
        assert!(
            refused(r#","iptablesAdminChainName":"a-name-of-more-than-28-letters""#).contains("28")
        );
        for fine in [
            "",
            r#","backend":"iptables""#,
            r#","backend":"nftables","ingressPolicy":"open""#,
        ] {
            assert_eq!(parse(fine).refusal, None, "{fine}");
        }
    }

    #[test]
    fn a_running_firewalld_is_chosen_unless_a_backend_is_configured() {
        let eth0 = IfName::parse("eth0").expect("a name");
        let ip = IpConfig {
            address: "10.1.0.5/24".parse().expect("a net"),
            gateway: None,
            interface: None,
        };
        let prev = AddResult {
            ips: vec![ip],
            ..AddResult::default()
        };
        let mut call = call(&eth0);
        call.prev = Some(&prev);
        let gate = |keys: &str, has_firewalld| {
            let facts = Facts {
                has_firewalld,
                ..Facts::default()
            };
            let plugin = parse(keys);
            plugin.refuse(&call, &facts).map_err(|err| err.msg)?;
            Ok::<_, String>(
                plugin
                    .rules(&call, &facts)
                    .expect("rules")
                    .expect("addresses")
                    .gate,
            )
        };
        let (chains, firewalld) = (
            r#","backend":"iptables""#,
            r#","backend":"firewalld","firewalldZone":"work""#,
        );
        let admin = || Gate::Chains {
            admin: "CNI-ADMIN".to_owned(),
        };
        assert_eq!(
            gate("", true),
            Ok(Gate::Firewalld {
                zone: "trusted".to_owned()
            })
        );
        assert_eq!(
            (gate("", false), gate(chains, true)),
            (Ok(admin()), Ok(admin()))
        );
        assert_eq!(
            gate(firewalld, true),
            Ok(Gate::Firewalld {
                zone: "work".to_owned()
            })
        );
        assert!(
            gate(firewalld, false)
                .expect_err("refused")
                .contains("firewalld does not run")
        );
    }

    #[test]
    fn every_address_is_accepted_and_the_first_interface_is_the_bridge() {
        let eth0 = IfName::parse("eth0").expect("a name");
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            ..Interface::default()
        };
        let ip = |text: &str, at| IpConfig {
            address: text.parse().expect("a net"),
            gateway: None,
            interface: at,
        };
        let prev = AddResult {
            interfaces: vec![interface("br0"), interface("eth0")],
            ips: vec![
                ip("fd00::5/64", Some(1)),
                ip("10.1.0.5/24", None),
                ip("10.1.0.5/16", Some(0)),
            ],
            ..AddResult::default()
        };
        let mut call = call(&eth0);
        call.prev = Some(&prev);
        let rules = parse(r#","ingressPolicy":"isolated""#)
            .rules(&call, &Facts::default())
            .expect("rules")
            .expect("addresses");
        assert_eq!(
            rules.addrs,
            ["10.1.0.5", "fd00::5"].map(|addr| addr.parse::<IpAddr>().expect("an address"))
        );
        let bridge = IfName::parse("br0").expect("a name");
        assert_eq!(
            rules.isolation,
            Some(Isolation {
                bridge,
                within: true
            })
        );
        assert_eq!(
            parse("")
                .rules(&call, &Facts::default())
                .expect("rules")
                .expect("addresses")
                .isolation,
            None
        );
        let none = AddResult {
            interfaces: Vec::new(),
            ..prev.clone()
        };
        call.prev = Some(&none);
        assert!(
            parse(r#","ingressPolicy":"same-bridge""#)
                .rules(&call, &Facts::default())
                .is_err()
        );
    }
}
