//! Attachment latency: runs of `braid-bench`, and budgets for ratios of the measured medians.

use super::budget::Budget;
use super::command::{bench, conflist, conflist_path};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const CONFLISTS: [&str; 5] = ["bridge", "bridge-ipmasq", "ptp", "macvlan", "chain"];
/// Conflists with one plugin and host-local. Each conflist has a budget for the time of ADD,
/// relative to the reference plugins.
const SINGLE: [&str; 3] = ["bridge", "ptp", "macvlan"];
const MANY_LEASES: u64 = 10_000;
const MANY_PORTS: u64 = 1000;
/// A node without leases of other containers.
const NONE: Others = Others {
    kind: "leases",
    count: 0,
};
/// Options of `braid-bench` for a node that already has another pod. The first pod with a bandwidth
/// limit after a boot also loads the eBPF program. With another pod before the measured pods, the
/// measurement leaves out this load.
const BESIDE_ANOTHER: [&str; 2] = ["--beside", "1"];
/// Factor by which ADD of a veth may take longer with bandwidth limits. Traffic from the container
/// passes an ifb, and registering the ifb takes 0.09 ms of 1.2 ms.
const LIMITED_VETH: f64 = 1.3;
/// Plugins other than bridge that are measured with bandwidth limits. Each has the factor by which
/// the limits may lengthen its ADD. The factor is larger for macvlan, because macvlan without
/// limits is faster.
const LIMITED: [(&str, f64); 2] = [("ptp", LIMITED_VETH), ("macvlan", 1.6)];

/// Number of leases or host ports that other containers have on the node.
#[derive(Clone, Copy)]
struct Others {
    /// Key of the report: `leases` or `ports`.
    kind: &'static str,
    count: u64,
}

/// Measured calls: one CNI verb with one conflist, one set of plugins and one state of the node.
#[derive(Clone, Copy)]
struct Calls<'a> {
    conflist: &'a str,
    others: Others,
    verb: &'a str,
    plugins: &'a str,
}

impl<'a> Calls<'a> {
    /// Returns the calls on a node without leases of other containers.
    fn alone(conflist: &'a str, verb: &'a str, plugins: &'a str) -> Self {
        Self {
            conflist,
            others: NONE,
            verb,
            plugins,
        }
    }
}

/// A ratio of two medians, and its upper bound.
struct Ratio<'a> {
    what: String,
    of: Calls<'a>,
    over: Calls<'a>,
    at_most: f64,
}

/// Settings common to all runs of `braid-bench`.
struct Runs<'a> {
    /// Number of ADDs and DELs in each setting.
    count: usize,
    reference: &'a Path,
    braid: &'a Path,
    /// Folder of the reports.
    out: &'a Path,
}

/// Runs all measurements of latency, writes the results of each to a file below `out`, and returns
/// their budgets.
pub(super) fn budgets(
    count: usize,
    reference: &Path,
    braid: &Path,
    out: &Path,
) -> Result<Vec<Budget>> {
    let runs = Runs {
        count,
        reference,
        braid,
        out,
    };
    let leases = format!("0,{MANY_LEASES}");
    let report = runs.run(
        "report",
        &["--leases", &leases, "--syscalls"],
        &runs.both(),
        &CONFLISTS.map(conflist),
    )?;
    let mut budgets = judged(&report, &plain())?;
    budgets.extend(runs.limits()?);
    budgets.extend(runs.kinds()?);

    let own = [("braid", conflist_path("full-braid"))];
    let report = runs.run("full", &[], &runs.both(), &[with_own("full", &own)])?;
    budgets.extend(judged(&report, &full())?);
    let ports = format!("0,{MANY_PORTS}");
    let options = [&BESIDE_ANOTHER[..], &["--ports", &ports]].concat();
    let report = runs.run(
        "ports",
        &options,
        &[("braid", braid)],
        &[conflist("full-braid")],
    )?;
    budgets.extend(judged(&report, &[many_ports()])?);
    budgets.extend(runs.three_networks()?);
    budgets.extend(runs.netkit()?);
    Ok(budgets)
}

