//! `firewall`: what the host forwards for the container, and between which bridges it does not.

use crate::cni::{AddResult, Error, Json, NetConf};
use crate::ipam::Lease;
use crate::plan::nft::{Firewall as Rules, Isolation};
use crate::plan::step::{LinkAttr, Step};
use crate::plan::{Facts, Feature, IfName, Need};
use crate::plugins::interface::host_links;
use crate::plugins::{Addresses, Call, Planned, Plugin};
use std::net::IpAddr;

/// Tables of the older iptables, which nf_tables does not show.
const LEGACY: [(&str, bool); 2] = [("/proc/net/ip_tables_names", true), ("/proc/net/ip6_tables_names", false)];

/// A `firewall` configuration.
#[derive(Debug)]
pub struct Firewall {
    admin_chain: String,
    policy: Policy,
    /// Why an ADD can't do what is asked for. A DEL can: the reference plugin may have done it.
    refusal: Option<Error>,
}

/// What containers send each other.
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
        let refusal = refuse(json, &admin_chain)?.or(policy.as_ref().err().cloned());
        Ok(Self { admin_chain, policy: policy.unwrap_or(Policy::Open), refusal })
    }

    /// What has to be there; nothing where the container has no address.
    fn rules(&self, call: &Call<'_>) -> Result<Option<Rules>, Error> {
        let Some(prev) = call.prev else { return Ok(None) };
        let addrs = addrs(prev);
        if addrs.is_empty() {
            return Ok(None);
        }
        let bridge = || {
            let first = prev.interfaces.first();
            let name = first.map(|interface| interface.name.as_str()).unwrap_or_default();
            IfName::parse(name).map_err(|err| {
                Error::config(format!("\"ingressPolicy\" is for the first interface of prevResult, {name:?}: {err}"))
            })
        };
        let isolation = match self.policy {
            Policy::Open => None,
            policy => Some(Isolation { bridge: bridge()?, within: policy == Policy::Isolated }),
        };
        Ok(Some(Rules { addrs, isolation, admin_chain: self.admin_chain.clone(), owner: call.owner() }))
    }
}

fn policy(text: &str) -> Result<Policy, Error> {
    match text {
        "open" => Ok(Policy::Open),
        "same-bridge" => Ok(Policy::SameBridge),
        "isolated" => Ok(Policy::Isolated),
        _ => Err(Error::config(format!("unknown ingress policy: {text:?}"))),
    }
}

/// What of the other keys can't be done. Any other `backend` means nf_tables, where the reference plugin would choose.
fn refuse(json: &Json, admin_chain: &str) -> Result<Option<Error>, Error> {
    /// `NFT_CHAIN_MAXNAMELEN` less the NUL; iptables takes 28.
    const CHAIN_LEN: usize = 28;
    json.str("firewalldZone")?;
    if json.str_or("backend", "")? == "firewalld" {
        let sentence = "is not among braid's backends, which speaks to nf_tables alone; leave the key out";
        return Ok(Some(Error::config(format!("\"backend\": \"firewalld\" {sentence}"))));
    }
    let is_name = |c: char| c.is_ascii_graphic() && c != '!';
    if admin_chain.len() > CHAIN_LEN || !admin_chain.chars().all(is_name) || admin_chain.starts_with('-') {
        let sentence = format!("is no name of a chain: 1 to {CHAIN_LEN} characters without blanks, and no '-' first");
        return Ok(Some(Error::config(format!("\"iptablesAdminChainName\": {admin_chain:?} {sentence}"))));
    }
    Ok(None)
}

fn addrs(prev: &AddResult) -> Vec<IpAddr> {
    let mut addrs: Vec<IpAddr> = prev.ips.iter().map(|ip| ip.address.addr()).collect();
    addrs.sort_unstable();
    addrs.dedup();
    addrs
}

impl Plugin for Firewall {
    fn addresses(&self) -> Addresses {
        Addresses::Never
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs: Vec<Need> = LEGACY.map(|(path, _)| Need::File(path.to_owned())).into();
        if let (Policy::Isolated, Some(prev)) = (self.policy, call.prev) {
            needs.extend(host_links(prev).map(Need::Link));
        }
        needs
    }

