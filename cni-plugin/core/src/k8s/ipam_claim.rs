//! IPAMClaims: the addresses that a network gets from a claim, and the status written to the claim.

use super::network::Network;
use super::{IpamClaim, Pod, text_at};
use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::bounds::shortened;
use crate::cni::{AddResult, Error, Json, Kind};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Maximum number of addresses of a claim.
const MAX_ADDRESSES: usize = 64;

/// Returns the addresses of a claim; empty if the claim has none yet. Refuses a claim for another
/// network.
pub fn addresses(claim: &IpamClaim, network: &Network) -> Result<Vec<IpAddr>, Error> {
    refuse_other_network(claim, network)?;
    if claim.ips.len() > MAX_ADDRESSES {
        let found = claim.ips.len();
        return Err(Error::config(format!(
            "claim {}: {found} addresses, more than {MAX_ADDRESSES}",
            claim.name
        )));
    }
    let address = |text: &String| {
        let address = parse_cidr(text)
            .map(|net| net.addr())
            .or_else(|_| parse_ip(text));
        address.map_err(|error| error.context(format_args!("claim {}: status.ips", claim.name)))
    };
    claim.ips.iter().map(address).collect()
}

/// Refuses a claim for another network. A claim names its network by the name of the configuration
/// or of the NetworkAttachmentDefinition.
fn refuse_other_network(claim: &IpamClaim, network: &Network) -> Result<(), Error> {
    let asked = claim.network.as_str();
    let is_object = network
        .object
        .as_ref()
        .is_some_and(|object| object.name == asked || object.to_string() == asked);
    if asked == network.definition.name() || is_object {
        return Ok(());
    }
    let (own, asked) = (network.definition.name(), shortened(asked));
    Err(Error::config(format!(
        "claim {}: it is for network {asked:?}, but {} is network {own:?}",
        claim.name,
        network.name()
    )))
}

/// Type and reason of the condition on a claim with addresses, as other implementations write them.
const ALLOCATED: [&str; 2] = ["IPsAllocated", "SuccessfulAllocation"];
/// KubeVirt annotation on the target pod of a migration.
const MIGRATION: &str = "kubevirt.io/migrationJobName";
/// KubeVirt annotation on each pod of a virtual machine.
const MACHINE: &str = "kubevirt.io/domain";

/// Returns the claim to write, with the pod as its owner. A claim without addresses gets the
/// addresses of the result. `None` if nothing changes or there are no addresses.
pub fn filled(claim: &IpamClaim, result: &AddResult, pod: &Pod, now: &str) -> Option<IpamClaim> {
    let mut filled = claim.clone();
    if claim.ips.is_empty() {
        filled.ips = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    }
    filled.owner_pod = Some(pod.name.name.clone());
    if !filled.ips.is_empty() {
        set_allocated(&mut filled.conditions, now);
    }
    (!filled.ips.is_empty() && filled != *claim).then_some(filled)
}

/// Sets the condition that the addresses are allocated. Other conditions stay, and a condition that
/// is already true keeps its transition time.
fn set_allocated(conditions: &mut Vec<Json>, now: &str) {
    let [kind, reason] = ALLOCATED;
    let is_own = |condition: &Json| text_at(condition, "type") == Some(kind);
    if conditions
        .iter()
        .any(|condition| is_own(condition) && text_at(condition, "status") == Some("True"))
    {
        return;
    }
    conditions.retain(|condition| !is_own(condition));
    conditions.push(Json::object_of([
        ("type", kind.into()),
        ("status", "True".into()),
        ("reason", reason.into()),
        (
            "message",
            "the network's IPAM reserves them for the claim".into(),
        ),
        ("lastTransitionTime", now.into()),
    ]));
}

/// Returns the name of the pod that owns the claim. `None` if `pod` is the owner or the claim has
/// no owner. The owner keeps the claim as long as the owner runs.
pub fn other_owner<'a>(claim: &'a IpamClaim, pod: &Pod) -> Option<&'a str> {
    claim
        .owner_pod
        .as_deref()
        .filter(|owner| !owner.is_empty() && *owner != pod.name.name)
}

/// Refuses a claim that the running pod `owner` uses, unless the owner's virtual machine is about
/// to migrate to `pod`.
pub fn refuse_second(claim: &IpamClaim, owner: &Pod, pod: &Pod) -> Result<(), Error> {
    let machine = pod.annotations.get(MACHINE);
    let migrates = pod.annotations.contains_key(MIGRATION) && machine.is_some();
    if owner.is_over || migrates && owner.annotations.get(MACHINE) == machine {
        return Ok(());
    }
    Err(Error::new(
        Kind::TryAgain,
        format!("claim {}: pod {} uses it", claim.name, owner.name),
    ))
}