impl Runs<'_> {
    fn run(
        &self,
        name: &str,
        options: &[&str],
        plugins: &[(&str, &Path)],
        conflists: &[String],
    ) -> Result<Value> {
        let json = self.out.join(format!("{name}.json"));
        let count = self.count.to_string();
        sh::run(
            bench(plugins, &json, None)?
                .args(["--runs", &count])
                .args(options)
                .args(conflists),
        )?;
        read(&json)
    }

    fn both(&self) -> [(&str, &Path); 2] {
        [("ref", self.reference), ("braid", self.braid)]
    }

    /// Measures pods with limits, compared with pods without.
    fn limits(&self) -> Result<Vec<Budget>> {
        let braid = self.braid;
        let plugins = [
            ("ref", self.reference),
            ("none", braid),
            ("limited", braid),
            ("chain", braid),
        ];
        let own = [
            ("none", unlimited("bandwidth-braid", self.out)?),
            ("limited", conflist_path("bandwidth-braid")),
        ];
        let report = self.run(
            "bandwidth",
            &BESIDE_ANOTHER,
            &plugins,
            &[with_own("bandwidth", &own)],
        )?;
        let mut budgets = judged(&report, &limited())?;
        for (kind, at_most) in LIMITED {
            let list = format!("bandwidth-{kind}");
            let lists = with_own(&list, &[("none", unlimited(&list, self.out)?)]);
            let report = self.run(
                &list,
                &BESIDE_ANOTHER,
                &[("none", braid), ("limited", braid)],
                &[lists],
            )?;
            let what = format!("ADD {kind} with bandwidth / without");
            let [of, over] = ["limited", "none"].map(|plugins| Calls::alone(&list, "ADD", plugins));
            budgets.extend(judged(
                &report,
                &[Ratio {
                    what,
                    of,
                    over,
                    at_most,
                }],
            )?);
        }
        Ok(budgets)
    }

    /// Measures ADD of each list in [`BESIDE_REFERENCE`], compared with the reference plugins.
    fn kinds(&self) -> Result<Vec<Budget>> {
        let mut budgets = Vec::new();
        for (list, theirs, own, kind) in BESIDE_REFERENCE {
            if !kind.is_none_or(|kind| makes(list, kind)) {
                continue;
            }
            let lists = with_own(theirs, &[("braid", conflist_path(own))]);
            let report = self.run(list, &[], &self.both(), &[lists])?;
            let [of, over] = ["braid", "ref"].map(|plugins| Calls::alone(theirs, "ADD", plugins));
            let what = format!("ADD {list} / reference");
            budgets.extend(judged(
                &report,
                &[Ratio {
                    what,
                    of,
                    over,
                    at_most: 1.0 / 6.0,
                }],
            )?);
        }
        Ok(budgets)
    }

    /// Measures DEL of a container with three networks, compared with DEL of one veth.
    fn three_networks(&self) -> Result<Vec<Budget>> {
        let list = "pod-three";
        if !makes(list, VLAN) {
            return Ok(Vec::new());
        }
        let report = self.run(list, &[], &[("braid", self.braid)], &[conflist(list)])?;
        let [of, over] = ["braid", "floor"].map(|plugins| Calls::alone(list, "DEL", plugins));
        judged(
            &report,
            &[Ratio {
                what: "DEL bridge, macvlan and vlan / floor".to_owned(),
                of,
                over,
                at_most: 1.2,
            }],
        )
    }

    fn netkit(&self) -> Result<Vec<Budget>> {
        if !makes("ptp-netkit", "type netkit") {
            return Ok(Vec::new());
        }
        let plugins = [
            ("ref", self.reference),
            ("veth", self.braid),
            ("netkit", self.braid),
        ];
        let lists = with_own("ptp", &[("netkit", conflist_path("ptp-netkit"))]);
        judged(&self.run("netkit", &[], &plugins, &[lists])?, &netkit())
    }
}

