//! Faults on the connection to the API server, and the time limits for retries.

use crate::{Fault, World, annotate, annotations, json, uid};
use braid_core::k8s::source::{Source, SourceError};
use braid_node::source::client::protocol::Limits;
use std::time::{Duration, Instant};

const STATUS: &str = braid_core::k8s::NETWORK_STATUS;
const BUSY: Fault = Fault::Answer(503, "", "");
/// Delay of one direction, half of a round trip of 800 ms.
const FAR: Duration = Duration::from_millis(400);
/// Short time limits, for tests that wait until a limit is reached.
const SHORT: Limits = Limits {
    attempt: Duration::from_millis(500),
    call: Duration::from_millis(1500),
    process: Duration::from_millis(2500),
    event: Duration::from_millis(500),
};
/// Time by which a test may exceed the limits in [`SHORT`] on a busy machine.
const LATE: Duration = Duration::from_millis(700);

fn passing<T: std::fmt::Debug>(result: Result<T, SourceError>) -> String {
    match result {
        Err(SourceError::Passing { why }) => why,
        other => panic!("{other:?}"),
    }
}

/// Publishes an annotation over several connections: the first ones have `faults`, and the last one
/// has none. Returns the time until the annotation was written; `None` without an API server.
fn arrives(namespace: &str, faults: Vec<Fault>) -> Option<Duration> {
    // The fake answer is HTTP/1.1 only, so the client's first attempt, with HTTP/2, fails.
    let in_vain = faults
        .iter()
        .any(|fault| matches!(fault, Fault::Answer(..)));
    let connections = faults.len() + 1 + usize::from(in_vain);
    let world = World::with(namespace, faults, Fault::None)?;
    let pod = world.create_pod("web", &json!({"other": "kept"}));
    let start = Instant::now();
    annotate(
        &mut world.source(),
        &world.name("web"),
        uid(&pod),
        annotations(&pod),
        "[]",
    )
    .expect("annotated");
    let took = start.elapsed();
    assert_eq!(world.proxy.connections(), connections);
    let annotations = &world.get("pod", "web")["metadata"]["annotations"];
    assert_eq!(annotations, &json!({"other": "kept", STATUS: "[]"}));
    Some(took)
}

#[test]
fn a_change_is_retried_after_409_429_and_5xx() {
    let conflict = r#"{"kind": "Status", "status": "Failure", "message": "the object has been modified", "code": 409}"#;
    let answers = [
        (409, conflict),
        (429, "too many"),
        (500, ""),
        (502, "<html>"),
        (503, ""),
        (504, ""),
    ];
    let faults = answers.map(|(status, body)| Fault::Answer(status, "", body));
    arrives("answers", faults.into());
}

#[test]
fn a_change_is_retried_after_cut_connections() {
    arrives("cuts", vec![Fault::Cut, Fault::Cut, Fault::Cut]);
}

#[test]
fn a_change_with_a_lost_response_is_retried_and_applied_once() {
    arrives("lost", vec![Fault::LoseAnswer]);
}

