//! Basic check of a CNI plugin on a real cluster, from the creation of pods to the absence of
//! leftovers after their deletion.

use crate::leftovers::{self, Traces};
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{API_SERVER, Cluster, Node, wait};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const APP: &str = pods::SMOKE;
/// Longest time until the pods are Ready, and until they are deleted.
const LIMIT: Duration = Duration::from_mins(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods
    #[arg(long, default_value_t = 20)]
    pub(super) pods: u32,
    /// List leftovers on the nodes, but do not fail
    #[arg(long)]
    pub(super) lenient: bool,
}

/// A running pod of the deployment.
struct Pod {
    name: String,
    node: String,
    address: String,
}

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    run_and_look(cluster, options, |_, _| Ok(()))
}

/// Runs the check. While the pods run, calls `look` for each node with the identifiers of the
/// node's pods.
pub(super) fn run_and_look(
    cluster: &Cluster,
    options: &Options,
    look: impl Fn(Node, &Traces) -> Result<()>,
) -> Result<()> {
    let nodes = cluster.nodes()?;
    delete(cluster)?; // what an earlier run left to look at
    let start = Instant::now();
    cluster.create(&[deployment(options.pods)])?;
    sh::read(&mut cluster.kubectl([
        "rollout",
        "status",
        "deployment/smoke",
        &wait::timeout(LIMIT),
    ]))?;
    println!(
        "{} pods Ready after {:.1} s",
        options.pods,
        start.elapsed().as_secs_f64()
    );

    let found = running_pods(cluster)?;
    let traces = nodes
        .iter()
        .map(|node| Traces::of(cluster, *node, APP))
        .collect::<Result<Vec<_>>>()?;
    for (node, traces) in nodes.iter().zip(&traces) {
        look(*node, traces)?;
        let prober = found.iter().find(|pod| pod.node == node.to_string());
        let prober = prober.with_context(|| format!("no pod was scheduled on {node}"))?;
        check_from(cluster, prober, &found)?;
    }

    delete(cluster)?;
    let mut left = Vec::new();
    for (node, traces) in nodes.iter().zip(&traces) {
        left.extend(
            leftovers::find(cluster, *node, traces)?
                .into_iter()
                .map(|what| format!("{node}: {what}")),
        );
    }
    if left.is_empty() {
        println!(
            "nothing left on {} nodes: {}",
            nodes.len(),
            leftovers::KINDS
        );
        return Ok(());
    }
    for what in &left {
        println!("left on {what}");
    }
    if !options.lenient {
        bail!("{} leftovers on the nodes", left.len());
    }
    Ok(())
}

fn deployment(replicas: u32) -> Value {
    // Each pod serves its own name, so an answer shows which pod has sent it.
    let script =
        "echo started $(hostname); hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp";
    let mut spec = pods::spec(script);
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": APP},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": APP}},
            "template": {"metadata": {"labels": {"app": APP}}, "spec": spec},
        },
    })
}

/// Deletes the deployment, if present, and waits until its pods are gone.
fn delete(cluster: &Cluster) -> Result<()> {
    let wait = [
        "--cascade=foreground",
        "--ignore-not-found",
        &wait::timeout(LIMIT),
    ];
    sh::read(cluster.kubectl(["delete", "deployment", APP]).args(wait)).map(drop)
}

fn running_pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pod = |pod: &Value| Pod {
        name: text(&pod["metadata"]["name"]),
        node: text(&pod["spec"]["nodeName"]),
        address: text(&pod["status"]["podIP"]),
    };
    Ok(pods::list(cluster, APP)?.iter().map(pod).collect())
}

/// Checks that every pod answers the pod `prober`, that `prober` reaches the API server, and that
/// exec and logs work.
fn check_from(cluster: &Cluster, prober: &Pod, pods: &[Pod]) -> Result<()> {
    let addresses: Vec<&str> = pods.iter().map(|pod| pod.address.as_str()).collect();
    // `timeout`, because `wget -T` crashes in Debian 12's static busybox.
    let script = format!(
        "for a in {}; do echo $a $(timeout 5 wget -qO- http://$a/ 2>&1); done; \
         ping -c 1 -W 5 {API_SERVER} >/dev/null && echo outside",
        addresses.join(" ")
    );
    let answers =
        sh::read(&mut cluster.kubectl(["exec", &prober.name, "--", "/bin/sh", "-c", &script]))?;
    for pod in pods {
        let expected = format!("{} {}", pod.address, pod.name);
        ensure!(
            answers.lines().any(|line| line == expected),
            "from {} on {}: {} on {} does not answer:\n{answers}",
            prober.name,
            prober.node,
            expected,
            pod.node
        );
    }
    ensure!(
        answers.lines().any(|line| line == "outside"),
        "from {}: {API_SERVER} does not answer",
        prober.node
    );
    let logs = sh::read(&mut cluster.kubectl(["logs", &prober.name]))?;
    ensure!(
        logs.trim() == format!("started {}", prober.name),
        "logs of {}: {logs:?}",
        prober.name
    );
    let near = pods.iter().filter(|pod| pod.node == prober.node).count();
    println!(
        "from {} on {}: {near} pods answer on the same node, {} on others, {API_SERVER} outside; exec and logs work",
        prober.name,
        prober.node,
        pods.len() - near
    );
    Ok(())
}