/// Arguments of `ip link add` for an 802.1Q link.
const VLAN: &str = "link lower type vlan id 7";

/// Lists with a budget for the time of ADD, relative to the reference plugins. Each entry has a
/// name, the conflist of the reference plugins, and the conflist of braid. The last field has the
/// arguments of `ip link add` for a link, if a kernel may lack this kind of link.
const BESIDE_REFERENCE: [(&str, &str, &str, Option<&str>); 9] = [
    ("tap", "tap", "tap", None),
    ("host-device", "host-device", "host-device", None),
    ("sbr", "sbr", "sbr-braid", None),
    ("flannel", "flannel", "flannel", None),
    ("ptp-routed", "ptp", "ptp-routed", None),
    ("vlan", "vlan", "vlan", Some(VLAN)),
    ("ipvlan", "ipvlan", "ipvlan", Some("link lower type ipvlan")),
    ("dummy", "dummy", "dummy", Some("type dummy")),
    ("vrf", "vrf", "vrf-braid", Some("type vrf table 7")),
];

/// True if the kernel can create a link with the arguments `link`. The test runs in a temporary
/// namespace that has a link `lower`. Prints a line if the kernel cannot create the link.
fn makes(list: &str, link: &str) -> bool {
    let add = format!("ip link add lower type veth && ip link add name probe {link}");
    let made = sh::read(&mut sh::cmd("unshare", ["--net", "sh", "-c", &add])).is_ok();
    if !made {
        eprintln!("SKIP {list}: needs `{link}`, which this kernel lacks");
    }
    made
}

fn plain() -> Vec<Ratio<'static>> {
    let mut ratios = Vec::new();
    for list in CONFLISTS {
        let none = |verb, plugins| Calls::alone(list, verb, plugins);
        if SINGLE.contains(&list) {
            let what = format!("ADD {list} / reference");
            ratios.push(Ratio {
                what,
                of: none("ADD", "braid"),
                over: none("ADD", "ref"),
                at_most: 1.0 / 6.0,
            });
        }
        let what = format!("DEL {list} / floor");
        ratios.push(Ratio {
            what,
            of: none("DEL", "braid"),
            over: none("DEL", "floor"),
            at_most: 1.2,
        });
        let what = format!("ADD {list} with {MANY_LEASES} leases / with none");
        let many = Calls {
            others: Others {
                kind: "leases",
                count: MANY_LEASES,
            },
            ..none("ADD", "braid")
        };
        ratios.push(Ratio {
            what,
            of: many,
            over: none("ADD", "braid"),
            at_most: 1.2,
        });
    }
    ratios
}

/// Returns three ratios for attachments by netkit. ADD is compared with braid's ADD of a veth, and
/// with ADD by the reference plugin. DEL is compared with the floor, the kernel's own time for a
/// veth.
fn netkit() -> [Ratio<'static>; 3] {
    let calls = |verb, plugins| Calls::alone("ptp", verb, plugins);
    let ratio = |what: &str, verb, over, at_most| Ratio {
        what: what.to_owned(),
        of: calls(verb, "netkit"),
        over: calls(verb, over),
        at_most,
    };
    [
        ratio("ADD ptp by netkit / by veth", "ADD", "veth", 1.2),
        ratio("ADD ptp by netkit / reference", "ADD", "ref", 1.0 / 6.0),
        ratio("DEL ptp by netkit / floor", "DEL", "floor", 1.2),
    ]
}

/// Returns the ratios for ADD with a bandwidth limit. It is compared with ADD without a limit, and
/// with ADD by the reference plugins. In the last ratio, `bandwidth` is a separate plugin.
fn limited() -> [Ratio<'static>; 3] {
    let add = |plugins| Calls::alone("bandwidth", "ADD", plugins);
    let ratio = |what: &str, of, over, at_most| Ratio {
        what: what.to_owned(),
        of: add(of),
        over: add(over),
        at_most,
    };
    [
        ratio(
            "ADD with bandwidth / without",
            "limited",
            "none",
            LIMITED_VETH,
        ),
        ratio("ADD with bandwidth / reference", "limited", "ref", 0.125),
        // A program is started twice.
        ratio(
            "ADD with bandwidth as a separate plugin / reference",
            "chain",
            "ref",
            0.2,
        ),
    ]
}

