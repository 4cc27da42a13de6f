//! Tests of edits of a running pod's annotation.

use super::{SETTINGS, add, assert_nothing_left, cluster, default_routes, del, object, status};
use crate::apply::host::Machine as _;
use crate::attach::pods::{self, Edited};
use crate::attach::tests::model::Model;
use crate::store::record::Record;
use braid_core::cni::{Error, Json, NetConf};
use braid_core::k8s::{DEFAULT_NETWORK, NETWORK_STATUS, NETWORKS, Nad};
use std::collections::BTreeMap;

fn record(machine: &Model) -> Record {
    machine.records().expect("records").remove(0)
}

/// Changes the pod's annotation, and gives the pod its networks, as the agent does.
pub(super) fn edit(machine: &Model, annotation: &str) -> Result<Edited, Error> {
    let mut cluster = machine.cluster.borrow_mut();
    let annotations = &mut cluster.pods[0].annotations;
    annotations.insert(NETWORKS.to_owned(), annotation.to_owned());
    drop(cluster);
    edit_again(machine)
}

fn edit_again(machine: &Model) -> Result<Edited, Error> {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"pods","type":"braid",{SETTINGS}}}"#);
    let json = Json::parse(text.as_bytes(), "test").expect("json");
    let conf = NetConf::from_json(json).expect("a configuration");
    pods::edit(record(machine), &conf, machine, machine)
}

fn interfaces(machine: &Model) -> Vec<String> {
    let attachments = record(machine).attachments;
    let name = |one: &crate::store::record::Attached| format!("{}@{}", one.network, one.ifname);
    attachments.iter().map(name).collect()
}

fn events(machine: &Model) -> Vec<String> {
    let events = std::mem::take(&mut machine.cluster.borrow_mut().events);
    let line = |(reason, message): (String, String)| format!("{reason}: {message}");
    events.into_iter().map(line).collect()
}

#[test]
fn an_edit_changes_what_differs_and_the_status_follows() {
    let machine = cluster(Some("blue,red"));
    add(&machine, "").expect("attached");
    events(&machine);
    assert_eq!(edit_again(&machine), Ok(Edited::Same));
    assert_eq!(edit(&machine, "red,blue"), Ok(Edited::Same));
    assert!(events(&machine).is_empty());
    assert_eq!(edit(&machine, "red,red@x"), Ok(Edited::Changed));
    assert_eq!(interfaces(&machine), ["default@eth0", "red@net2", "red@x"]);
    assert_eq!(
        status(&machine),
        ["default eth0 true", "ns/red net2 false", "ns/red x false"]
    );
    assert_eq!(
        events(&machine),
        [
            "RemovedInterface: Remove net1 [10.2.0.2/24] from ns/blue",
            "AddedInterface: Add x [10.3.0.2/24] from ns/red"
        ]
    );
    assert_eq!(edit(&machine, ""), Ok(Edited::Changed));
    assert_eq!(interfaces(&machine), ["default@eth0"]);
    assert_eq!(status(&machine), ["default eth0 true"]);
    assert_eq!(edit(&machine, "blue,red"), Ok(Edited::Changed));
    del(&machine).expect("detached");
    assert_nothing_left(&machine, "after DEL");
}

#[test]
fn an_edit_that_is_refused_changes_nothing_and_is_told() {
    let machine = cluster(Some("blue"));
    add(&machine, "").expect("attached");
    events(&machine);
    let before = (interfaces(&machine), machine.state.borrow().own.clone());
    for (annotation, reason, part) in [
        (
            r#"[{"name":"red"},{"name":7}]"#,
            "InvalidAnnotation",
            "item 2",
        ),
        (
            "blue,red@net1",
            "NetworkRefused",
            "interface net1 is already used",
        ),
        ("blue,nothing", "NoNetworkFound", "ns/nothing"),
        ("blue,red,far", "FailedAddInterface", "nowhere"),
    ] {
        let err = edit(&machine, annotation).expect_err(annotation);
        assert!(err.to_string().contains(part), "{annotation}: {err}");
        let told = events(&machine);
        assert!(
            told.len() == 1 && told[0].starts_with(reason) && told[0].contains(part),
            "{annotation}: {told:?}"
        );
        let after = (interfaces(&machine), machine.state.borrow().own.clone());
        assert_eq!(after, before, "{annotation}");
        assert_eq!(status(&machine).len(), 2, "{annotation}");
    }
    let far = Nad {
        name: object("nothing"),
        config: machine.cluster.borrow().nads[1].config.clone(),
        annotations: BTreeMap::new(),
    };
    machine.cluster.borrow_mut().nads.push(far);
    assert_eq!(edit(&machine, "blue,nothing"), Ok(Edited::Changed));
}

