//! Tests of the preparation: each refusal with its message.

use super::*;
use crate::cni::{Json, NetConf};
use crate::dra::claim::ClaimingPod;
use crate::dra::claim::Config;
use crate::dra::message::MAX_LEN;
use crate::name::Mac;
use crate::plan::facts::LinkFact;

/// Objects and node of a decision.
struct Case {
    claim: Claim,
    pod: PodClaims,
    others: Vec<Claim>,
    nads: Vec<Nad>,
    nics: Vec<Nic>,
    settings: &'static str,
    calls: &'static str,
    prepared: Vec<Prepared>,
    in_pod: Vec<String>,
}

impl Case {
    /// Returns a claim for `eth1` that can be prepared. `keys` of its parameters begin with a comma.
    fn new(keys: &str) -> Self {
        Self {
            claim: claim("nic", "eth1", keys),
            pod: PodClaims {
                uid: "p".to_owned(),
                is_host_network: false,
                names: vec!["nic".to_owned()],
            },
            others: Vec::new(),
            nads: Vec::new(),
            nics: ["eth0", "eth1", "eth2"].map(nic).into(),
            settings: r#"{"exclude":["eth2"],"reserve":"200M"}"#,
            calls: "",
            prepared: Vec::new(),
            in_pod: Vec::new(),
        }
    }

    fn prepare(&self) -> Result<Prepared, Error> {
        let settings: Settings = serde_json::from_str(self.settings).expect("settings");
        let calls = format!(
            r#"{{"name":"pods","cniVersion":"1.1.0","type":"braid","kubeconfig":"/k","network":{{}}{}}}"#,
            self.calls
        );
        let calls = NetConf::parse(calls.as_bytes()).expect("a configuration");
        let calls = k8s::settings::Settings::of(&calls).expect("settings");
        let objects = Objects {
            claim: &self.claim,
            pod: &self.pod,
            others: &self.others,
            nads: &self.nads,
        };
        let node = Node {
            name: "n1",
            nics: &self.nics,
            settings: &settings,
            calls: &calls.expect("of pods"),
            prepared: &self.prepared,
            in_pod: &self.in_pod,
        };
        prepare(objects, node)
    }

    /// Returns the message after the name of the claim, and whether the error is temporary.
    #[track_caller]
    fn refused(&self) -> (String, bool) {
        let error = self.prepare().expect_err("a refusal");
        assert!(error.msg.len() <= MAX_LEN, "{error}");
        let text = error.msg.strip_prefix("claim web/nic: ");
        let text = text.unwrap_or_else(|| panic!("{error}"));
        (text.to_owned(), error.kind == Kind::TryAgain)
    }

    #[track_caller]
    fn assert_refused(&self, message: &str) {
        assert_eq!(self.refused(), (message.to_owned(), false));
    }
}

fn nic(name: &str) -> Nic {
    let mut fact = LinkFact::planned("", Some(Mac([2, 0, 0, 0, 0, 1])), 1500, true);
    fact.index = name.bytes().next_back().map_or(0, u32::from);
    Nic {
        name: IfName::parse(name).expect("a name"),
        fact,
        device: Some(nic::Device::default()),
        speed_mbit: Some(1000),
        is_uplink: name == "eth0",
    }
}

