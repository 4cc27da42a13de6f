//! Tests of a pod's networks on the model, from the annotation to the status. A failure leaves
//! nothing.

mod claims;
mod devices;
mod edit;
mod no_cluster;
mod resource_claims;
mod runtime;

use super::model::Model;
use super::{NETNS, assert_nothing_left, ipam, machine};
use crate::apply::host::Machine as _;
use crate::attach::pods;
use crate::store::record::{Key, Record};
use braid_core::cni::{Attachment, Command, Error, Json, Kind, NetConf, Owner, Request};
use braid_core::k8s::on_disk::DiskFile;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::{NETWORK_STATUS, NETWORKS, Nad, ObjectName, Pod};
use braid_core::name::{IfName, Ns};
use braid_core::plan::Step;
use braid_core::plan::thing::{Route, Thing};
use std::collections::BTreeMap;

/// Keys of a configuration that has a file as its default network.
const SETTINGS: &str = r#""kubeconfig":"/k","clusterNetwork":"/etc/cni/default.conflist""#;

fn object(name: &str) -> ObjectName {
    ObjectName {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

/// A pod on this node.
fn pod(name: &str, annotations: BTreeMap<String, String>) -> Pod {
    let [uid, node] = ["u1", "node-1"].map(str::to_owned);
    Pod {
        name: object(name),
        uid,
        annotations,
        resource_claims: Vec::new(),
        node,
        is_over: false,
    }
}

/// Creates a cluster of one pod with this annotation, a bridge as its default network, and the
/// networks `blue`, `red` and `far`.
fn cluster(annotation: Option<&str>) -> Model {
    let machine = machine();
    let nad = |name: &str, config: String| Nad {
        name: object(name),
        config,
        annotations: BTreeMap::new(),
    };
    let routed = |subnet: u8| {
        format!(
            r#""ipam":{{"type":"static","routes":[{{"dst":"0.0.0.0/0"}}],"addresses":[{{"address":"10.{subnet}.0.2/24",
            "gateway":"10.{subnet}.0.1"}}]}}"#
        )
    };
    let default = format!(
        r#"{{"cniVersion":"1.0.0","name":"default","plugins":[{{"type":"bridge","bridge":"cni0","isGateway":true,{}}},
        {{"type":"portmap","capabilities":{{"portMappings":true}}}}]}}"#,
        routed(1)
    );
    let mut cluster = machine.cluster.borrow_mut();
    cluster.nads = vec![
        nad(
            "blue",
            format!(r#"{{"cniVersion":"1.0.0","type":"ptp",{}}}"#, ipam(2)),
        ),
        nad(
            "red",
            format!(
                r#"{{"cniVersion":"1.0.0","plugins":[{{"type":"macvlan","master":"lan",{}}}]}}"#,
                ipam(3)
            ),
        ),
        nad(
            "far",
            format!(
                r#"{{"cniVersion":"1.0.0","type":"macvlan","master":"nowhere",{}}}"#,
                ipam(4)
            ),
        ),
    ];
    let annotations = annotation
        .map(|text| (NETWORKS.to_owned(), text.to_owned()))
        .into_iter()
        .collect();
    cluster.pods.push(pod("web", annotations));
    let file = DiskFile {
        name: "default.conflist".to_owned(),
        bytes: default.into_bytes(),
    };
    cluster.files.push(("/etc/cni".into(), file));
    drop(cluster);
    machine
}

fn request(command: Command, more: &str) -> (Request, Settings) {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"pods","type":"braid",{SETTINGS}{more}}}"#);
    let conf = NetConf::from_json(Json::parse(text.as_bytes(), "test").expect("json"))
        .expect("a configuration");
    let settings = Settings::of(&conf).expect("settings").expect("of pods");
    let attachment = Attachment {
        container_id: "c1".to_owned(),
        ifname: IfName::parse("eth0").expect("a name"),
        netns: Some(NETNS.into()),
        args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u1".to_owned(),
    };
    (
        Request {
            command,
            attachment: Some(attachment),
            path: Vec::new(),
            netns_override: true,
            conf,
        },
        settings,
    )
}

/// Runs ADD. Returns its output.
fn add(machine: &Model, more: &str) -> Result<String, Error> {
    let (request, settings) = request(Command::Add, more);
    let mut said = String::new();
    let mut deliver = |text: &str| {
        text.clone_into(&mut said);
        Ok(())
    };
    pods::add(&request, &settings, machine, machine, &mut deliver).map(drop)?;
    Ok(said)
}

fn del(machine: &Model) -> Result<(), Error> {
    let (request, settings) = request(Command::Del, "");
    pods::del(request, &settings, "braid", machine, machine)
}