    fn refuse(&self, call: &Call<'_>, _facts: &Facts) -> Result<(), Error> {
        match &self.refusal {
            Some(error) => Err(error.clone()),
            None => self.rules(call).map(drop),
        }
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, _lease: Option<Lease>) -> Result<Planned, Error> {
        let result = call.prev.cloned().ok_or_else(|| Error::config("missing prevResult from earlier plugin"))?;
        let Some(rules) = self.rules(call)? else {
            return Ok(Planned { result, ..Planned::default() });
        };
        let is_legacy = |(path, is_v4): &(&str, bool)| {
            let has_filter = facts.files.get(*path).is_some_and(|tables| tables.lines().any(|table| table == "filter"));
            has_filter && rules.addrs.iter().any(|addr| addr.is_ipv4() == *is_v4)
        };
        let warning = |(path, _): &(&str, bool)| {
            format!("{path} shows rules of iptables-legacy: firewall can't let packets through where those drop them")
        };
        let warnings = LEGACY.iter().filter(|entry| is_legacy(entry)).map(warning).collect();
        let port = || host_links(&result).find(|at| facts.link(at).is_some_and(|fact| fact.kind == "veth"));
        let is_within = rules.isolation.as_ref().is_some_and(|isolation| isolation.within);
        let isolate = |at| Step::EnsureAttr { at, to: LinkAttr::Isolated(true) };
        let mut steps: Vec<Step> = is_within.then(port).flatten().map(isolate).into_iter().collect();
        steps.push(Step::AddFirewall(rules));
        Ok(Planned { steps, result, warnings })
    }

    fn remnants(&self, call: &Call<'_>) -> Vec<Step> {
        let addrs = call.prev.map(addrs).unwrap_or_default();
        vec![Step::DelFirewallOf(call.owner()), Step::DelReferenceFirewall { addrs }]
    }

    fn kind(&self) -> Option<&'static str> {
        None
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
    fn what_can_not_be_done_is_refused_by_name_but_a_del_goes_on() {
        let refused = |keys: &str| parse(keys).refusal.expect("refused").msg;
        assert!(refused(r#","backend":"firewalld""#).contains(r#""backend": "firewalld""#));
        assert_eq!(refused(r#","ingressPolicy":"x""#), r#"unknown ingress policy: "x""#);
        assert!(refused(r#","iptablesAdminChainName":"two words""#).contains(r#""two words""#));
        assert!(refused(r#","iptablesAdminChainName":"a-name-of-more-than-28-letters""#).contains("28"));
        for fine in ["", r#","backend":"iptables""#, r#","backend":"nftables","ingressPolicy":"open""#] {
            assert_eq!(parse(fine).refusal, None, "{fine}");
        }
    }

    #[test]
    fn each_address_of_any_interface_is_let_through_and_the_first_interface_is_the_bridge() {
        let eth0 = IfName::parse("eth0").expect("a name");
        let interface = |name: &str| Interface { name: name.to_owned(), ..Interface::default() };
        let ip = |text: &str, at| IpConfig { address: text.parse().expect("a net"), gateway: None, interface: at };
        let prev = AddResult {
            interfaces: vec![interface("br0"), interface("eth0")],
            ips: vec![ip("fd00::5/64", Some(1)), ip("10.1.0.5/24", None), ip("10.1.0.5/16", Some(0))],
            ..AddResult::default()
        };
        let mut call = call(&eth0);
        call.prev = Some(&prev);
        let rules = parse(r#","ingressPolicy":"isolated""#).rules(&call).expect("rules").expect("addresses");
        assert_eq!(rules.addrs, ["10.1.0.5", "fd00::5"].map(|addr| addr.parse::<IpAddr>().expect("an address")));
        let bridge = IfName::parse("br0").expect("a name");
        assert_eq!(rules.isolation, Some(Isolation { bridge, within: true }));
        assert_eq!(parse("").rules(&call).expect("rules").expect("addresses").isolation, None);
        let none = AddResult { interfaces: Vec::new(), ..prev.clone() };
        call.prev = Some(&none);
        assert!(parse(r#","ingressPolicy":"same-bridge""#).rules(&call).is_err());
    }
}
