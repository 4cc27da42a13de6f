//! Resource claims of a pod: networks on shares of the link `lan`.

use super::runtime::passing;
use super::*;
use crate::store::prepared::PreparedClaims;
use crate::store::record::Attached;
use braid_core::dra::claim::{Claim, ClaimingPod, Config, Share};
use braid_core::dra::prepared::Prepared;
use std::time::{Duration, SystemTime};

/// Returns a claim of the pod for 200 Mbit/s of `lan`. `keys` are parameters, with a leading comma.
fn claim(name: &str, keys: &str) -> Claim {
    let parameters = format!(
        r#"{{"apiVersion":"braid.dev/v1alpha1","kind":"Attachment","ips":["10.7.0.2/24"]{keys}}}"#
    );
    Claim {
        name: object(name),
        uid: format!("{name}-uid"),
        shares: vec![Share {
            request: "nic".to_owned(),
            pool: "node-1".to_owned(),
            device: "lan".to_owned(),
            share_id: Some("s1".to_owned()),
            bandwidth: Some(200_000_000),
        }],
        configs: vec![Config {
            is_of_class: false,
            requests: Vec::new(),
            parameters: Json::parse(parameters.as_bytes(), "test").expect("json"),
        }],
        pods: vec![ClaimingPod {
            name: "web".to_owned(),
            uid: "u1".to_owned(),
        }],
    }
}

/// A cluster whose pod has these claims, as the kubelet has prepared them on this node.
fn cluster_with(annotation: Option<&str>, claims: Vec<Claim>) -> Model {
    let machine = cluster(annotation);
    prepare(&machine, &claims);
    let mut objects = machine.cluster.borrow_mut();
    objects.pods[0].resource_claims = claims.iter().map(|one| one.name.name.clone()).collect();
    objects.resource_claims = claims;
    drop(objects);
    machine
}

fn prepare(machine: &Model, claims: &[Claim]) {
    for claim in claims {
        let prepared = Prepared {
            claim: claim.clone(),
            uses: Vec::new(),
        };
        let folder = PreparedClaims::of(machine.root());
        folder.write(&prepared).expect("written");
    }
}

fn attachments(machine: &Model) -> Vec<Attached> {
    machine.records().expect("records").remove(0).attachments
}

fn interfaces(machine: &Model) -> Vec<String> {
    let name = |one: &Attached| one.ifname.to_string();
    attachments(machine).iter().map(name).collect()
}