/// Returns the published entries as `name interface default`.
fn status(machine: &Model) -> Vec<String> {
    let cluster = machine.cluster.borrow();
    let Some(text) = cluster.pods[0].annotations.get(NETWORK_STATUS) else {
        return Vec::new();
    };
    let Ok(Json::Array(entries)) = Json::parse(text.as_bytes(), "status") else {
        panic!("no list: {text}")
    };
    let text =
        |entry: &Json, key: &str| entry.get(key).map(ToString::to_string).unwrap_or_default();
    let line = |entry: &Json| {
        ["name", "interface", "default"]
            .map(|key| text(entry, key))
            .join(" ")
            .replace('"', "")
    };
    entries.iter().map(line).collect()
}

fn default_routes(machine: &Model) -> Vec<String> {
    let state = machine.state.borrow();
    let routes = state.own.iter().filter_map(|thing| {
        if let Thing::Route(route) = thing {
            Some(route)
        } else {
            None
        }
    });
    let line = |Route {
                    at, gw, priority, ..
                }: &Route| {
        let gw = gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
        format!(
            "{}{gw}{}",
            at.name,
            priority
                .map(|metric| format!(" {metric}"))
                .unwrap_or_default()
        )
    };
    routes
        .filter(|route| route.at.ns == Ns::Pod && route.dst.prefix_len() == 0)
        .map(line)
        .collect()
}

// Conformance: C1, T6
#[test]
fn a_pod_without_annotation_costs_one_read_and_has_one_status_entry() {
    let machine = cluster(None);
    let said = add(&machine, "").expect("attached");
    assert!(
        said.contains("10.1.0.2/24") && said.contains("\"cniVersion\": \"1.1.0\""),
        "{said}"
    );
    assert_eq!(status(&machine), ["default eth0 true"]);
    assert_eq!(machine.cluster.borrow().asked, 2, "the pod, and its status");
    del(&machine).expect("detached");
    assert_eq!(machine.cluster.borrow().asked, 2, "DEL asks nobody");
    assert_nothing_left(&machine, "");
}

// Conformance: S1, S2, R2, T8
#[test]
fn all_networks_are_one_plan_and_one_status() {
    let machine = cluster(Some("blue, red@lan0"));
    let said = add(&machine, "").expect("attached");
    assert!(
        said.contains("10.1.0.2/24") && !said.contains("10.2.0.2"),
        "only the default network's: {said}"
    );
    assert_eq!(
        status(&machine),
        [
            "default eth0 true",
            "ns/blue net1 false",
            "ns/red lan0 false"
        ]
    );
    assert_eq!(
        (machine.cluster.borrow().asked, machine.state.borrow().plans),
        (3, 1)
    );
    assert_eq!(machine.folders(), 1);
    del(&machine).expect("detached");
    assert_nothing_left(&machine, "");
}

