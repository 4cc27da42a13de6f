//! Kubernetes objects that braid's client of the API server reads and writes, checked with kubectl.

use crate::{World, annotate, annotations, json, steady, uid};
use braid_core::k8s::source::{Edit, Event, Severity, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, Pod};
use braid_node::source::client::protocol::Limits;
use braid_testbed::wait;
use braid_tests::Value;
use std::cell::Cell;
use std::time::Duration;

const STATUS: &str = braid_core::k8s::NETWORK_STATUS;

/// Creates a pod with a resource claim and with a claim template. The pod's status names the claim
/// that was generated from the template, as a controller would write it.
fn create_pod_with_claims(world: &World, name: &str) -> Value {
    let claims = json!([
        {"name": "own", "resourceClaimName": "gpu"},
        {"name": "made", "resourceClaimTemplateName": "nic"},
    ]);
    let spec = json!({"containers": [{"name": "c", "image": "none"}], "resourceClaims": claims});
    let metadata = json!({"name": name, "annotations": {"a": "1", "b": "2"}});
    world.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
    let status = json!({"status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "web-made-x7"}]}});
    let patch = [
        "patch",
        "pod",
        name,
        "-n",
        &world.namespace,
        "--subresource=status",
        "--type=merge",
    ];
    world
        .server
        .kubectl(&[&patch[..], &["-p", &status.to_string()]].concat(), None);
    world.get("pod", name)
}

#[test]
fn a_pod_is_read_with_uid_annotations_claims_and_networks_in_order() {
    let Some(world) = World::new("pod-and-networks") else {
        return;
    };
    let made = create_pod_with_claims(&world, "web");
    let config = r#"{"cniVersion":"1.0.0","type":"macvlan","big":9007199254740993}"#;
    world.create_nad("lan", &json!({"config": config}));
    world.create_nad("on-disk", &json!({}));
    let names = [world.name("on-disk"), world.name("lan")];
    let (pod, nads) = world
        .source()
        .pod(&world.name("web"), None, &names)
        .expect("a pod");
    let expected = Pod {
        name: world.name("web"),
        uid: uid(&made).to_owned(),
        annotations: [("a", "1"), ("b", "2")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        resource_claims: ["gpu", "web-made-x7"].map(String::from).into(),
        node: String::new(),
        is_over: false,
    };
    assert_eq!(pod, expected);
    let nad = |name: &str, config: &str| Nad {
        name: world.name(name),
        config: config.into(),
        annotations: [].into(),
    };
    assert_eq!(nads, [nad("on-disk", ""), nad("lan", config)]);
    assert_eq!(world.source().nads(&names).expect("networks"), nads);
}

/// Creates a claim with a device of this driver, allocated and reserved for the pod.
fn create_allocated(world: &World, name: &str, driver: &str, pod: &Value) -> Value {
    let exactly = json!({"deviceClassName": "any"});
    let spec = json!({"devices": {"requests": [{"name": "nic", "exactly": exactly}]}});
    let metadata = json!({"name": name});
    let claim = world.create(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": metadata, "spec": spec}),
    );
    let result = json!({"request": "nic", "driver": driver, "pool": "n1", "device": "eth1",
        "shareID": "aed5bbdc-6a0b-4a0a-8e3e-0f1f0c0a0b0c", "consumedCapacity": {"bandwidth": "200M"}});
    let reserved = json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid(pod)});
    let allocation = json!({"devices": {"results": [result]}});
    let status = json!({"status": {"allocation": allocation, "reservedFor": [reserved]}});
    let patch = ["patch", "resourceclaim", name, "-n", &world.namespace];
    let more = [
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ];
    world
        .server
        .kubectl(&[&patch[..], &more[..]].concat(), None);
    claim
}

/// Returns the credentials of an account that may read pods and claims of the test's namespace, as the
/// shipped one may where devices are offered.
fn reader_of_claims(world: &World) -> Value {
    let (server, namespace) = (world.server, &world.namespace);
    let (name, of) = ("reads-claims", format!("--namespace={namespace}"));
    server.kubectl(
        &["create", "serviceaccount", name, "-n", "kube-system"],
        None,
    );
    let kinds = "--resource=pods,resourceclaims.resource.k8s.io";
    server.kubectl(&["create", "role", name, &of, "--verb=get", kinds], None);
    let (role, account) = (
        format!("--role={name}"),
        format!("--serviceaccount=kube-system:{name}"),
    );
    server.kubectl(&["create", "rolebinding", name, &of, &role, &account], None);
    let user = format!("--as=system:serviceaccount:kube-system:{name}");
    let may = [
        "auth",
        "can-i",
        "get",
        "resourceclaims.resource.k8s.io",
        &of,
        &user,
    ];
    let may = || Ok(server.try_kubectl(&may, None).status.success());
    wait::until("the right is there", Duration::from_mins(1), may).expect("a right");
    json!({"token": server.create_token(name)})
}

#[test]
fn resource_claims_of_a_pod_are_read_in_its_order_without_those_of_other_drivers() {
    let Some(world) = World::new("resource-claims") else {
        return;
    };
    let user = reader_of_claims(&world);
    let pod = create_pod_with_claims(&world, "web");
    let read = |uid: &str| {
        world
            .api(&user, Limits::default())
            .resource_claims(&world.name("web"), uid)
    };
    let err = read(uid(&pod)).expect_err("no such claims");
    assert!(matches!(err, SourceError::NotFound { .. }), "{err}");
    create_allocated(&world, "gpu", "gpu.example.com", &pod);
    let made = create_allocated(&world, "web-made-x7", "braid.dev", &pod);
    let claims = read(uid(&pod)).expect("claims");
    let [claim] = &claims[..] else {
        panic!("{claims:?}")
    };
    assert_eq!(
        (&claim.name, claim.uid.as_str()),
        (&world.name("web-made-x7"), uid(&made))
    );
    assert_eq!(claim.shares[0].bandwidth, Some(200_000_000));
    assert_eq!(claim.refuse_second(uid(&pod)), Ok(()));
    let err = read("another").expect_err("a pod of another uid");
    assert!(matches!(err, SourceError::NotFound { .. }), "{err}");
}

#[test]
fn a_missing_object_is_an_error_but_a_missing_network_is_omitted() {
    let Some(world) = World::new("not-there") else {
        return;
    };
    world.create_pod("web", &json!({}));
    let mut source = world.source();
    let what = |result: Result<_, SourceError>| match result {
        Err(SourceError::NotFound { what }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        what(source.pod(&world.name("no"), None, &[]).map(drop)),
        "pod not-there/no"
    );
    let nads = [world.name("no")];
    assert_eq!(
        source
            .pod(&world.name("web"), None, &nads)
            .map(|(_, nads)| nads),
        Ok(Vec::new())
    );
    assert_eq!(source.nads(&nads), Ok(Vec::new()));
    assert_eq!(
        what(source.claim(&world.name("no")).map(drop)),
        "IPAMClaim not-there/no"
    );
    assert_eq!(
        what(annotate(
            &mut source,
            &world.name("no"),
            "u",
            &json!({}),
            "[]"
        )),
        "pod not-there/no"
    );
}

#[test]
fn setting_an_annotation_changes_nothing_else_of_the_pod() {
    let Some(world) = World::new("annotate") else {
        return;
    };
    let mut expected = create_pod_with_claims(&world, "web");
    let mut source = world.source();
    for status in [r#"[{"name":"a/b","interface":"eth0"}]"#, "[]"] {
        annotate(
            &mut source,
            &world.name("web"),
            uid(&expected),
            annotations(&expected),
            status,
        )
        .expect("annotated");
        expected["metadata"]["annotations"][STATUS] = status.into();
        assert_eq!(world.get("pod", "web"), expected);
    }
}

#[test]
fn a_pod_of_another_uid_is_not_annotated() {
    let Some(world) = World::new("other-uid") else {
        return;
    };
    let before = steady(world.create_pod("web", &json!({})));
    let other = "11111111-2222-3333-4444-555555555555";
    let result = annotate(
        &mut world.source(),
        &world.name("web"),
        other,
        annotations(&before),
        "[]",
    );
    assert_eq!(
        result,
        Err(SourceError::NotFound {
            what: format!("pod other-uid/web with uid {other}")
        })
    );
    assert_eq!(world.get("pod", "web"), before);
}

#[test]
fn an_unread_annotation_value_is_never_overwritten() {
    let Some(world) = World::new("raced") else {
        return;
    };
    world.server.kubectl(
        &["create", "serviceaccount", "updater", "-n", "kube-system"],
        None,
    );
    let verbs = ["--verb=get,update", "--resource=pods,pods/status"];
    world.server.kubectl(
        &[&["create", "role", "updater", "-n", "raced"], &verbs[..]].concat(),
        None,
    );
    let to = ["--role=updater", "--serviceaccount=kube-system:updater"];
    world.server.kubectl(
        &[
            &["create", "rolebinding", "updater", "-n", "raced"],
            &to[..],
        ]
        .concat(),
        None,
    );
    for (name, account) in [("patched", "braid"), ("put", "updater")] {
        let pod = world.create_pod(name, &json!({}));
        let object = world.name(name);
        let mut source = world.api(
            &json!({"token": world.server.create_token(account)}),
            Limits::default(),
        );
        // Twice another writer changes the annotation first, each time to a different value.
        let calls = Cell::new(0);
        let value = |now: Option<&str>| {
            calls.set(calls.get() + 1);
            let others = format!("{STATUS}=others-{}", calls.get());
            if calls.get() < 4 {
                world.server.kubectl(
                    &[
                        "annotate",
                        "pod",
                        name,
                        "-n",
                        "raced",
                        "--overwrite",
                        &others,
                        "other=kept",
                    ],
                    None,
                );
            }
            Some(format!("{} and ours", now.unwrap_or("nothing")))
        };
        source
            .annotate(
                &object,
                uid(&pod),
                &Edit {
                    key: STATUS,
                    seen: None,
                    value: &value,
                },
            )
            .expect("annotated");
        let expected = json!({STATUS: "others-3 and ours", "other": "kept"});
        assert_eq!(
            (annotations(&world.get("pod", name)), calls.get()),
            (&expected, 4),
            "{account}"
        );
        let status = world.get("pod", name)["status"].clone();
        assert_eq!(status, pod["status"], "{account}");
    }
}

#[test]
fn a_rejected_value_is_a_permanent_error() {
    let Some(world) = World::new("value-too-long") else {
        return;
    };
    let pod = world.create_pod("web", &json!({}));
    let long = "x".repeat(1 << 19);
    let told = annotate(
        &mut world.source(),
        &world.name("web"),
        uid(&pod),
        annotations(&pod),
        &long,
    );
    assert!(
        matches!(&told, Err(SourceError::Lasting { why }) if why.contains("422")),
        "{told:?}"
    );
}

#[test]
fn a_claims_addresses_are_written_to_its_status_alone() {
    let Some(world) = World::new("claims") else {
        return;
    };
    let spec = json!({"network": "lan", "interface": "net1"});
    let claim = json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": "vm"}, "spec": spec});
    let mut expected = steady(world.create(claim));
    let owner = json!({"status": {"ownerPod": {"name": "web"}}}).to_string();
    let patch = [
        "patch",
        "ipamclaim",
        "vm",
        "-n",
        "claims",
        "--subresource=status",
        "--type=merge",
        "-p",
        &owner,
    ];
    world.server.kubectl(&patch, None);
    let mut source = world.source();
    let claim = source.claim(&world.name("vm")).expect("a claim");
    let [network, interface] = ["lan", "net1"].map(String::from);
    let uid = uid(&expected).to_owned();
    let version = claim.version.clone();
    let owner_pod = Some("web".to_owned());
    let (name, ips, conditions) = (world.name("vm"), vec![], vec![]);
    assert_eq!(
        claim,
        IpamClaim {
            name,
            uid,
            network,
            interface,
            version,
            ips,
            owner_pod,
            conditions
        }
    );
    let ips = ["10.0.0.9/24", "fd00::9/64"].map(String::from);
    let filled = IpamClaim {
        ips: ips.to_vec(),
        ..claim.clone()
    };
    source.fill_claim(&filled).expect("filled");
    expected["status"] = json!({"ips": ips, "ownerPod": {"name": "web"}, "conditions": []});
    assert_eq!(world.get("ipamclaim", "vm"), expected);
    let now = source.claim(&world.name("vm")).expect("a claim");
    assert_eq!(now.ips, ips);
    source
        .fill_claim(&filled)
        .expect("it is so already: the answer may have been lost");
    let other = IpamClaim {
        uid: "gone".into(),
        ..now
    };
    assert_eq!(
        source.fill_claim(&other),
        Err(SourceError::NotFound {
            what: "IPAMClaim claims/vm with uid gone".into()
        })
    );
    let late = IpamClaim {
        owner_pod: Some("other".into()),
        ..claim
    };
    let start = std::time::Instant::now();
    let refused = source.fill_claim(&late).expect_err("somebody was faster");
    assert!(
        matches!(&refused, SourceError::Passing { why } if why.contains("409")),
        "{refused}"
    );
    assert!(
        start.elapsed() < std::time::Duration::from_secs(3),
        "tried again in vain"
    );
    assert_eq!(world.get("ipamclaim", "vm"), expected);
}

#[test]
fn an_event_is_created_for_the_pod() {
    let Some(world) = World::new("events") else {
        return;
    };
    let pod = world.create_pod("web", &json!({}));
    let message = format!("item 2: interface \"a/b\"{}", "ä".repeat(1000));
    let event = Event {
        severity: Severity::Warning,
        reason: "InvalidAnnotation".into(),
        message,
        trace: None,
    };
    world
        .source()
        .tell(&world.name("web"), uid(&pod), &event)
        .expect("told");
    let events = world
        .server
        .kubectl(&["get", "events", "-n", "events", "-o", "json"], None);
    let events: Value = serde_json::from_str(&events).expect("kubectl prints JSON");
    let [event] = events["items"].as_array().expect("a list").as_slice() else {
        panic!("{events}")
    };
    let shown =
        ["type", "reason", "reportingComponent"].map(|key| event[key].as_str().unwrap_or_default());
    assert_eq!(shown, ["Warning", "InvalidAnnotation", "braid"]);
    assert_eq!(event["involvedObject"]["uid"], pod["metadata"]["uid"]);
    assert!(
        event["message"]
            .as_str()
            .is_some_and(|message| message.starts_with("item 2: interface \"a/b\"ä"))
    );
}

// Requirement N1 of docs/conformance.md.
#[test]
fn kubectl_accepts_both_short_names_of_networks() {
    let Some(world) = World::new("short-names") else {
        return;
    };
    world.create_nad("lan", &json!({"config": "{}"}));
    for kind in ["nad", "net-attach-def", "network-attachment-definitions"] {
        assert_eq!(world.get(kind, "lan")["spec"]["config"], "{}");
    }
}
