//! `cargo xtask bench --fabric`: traffic between pods of two nodes by braid's agent and by flannel,
//! with direct routes and with VXLAN.
//!
//! ```text
//!  a network namespace: etcd ◄─ kube-apiserver ◄─┐
//!  braid-bench fabric: two nodes with braid agent, two with flanneld, … on one bridge
//! ```

use super::api::{Api, CONFLIST};
use super::command::{Args, bench};
use crate::build;
use anyhow::{Context, Result, bail};
use braid_testbed::{binaries, sh, tools};
use serde_json::{Value, json};
use std::path::Path;

/// A network between two nodes.
struct Network {
    name: &'static str,
    daemon: Daemon,
}

/// Program that makes the network.
enum Daemon {
    /// braid's agent in a mode.
    Agent(&'static str),
    /// flanneld with a backend.
    Flanneld(&'static str),
}

/// All networks, in the order of their nodes. The second is equal to the first: their ratio is the
/// noise of the run.
const NETWORKS: [Network; 5] = [
    Network {
        name: "flannel-host-gw",
        daemon: Daemon::Flanneld("host-gw"),
    },
    Network {
        name: TWIN,
        daemon: Daemon::Flanneld("host-gw"),
    },
    Network {
        name: "braid-direct",
        daemon: Daemon::Agent("direct"),
    },
    Network {
        name: "flannel-vxlan",
        daemon: Daemon::Flanneld("vxlan"),
    },
    Network {
        name: "braid-vxlan",
        daemon: Daemon::Agent("vxlan"),
    },
];
const TWIN: &str = "flannel-twin";
/// Ranges of all nodes' pods.
const PODS: &str = "10.244.0.0/16";
/// File that flanneld writes once its network is ready.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Exists if the module `br_netfilter` is loaded, without which flanneld ends.
const BRIDGE_FILTER: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

pub(super) fn run(args: &Args, reference: &Path, braid: &Path, out: &Path) -> Result<()> {
    if !Path::new(BRIDGE_FILTER).exists() {
        bail!("flanneld needs the kernel module br_netfilter: modprobe br_netfilter");
    }
    sh::apt(&[
        ("iperf3", "iperf3"),
        ("iptables", "iptables"),
        ("nft", "nftables"),
        ("nsenter", "util-linux"),
    ])?;
    binaries::build()?;
    let flanneld = tools::flanneld()?;
    let plugins = NETWORKS.map(|network| {
        let dir = match network.daemon {
            Daemon::Agent(_) => braid,
            Daemon::Flanneld(_) => reference,
        };
        (network.name, dir)
    });
    let mut bench = bench(&plugins, &out.join("fabric.json"), Some("fabric"))?;
    // From here on this process and its children are in a new network namespace.
    let api = Api::start(out.join("fabric"))?;
    create_nodes(&api)?;
    let token = api.server.create_token("braid")?;
    let flannel = api.write("flannel.conflist", &conflist().to_string())?;
    let mut conflists = vec![format!("--conflist={}", flannel.display())];
    for network in &NETWORKS {
        let name = network.name;
        let script = match network.daemon {
            Daemon::Agent(mode) => {
                conflists.push(format!("{name}={CONFLIST}"));
                let config = api.write(&format!("{mode}.yaml"), &format!("mode: {mode}\n"))?;
                let program = braid.join(build::COMPANION);
                format!("exec {}", api.agent(&program, &token, "node$1", &config)?)
            }
            Daemon::Flanneld(backend) => {
                bench.arg(format!("--wait-for={name}={SUBNET_FILE}"));
                flanneld_script(&api, &flanneld, backend)?
            }
        };
        let path = api.script(name, &script)?;
        bench.arg(format!("--daemon={name}={}", path.display()));
    }
    bench
        .arg(conflists.join(","))
        .arg("--vxlan=flannel-vxlan,braid-vxlan")
        .arg("--baseline=flannel-host-gw,flannel-vxlan")
        .arg(format!("--unjudged={TWIN}"))
        .arg(format!("--mtu={}", args.mtu))
        .arg(format!("--rounds={}", args.rounds));
    sh::run(bench.args(args.enforce.then_some("--enforce")))
}

/// Creates the Node of each node of `braid-bench fabric`, which numbers them from 1.
fn create_nodes(api: &Api) -> Result<()> {
    let mut items = Vec::new();
    for number in 1..=2 * NETWORKS.len() {
        let range = format!("10.244.{number}.0/24");
        let address = format!("10.99.1.{number}");
        items.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            // flanneld panics on a Node without annotations. Kubernetes sets this one.
            "metadata": {
                "name": format!("node{number}"),
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"podCIDR": range, "podCIDRs": [range]},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    api.server
        .kubectl(&["create", "-f", "-"], Some(&list))
        .context("create the Nodes")?;
    Ok(())
}

/// Returns the script that runs flanneld on a node, as in flannel's own manifest.
fn flanneld_script(api: &Api, flanneld: &Path, backend: &str) -> Result<String> {
    let config = json!({"Network": PODS, "EnableNFTables": false, "Backend": {"Type": backend}});
    let config = api.write(&format!("{backend}.json"), &config.to_string())?;
    Ok(format!(
        "export NODE_NAME=node$1\n\
         exec {flanneld} --ip-masq --kube-subnet-mgr --kubeconfig-file={kubeconfig} \
         --net-config-path={config} --iface=lan",
        flanneld = flanneld.display(),
        kubeconfig = api.server.pki("admin.conf").display(),
        config = config.display(),
    ))
}

/// Returns the conflist of flannel's own manifest, in the newest version that the reference plugin
/// `flannel` 0.9.1 supports.
fn conflist() -> Value {
    json!({
        "name": "cbr0",
        "cniVersion": "0.4.0",
        "plugins": [
            {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
