//! `cargo xtask bench --cluster`: starts sixty pods at the same time on a real Kubernetes, once
//! with braid and its agent, installed by `deploy/braid.yaml`, and once with the reference plugins.
//! The baseline is pods in their node's network, because no plugin is called for them.

use super::budget::Budget;
use crate::cluster::own;
use crate::verb;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use serde_json::Value;
use std::path::Path;

/// Network of the pods in a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Plugin,
    Host,
}

/// Order of the bursts with braid. Both kinds of network get the same share of early and late
/// bursts, because later bursts on the same cluster differ from earlier ones. Times differ by a
/// tenth from burst to burst.
const TURNS: [Network; 8] = {
    use Network::{Host, Plugin};
    [Plugin, Host, Host, Plugin, Host, Plugin, Plugin, Host]
};
/// Bursts with the reference plugins. Two are enough, because the measured ratio of braid to the
/// reference plugins is far from the budget.
const REFERENCE_TURNS: [Network; 2] = [Network::Plugin; 2];

/// JSON pointers into the report of a burst, for the mean times of the plugin calls that set up and
/// tear down a network. The runtime measures these times.
const SET_UP: &str = "/network/all/set_up/mean_ms";
const TEAR_DOWN: &str = "/network/all/tear_down/mean_ms";
/// JSON pointer to the time until all pods are Ready, measured by the test.
const READY: &str = "/all_ready_s";

/// Reports of bursts, each with the network of its pods.
type Reports = Vec<(Network, Value)>;

pub(super) fn budgets(reference: &Path) -> Result<Vec<Budget>> {
    let nodes = own::Nodes::With {
        plugins: reference,
        conflist: "reference",
        kube_proxy: true,
    };
    let theirs = own::with(nodes, || bursts("reference", &REFERENCE_TURNS))?;
    let ours = own::with(own::Nodes::Bare, || {
        sh::run(&mut verb::command(["cluster", "deploy"])?)?;
        bursts("braid", &TURNS)
    })?;
    compare(&ours, &theirs)
}

fn compare(ours: &Reports, theirs: &Reports) -> Result<Vec<Budget>> {
    let budget = |what: &str, ours: f64, against: f64, at_most| Budget {
        what: format!("60 pods: {what}"),
        ratio: ours / against,
        at_most,
    };
    let braid = |at| mean(ours, Network::Plugin, at);
    let reference = |at| mean(theirs, Network::Plugin, at);
    Ok(vec![
        budget(
            "set up / reference",
            braid(SET_UP)?,
            reference(SET_UP)?,
            0.2,
        ),
        budget(
            "tear down / reference",
            braid(TEAR_DOWN)?,
            reference(TEAR_DOWN)?,
            0.2,
        ),
        budget(
            "all Ready / hostNetwork",
            braid(READY)?,
            mean(ours, Network::Host, READY)?,
            1.1,
        ),
    ])
}

/// Returns the mean of the number at JSON pointer `at` over all bursts with this network.
fn mean(reports: &Reports, network: Network, at: &str) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for (of, report) in reports {
        if *of == network {
            sum += number(report, at)?;
            count += 1;
        }
    }
    ensure!(count > 0, "no burst of {network:?}");
    Ok(sum / f64::from(count))
}

fn number(report: &Value, at: &str) -> Result<f64> {
    report
        .pointer(at)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {at} in {report}"))
}

/// Runs a burst for each turn. Before them, an unmeasured burst warms the cluster. `plugins` names
/// the nodes' plugins.
fn bursts(plugins: &str, turns: &[Network]) -> Result<Reports> {
    burst(Network::Plugin)?;
    let mut reports = Reports::new();
    for network in turns {
        reports.push((*network, told(plugins, *network)?));
    }
    Ok(reports)
}

/// Runs a burst and prints a line about it.
fn told(plugins: &str, network: Network) -> Result<Value> {
    let report = burst(network)?;
    let ready_s = number(&report, READY)?;
    let calls = match network {
        Network::Host => String::new(),
        Network::Plugin => {
            let [up, down] = [SET_UP, TEAR_DOWN].map(|at| number(&report, at));
            format!(", set up {:.0} ms, tear down {:.0} ms", up?, down?)
        }
    };
    eprintln!("{plugins:9} {network:?}: all Ready after {ready_s:.1} s{calls}");
    Ok(report)
}

fn burst(network: Network) -> Result<Value> {
    let mut command = verb::command(["cluster", "burst", "--json"])?;
    command.args((network == Network::Host).then_some("--host-network"));
    serde_json::from_str(&sh::read(&mut command)?).context("read what burst printed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(ready: f64, up: f64, down: f64) -> Value {
        json!({"all_ready_s": ready, "network": {"all": {"set_up": {"mean_ms": up}, "tear_down": {"mean_ms": down}}}})
    }

    #[test]
    fn each_kind_is_judged_by_the_mean_of_its_bursts() {
        let none = json!({"all_ready_s": 8.0, "network": {"all": {"set_up": {"mean_ms": null}}}});
        let ours = vec![
            (Network::Plugin, report(8.0, 30.0, 200.0)),
            (Network::Host, none),
            (Network::Plugin, report(10.0, 50.0, 280.0)),
        ];
        let theirs = vec![(Network::Plugin, report(20.0, 200.0, 1000.0))];
        let judged = compare(&ours, &theirs).unwrap();
        let kept: Vec<bool> = judged
            .iter()
            .map(|budget| budget.ratio <= budget.at_most)
            .collect();
        assert_eq!(kept, [true, false, false]);
        assert!(
            compare(&ours[..1].to_vec(), &theirs).is_err(),
            "nothing to compare with"
        );
    }
}
