//! Links of a namespace as `ip` shows them: MTU, and bytes that passed.

use crate::node::{self, in_netns};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs::File;
use std::process::Command;

/// A link in the output of `ip -s -d -j link`.
#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    mtu: u32,
    #[serde(default)]
    linkinfo: Info,
    stats64: Stats,
}

#[derive(Debug, Default, Deserialize)]
struct Info {
    #[serde(default)]
    info_kind: String,
}

#[derive(Debug, Deserialize)]
struct Stats {
    rx: Count,
    tx: Count,
}

#[derive(Debug, Deserialize)]
struct Count {
    bytes: u64,
}

/// Bytes that passed a node's links in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// Through the link to the other nodes.
    lan: u64,
    /// Through all VXLAN links.
    vxlan: u64,
}

impl Passed {
    /// Reads the counters of a node.
    pub(super) fn read(netns: &File) -> Result<Self> {
        Ok(Self::sum(&list(netns)?))
    }

    fn sum(links: &[Link]) -> Self {
        let (mut lan, mut vxlan) = (0, 0);
        for link in links {
            let bytes = link.stats64.rx.bytes + link.stats64.tx.bytes;
            if link.ifname == node::LAN {
                lan += bytes;
            }
            if link.linkinfo.info_kind == "vxlan" {
                vxlan += bytes;
            }
        }
        Self { lan, vxlan }
    }

    /// Fails unless `payload` bytes passed to the other node since `earlier`, all of them through
    /// VXLAN or none.
    pub(super) fn check(self, earlier: Self, payload: u64, is_vxlan: bool) -> Result<()> {
        let (lan, vxlan) = (self.lan - earlier.lan, self.vxlan - earlier.vxlan);
        if lan < payload {
            bail!(
                "{lan} bytes passed {}, less than the payload of {payload}",
                node::LAN
            );
        }
        if is_vxlan && vxlan < payload {
            bail!("{vxlan} bytes passed a VXLAN link, less than the payload of {payload}");
        }
        if !is_vxlan && vxlan > 0 {
            bail!("{vxlan} bytes passed a VXLAN link");
        }
        Ok(())
    }
}

/// Returns the MTU of a link.
pub(super) fn mtu(netns: &File, ifname: &str) -> Result<u32> {
    let links = list(netns)?;
    let link = links.iter().find(|link| link.ifname == ifname);
    Ok(link.with_context(|| format!("no link {ifname}"))?.mtu)
}

fn list(netns: &File) -> Result<Vec<Link>> {
    let output = in_netns(netns, || {
        let mut ip = Command::new("ip");
        ip.args(["-s", "-d", "-j", "link"]);
        ip.output().context("run ip")
    })?;
    if !output.status.success() {
        bail!("ip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("parse the output of ip")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_of_the_uplink_and_of_vxlan_links_are_summed() {
        let link = |ifname: &str, rx: u64, tx: u64| {
            json!({"ifname": ifname, "mtu": 1500,
                "stats64": {"rx": {"bytes": rx, "packets": 1}, "tx": {"bytes": tx}}})
        };
        let mut vxlan = link("flannel.1", 3, 4);
        vxlan["linkinfo"] = json!({"info_kind": "vxlan", "info_data": {}});
        let list = json!([link("lo", 50, 60), link("lan", 1, 2), vxlan]);
        let links: Vec<Link> = serde_json::from_value(list).unwrap();
        assert_eq!(Passed::sum(&links), Passed { lan: 3, vxlan: 7 });
    }

    #[test]
    fn traffic_on_another_path_is_refused() {
        let refused = |lan: u64, vxlan: u64, is_vxlan| {
            let earlier = Passed { lan: 10, vxlan: 10 };
            let passed = Passed {
                lan: 10 + lan,
                vxlan: 10 + vxlan,
            };
            let checked = passed.check(earlier, 100, is_vxlan);
            checked.err().map(|err| err.to_string()).unwrap_or_default()
        };
        assert_eq!(refused(150, 120, true), "");
        assert_eq!(refused(110, 0, false), "");
        assert_eq!(
            refused(90, 0, false),
            "90 bytes passed lan, less than the payload of 100"
        );
        assert_eq!(
            refused(110, 9, true),
            "9 bytes passed a VXLAN link, less than the payload of 100"
        );
        assert_eq!(refused(150, 9, false), "9 bytes passed a VXLAN link");
    }
}
