//! Placement of pods: shares of a link, whole links, several links, alternatives.

use super::manifests::{
    APP, INTERFACE, RATE, claim, config, devices, exactly, pod, pod_of_claim, reachable, share,
    template, whole_of,
};
use super::objects::{await_event, await_none, await_status, delete, get, ready};
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, Node, sh, wait};
use serde_json::json;
use std::time::Duration;

/// Pods that share a link: five times the rate is the link's capacity.
const SHARING: usize = 5;
/// Longest time until the scheduler has placed a pod after room was made.
const PLACED: Duration = Duration::from_secs(30);
/// Reason and text of the scheduler's event about a pod without room.
const WAITING: (&str, &str) = ("FailedScheduling", "cannot allocate all claims");

/// Names of the pods that share a link.
pub(super) fn names() -> Vec<String> {
    (0..SHARING)
        .map(|number| format!("{APP}-{number}"))
        .collect()
}

/// Fills a link with pods, runs `work` with them, and lets a sixth pod wait for room.
pub(super) fn shares(
    cluster: &Cluster,
    [node, _]: [Node; 2],
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let requests = [share("nic", "eth1", RATE.0)];
    let configs = [config(&[], &reachable())];
    let mut objects = vec![template("share", &devices(&requests, &configs))];
    objects.extend(names().iter().map(|name| pod(name, node, &["share"])));
    cluster.create(&objects)?;
    for name in names() {
        await_status(cluster, &ready(cluster, node, &name)?)?;
    }
    println!("{SHARING} pods share eth1, and their claims have their addresses");
    let last = format!("{APP}-last");
    cluster.create(&[pod(&last, node, &["share"])])?;
    await_event(cluster, &last, WAITING.0, WAITING.1)?;
    work()?;
    sh::read(&mut cluster.kubectl(["delete", "pod", &names()[0]]))?;
    ready(cluster, node, &last)?;
    println!("pod {} waited until another one was gone", SHARING + 1);
    delete(cluster)
}

/// Lets a pod have a whole link, while pods with shares of it wait, and the other way round.
pub(super) fn whole(cluster: &Cluster, node: Node) -> Result<()> {
    let keys = json!({"interface": INTERFACE, "ips": ["198.18.3.9/24"]});
    let whole = devices(&[whole_of("nic", "eth2")], &[config(&[], &keys)]);
    let part = devices(&[share("nic", "eth2", RATE.0)], &[config(&[], &keys)]);
    cluster.create(&[
        template("whole", &whole),
        template("part", &part),
        pod("whole", node, &["whole"]),
    ])?;
    ready(cluster, node, "whole")?;
    let links = sh::read(&mut cluster.on(node, ["ip", "-br", "link"])?)?;
    let is_there = links.lines().any(|line| line.starts_with("eth2"));
    ensure!(!is_there, "eth2 is still on {node}:\n{links}");
    cluster.create(&[pod("part", node, &["part"])])?;
    await_event(cluster, "part", WAITING.0, WAITING.1)?;
    sh::read(&mut cluster.kubectl(["delete", "pod", "whole"]))?;
    ready(cluster, node, "part")?;
    cluster.create(&[pod("whole", node, &["whole"])])?;
    await_event(cluster, "whole", WAITING.0, WAITING.1)?;
    sh::read(&mut cluster.kubectl(["delete", "pod", "part"]))?;
    ready(cluster, node, "whole")?;
    println!("a whole link and shares of it exclude each other");
    delete(cluster)
}

/// Lets a pod have two links by the constraint `distinctAttribute`.
pub(super) fn two_links(cluster: &Cluster, node: Node) -> Result<()> {
    let any = |name: &str| {
        json!({"name": name, "exactly": {"deviceClassName": "braid.dev",
            "capacity": {"requests": {"bandwidth": "1M"}}}})
    };
    let keys = |name: &str, ip: &str| json!({"interface": name, "ips": [ip]});
    let mut devices = devices(
        &[any("a"), any("b")],
        &[
            config(&["a"], &keys(INTERFACE, "198.18.1.40/24")),
            config(&["b"], &keys("data1", "198.18.3.40/24")),
        ],
    );
    devices["constraints"] =
        json!([{"requests": ["a", "b"], "distinctAttribute": "braid.dev/ifName"}]);
    cluster.create(&[template("two", &devices), pod("two", node, &["two"])])?;
    let pod = ready(cluster, node, "two")?;
    await_status(cluster, &pod)?;
    let claims = get(cluster, &["resourceclaims"])?;
    let results = &claims["items"][0]["status"]["allocation"]["devices"]["results"];
    ensure!(
        results[0]["device"] != results[1]["device"],
        "one link twice: {results}"
    );
    ensure!(pod.links()?.contains_key("data1"), "no data1");
    println!("two requests have two links by distinctAttribute");
    delete(cluster)
}

/// Lets a pod have its second choice.
pub(super) fn alternatives(cluster: &Cluster, node: Node) -> Result<()> {
    let alternative = |name: &str, rate: &str| {
        let mut it = exactly("eth1", rate);
        it["name"] = name.into();
        it
    };
    let request = json!({"name": "nic", "firstAvailable":
        [alternative("fast", "5G"), alternative("slow", "100M")]});
    let devices = devices(&[request], &[config(&["nic/slow"], &reachable())]);
    cluster.create(&[template("first", &devices), pod("first", node, &["first"])])?;
    await_status(cluster, &ready(cluster, node, "first")?)?;
    println!("a pod has the second alternative of firstAvailable");
    delete(cluster)
}

/// Lets two containers of a pod share a claim that has a name of its own. Another pod can't have it.
pub(super) fn two_containers(cluster: &Cluster, node: Node) -> Result<()> {
    let devices = devices(
        &[share("nic", "eth1", RATE.0)],
        &[config(&[], &reachable())],
    );
    let mut pod = pod_of_claim("both", node, "named");
    let mut second = pod["spec"]["containers"][0].clone();
    second["name"] = "second".into();
    let containers = &mut pod["spec"]["containers"];
    if let Some(containers) = containers.as_array_mut() {
        containers.push(second);
    }
    cluster.create(&[claim("named", &devices), pod])?;
    ready(cluster, node, "both")?;
    cluster.create(&[pod_of_claim("other", node, "named")])?;
    wait::eventually(PLACED, || {
        let events = crate::agent::events(cluster, "Pod", "other")?;
        let is_refused = |event: &crate::agent::Event| event.message.contains("is for one pod");
        ensure!(events.iter().any(is_refused), "not refused: {events:?}");
        Ok(())
    })?;
    println!("two containers share a claim, and two pods do not");
    delete(cluster)?;
    await_none(cluster)
}