#[test]
fn a_pod_that_is_gone_is_not_edited_and_other_writers_keep_their_entries() {
    let machine = cluster(Some("blue"));
    add(&machine, "").expect("attached");
    let text = {
        let cluster = machine.cluster.borrow();
        cluster.pods[0].annotations[NETWORK_STATUS].clone()
    };
    let theirs = r#"[{"name":"other/net","interface":"ovn0"},"#;
    let text = text.replacen('[', theirs, 1);
    machine.cluster.borrow_mut().pods[0]
        .annotations
        .insert(NETWORK_STATUS.to_owned(), text);
    edit(&machine, "blue,red").expect("edited");
    assert_eq!(
        status(&machine),
        [
            "default eth0 true",
            "ns/blue net1 false",
            "ns/red net2 false",
            "other/net ovn0 "
        ]
    );
    let pod = machine.cluster.borrow_mut().pods.remove(0);
    assert_eq!(edit_again(&machine), Ok(Edited::Gone));
    let other = braid_core::k8s::Pod {
        uid: "u2".to_owned(),
        ..pod
    };
    machine.cluster.borrow_mut().pods.push(other);
    assert_eq!(edit(&machine, ""), Ok(Edited::Gone));
    assert_eq!(interfaces(&machine).len(), 3);
}

#[test]
fn a_status_that_could_not_be_published_is_published_by_the_next_edit() {
    let machine = cluster(Some("blue"));
    add(&machine, "").expect("attached");
    let asked = machine.cluster.borrow().asked;
    // The pod and the network are read.
    machine.cluster.borrow_mut().fails_at = Some(asked + 2);
    assert_eq!(edit(&machine, "blue,red"), Ok(Edited::Changed));
    assert_eq!(status(&machine).len(), 2);
    assert!(record(&machine).owed.is_some());
    machine.cluster.borrow_mut().fails_at = None;
    assert_eq!(edit_again(&machine), Ok(Edited::Same));
    assert_eq!(status(&machine).len(), 3);
    assert!(record(&machine).owed.is_none());
}

#[test]
fn a_status_is_published_after_an_edit_that_was_killed_before() {
    let machine = cluster(Some("blue"));
    add(&machine, "").expect("attached");
    edit(&machine, "blue,red").expect("edited");
    // As it is before the edit is published.
    let published = std::mem::take(&mut machine.cluster.borrow_mut().pods[0].annotations);
    let networks = published[NETWORKS].clone();
    let annotations = BTreeMap::from([(NETWORKS.to_owned(), networks)]);
    machine.cluster.borrow_mut().pods[0].annotations = annotations;
    assert_eq!(edit_again(&machine), Ok(Edited::Same));
    assert_eq!(
        status(&machine).len(),
        0,
        "the record says that it is published"
    );
    let folder = machine.folder("c1").expect("a folder");
    let mut unpublished = record(&machine);
    unpublished.is_unpublished = true;
    folder.store(&unpublished).expect("stored");
    drop(folder);
    assert_eq!(edit_again(&machine), Ok(Edited::Same));
    assert_eq!(status(&machine).len(), 3);
    assert!(!record(&machine).is_unpublished);
    // Without the API it is owed, and the attempt has failed.
    unpublished.is_unpublished = true;
    let folder = machine.folder("c1").expect("a folder");
    folder.store(&unpublished).expect("stored");
    drop(folder);
    let asked = machine.cluster.borrow().asked;
    machine.cluster.borrow_mut().fails_at = Some(asked + 1);
    edit_again(&machine).expect_err("not published");
    assert!(record(&machine).owed.is_some());
}

#[test]
fn a_default_route_moves_in_place_and_back() {
    let machine = cluster(Some("blue,red"));
    add(&machine, "").expect("attached");
    let before = default_routes(&machine);
    assert_eq!(before.len(), 1);
    events(&machine);
    for _ in 0..2 {
        let routed = r#"[{"name":"blue","default-route":["10.2.0.9"]},{"name":"red"}]"#;
        assert_eq!(edit(&machine, routed), Ok(Edited::Changed));
        let moved = default_routes(&machine);
        assert!(
            moved.len() == 1 && moved[0].contains("10.2.0.9"),
            "{moved:?}"
        );
        assert_eq!(edit(&machine, "blue,red"), Ok(Edited::Changed));
        assert_eq!(default_routes(&machine), before);
    }
    assert!(events(&machine).is_empty(), "the interfaces stay");
    del(&machine).expect("detached");
    assert_nothing_left(&machine, "after DEL");
}

#[test]
fn the_default_network_keeps_the_default_route_that_it_requests() {
    let machine = cluster(None);
    let config = r#"{"cniVersion":"1.0.0","type":"ptp","ipam":{"type":"static",
        "routes":[{"dst":"0.0.0.0/0"}],"addresses":[{"address":"10.5.0.2/24","gateway":"10.5.0.1"}]}}"#;
    let mut cluster = machine.cluster.borrow_mut();
    cluster.nads.push(Nad {
        name: object("routed"),
        config: config.to_owned(),
        annotations: BTreeMap::new(),
    });
    let routed = r#"[{"name":"routed","namespace":"ns","default-route":["10.5.0.9"]}]"#;
    let annotations = &mut cluster.pods[0].annotations;
    annotations.insert(DEFAULT_NETWORK.to_owned(), routed.to_owned());
    drop(cluster);
    add(&machine, "").expect("attached");
    let routes = default_routes(&machine);
    assert!(
        routes.len() == 1 && routes[0].contains("10.5.0.9"),
        "{routes:?}"
    );
    assert_eq!(edit_again(&machine), Ok(Edited::Same));
    assert_eq!(default_routes(&machine), routes);
}
