//! IPAMClaims: which addresses a network gets from one, and what is written to it.

use super::IpamClaim;
use super::network::Network;
use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::bounds::shortened;
use crate::cni::{AddResult, Error};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Most addresses of a claim.
const MAX_ADDRESSES: usize = 64;

/// The addresses of a claim that is for this network; none where it has no addresses yet. Refuses a claim for another network.
pub fn addresses(claim: &IpamClaim, network: &Network) -> Result<Vec<IpAddr>, Error> {
    refuse_other_network(claim, network)?;
    if claim.ips.len() > MAX_ADDRESSES {
        let found = claim.ips.len();
        return Err(Error::config(format!("claim {}: {found} addresses, more than {MAX_ADDRESSES}", claim.name)));
    }
    let address = |text: &String| {
        let address = parse_cidr(text).map(|net| net.addr()).or_else(|_| parse_ip(text));
        address.map_err(|error| error.context(format_args!("claim {}: status.ips", claim.name)))
    };
    claim.ips.iter().map(address).collect()
}

/// A claim names its network by the configuration's name, or by that of the NetworkAttachmentDefinition.
fn refuse_other_network(claim: &IpamClaim, network: &Network) -> Result<(), Error> {
    let asked = claim.network.as_str();
    let is_object = network.object.as_ref().is_some_and(|object| object.name == asked || object.to_string() == asked);
    if asked == network.definition.name() || is_object {
        return Ok(());
    }
    let (own, asked) = (network.definition.name(), shortened(asked));
    Err(Error::config(format!("claim {}: it is for network {asked:?}, and {} is {own:?}", claim.name, network.name())))
}

/// The addresses to write to a claim that has none: those of the result, with prefix. None where there is nothing to write.
pub fn to_fill(claim: &IpamClaim, result: &AddResult) -> Option<Vec<String>> {
    let ips: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    (claim.ips.is_empty() && !ips.is_empty()).then_some(ips)
}

/// The owner of a claim's addresses, in the place of a container's id. It outlives every pod, and another claim of the same
/// name has another uid.
pub fn owner(claim: &IpamClaim) -> Result<String, Error> {
    let is_uid = !claim.uid.is_empty() && claim.uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_uid {
        return Err(Error::config(format!("claim {}: its uid {:?} is none", claim.name, shortened(&claim.uid))));
    }
    Ok(format!("{OWNER_PREFIX}{}", claim.uid))
}

const OWNER_PREFIX: &str = "ipamclaim-";

/// The uid of the claim that owns an address, if a claim does.
pub fn uid_of_owner(owner: &str) -> Option<&str> {
    owner.strip_prefix(OWNER_PREFIX).filter(|uid| !uid.is_empty())
}

/// True if an address of this owner may be released: never before its claim is deleted. `uids` are those of all claims.
pub fn is_released(owner: &str, uids: &BTreeSet<String>) -> bool {
    uid_of_owner(owner).is_some_and(|uid| !uids.contains(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Json, Version};
    use crate::k8s::ObjectName;
    use crate::k8s::nad::Definition;
    use crate::name::IfName;

    fn claim(network: &str, ips: &[&str]) -> IpamClaim {
        IpamClaim {
            name: ObjectName { namespace: "pods".to_owned(), name: "vm.a".to_owned() },
            uid: "0a-1".to_owned(),
            network: network.to_owned(),
            interface: "net1".to_owned(),
            ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
        }
    }

    fn network() -> Network {
        let conf = Json::parse(br#"{"type":"t","name":"tenantred"}"#, "test").unwrap();
        Network {
            is_default: false,
            object: Some(ObjectName { namespace: "pods".to_owned(), name: "red".to_owned() }),
            ifname: IfName::parse("net1").unwrap(),
            definition: Definition::parse(conf, "red").unwrap(),
            runtime_config: Json::object_of([]),
            asked: Vec::new(),
            default_route: None,
            ipam_claim: None,
            resource: None,
            device: None,
        }
    }

    fn result(ips: &str) -> AddResult {
        let text = format!(r#"{{"ips":[{ips}]}}"#);
        AddResult::parse(&Json::parse(text.as_bytes(), "test").unwrap(), Version::V1_0_0).unwrap()
    }

    #[test]
    fn s33_i5_the_addresses_are_those_of_the_claim() {
        for (ips, expected) in [
            (&[][..], &[][..]),
            (&["10.0.0.9/24", "fd10::8/64"], &["10.0.0.9", "fd10::8"]),
            (&["10.0.0.9"], &["10.0.0.9"]),
        ] {
            let addresses = addresses(&claim("tenantred", ips), &network()).unwrap();
            assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        }
        let error = addresses(&claim("tenantred", &["10.0.0.9/24", "x"]), &network()).unwrap_err();
        assert_eq!(error.msg, r#"claim pods/vm.a: status.ips: invalid IP address: "x""#);
        assert!(addresses(&claim("tenantred", &["10.0.0.9"; 65]), &network()).is_err());
    }

    #[test]
    fn i3_a_claim_is_for_one_network() {
        for (asked, is_its) in [("tenantred", true), ("red", true), ("pods/red", true), ("blue", false), ("", false)] {
            assert_eq!(addresses(&claim(asked, &[]), &network()).is_ok(), is_its, "{asked}");
        }
        let error = addresses(&claim("blue", &[]), &network()).unwrap_err();
        assert_eq!(error.msg, r#"claim pods/vm.a: it is for network "blue", and pods/red is "tenantred""#);
    }

    #[test]
    fn i3_i6_only_a_claim_without_addresses_is_written() {
        let both = result(r#"{"address":"10.0.0.9/24"},{"address":"fd10::8/64"}"#);
        let written = vec!["10.0.0.9/24".to_owned(), "fd10::8/64".to_owned()];
        assert_eq!(to_fill(&claim("red", &[]), &both), Some(written));
        assert_eq!(to_fill(&claim("red", &["10.0.0.1/24"]), &both), None);
        assert_eq!(to_fill(&claim("red", &[]), &result("")), None);
    }

    #[test]
    fn i1_addresses_stay_until_the_claim_is_deleted() {
        let own = owner(&claim("red", &[])).unwrap();
        assert_eq!((own.as_str(), uid_of_owner(&own)), ("ipamclaim-0a-1", Some("0a-1")));
        assert!(crate::cni::netconf::is_identifier(&own));
        let all = |uids: &[&str]| uids.iter().map(ToString::to_string).collect();
        assert!(!is_released(&own, &all(&["0a-1", "x"])));
        assert!(is_released(&own, &all(&["x"])));
        assert!(!is_released("0a-1", &all(&[])), "a container's are the container's business");
        for uid in ["", "../x", "a\nb"] {
            assert!(owner(&IpamClaim { uid: uid.to_owned(), ..claim("red", &[]) }).is_err(), "{uid:?}");
        }
    }
}