#[test]
fn retry_after_is_respected() {
    let Some(took) = arrives(
        "retry-after",
        vec![Fault::Answer(429, "retry-after: 2\r\n", "")],
    ) else {
        return;
    };
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

#[test]
fn retry_after_beyond_the_budget_is_a_temporary_error() {
    let wish = Fault::Answer(429, "retry-after: 3600\r\n", "too many requests");
    let Some(world) = World::with("too-long", Vec::new(), wish) else {
        return;
    };
    let start = Instant::now();
    let why = passing(world.source().pod(&world.name("web"), None, &[]));
    assert_eq!(
        why,
        "get pod too-long/web: 429, tried 2 times: too many requests"
    );
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_pod_and_its_networks_are_read_despite_partial_faults() {
    let Some(world) = World::with("partly", vec![BUSY, Fault::Cut, BUSY], Fault::None) else {
        return;
    };
    world.create_pod("web", &json!({}));
    for name in ["a", "b"] {
        world.create_nad(name, &json!({"config": "{}"}));
    }
    let names = ["a", "b"].map(|name| world.name(name));
    let (pod, nads) = world
        .source()
        .pod(&world.name("web"), None, &names)
        .expect("a pod");
    assert_eq!((pod.name, nads.len()), (world.name("web"), 2));
}

#[test]
fn a_silent_server_is_a_temporary_error_within_the_budgets() {
    let Some(world) = World::with("silent", Vec::new(), Fault::Silence) else {
        return;
    };
    let user = json!({"token": world.server.token});
    let mut source = world.api(&user, SHORT);
    let mut pod = || {
        let start = Instant::now();
        let why = passing(source.pod(&world.name("web"), None, &[world.name("a")]));
        (why, start.elapsed())
    };
    let (why, took) = pod();
    assert!(
        why.starts_with("get pod silent/web: 127.0.0.1:")
            && why.contains(" did not respond within "),
        "{why}"
    );
    assert!(took < SHORT.call + LATE, "{took:?}");
    let (_, again) = pod();
    assert!(
        took + again < SHORT.process + LATE * 2,
        "{took:?}, then {again:?}"
    );
    let (why, took) = pod();
    assert!(
        why.starts_with("request not sent: the API server has already used "),
        "{why}"
    );
    assert!(took < LATE, "{took:?}");
}

#[test]
fn a_server_that_is_down_is_a_temporary_error_within_the_budget() {
    let Some(world) = World::new("down") else {
        return;
    };
    let cluster = json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true});
    let access = braid_client::api::Access::new(crate::write_kubeconfig(
        &cluster,
        &json!({"token": "some-token"}),
    ));
    let start = Instant::now();
    let why =
        passing(braid_client::api::Api::new(access, SHORT).pod(&world.name("web"), None, &[]));
    assert!(
        why.starts_with("get pod down/web: 127.0.0.1:1: Connection refused (os error 111), tried "),
        "{why}"
    );
    assert!(start.elapsed() < SHORT.call + LATE, "{:?}", start.elapsed());
}

#[test]
fn a_server_that_never_recovers_is_a_temporary_error_with_its_message() {
    let Some(world) = World::with(
        "broken",
        Vec::new(),
        Fault::Answer(500, "", "etcd: no leader"),
    ) else {
        return;
    };
    let why = passing(world.api(&json!({"token": world.server.token}), SHORT).pod(
        &world.name("web"),
        None,
        &[],
    ));
    assert!(
        why.starts_with("get pod broken/web: 500, tried ")
            && why.ends_with(" times: etcd: no leader"),
        "{why}"
    );
}

#[test]
fn at_800_ms_fetching_takes_three_round_trips_and_a_change_one() {
    let Some(world) = World::with("far", Vec::new(), Fault::Delay(FAR)) else {
        return;
    };
    let pod = world.create_pod("web", &json!({}));
    let names = ["a", "b", "c"].map(|name| {
        world.create_nad(name, &json!({"config": "{}"}));
        world.name(name)
    });
    let mut source = world.source();
    let start = Instant::now();
    let (_, nads) = source.pod(&world.name("web"), None, &names).expect("a pod");
    let (fetched, start) = (start.elapsed(), Instant::now());
    annotate(
        &mut source,
        &world.name("web"),
        uid(&pod),
        annotations(&pod),
        "[]",
    )
    .expect("annotated");
    let annotated = start.elapsed();
    // The first round trip opens the connection, the second exchanges keys, the third sends the
    // request.
    let trips = |took: Duration| took.as_millis() / (FAR * 2).as_millis();
    assert_eq!(
        (nads.len(), trips(fetched), trips(annotated)),
        (3, 3, 1),
        "{fetched:?}, {annotated:?}"
    );
    assert_eq!(world.proxy.connections(), 1);
}
