//! `braid doctor`: the features of this node, and the consequence of each missing feature.

pub(in crate::cli) mod check;
mod host;

use super::FAILURE;
use super::output::{self, Format};
use super::{Outcome, drop_in_names};
use braid_core::plan::Feature;
use braid_core::plan::queue_fallback::Queue;
use braid_core::plugins::meta::bandwidth;
use braid_node::apply::features;
use braid_node::apply::probe::{Finding, Probe};
use braid_node::sys::release::release;
use check::{Check, CheckState};
use clap::Args;

/// Show available and missing features of this node; fails if bridge, ptp or macvlan can't work
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Detail of a check that the agent's container can't make.
const HIDDEN: &str = "not visible in this container";
/// Features that bridge, ptp and macvlan require.
const ESSENTIAL: [Feature; 3] = [Feature::Veth, Feature::Bridge, Feature::Macvlan];

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let mut checks = kernel();
    checks.extend(host::checks(drop_in_names()));
    let printed = output::print(&match arguments.output {
        Format::Table => table(&checks),
        Format::Json => output::json(&checks)?,
    });
    Ok(if checks.iter().any(Check::is_fatal) {
        FAILURE
    } else {
        printed
    })
}

/// Checks the kernel and its features.
fn kernel() -> Vec<Check> {
    let none = Check {
        name: String::new(),
        state: CheckState::Note,
        essential: false,
        since: "".into(),
        needed_by: "".into(),
        without_it: "".into(),
        detail: String::new(),
    };
    let mut checks = vec![Check {
        name: "kernel".to_owned(),
        detail: release(),
        ..none.clone()
    }];
    match features::find_all(&output::log()) {
        Ok(found) => {
            let has = |feature| {
                found
                    .iter()
                    .any(|(probe, found)| probe.feature == feature && *found == Finding::Present)
            };
            checks.push(shaping(has, &none));
            for (probe, finding) in found {
                checks.push(of_probe(probe, finding));
            }
        }
        Err(err) => checks.push(Check {
            name: "network namespaces".to_owned(),
            state: CheckState::Missing,
            essential: true,
            without_it: "no attachment, and no other feature can be probed".into(),
            detail: err.to_string(),
            ..none
        }),
    }
    checks
}

/// Finds the queue that shapes traffic on a kernel. `has` is true for each feature of this kernel,
/// and `none` is an empty check.
fn shaping(has: impl Fn(Feature) -> bool + Copy, none: &Check) -> Check {
    let mut check = Check {
        name: "shaping".to_owned(),
        state: CheckState::Missing,
        needed_by: "bandwidth".into(),
        without_it: "no limits".into(),
        ..none.clone()
    };
    if let Some(queue) = Queue::best(has) {
        check.state = CheckState::Ok;
        check.detail = match bandwidth::shortcoming(queue, has) {
            Some(why) => format!("by {queue}, because {why}"),
            None => format!("by {queue}"),
        };
    }
    check
}

fn of_probe(probe: &Probe, finding: Finding) -> Check {
    let (state, detail) = match finding {
        Finding::Present => (CheckState::Ok, String::new()),
        Finding::Missing(_) | Finding::Unknown(_) if features::is_hidden(probe.feature) => {
            (CheckState::Note, HIDDEN.to_owned())
        }
        Finding::Missing(said) => (CheckState::Missing, said),
        Finding::Unknown(said) => (CheckState::Unknown, said),
    };
    Check {
        name: probe.feature.name().to_owned(),
        state,
        essential: ESSENTIAL.contains(&probe.feature),
        since: probe.since.into(),
        needed_by: probe.needed_by.into(),
        without_it: probe.cost.into(),
        detail,
    }
}

fn table(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let state = match (check.state, check.is_fatal()) {
            (CheckState::Ok, _) => "ok",
            (CheckState::Missing, true) => "MISSING",
            (CheckState::Missing, false) => "missing",
            (CheckState::Unknown, _) => "unknown",
            (CheckState::Note, _) => "",
        };
        let since = if check.since.is_empty() {
            String::new()
        } else {
            format!("Linux {}", check.since)
        };
        vec![
            check.name.clone(),
            state.to_owned(),
            check.needed_by.to_string(),
            since,
            check.text(),
        ]
    };
    output::table(
        &["check", "state", "needed by", "since", "detail"],
        checks.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_node::apply::probe::PROBES;

    fn checks(finding: &Finding) -> Vec<Check> {
        PROBES
            .iter()
            .map(|probe| of_probe(probe, finding.clone()))
            .collect()
    }

    #[test]
    fn only_requirements_of_bridge_ptp_and_macvlan_are_fatal() {
        let missing = checks(&Finding::Missing("no".to_owned()));
        let mut fatal = Vec::new();
        for check in &missing {
            if check.is_fatal() {
                fatal.push(check.name.as_str());
            }
        }
        assert_eq!(fatal, ["veth", "bridge", "macvlan"]);
        assert!(!checks(&Finding::Present).iter().any(Check::is_fatal));
    }

    #[test]
    fn table_has_the_cost_of_a_missing_feature() {
        let [veth, ..] = PROBES else {
            panic!("no probe")
        };
        let lines = |finding| {
            table(&[of_probe(veth, finding)])
                .lines()
                .nth(1)
                .map(str::to_owned)
        };
        let missing = lines(Finding::Missing("EOPNOTSUPP".to_owned())).expect("a row");
        assert!(
            missing.ends_with("no bridge and no ptp attachment: EOPNOTSUPP"),
            "{missing}"
        );
        let present = lines(Finding::Present).expect("a row");
        assert!(present.ends_with("bridge, ptp"), "{present}");
    }

    #[test]
    fn json_keys_are_stable() {
        let [veth, ..] = PROBES else {
            panic!("no probe")
        };
        let json = serde_json::to_string(&of_probe(veth, Finding::Present)).expect("json");
        let expected = r#"{"name":"veth","state":"ok","essential":true,"since":"","needed_by":"bridge, ptp","without_it":"no bridge and no ptp attachment","detail":""}"#;
        assert_eq!(json, expected);
    }
}
