//! `cargo xtask bench`: braid beside the reference plugins, judged by the budgets of ARCHITECTURE.md.

mod cluster;

use crate::{build, dist, sh, tools};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFLISTS: [&str; 5] = ["bridge", "bridge-ipmasq", "ptp", "macvlan", "chain"];
/// Conflists whose ADD has a budget beside the reference: one plugin and host-local.
const SINGLE: [&str; 3] = ["bridge", "ptp", "macvlan"];
const MANY_LEASES: u64 = 10_000;
const MANY_PORTS: u64 = 1000;
/// What other containers hold on a new node.
const NONE: (&str, u64) = ("leases", 0);
/// Factor by which ADD may take longer with limits on a veth, what comes from which goes through an ifb: to register that
/// takes 0.09 ms of 1.2.
const LIMITED_VETH: f64 = 1.3;
/// Interfaces beside the bridge on which limits are measured, and the same factor; a macvlan without limits takes less.
const LIMITED: [(&str, f64); 2] = [("ptp", LIMITED_VETH), ("macvlan", 1.6)];
const SHAPED: [&str; 4] = ["shaped-bridge", "shaped-ptp", "shaped-macvlan", "shaped-ipvlan"];

#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Only get what the bench needs: the reference plugins and strace
    #[arg(long)]
    setup: bool,
    /// ADDs and DELs to time for each directory in each setting
    #[arg(long, default_value_t = 60)]
    runs: usize,
    /// Measure what `bandwidth` does to traffic instead of attachment latency
    #[arg(long)]
    shaping: bool,
    /// Measure what the host ports of `portmap` do to traffic instead of attachment latency
    #[arg(long, conflicts_with = "shaping")]
    hostport: bool,
    /// Measure sixty pods at once on a real Kubernetes instead of single attachments
    #[arg(long, conflicts_with_all = ["shaping", "hostport"])]
    cluster: bool,
    /// Fail when a budget is not kept
    #[arg(long)]
    enforce: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    sh::apt(&[("strace", "strace")])?;
    let reference = tools::reference()?;
    if args.setup {
        return Ok(());
    }
    let braid = build::installed(&dist::braid()?)?;
    if args.cluster {
        return judge(&cluster::budgets(&reference, &braid)?, args.enforce);
    }
    let out = sh::root().join("target/bench");
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let plugins =
        [("ref", &reference), ("braid", &braid)].map(|(name, dir)| format!("--plugins={name}={}", dir.display()));
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    if args.shaping {
        // The budgets of shaping are the bench's own: bench/src/shaping/budget.rs.
        bench.arg("shaping").args(plugins).args(SHAPED.map(conflist)).args(args.enforce.then_some("--enforce"));
        bench.arg("--json").arg(out.join("shaping.json"));
        return sh::run(&mut bench);
    }
    if args.hostport {
        return sh::run(hostport(&mut bench, &reference, &braid, &out)?.args(args.enforce.then_some("--enforce")));
    }
    let runs = args.runs.to_string();
    let json = out.join("report.json");
    bench.args(["--runs", &runs, "--leases", &format!("0,{MANY_LEASES}"), "--syscalls"]);
    bench.args(plugins).args(CONFLISTS.map(conflist));
    bench.arg("--json").arg(&json);
    sh::run(&mut bench)?;
    let mut budgets = budgets(&read(&json)?)?;
    budgets.extend(limited(&runs, &reference, &braid, &out)?);
    for (kind, at_most) in LIMITED {
        budgets.push(limited_alone(&runs, &braid, kind, at_most, &out)?);
    }
    budgets.extend(full(&runs, &reference, &braid, &out.join("full.json"))?);
    budgets.push(many_ports(&runs, &braid, &out.join("ports.json"))?);
    judge(&budgets, args.enforce)
}

/// Both backends of braid beside both of the reference; the budgets are the bench's own: bench/src/hostport/budget.rs.
fn hostport<'a>(bench: &'a mut Command, reference: &Path, braid: &Path, out: &Path) -> Result<&'a mut Command> {
    // The package has ip6tables too, which the reference calls even where no address is one of IPv6.
    sh::apt(&[("iptables", "iptables"), ("nft", "nftables")])?;
    let plugins = [("ref-iptables", reference), ("ref-nftables", reference), ("braid", braid), ("braid-ebpf", braid)];
    bench.arg("hostport").args(plugins.map(|(name, dir)| format!("--plugins={name}={}", dir.display())));
    let [iptables, ebpf] = ["hostport-iptables", "hostport-ebpf"].map(conflist_path);
    let own = format!("ref-iptables={},braid-ebpf={}", iptables.display(), ebpf.display());
    bench.arg(format!("{},{own}", conflist("hostport")));
    bench.arg("--baseline=ref-iptables,ref-nftables");
    Ok(bench.arg("--json").arg(out.join("hostport.json")))
}