/// Returns the owner id under which IPAM stores a claim's addresses, in place of the container id.
/// The owner id contains the claim's uid. So the addresses outlive every pod, and a new claim with
/// the same name has a different owner id.
pub fn owner(claim: &IpamClaim) -> Result<String, Error> {
    let is_uid = !claim.uid.is_empty()
        && claim
            .uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_uid {
        return Err(Error::config(format!(
            "claim {}: invalid uid {:?}",
            claim.name,
            shortened(&claim.uid)
        )));
    }
    Ok(format!("{OWNER_PREFIX}{}", claim.uid))
}

const OWNER_PREFIX: &str = "ipamclaim-";

/// Returns the claim's uid in `owner`, the owner id of an address. `None` if the owner is not a
/// claim.
pub fn uid_of_owner(owner: &str) -> Option<&str> {
    owner
        .strip_prefix(OWNER_PREFIX)
        .filter(|uid| !uid.is_empty())
}

/// True if the addresses of `owner` may be released: `owner` is a claim's owner id, and this claim
/// has been deleted. `uids` has the uids of all existing claims.
pub fn is_released(owner: &str, uids: &BTreeSet<String>) -> bool {
    uid_of_owner(owner).is_some_and(|uid| !uids.contains(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Version;
    use crate::k8s::ObjectName;
    use crate::k8s::nad::Definition;
    use crate::name::IfName;

    fn claim(network: &str, ips: &[&str]) -> IpamClaim {
        IpamClaim {
            name: ObjectName {
                namespace: "pods".to_owned(),
                name: "vm.a".to_owned(),
            },
            uid: "0a-1".to_owned(),
            network: network.to_owned(),
            interface: "net1".to_owned(),
            version: "1".to_owned(),
            ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
            owner_pod: None,
            conditions: Vec::new(),
        }
    }

    fn pod(name: &str, annotations: &[(&str, &str)]) -> Pod {
        Pod {
            name: ObjectName {
                namespace: "pods".to_owned(),
                name: name.to_owned(),
            },
            uid: "u".to_owned(),
            annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            resource_claims: Vec::new(),
            node: String::new(),
            is_over: false,
        }
    }

    fn network() -> Network {
        let conf = Json::parse(br#"{"type":"t","name":"tenantred"}"#, "test").unwrap();
        Network {
            is_default: false,
            object: Some(ObjectName {
                namespace: "pods".to_owned(),
                name: "red".to_owned(),
            }),
            ifname: IfName::parse("net1").unwrap(),
            definition: Definition::parse(conf, "red").unwrap(),
            runtime_config: Json::object_of([]),
            asked: Vec::new(),
            cni_args: Vec::new(),
            default_route: None,
            ipam_claim: None,
            resource: None,
            device: None,
            requests: None,
            claimed: None,
        }
    }

    fn result(ips: &str) -> AddResult {
        let text = format!(r#"{{"ips":[{ips}]}}"#);
        AddResult::parse(
            &Json::parse(text.as_bytes(), "test").unwrap(),
            Version::V1_0_0,
        )
        .unwrap()
    }

    // Conformance: S33, I5
    #[test]
    fn claim_addresses_are_used() {
        for (ips, expected) in [
            (&[][..], &[][..]),
            (&["10.0.0.9/24", "fd10::8/64"], &["10.0.0.9", "fd10::8"]),
            (&["10.0.0.9"], &["10.0.0.9"]),
        ] {
            let addresses = addresses(&claim("tenantred", ips), &network()).unwrap();
            assert_eq!(
                addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
                expected
            );
        }
        let error = addresses(&claim("tenantred", &["10.0.0.9/24", "x"]), &network()).unwrap_err();
        assert_eq!(
            error.msg,
            r#"claim pods/vm.a: status.ips: invalid IP address: "x""#
        );
        assert!(addresses(&claim("tenantred", &["10.0.0.9"; 65]), &network()).is_err());
    }

    // Conformance: I3
    #[test]
    fn claim_is_refused_for_another_network() {
        for (asked, is_its) in [
            ("tenantred", true),
            ("red", true),
            ("pods/red", true),
            ("blue", false),
            ("", false),
        ] {
            assert_eq!(
                addresses(&claim(asked, &[]), &network()).is_ok(),
                is_its,
                "{asked}"
            );
        }
        let error = addresses(&claim("blue", &[]), &network()).unwrap_err();
        assert_eq!(
            error.msg,
            r#"claim pods/vm.a: it is for network "blue", but pods/red is network "tenantred""#
        );
    }

    // Conformance: I3, I6, I7
    #[test]
    fn claim_gets_addresses_once_and_the_pod_that_uses_them() {
        let both = result(r#"{"address":"10.0.0.9/24"},{"address":"fd10::8/64"}"#);
        let web = pod("web", &[]);
        let before = IpamClaim {
            conditions: vec![Json::parse(br#"{"type":"Other","status":"False"}"#, "test").unwrap()],
            ..claim("red", &[])
        };
        let after = filled(&before, &both, &web, "t1").unwrap();
        assert_eq!(
            (after.ips.join(" "), after.owner_pod.as_deref()),
            ("10.0.0.9/24 fd10::8/64".to_owned(), Some("web"))
        );
        let allocated = concat!(
            r#"{"type":"IPsAllocated","status":"True","reason":"SuccessfulAllocation","#,
            r#""message":"the network's IPAM reserves them for the claim","lastTransitionTime":"t1"}"#
        );
        let told: Vec<String> = after.conditions.iter().map(ToString::to_string).collect();
        assert_eq!(told, [r#"{"type":"Other","status":"False"}"#, allocated]);
        assert_eq!(
            filled(&after, &both, &web, "t2"),
            None,
            "it says so already"
        );
        let next = filled(
            &after,
            &result(r#"{"address":"10.0.0.1/24"}"#),
            &pod("web2", &[]),
            "t2",
        )
        .unwrap();
        assert_eq!(
            next,
            IpamClaim {
                owner_pod: Some("web2".to_owned()),
                ..after
            }
        );
        assert_eq!(filled(&claim("red", &[]), &result(""), &web, "t1"), None);
    }

    // Conformance: I7
    #[test]
    fn claim_belongs_to_one_running_pod_unless_its_machine_migrates() {
        let owned = |owner: &str| IpamClaim {
            owner_pod: Some(owner.to_owned()),
            ..claim("red", &[])
        };
        for (owner, other) in [("", None), ("web", None), ("web2", Some("web2"))] {
            assert_eq!(
                other_owner(&owned(owner), &pod("web", &[])),
                other,
                "{owner}"
            );
        }
        assert_eq!(other_owner(&claim("red", &[]), &pod("web", &[])), None);
        let (job, vm, vm2) = ((MIGRATION, "job"), (MACHINE, "vm"), (MACHINE, "vm2"));
        for (owner, next, is_let) in [
            (&[][..], &[][..], false),
            (&[vm], &[job, vm], true),
            (&[vm], &[vm], false),
            (&[vm2], &[job, vm], false),
            (&[], &[job], false),
        ] {
            let (owner, next) = (pod("old", owner), pod("new", next));
            let refused = refuse_second(&owned("old"), &owner, &next);
            assert_eq!(refused.is_ok(), is_let, "{owner:?} {next:?}");
            assert!(
                refuse_second(
                    &owned("old"),
                    &Pod {
                        is_over: true,
                        ..owner
                    },
                    &next
                )
                .is_ok()
            );
        }
        let error = refuse_second(&owned("old"), &pod("old", &[]), &pod("new", &[])).unwrap_err();
        assert_eq!(
            (error.kind, error.msg.as_str()),
            (Kind::TryAgain, "claim pods/vm.a: pod pods/old uses it")
        );
    }

    // Conformance: I1
    #[test]
    fn addresses_stay_until_the_claim_is_deleted() {
        let own = owner(&claim("red", &[])).unwrap();
        assert_eq!(
            (own.as_str(), uid_of_owner(&own)),
            ("ipamclaim-0a-1", Some("0a-1"))
        );
        assert!(crate::cni::netconf::is_identifier(&own));
        let uid_set = |uids: &[&str]| uids.iter().map(ToString::to_string).collect();
        assert!(!is_released(&own, &uid_set(&["0a-1", "x"])));
        assert!(is_released(&own, &uid_set(&["x"])));
        assert!(
            !is_released("0a-1", &uid_set(&[])),
            "a container's are the container's business"
        );
        for uid in ["", "../x", "a\nb"] {
            assert!(
                owner(&IpamClaim {
                    uid: uid.to_owned(),
                    ..claim("red", &[])
                })
                .is_err(),
                "{uid:?}"
            );
        }
    }
}
