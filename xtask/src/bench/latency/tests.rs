use super::super::budget::judge;
use super::*;
use serde_json::json;

fn row(conflist: &str, leases: u64, verb: &str, plugins: &str, p50: f64) -> Value {
    let leases = leases.to_string();
    json!({"conflist": conflist, "leases": leases, "verb": verb, "plugins": plugins, "ms": {"p50": p50}})
}

fn report(braid_add: f64, braid_del: f64, braid_add_full: f64) -> Value {
    let mut rows = Vec::new();
    for list in CONFLISTS {
        for (leases, add) in [(0, braid_add), (MANY_LEASES, braid_add_full)] {
            for (plugins, add, del) in [
                ("ref", 12.0, 40.0),
                ("floor", 0.5, 20.0),
                ("braid", add, braid_del),
            ] {
                rows.push(row(list, leases, "ADD", plugins, add));
                rows.push(row(list, leases, "DEL", plugins, del));
            }
        }
    }
    json!({"rows": rows})
}

fn verdict(report: &Value, enforce: bool) -> Result<()> {
    judge(&judged(report, &plain())?, enforce)
}

#[test]
fn a_limit_is_compared_with_none_and_with_the_reference() {
    let row = |plugins, p50| row("bandwidth", 0, "ADD", plugins, p50);
    let report = json!({"rows": [row("ref", 24.0), row("none", 2.0), row("limited", 3.0), row("chain", 6.0)]});
    let budgets = judged(&report, &limited()).unwrap();
    let ratios: Vec<_> = budgets
        .iter()
        .map(|budget| (budget.ratio, budget.ratio <= budget.at_most))
        .collect();
    assert_eq!(ratios, [(1.5, false), (0.125, true), (0.25, false)]);
}

#[test]
fn a_netkit_is_compared_with_a_veth_and_the_floor() {
    let mut rows = Vec::new();
    for (plugins, add, del) in [
        ("ref", 12.0, 40.0),
        ("veth", 1.5, 20.0),
        ("netkit", 1.8, 25.0),
        ("floor", 0.5, 20.0),
    ] {
        rows.extend([
            row("ptp", 0, "ADD", plugins, add),
            row("ptp", 0, "DEL", plugins, del),
        ]);
    }
    let budgets = judged(&json!({"rows": rows}), &netkit()).unwrap();
    let kept: Vec<bool> = budgets
        .iter()
        .map(|budget| budget.ratio <= budget.at_most + 1e-9)
        .collect();
    assert_eq!(kept, [true, true, false], "{budgets:?}");
}

#[test]
fn figures_on_the_budget_pass() {
    assert!(verdict(&report(2.0, 24.0, 2.4), true).is_ok());
}

#[test]
fn each_broken_promise_is_counted_only_when_enforced() {
    let refused = |report: &Value| verdict(report, true).unwrap_err().to_string();
    assert_eq!(refused(&report(2.1, 24.0, 2.4)), "3 of 13 budgets not kept");
    assert_eq!(refused(&report(2.0, 24.1, 2.4)), "5 of 13 budgets not kept");
    assert_eq!(refused(&report(2.0, 24.0, 2.5)), "5 of 13 budgets not kept");
    assert!(verdict(&report(9.0, 99.0, 99.0), false).is_ok());
}

#[test]
fn report_without_a_needed_row_is_an_error() {
    let refused = verdict(&json!({"rows": []}), false)
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "the report has no ADD of braid for bridge with 0 leases"
    );
}