#[test]
fn a_claim_is_attached_beside_annotations_and_is_in_the_record_not_in_the_status() {
    let keys = r#","interface":"data0""#;
    let machine = cluster_with(Some("blue"), vec![claim("a", keys), claim("b", "")]);
    add(&machine, "").expect("attached");
    assert_eq!(interfaces(&machine), ["eth0", "net1", "data0", "net3"]);
    let attached = attachments(&machine).remove(2);
    let device = attached.claimed.as_ref().expect("a claim");
    assert_eq!(
        (
            &device.claim,
            device.claim_uid.as_str(),
            device.request.as_str()
        ),
        (&object("a"), "a-uid", "nic")
    );
    let conf = attached.conf.to_string();
    assert!(conf.contains(r#""master":"lan""#), "{conf}");
    assert!(conf.contains(r#""egressRate":200000000"#), "{conf}");
    assert_eq!(attached.asked, None);
    assert_eq!(
        status(&machine),
        ["default eth0 true", "ns/blue net1 false"]
    );
    let events = machine.cluster.borrow().events.clone();
    let added = "Add data0 [10.7.0.2/24] from braid.dev-lan".to_owned();
    assert!(
        events.contains(&("AddedInterface".to_owned(), added)),
        "{events:?}"
    );
    let asked = machine.cluster.borrow().asked;
    del(&machine).expect("detached");
    assert_eq!(machine.cluster.borrow().asked, asked, "DEL asks nobody");
    assert_nothing_left(&machine, "after DEL");
}

#[test]
fn an_edit_of_the_annotation_leaves_claims_alone() {
    let keys = r#","network":{"type":"macvlan"},"interface":"data0""#;
    let machine = cluster_with(Some("blue"), vec![claim("a", keys)]);
    add(&machine, "").expect("attached");
    let before = attachments(&machine).remove(2);
    assert_eq!(edit::edit(&machine, "red"), Ok(pods::Edited::Changed));
    assert_eq!(interfaces(&machine), ["eth0", "data0", "net1"]);
    assert_eq!(attachments(&machine)[1], before);
    assert_eq!(status(&machine), ["default eth0 true", "ns/red net1 false"]);
    let err = edit::edit(&machine, "red,blue@data0").expect_err("the claim has the name");
    assert!(err.msg.contains("data0"), "{err}");
    del(&machine).expect("detached");
    assert_nothing_left(&machine, "after DEL");
}

#[test]
fn a_network_of_a_claim_is_not_the_annotation_s_network_of_the_same_definition() {
    let machine = cluster_with(None, vec![claim("a", r#","nad":"red","ips":[]"#)]);
    add(&machine, "").expect("attached");
    assert_eq!(edit::edit(&machine, "red"), Ok(pods::Edited::Changed));
    assert_eq!(interfaces(&machine), ["eth0", "net1", "net2"]);
    assert_eq!(edit::edit(&machine, ""), Ok(pods::Edited::Changed));
    assert_eq!(interfaces(&machine), ["eth0", "net1"]);
}

#[test]
fn a_pod_starts_without_the_api_only_while_no_claim_is_prepared() {
    let machine = cluster_with(None, vec![claim("a", "")]);
    machine.cluster.borrow_mut().fails_at = Some(0);
    let annotations = passing("{}");
    let err = add(&machine, &annotations).expect_err("the pod's claims are unknown");
    assert_eq!(err.kind, Kind::TryAgain, "{err}");
    assert_nothing_left(&machine, "after the failed ADD");
    machine.cluster.borrow_mut().fails_at = None;
    add(&machine, &annotations).expect("attached");
    assert_eq!(interfaces(&machine), ["eth0", "net1"]);
    del(&machine).expect("detached");
    let claims = PreparedClaims::of(machine.root());
    claims.remove("a-uid").expect("removed");
    // Another pod of the claim may start.
    add(&machine, &annotations).expect("attached");
    assert_eq!(interfaces(&machine), ["eth0", "net1"]);
    del(&machine).expect("detached");
    let later = SystemTime::now() + Duration::from_secs(1);
    claims.settle(later).expect("settled");
    let asked = machine.cluster.borrow().asked;
    add(&machine, &annotations).expect("attached");
    assert_eq!(machine.cluster.borrow().asked, asked + 1, "only the status");
}

#[test]
fn a_pod_without_claims_does_not_read_those_of_others() {
    let machine = cluster(None);
    prepare(&machine, &[claim("a", "")]);
    add(&machine, "").expect("attached");
    assert_eq!(machine.cluster.borrow().asked, 2, "the pod, and its status");
}

#[test]
fn a_claim_that_cannot_be_attached_fails_the_pod_with_an_event() {
    let mut second = claim("a", "");
    second.pods[0].uid = "u0".to_owned();
    let mut elsewhere = claim("a", "");
    elsewhere.shares[0].pool = "node-2".to_owned();
    let isolated = r#","namespaceIsolation":true"#;
    for (claim, more, part) in [
        (claim("a", r#","interface":"eth0""#), "", "eth0"),
        (claim("a", r#","interface":"net1""#), "", "net1"),
        (
            claim("a", r#","nad":"other/x","ips":[]"#),
            isolated,
            "other/x",
        ),
        (claim("a", r#","nad":"none","ips":[]"#), "", "ns/none"),
        (claim("a", r#","colour":"red""#), "", "colour"),
        (elsewhere, "", "no such link"),
        (second, "", "is for one pod"),
    ] {
        let machine = cluster_with(Some("blue@net1"), vec![claim]);
        let err = add(&machine, more).expect_err(part);
        let text = err.to_string();
        assert!(text.contains("claim ns/a") && text.contains(part), "{text}");
        let events = machine.cluster.borrow().events.clone();
        let is_told = events.iter().any(|(_, message)| *message == text);
        assert_eq!(is_told, err.kind != Kind::TryAgain, "{events:?}");
        assert_nothing_left(&machine, part);
    }
}

#[test]
fn any_failure_of_a_claim_leaves_nothing() {
    let mut failed = 0;
    loop {
        let machine = cluster_with(None, vec![claim("a", "")]);
        machine.fail_at(&[failed]);
        if add(&machine, "").is_ok() {
            break;
        }
        assert_nothing_left(&machine, &format!("step {failed}"));
        failed += 1;
    }
    assert!(failed > 10, "{failed}");
}