/// Returns the ratios for a pod with all features, which braid attaches in one call. ADD is
/// compared with the reference plugins called one by one, and DEL with the floor.
fn full() -> [Ratio<'static>; 2] {
    let calls = |verb, plugins| Calls::alone("full", verb, plugins);
    let (add, del) = (
        "ADD full / reference".to_owned(),
        "DEL full / floor".to_owned(),
    );
    [
        Ratio {
            what: add,
            of: calls("ADD", "braid"),
            over: calls("ADD", "ref"),
            at_most: 0.04,
        },
        Ratio {
            what: del,
            of: calls("DEL", "braid"),
            over: calls("DEL", "floor"),
            at_most: 1.2,
        },
    ]
}

/// Returns the ratio of two ADDs with all features: on a node with many host ports of other pods,
/// and on a node without such ports.
fn many_ports() -> Ratio<'static> {
    let [of, over] = [MANY_PORTS, 0].map(|count| Calls {
        others: Others {
            kind: "ports",
            count,
        },
        ..Calls::alone("full-braid", "ADD", "braid")
    });
    Ratio {
        what: format!("ADD full with {MANY_PORTS} ports of the node / with none"),
        of,
        over,
        at_most: 1.2,
    }
}

/// Returns the `--conflist` argument for the conflist `list`. `own` has the names of plugin sets
/// that use another file instead, each with its path.
fn with_own(list: &str, own: &[(&str, PathBuf)]) -> String {
    let mut parts = vec![conflist(list)];
    for (name, path) in own {
        parts.push(format!("{name}={}", path.display()));
    }
    parts.join(",")
}

/// Writes a copy of a conflist for braid without the plugin `bandwidth`, and returns its path.
fn unlimited(list: &str, out: &Path) -> Result<PathBuf> {
    let mut conf = read(&conflist_path(list))?;
    let plugins = conf
        .pointer_mut("/plugins/0/plugins")
        .and_then(Value::as_array_mut);
    let plugins = plugins.with_context(|| format!("{list} has no plugins in its first one"))?;
    let count = plugins.len();
    plugins.retain(|plugin| plugin["type"] != "bandwidth");
    ensure!(plugins.len() < count, "{list} has no bandwidth");
    let path = out.join(format!("{list}-none.conflist"));
    fs::write(&path, conf.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn read(json: &Path) -> Result<Value> {
    let text = fs::read_to_string(json).with_context(|| format!("read {}", json.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn judged(report: &Value, ratios: &[Ratio<'_>]) -> Result<Vec<Budget>> {
    let mut budgets = Vec::new();
    for ratio in ratios {
        budgets.push(Budget {
            what: ratio.what.clone(),
            ratio: p50(report, ratio.of)? / p50(report, ratio.over)?,
            at_most: ratio.at_most,
        });
    }
    Ok(budgets)
}

/// Returns the median time of the calls from a report.
fn p50(report: &Value, calls: Calls<'_>) -> Result<f64> {
    let Calls {
        conflist,
        others: Others { kind, count },
        verb,
        plugins,
    } = calls;
    let count = count.to_string();
    let same = |row: &&Value| {
        row["conflist"] == conflist
            && row[kind] == *count
            && row["verb"] == verb
            && row["plugins"] == plugins
    };
    let rows = report["rows"]
        .as_array()
        .context("the report has no rows")?;
    let row = rows.iter().find(same).unwrap_or(&Value::Null);
    row["ms"]["p50"].as_f64().with_context(|| {
        format!("the report has no {verb} of {plugins} for {conflist} with {count} {kind}")
    })
}

#[cfg(test)]
mod tests;
