//! A pod that gets its address from a DHCP server on the nodes' second LAN, through the daemon of
//! deploy/dhcp.yaml.

use super::traffic::{Place, expect};
use super::{APP, attached, await_nothing_left, create, manifests, traces};
use crate::{limit_check, pods};
use anyhow::{Context, Result, ensure};
use braid_testbed::lan::ROUTERS;
use braid_testbed::sh;
use braid_testbed::{Cluster, LAN, Node, in_netns, wait};
use serde_json::json;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

const MANIFEST: &str = "deploy/dhcp.yaml";
const DAEMON_SET: &str = "daemonset/braid-dhcp";
const NETWORK: &str = "leased";
const POD: &str = "networks-leased";
/// dnsmasq's option with the server's address range. All addresses start with [`PREFIX`].
const RANGE: &str = "--dhcp-range=198.18.1.200,198.18.1.209,2m";
const PREFIX: &str = "198.18.1.20";
/// Longest time until the DHCP server has received the release of a lease.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest time until the DHCP daemons have started, and until they have ended.
const STEP: Duration = Duration::from_mins(1);

/// Debian's dnsmasq on the LAN. Dropping this value ends it.
struct Server {
    child: Child,
    leases: tempfile::NamedTempFile,
}

/// Attaches a pod to a network with the IPAM `dhcp`. Checks that the pod's lease outlives the
/// daemon that requested the lease. Also checks that the lease ends with the pod.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let [node, _] = nodes;
    let server = Server::start()?;
    sh::read(&mut cluster.kubectl(["apply", "-f", MANIFEST]))?;
    roll_out(cluster)?;
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": {"type": "dhcp"}});
    cluster.create(&[manifests::nad(NETWORK, &config)])?;
    let pod = manifests::pod(POD, node, limit_check::spec());
    let seconds = create(
        cluster,
        &[manifests::with_networks(&pod, &json!([{"name": NETWORK}]))],
    )?;
    attached::check(cluster, (APP, nodes), |_| {
        vec!["pods".into(), format!("default/{NETWORK}")]
    })?;
    let address = attached::address(cluster, POD, 1)?;
    ensure!(
        address.starts_with(PREFIX),
        "{address} is not in the server's range, {RANGE}"
    );
    ensure!(
        server.has(&address)?,
        "the server has no lease of {address}"
    );
    expect(cluster, &Place::Lan, &address, POD)?;
    println!(
        "a pod with {address} from a DHCP server is Ready after {seconds:.1} s and answers there"
    );

    sh::read(&mut cluster.kubectl(["rollout", "restart", DAEMON_SET, "-n", "kube-system"]))?;
    roll_out(cluster)?;
    let traces = traces(cluster, nodes)?;
    pods::delete(cluster, "pod", APP)?;
    await_nothing_left(cluster, &traces)?;
    wait::until("the address is released", LIMIT, || {
        server.has(&address).map(|has| !has)
    })?;
    println!("{address} is released, though another daemon had requested it");
    sh::read(&mut cluster.kubectl([
        "delete",
        "-f",
        MANIFEST,
        "--cascade=foreground",
        &wait::timeout(STEP),
    ]))
    .map(drop)
}

fn roll_out(cluster: &Cluster) -> Result<()> {
    let status = [
        "rollout",
        "status",
        DAEMON_SET,
        "-n",
        "kube-system",
        &wait::timeout(STEP),
    ];
    sh::read(&mut cluster.kubectl(status)).map(drop)
}

impl Server {
    fn start() -> Result<Self> {
        let leases = tempfile::NamedTempFile::new().context("make the server's file of leases")?;
        let mut command = in_netns(LAN, "dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--user=root",
            "--pid-file=",
        ]);
        command.args([
            "--interface=br1",
            "--bind-interfaces",
            "--dhcp-authoritative",
            RANGE,
        ]);
        command.arg(format!("--dhcp-leasefile={}", leases.path().display()));
        command.args([format!("--dhcp-option=option:router,{}", ROUTERS[0])]);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start dnsmasq")?;
        Ok(Self { child, leases })
    }

    /// Returns true if the server's lease file contains the address.
    fn has(&self, address: &str) -> Result<bool> {
        let text = fs::read_to_string(self.leases.path()).context("read the server's leases")?;
        Ok(text
            .lines()
            .any(|line| line.split(' ').nth(2) == Some(address)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // dnsmasq may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
