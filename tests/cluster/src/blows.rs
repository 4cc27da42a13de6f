//! Disturbances of the agent, the API server, the runtime and a node.

use crate::agent::{self, LIMIT};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, Service, control_plane, deploy, wait};
use std::fs;
use std::thread;
use std::time::Duration;

/// Number of times that an agent is killed, on one node after the other.
const KILLS: usize = 10;
/// Time for which an agent is stopped.
const STOPPED: Duration = Duration::from_secs(30);
/// Time for which the API server is away.
const AWAY: Duration = Duration::from_mins(1);
const TOKEN: &str = "run/braid/api/token";
/// Image and second name of the image.
const IMAGE: &str = concat!("localhost/braid:", env!("CARGO_PKG_VERSION"));
const OTHER_IMAGE: &str = "localhost/braid:chaos";

/// A disturbance.
pub(crate) struct Blow {
    pub(crate) name: &'static str,
    work: fn(&Cluster, &[Node]) -> Result<()>,
}

impl Blow {
    /// Returns all disturbances of a cluster. A node restarts only if it has no end of the traffic.
    pub(crate) fn of(nodes: &[Node]) -> Vec<Self> {
        let mut blows = vec![
            blow("agents killed", killed),
            // New pods have no pauses after earlier ends.
            blow("agents' pods deleted", deleted),
            blow("agents stopped", stopped),
            blow("API server away", api_away),
            blow("containerd and kubelet restarted", services),
            blow("token renewed", renewed),
            blow("image upgraded and rolled back", upgraded),
        ];
        if nodes.len() > 2 {
            blows.push(blow("node restarted", restarted));
        }
        blows
    }

    /// Makes the disturbance and waits until the cluster has recovered.
    pub(crate) fn make(&self, cluster: &Cluster, nodes: &[Node]) -> Result<()> {
        (self.work)(cluster, nodes).with_context(|| self.name)?;
        recovered(cluster).with_context(|| format!("after {}", self.name))
    }
}

fn blow(name: &'static str, work: fn(&Cluster, &[Node]) -> Result<()>) -> Blow {
    Blow { name, work }
}

fn recovered(cluster: &Cluster) -> Result<()> {
    wait::eventually(LIMIT, || wait::nodes(cluster))?;
    wait::eventually(LIMIT, || deploy::roll_out(cluster))
}

fn killed(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    for node in nodes.iter().cycle().take(KILLS) {
        // The agent may wait for its restart after an earlier kill.
        let agent = wait::eventually(LIMIT, || agent::running(cluster, *node))?;
        agent::signal(cluster, *node, &agent.id, "SIGKILL")?;
    }
    Ok(())
}

fn stopped(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    let mut ids = Vec::new();
    for node in nodes {
        let id = agent::running(cluster, *node)?.id;
        agent::signal(cluster, *node, &id, "SIGSTOP")?;
        ids.push((node, id));
    }
    thread::sleep(STOPPED);
    for (node, id) in ids {
        if agent::signal(cluster, *node, &id, "SIGCONT").is_err() {
            println!("{node}: the kubelet's probes ended the stopped agent");
        }
    }
    Ok(())
}

fn deleted(cluster: &Cluster, _: &[Node]) -> Result<()> {
    let label = "app.kubernetes.io/component=agent";
    let delete = ["delete", "pod", "-n", "kube-system", "-l", label];
    sh::read(&mut cluster.kubectl(delete)).map(drop)
}

fn api_away(_: &Cluster, _: &[Node]) -> Result<()> {
    control_plane::signal_api_server("STOP")?;
    thread::sleep(AWAY);
    control_plane::signal_api_server("CONT")
}

fn services(_: &Cluster, nodes: &[Node]) -> Result<()> {
    for service in [Service::Containerd, Service::Kubelet] {
        for node in nodes {
            service.kill(*node)?;
        }
    }
    // A node counts as Ready until its kubelet says otherwise.
    thread::sleep(Duration::from_secs(10));
    Ok(())
}

/// Spoils the tokens of plugin calls, which the agents must write again. Then deletes them and kills
/// the agents, which must request new ones.
fn renewed(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    let mut tokens = Vec::new();
    for node in nodes {
        let path = cluster.root(*node)?.join(TOKEN);
        let before = fs::read_to_string(&path)?;
        fs::write(&path, "garbage")?;
        tokens.push((node, path, before));
    }
    // The agents compare the files once a minute.
    for (node, path, _) in &tokens {
        wait::eventually(LIMIT, || {
            let after = fs::read_to_string(path)?;
            ensure!(after != "garbage", "{node} has no token");
            Ok(())
        })?;
    }
    for (node, path, _) in &tokens {
        fs::remove_file(path)?;
        let agent = agent::running(cluster, **node)?;
        agent::signal(cluster, **node, &agent.id, "SIGKILL")?;
    }
    for (node, path, before) in &tokens {
        wait::eventually(LIMIT, || {
            let after = fs::read_to_string(path)?;
            ensure!(after != *before, "{node} has the token of before");
            Ok(())
        })?;
    }
    Ok(())
}

fn upgraded(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    for node in nodes {
        let tag = [
            "ctr",
            "-n",
            "k8s.io",
            "images",
            "tag",
            "--force",
            IMAGE,
            OTHER_IMAGE,
        ];
        sh::read(&mut cluster.on(*node, tag)?)?;
    }
    let set = ["set", "image", "-n", "kube-system", "daemonset/braid"];
    let images = ["install", "agent"].map(|container| format!("{container}={OTHER_IMAGE}"));
    sh::read(cluster.kubectl(set).args(images))?;
    deploy::roll_out(cluster)?;
    let undo = ["rollout", "undo", "-n", "kube-system", "daemonset/braid"];
    sh::read(&mut cluster.kubectl(undo))?;
    deploy::roll_out(cluster)
}

fn restarted(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    let Some(node) = nodes.last() else {
        return Ok(());
    };
    let reboot = ["xtask", "cluster", "reboot", &node.to_string()];
    sh::run(&mut sh::cmd("cargo", reboot))?;
    // The Node object stays Ready for a while without the node.
    wait::eventually(LIMIT, || agent::running(cluster, *node)).map(drop)
}