// Conformance: R2, R3
#[test]
fn any_failure_leaves_nothing_and_no_status() {
    for (annotation, word) in [
        ("blue,none", "ns/none"),
        ("blue,far", "nowhere"),
        ("blue,blue@eth0", "eth0"),
    ] {
        let machine = cluster(Some(annotation));
        let err = add(&machine, "").expect_err(annotation);
        assert!(err.to_string().contains(word), "{annotation}: {err}");
        assert_eq!(status(&machine), [""; 0], "{annotation}");
        assert_nothing_left(&machine, annotation);
    }
    let mut failed = 0;
    loop {
        let machine = cluster(Some("blue,red"));
        machine.fail_at(&[failed]);
        if add(&machine, "").is_ok() {
            break;
        }
        assert_nothing_left(&machine, &format!("step {failed}"));
        failed += 1;
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn without_the_api_add_asks_for_a_retry_and_leaves_nothing() {
    for at in [0, 1] {
        let machine = cluster(Some("blue"));
        machine.cluster.borrow_mut().fails_at = Some(at);
        let err = add(&machine, "").expect_err("no API");
        assert_eq!(err.kind, Kind::TryAgain, "{err}");
        assert_nothing_left(&machine, "");
    }
}

#[test]
fn an_unpublished_status_is_owed_and_published_by_gc() {
    let machine = cluster(Some("blue"));
    machine.cluster.borrow_mut().fails_at = Some(2);
    add(&machine, "").expect("the pod starts");
    assert_eq!(status(&machine), [""; 0]);
    let told = machine.state.borrow().warnings.concat();
    assert!(
        told.contains("pod ns/web: its network-status is not written yet: no connection"),
        "{told}"
    );
    machine.cluster.borrow_mut().fails_at = None;
    let listed = r#","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#;
    let (request, settings) = request(Command::Gc, listed);
    pods::gc(&request, &settings, "braid", &machine, &machine).expect("collected");
    assert_eq!(
        status(&machine),
        ["default eth0 true", "ns/blue net1 false"]
    );
    let asked = machine.cluster.borrow().asked;
    pods::gc(&request, &settings, "braid", &machine, &machine).expect("collected again");
    assert_eq!(machine.cluster.borrow().asked, asked, "it is owed no more");
    let (request, settings) = self::request(Command::Gc, r#","cni.dev/valid-attachments":[]"#);
    pods::gc(&request, &settings, "braid", &machine, &machine).expect("collected");
    assert_nothing_left(&machine, "GC takes all networks of the pod along");
}

// Conformance: S8
#[test]
fn an_invalid_annotation_fails_the_pod_or_is_ignored_with_an_event() {
    let bad = r#"[{"name":"blue"},{"name":"red","mac":"00:11"}]"#;
    let machine = cluster(Some(bad));
    let err = add(&machine, "").expect_err("invalid");
    assert!(
        ["2", "mac", "00:11"]
            .iter()
            .all(|word| err.msg.contains(word)),
        "{err}"
    );
    assert_nothing_left(&machine, bad);
    assert_eq!(machine.cluster.borrow().events.len(), 1);
    let machine = cluster(Some(bad));
    add(&machine, r#","invalidAnnotation":"ignore""#).expect("attached");
    assert_eq!(status(&machine), ["default eth0 true"]);
    assert_eq!(machine.cluster.borrow().events[0].0, "InvalidAnnotation");
}

#[test]
fn an_add_that_cannot_deliver_its_result_leaves_no_status() {
    let machine = cluster(Some("blue"));
    let (request, settings) = request(Command::Add, "");
    let added = pods::add(&request, &settings, &machine, &machine, &mut |_| {
        Err(Error::io("closed"))
    });
    assert!(
        added
            .map(drop)
            .expect_err("not delivered")
            .msg
            .contains("closed")
    );
    assert_eq!(status(&machine), [""; 0]);
    assert_nothing_left(&machine, "");
}

/// Sets the pod's status to an entry of the container `c0` and one of another writer.
fn set_earlier_status(machine: &Model) {
    let before = r#"[{"name":"ns/red","interface":"net1","default":false,"io.braid/container":"c0"},
        {"name":"other/writer","interface":"net7","default":false}]"#;
    let annotations = &mut machine.cluster.borrow_mut().pods[0].annotations;
    annotations.insert(NETWORK_STATUS.to_owned(), before.to_owned());
}

#[test]
fn a_failed_add_restores_the_status_of_an_earlier_sandbox_only_until_its_del() {
    let other = "other/writer net7 false";
    let earlier = "ns/red net1 false";
    for (is_attached, left) in [(true, vec![earlier, other]), (false, vec![other])] {
        let machine = cluster(Some("blue"));
        set_earlier_status(&machine);
        if is_attached {
            let folder = machine.folder("c0").expect("a folder");
            let key = Key {
                owner: Owner::new("pods", "c0", "eth0"),
                plugin: "braid".to_owned(),
            };
            let record = Record::new(key, None, Vec::new());
            folder.store(&record).expect("stored");
        }
        let (request, settings) = request(Command::Add, "");
        let added = pods::add(&request, &settings, &machine, &machine, &mut |_| {
            Err(Error::io("closed"))
        });
        added.map(drop).expect_err("not delivered");
        assert_eq!(status(&machine), left);
    }
}

#[test]
fn an_event_that_cannot_be_written_is_a_warning() {
    let machine = cluster(Some("blue@"));
    machine.cluster.borrow_mut().fails_at = Some(1);
    let err = add(&machine, "").expect_err("invalid");
    assert!(err.msg.contains("blue@"), "{err}");
    assert_eq!(
        machine.state.borrow().warnings,
        ["event of pod ns/web: no connection"]
    );
}

#[test]
fn gc_restores_rules_once_for_all_networks() {
    let machine = cluster(Some("blue,red"));
    add(&machine, "").expect("attached");
    machine.state.borrow_mut().restores = 0;
    let (request, settings) = request(
        Command::Gc,
        r#","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#,
    );
    pods::gc(&request, &settings, "braid", &machine, &machine).expect("collected");
    assert_eq!(machine.state.borrow().restores, 1);
}

// Conformance: S26, S28, S29
#[test]
fn the_default_route_belongs_to_the_network_that_requests_it() {
    for (annotation, routes) in [
        ("blue", vec!["eth0 via 10.1.0.1"]),
        (
            r#"[{"name":"blue","default-route":["10.2.0.1"]}]"#,
            vec!["net1 via 10.2.0.1"],
        ),
        (
            r#"[{"name":"blue","default-route":["10.2.0.1","10.2.0.3"]}]"#,
            vec!["net1 via 10.2.0.1 1", "net1 via 10.2.0.3 2"],
        ),
        (
            r#"[{"name":"red","default-route":["fd00::1"]}]"#,
            vec!["eth0 via 10.1.0.1", "net1 via fd00::1"],
        ),
    ] {
        let machine = cluster(Some(annotation));
        add(&machine, "").expect(annotation);
        assert_eq!(default_routes(&machine), routes, "{annotation}");
        let records = crate::apply::host::Machine::records(&machine).expect("records");
        let recorded = |step: &&Step| matches!(step, Step::Add(Thing::Route(route)) if route.dst.prefix_len() == 0);
        assert_eq!(
            records[0].steps().filter(recorded).count(),
            routes.len(),
            "{annotation}"
        );
        del(&machine).expect("detached");
        assert_nothing_left(&machine, annotation);
    }
}

// Conformance: R8
#[test]
fn host_ports_from_the_runtime_apply_to_the_default_network_only() {
    let machine = cluster(Some("blue"));
    let ports = r#","runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}"#;
    add(&machine, ports).expect("attached");
    let state = machine.state.borrow();
    let ports = state
        .own
        .iter()
        .filter(|thing| matches!(thing, Thing::HostPorts(_)))
        .count();
    assert_eq!(ports, 1);
}

// Conformance: C5
#[test]
fn add_waits_for_the_default_network_and_status_reports_it_missing() {
    let machine = cluster(None);
    let ready = r#","readinessindicatorfile":"/run/ready""#;
    assert_eq!(
        add(&machine, ready).expect_err("not ready").kind,
        Kind::TryAgain
    );
    let (request, settings) = request(Command::Status, ready);
    assert_eq!(
        pods::status(&request, &settings, &machine)
            .expect_err("not ready")
            .kind,
        Kind::NotAvailable
    );
    let file = DiskFile {
        name: "ready".to_owned(),
        bytes: Vec::new(),
    };
    machine
        .cluster
        .borrow_mut()
        .files
        .push(("/run".into(), file));
    pods::status(&request, &settings, &machine).expect("ready");
    add(&machine, ready).expect("attached");
}

#[test]
fn a_del_without_a_record_uses_the_default_network() {
    let machine = cluster(Some("blue"));
    del(&machine).expect("detached");
    machine.cluster.borrow_mut().files.clear();
    del(&machine).expect("nothing is known of the default network");
    assert_nothing_left(&machine, "");
}

#[test]
fn a_default_network_that_only_the_api_has_fails_neither_status_nor_gc() {
    let machine = cluster(Some("blue"));
    let (name, of_file) = {
        let mut cluster = machine.cluster.borrow_mut();
        let (_, file) = cluster.files.remove(0);
        (
            ObjectName {
                namespace: "kube-system".to_owned(),
                name: "main".to_owned(),
            },
            file.bytes,
        )
    };
    let config = String::from_utf8(of_file).expect("text");
    machine.cluster.borrow_mut().nads.push(Nad {
        name,
        config,
        annotations: BTreeMap::new(),
    });
    let of_object = |command, more: &str| {
        let text = format!(
            r#"{{"cniVersion":"1.1.0","name":"pods","type":"braid","kubeconfig":"/k","clusterNetwork":"main"{more}}}"#
        );
        let conf = NetConf::from_json(Json::parse(text.as_bytes(), "test").expect("json"))
            .expect("a configuration");
        let settings = Settings::of(&conf).expect("settings").expect("of pods");
        (
            Request {
                conf,
                ..request(command, "").0
            },
            settings,
        )
    };
    let (request, settings) = of_object(Command::Add, "");
    pods::add(&request, &settings, &machine, &machine, &mut |_| Ok(())).expect("attached");
    let asked = machine.cluster.borrow().asked;
    let (request, settings) = of_object(Command::Status, "");
    pods::status(&request, &settings, &machine).expect("available");
    let (request, settings) = of_object(Command::Gc, r#","cni.dev/valid-attachments":[]"#);
    pods::gc(&request, &settings, "braid", &machine, &machine).expect("collected");
    assert_eq!(
        machine.cluster.borrow().asked,
        asked,
        "neither asks the API"
    );
    assert_nothing_left(&machine, "");
    let (request, settings) = self::request(Command::Status, "");
    assert_eq!(
        pods::status(&request, &settings, &machine)
            .expect_err("no such file")
            .kind,
        Kind::NotAvailable
    );
}
