//! `cargo xtask demo`: attaches two sandboxes to a bridge and pings an address outside, in
//! namespaces that end with the demo.

use crate::dist;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh::{self, ip};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the part inside the namespaces, with this binary
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

/// Address outside the node. It has no route back to the pods, so it answers only masqueraded
/// packets.
const OUTSIDE: &str = "203.0.113.1";
const PODS: [&str; 2] = ["red", "blue"];
const CONF: &str = r#"{
    "cniVersion": "1.1.0", "name": "demo", "type": "braid",
    "plugins": [{
        "type": "bridge", "bridge": "demo0", "isDefaultGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}
    }]
}"#;

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(braid) = &args.inside {
        return inside(braid);
    }
    sh::apt(&[
        ("ip", "iproute2"),
        ("ping", "iputils-ping"),
        ("nft", "nftables"),
        ("unshare", "util-linux"),
    ])?;
    eprintln!("building braid");
    let braid = dist::braid_or_glibc()?;
    let me = std::env::current_exe().context("find this program")?;
    let args = [
        "--net".as_ref(),
        "--mount".as_ref(),
        me.as_os_str(),
        "demo".as_ref(),
        "--inside".as_ref(),
        braid.as_os_str(),
    ];
    sh::run(&mut sh::cmd("unshare", args))
}

/// Runs the demo, in a separate network and mount namespace.
fn inside(braid: &Path) -> Result<()> {
    prepare()?;
    println!(
        "Two pods on a bridge with ipMasq, by {}:\n",
        braid.file_name().unwrap_or_default().display()
    );
    let mut addresses = Vec::new();
    for pod in PODS {
        let (took, result) = cni(braid, "ADD", pod)?;
        let address = address_of(&result).with_context(|| format!("no address in {result}"))?;
        println!("  attach {pod:<5} {address:<14} {}", millis(took));
        addresses.push(address);
    }
    println!();
    sh::run(sh::cmd(braid, ["status"]).env_remove("CNI_COMMAND"))?;
    println!();
    let [red, blue] = PODS;
    ping(
        red,
        addresses[1].split('/').next().unwrap_or_default(),
        blue,
    )?;
    ping(
        blue,
        addresses[0].split('/').next().unwrap_or_default(),
        red,
    )?;
    ping(red, OUTSIDE, "the outside, masqueraded")?;
    println!();
    for pod in PODS {
        let (took, _) = cni(braid, "DEL", pod)?;
        println!("  detach {pod:<5} {}", millis(took));
    }
    nothing_is_left()?;
    println!("\nNothing is left: no link, no rule element, no lease, no record.");
    Ok(())
}

fn prepare() -> Result<()> {
    for dir in ["/run", "/var/lib"] {
        sh::run(&mut sh::cmd("mount", ["-t", "tmpfs", "demo", dir]))?;
    }
    ip("link set lo up")?;
    for ns in ["outside", "red", "blue"] {
        ip(&format!("netns add {ns}"))?;
    }
    ip("link add uplink type veth peer name eth0 netns outside")?;
    ip("addr add 203.0.113.2/24 dev uplink")?;
    ip("link set uplink up")?;
    ip(&format!("-n outside addr add {OUTSIDE}/24 dev eth0"))?;
    ip("-n outside link set eth0 up")
}

fn cni(braid: &Path, command: &str, pod: &str) -> Result<(Duration, String)> {
    let start = Instant::now();
    let mut child = Command::new(braid)
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", pod)
        .env("CNI_NETNS", format!("/run/netns/{pod}"))
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", braid.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(CONF.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let took = start.elapsed();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command} of {pod}: {said}");
    Ok((took, said))
}

fn address_of(result: &str) -> Option<String> {
    let result: serde_json::Value = serde_json::from_str(result).ok()?;
    Some(result["ips"][0]["address"].as_str()?.to_owned())
}

fn ping(from: &str, to: &str, name: &str) -> Result<()> {
    let out = sh::read(&mut sh::cmd(
        "ip",
        ["netns", "exec", from, "ping", "-c1", "-W2", to],
    ))?;
    let time = time_of(&out).unwrap_or("?");
    println!("  ping   {from:<5} -> {to:<14} {time:>6} ms  ({name})");
    Ok(())
}

/// Returns the time in the output of `ping`, in milliseconds.
fn time_of(ping: &str) -> Option<&str> {
    let (_, rest) = ping.split_once("time=")?;
    let (time, _) = rest.split_once(" ms")?;
    Some(time)
}

fn millis(took: Duration) -> String {
    format!("{:>6.2} ms", took.as_secs_f64() * 1e3)
}

fn nothing_is_left() -> Result<()> {
    let links = sh::read(&mut sh::cmd("ip", ["-br", "link", "show", "type", "veth"]))?;
    let pods: Vec<&str> = links
        .lines()
        .filter(|line| !line.starts_with("uplink"))
        .collect();
    ensure!(pods.is_empty(), "links are left: {pods:?}");
    let rules = sh::read(&mut sh::cmd("nft", ["list", "ruleset"]))?;
    // The comment of each element names its owner.
    ensure!(
        !PODS
            .iter()
            .any(|pod| rules.contains(&format!("demo {pod} eth0"))),
        "rule elements are left: {rules}"
    );
    for dir in ["/var/lib/cni/networks/demo", "/run/braid/attachments"] {
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("last_reserved_ip") || name == "lock" {
                continue;
            }
            bail!("{dir}/{name} is left");
        }
    }
    Ok(())
}