fn parameters(keys: &str) -> Json {
    let text = format!(r#"{{"apiVersion":"braid.dev/v1alpha1","kind":"Attachment"{keys}}}"#);
    Json::parse(text.as_bytes(), "test").expect("JSON")
}

fn claim(name: &str, device: &str, keys: &str) -> Claim {
    Claim {
        name: object("web", name),
        uid: name.to_owned(),
        shares: vec![share("a", device)],
        configs: vec![Config {
            is_of_class: false,
            requests: Vec::new(),
            parameters: parameters(keys),
        }],
        pods: vec![ClaimingPod {
            name: "reader".to_owned(),
            uid: "p".to_owned(),
        }],
    }
}

fn share(request: &str, device: &str) -> Share {
    let is_whole = device.ends_with("-whole");
    Share {
        request: request.to_owned(),
        pool: "n1".to_owned(),
        device: device.to_owned(),
        share_id: (!is_whole).then(|| "s".to_owned()),
        bandwidth: (!is_whole).then_some(400_000_000),
    }
}

fn object(namespace: &str, name: &str) -> ObjectName {
    ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn nad(namespace: &str, name: &str, config: &str) -> Nad {
    Nad {
        name: object(namespace, name),
        config: config.to_owned(),
        annotations: [].into(),
    }
}

/// Returns a prepared claim of another pod.
fn prepared(name: &str, keys: &str) -> Prepared {
    let mut case = Case::new("");
    case.claim = claim(name, "eth1", keys);
    case.prepare().expect("prepared")
}

#[test]
fn a_claim_with_its_use_of_links_is_prepared() {
    let mut case = Case::new(
        r#","interface":"data0","network":{"type":"vlan","vlanId":7,"ipam":{"type":"dhcp"}}"#,
    );
    case.others = vec![claim("other", "eth1", r#","interface":"data1""#)];
    case.prepared = vec![prepared("x", ""), prepared("nic", "")];
    let done = case.prepare().expect("prepared");
    assert_eq!(done.claim, case.claim);
    let [one] = &done.uses[..] else {
        panic!("{done:?}");
    };
    let found = (
        one.parent.as_str(),
        one.kind.as_str(),
        one.vlan_id,
        one.rate,
    );
    assert_eq!(found, ("eth1", "vlan", Some(7), Some(400_000_000)));
    // Again, after it was written.
    case.prepared = vec![done.clone()];
    assert_eq!(case.prepare(), Ok(done));
}

#[test]
fn a_claim_with_another_uid_or_without_a_device_is_refused() {
    let mut claim = claim("nic", "eth1", "");
    let refused = |claim: &Claim, uid| refuse_unallocated(claim, uid).map_err(|error| error.msg);
    assert_eq!(refused(&claim, "nic"), Ok(()));
    assert_eq!(
        refused(&claim, "old"),
        Err("claim web/nic: the kubelet asks for uid old, but the API has uid nic".to_owned())
    );
    claim.shares.clear();
    assert_eq!(
        refused(&claim, "nic"),
        Err("claim web/nic: no device of braid.dev is allocated".to_owned())
    );
}

#[test]
fn devices_that_are_not_offered_are_refused() {
    let mut case = Case::new("");
    case.claim.shares[0].pool = "n2".to_owned();
    case.assert_refused(r#"request "a": device "eth1": it is in pool "n2", and this node is "n1""#);
    for (device, message) in [
        (
            "eth2",
            "link eth2 is not offered: dra.include or dra.exclude leaves it out",
        ),
        (
            "eth0-whole",
            "link eth0 is not offered: it has an address of the node, so no pod can have it alone",
        ),
    ] {
        case.claim.shares = vec![share("a", device)];
        case.assert_refused(&format!("request \"a\": device {device:?}: {message}"));
    }
    case.claim.shares = vec![share("a", "eth1")];
    case.claim.shares[0].bandwidth = None;
    case.assert_refused(
        "request \"a\": device \"eth1\": no bandwidth is allocated; the scheduler needs the feature gate \
         DRAConsumableCapacity",
    );
    case.claim.shares = vec![share("a/fast", "eth9")];
    let message = r#"request "a/fast": device "eth9": this node has no such link"#;
    assert_eq!(case.refused(), (message.to_owned(), true));
}

#[test]
fn a_link_that_the_pod_has_already_is_not_missing() {
    let mut case = Case::new("");
    case.claim.shares = vec![share("a", "eth7-whole"), share("b", "eth1")];
    let missing = r#"request "a": device "eth7-whole": this node has no such link"#;
    assert_eq!(case.refused(), (missing.to_owned(), true));
    case.in_pod = vec!["eth7-whole".to_owned()];
    let prepared = case.prepare().expect("a preparation");
    assert_eq!(prepared.claim, case.claim);
    let parents = prepared.uses.iter().map(|one| one.parent.as_str());
    assert_eq!(parents.collect::<Vec<_>>(), ["eth1"]);
    // Its other devices are decided as before.
    case.claim.shares[1].bandwidth = Some(2_000_000_000);
    case.prepare().expect_err("too much");
    // A link that is here again is decided too.
    case.claim.shares = vec![share("a", "eth0-whole")];
    case.in_pod = vec!["eth0-whole".to_owned()];
    case.assert_refused(
        "request \"a\": device \"eth0-whole\": link eth0 is not offered: it has an address of the node, so no pod \
         can have it alone",
    );
}

#[test]
fn claims_for_a_link_over_an_offered_one_are_refused_beside_a_prepared_one() {
    let mut case = Case::new("");
    let mut vlan = nic("eth1v7");
    vlan.fact.kind = "vlan".to_owned();
    vlan.fact.parent = Some(case.nics[1].fact.index);
    case.nics.push(vlan);
    case.settings = r#"{"include": ["eth1", "eth1v7"]}"#;
    case.claim = claim("x", "eth1v7", "");
    case.prepared = vec![case.prepare().expect("the link is named")];
    case.settings = r#"{"include": ["eth1*"]}"#;
    case.claim = claim("nic", "eth1v7", "");
    case.assert_refused(
        "request \"a\": device \"eth1v7\": link eth1v7 is not offered: it is over eth1, which is \
         offered: only its full name in dra.include offers it",
    );
    case.claim = claim("nic", "eth1", "");
    assert!(case.prepare().is_ok(), "beside the prepared claim");
}

#[test]
fn pods_that_can_have_no_interface_are_refused() {
    let mut case = Case::new("");
    case.pod.is_host_network = true;
    case.assert_refused("the pod has hostNetwork, so it can't have network devices of claims");
    case.pod.uid = "q".to_owned();
    let (message, is_temporary) = case.refused();
    assert!(
        is_temporary && message.contains("a claim is for one pod"),
        "{message}"
    );
}

#[test]
fn wrong_parameters_are_refused_by_request_and_key() {
    for (keys, message) in [
        (
            r#","ifname":"x""#,
            r#"request "a": "ifname": "x": unknown key"#,
        ),
        (
            r#","network":{"master":"eth0"}"#,
            r#"request "a": "network": "master": "eth0": the driver sets this key"#,
        ),
        (
            r#","network":{"type":"host-device"}"#,
            r#"request "a": "type": "host-device": the device is shared"#,
        ),
    ] {
        Case::new(keys).assert_refused(message);
    }
    let long = format!(r#","network":{{"{}":1,"type":"bridge"}}"#, "é".repeat(5000));
    let (message, _) = Case::new(&long).refused();
    assert!(message.contains("bridge"), "{message}");
}

#[test]
fn names_that_the_pod_has_are_refused() {
    let message = |name| format!(r#"request "a": "interface": {name:?}: the pod has it already"#);
    Case::new(r#","interface":"eth0""#).assert_refused(&message("eth0"));
    let mut case = Case::new(r#","interface":"data0""#);
    case.others = vec![claim("other", "eth1", r#","interface":"data0""#)];
    case.assert_refused(&message("data0"));
    // A claim with a fault of its own.
    case.others = vec![claim("other", "eth9", r#","interface":"data0""#)];
    assert!(case.prepare().is_ok());
    case.others.clear();
    case.claim.shares.push(share("b", "eth1"));
    case.assert_refused(r#"request "b": "interface": "data0": the pod has it already"#);
}

#[test]
fn networks_that_are_missing_or_isolated_are_refused() {
    let mut case = Case::new(r#","nad":"lans/left""#);
    case.assert_refused(
        r#"request "a": network lans/left: there is no such NetworkAttachmentDefinition"#,
    );
    assert_eq!(nads(&case.claim), Ok(vec![object("lans", "left")]));
    case.nads = vec![nad(
        "lans",
        "left",
        r#"{"cniVersion":"1.0.0","type":"macvlan"}"#,
    )];
    assert_eq!(case.prepare().expect("prepared").uses[0].kind, "macvlan");
    case.calls = r#","namespaceIsolation":true,"globalNamespaces":"shared""#;
    case.assert_refused(
        r#"request "a": network lans/left: namespaceIsolation allows pods in web only networks in web, shared"#,
    );
    case.claim.configs[0].is_of_class = true;
    assert!(case.prepare().is_ok(), "the class decides");
    // The configuration is in a file of the node.
    case.nads = vec![nad("lans", "left", " ")];
    assert_eq!(case.prepare().expect("prepared").uses[0].kind, "");
}

#[test]
fn a_link_has_no_more_claims_than_the_slice_offers() {
    let mut case = Case::new("");
    case.prepared = vec![prepared("x", "")];
    assert!(case.prepare().is_ok());
    case.prepared.push(prepared("y", ""));
    case.assert_refused(
        r#"request "a": link eth1 has 800000000 bit/s, but its claims reserve 1200000000 bit/s"#,
    );
    case.prepared.truncate(1);
    case.claim.configs[0].parameters =
        parameters(r#","network":{"type":"ipvlan","ipam":{"type":"dhcp"}}"#);
    case.assert_refused(
        r#"request "a": ipvlan on link eth1, where claim web/x has macvlan; a link can't have both types"#,
    );
}