/// An attachment with a limit beside the same without, on a node that has one with a limit already, since the first on a
/// boot loads the program.
fn limited(runs: &str, reference: &Path, braid: &Path, out: &Path) -> Result<[Budget; 3]> {
    let plugins = [("ref", reference), ("none", braid), ("limited", braid), ("chain", braid)];
    let own = [("none", unlimited("bandwidth-braid", out)?), ("limited", conflist_path("bandwidth-braid"))];
    let json = out.join("bandwidth.json");
    limits(&one_list(&["--runs", runs, "--beside", "1"], &plugins, "bandwidth", &own, &json)?)
}

/// The same without the reference.
fn limited_alone(runs: &str, braid: &Path, kind: &str, at_most: f64, out: &Path) -> Result<Budget> {
    let list = format!("bandwidth-{kind}");
    let plugins = [("none", braid), ("limited", braid)];
    let own = [("none", unlimited(&list, out)?)];
    let json = out.join(format!("{list}.json"));
    let report = one_list(&["--runs", runs, "--beside", "1"], &plugins, &list, &own, &json)?;
    without(&report, &list, format!("ADD {kind} with bandwidth / without"), at_most)
}

/// A list of braid's without its `bandwidth`, and the same otherwise.
fn unlimited(list: &str, out: &Path) -> Result<PathBuf> {
    let mut conf = read(&conflist_path(list))?;
    let plugins = conf.pointer_mut("/plugins/0/plugins").and_then(Value::as_array_mut);
    let plugins = plugins.with_context(|| format!("{list} has no plugins in its first one"))?;
    let count = plugins.len();
    plugins.retain(|plugin| plugin["type"] != "bandwidth");
    ensure!(plugins.len() < count, "{list} has no bandwidth");
    let path = out.join(format!("{list}-none.conflist"));
    fs::write(&path, conf.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn without(report: &Value, list: &str, what: String, at_most: f64) -> Result<Budget> {
    let add = |plugins: &str| p50(report, list, NONE, "ADD", plugins);
    Ok(Budget { what, ratio: add("limited")? / add("none")?, at_most })
}

/// Runs the bench with one conflist, of which some plugins have their own form.
fn one_list(
    args: &[&str],
    plugins: &[(&str, &Path)],
    list: &str,
    own: &[(&str, PathBuf)],
    json: &Path,
) -> Result<Value> {
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    bench.args(args).args(plugins.iter().map(|(name, dir)| format!("--plugins={name}={}", dir.display())));
    let own = own.iter().map(|(name, path)| format!(",{name}={}", path.display()));
    bench.arg(conflist(list) + &own.collect::<String>()).arg("--json").arg(json);
    sh::run(&mut bench)?;
    read(json)
}

fn limits(report: &Value) -> Result<[Budget; 3]> {
    let add = |plugins: &str| p50(report, "bandwidth", NONE, "ADD", plugins);
    let beside_reference = |plugins: &str, what: &str, at_most: f64| {
        Ok::<_, anyhow::Error>(Budget { what: what.to_owned(), ratio: add(plugins)? / add("ref")?, at_most })
    };
    Ok([
        without(report, "bandwidth", "ADD with bandwidth / without".to_owned(), LIMITED_VETH)?,
        beside_reference("limited", "ADD with bandwidth / reference", 0.125)?,
        // A program is started twice.
        beside_reference("chain", "ADD with bandwidth as a plugin of its own / reference", 0.2)?,
    ])
}

/// All that a pod may have at once, in one call of braid, beside the reference's plugins one by one.
fn full(runs: &str, reference: &Path, braid: &Path, json: &Path) -> Result<[Budget; 2]> {
    let plugins = [("ref", reference), ("braid", braid)];
    let report = one_list(&["--runs", runs], &plugins, "full", &[("braid", conflist_path("full-braid"))], json)?;
    let of = |verb: &str, plugins: &str| p50(&report, "full", NONE, verb, plugins);
    Ok([
        Budget {
            what: "ADD full / reference".to_owned(),
            ratio: of("ADD", "braid")? / of("ADD", "ref")?,
            at_most: 0.04,
        },
        Budget { what: "DEL full / floor".to_owned(), ratio: of("DEL", "braid")? / of("DEL", "floor")?, at_most: 1.2 },
    ])
}

/// The same on a node of which other pods have many ports, and one has a limit in any case, since the first on a boot loads
/// the program.
fn many_ports(runs: &str, braid: &Path, json: &Path) -> Result<Budget> {
    let ports = format!("0,{MANY_PORTS}");
    let report =
        one_list(&["--runs", runs, "--beside", "1", "--ports", &ports], &[("braid", braid)], "full-braid", &[], json)?;
    let of = |ports| p50(&report, "full-braid", ("ports", ports), "ADD", "braid");
    let what = format!("ADD full with {MANY_PORTS} ports of the node / with none");
    Ok(Budget { what, ratio: of(MANY_PORTS)? / of(0)?, at_most: 1.2 })
}

fn read(json: &Path) -> Result<Value> {
    let text = fs::read_to_string(json).with_context(|| format!("read {}", json.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn conflist_path(name: &str) -> PathBuf {
    sh::root().join(format!("bench/conflists/{name}.conflist"))
}

fn conflist(name: &str) -> String {
    format!("--conflist={}", conflist_path(name).display())
}

/// One promise about braid and what became of it.
#[derive(Debug, PartialEq)]
struct Budget {
    what: String,
    ratio: f64,
    at_most: f64,
}

fn judge(budgets: &[Budget], enforce: bool) -> Result<()> {
    eprintln!("\nbudgets (ratios):");
    for Budget { what, ratio, at_most } in budgets {
        let verdict = if ratio <= at_most { "pass" } else { "FAIL" };
        eprintln!("  {verdict}  {what}: {ratio:.3}, at most {at_most:.3}");
    }
    let failed = budgets.iter().filter(|budget| budget.ratio > budget.at_most).count();
    if enforce && failed > 0 {
        bail!("{failed} of {} budgets not kept", budgets.len());
    }
    Ok(())
}

fn budgets(report: &Value) -> Result<Vec<Budget>> {
    let p50 = |list: &str, leases, verb: &str, plugins: &str| p50(report, list, ("leases", leases), verb, plugins);
    let budget =
        |what: String, measured: f64, against: f64, at_most: f64| Budget { what, ratio: measured / against, at_most };
    let mut budgets = Vec::new();
    for list in CONFLISTS {
        let (braid, floor) = (|leases, verb| p50(list, leases, verb, "braid"), p50(list, 0, "DEL", "floor")?);
        if SINGLE.contains(&list) {
            let of = p50(list, 0, "ADD", "ref")?;
            budgets.push(budget(format!("ADD {list} / reference"), braid(0, "ADD")?, of, 1.0 / 6.0));
        }
        budgets.push(budget(format!("DEL {list} / floor"), braid(0, "DEL")?, floor, 1.2));
        let what = format!("ADD {list} with {MANY_LEASES} leases / with none");
        budgets.push(budget(what, braid(MANY_LEASES, "ADD")?, braid(0, "ADD")?, 1.2));
    }
    Ok(budgets)
}

/// The middle of the calls on a node of which other containers hold so many leases or ports.
fn p50(report: &Value, conflist: &str, (what, count): (&str, u64), verb: &str, plugins: &str) -> Result<f64> {
    let same = |row: &&Value| {
        row["conflist"] == conflist && row[what] == count && row["verb"] == verb && row["plugins"] == plugins
    };
    let rows = report["rows"].as_array().context("the report has no rows")?;
    let found = rows.iter().find(same).and_then(|row| row["p50_ms"].as_f64());
    found.with_context(|| format!("the report has no {verb} of {plugins} for {conflist} with {count} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(braid_add: f64, braid_del: f64, braid_add_full: f64) -> Value {
        let mut rows = Vec::new();
        for list in CONFLISTS {
            for (leases, add) in [(0, braid_add), (MANY_LEASES, braid_add_full)] {
                let of = [("ref", 12.0, 40.0), ("floor", 0.5, 20.0), ("braid", add, braid_del)];
                for (plugins, add, del) in of {
                    for (verb, p50_ms) in [("ADD", add), ("DEL", del)] {
                        rows.push(json!({"conflist": list, "leases": leases, "verb": verb, "plugins": plugins, "p50_ms": p50_ms}));
                    }
                }
            }
        }
        json!({"rows": rows})
    }

    fn judged(report: &Value, enforce: bool) -> Result<()> {
        judge(&budgets(report)?, enforce)
    }

    #[test]
    fn a_limit_is_judged_beside_none_and_beside_the_reference() {
        let row = |plugins: &str, p50_ms: f64| json!({"conflist": "bandwidth", "leases": 0, "verb": "ADD", "plugins": plugins, "p50_ms": p50_ms});
        let report = json!({"rows": [row("ref", 24.0), row("none", 2.0), row("limited", 3.0), row("chain", 6.0)]});
        let ratios = limits(&report).unwrap().map(|budget| (budget.ratio, budget.ratio <= budget.at_most));
        assert_eq!(ratios, [(1.5, false), (0.125, true), (0.25, false)]);
    }

    #[test]
    fn figures_on_the_budget_pass() {
        assert!(judged(&report(2.0, 24.0, 2.4), true).is_ok());
    }

    #[test]
    fn each_broken_promise_is_counted_only_when_enforced() {
        let refused = |report: &Value| judged(report, true).unwrap_err().to_string();
        assert_eq!(refused(&report(2.1, 24.0, 2.4)), "3 of 13 budgets not kept");
        assert_eq!(refused(&report(2.0, 24.1, 2.4)), "5 of 13 budgets not kept");
        assert_eq!(refused(&report(2.0, 24.0, 2.5)), "5 of 13 budgets not kept");
        assert!(judged(&report(9.0, 99.0, 99.0), false).is_ok());
    }

    #[test]
    fn report_without_a_needed_row_is_an_error() {
        let refused = judged(&json!({"rows": []}), false).unwrap_err().to_string();
        assert_eq!(refused, "the report has no DEL of floor for bridge with 0 leases");
    }
}
