//! The Helm chart: the objects of its values, refused values, and its life on a real API server.

#![expect(clippy::expect_used, reason = "a test fails by a panic")]

mod effects;
mod manifests;
mod refused;
mod server;
mod table;

use braid_testbed::chart;
use braid_testbed::sh;
use braid_tests::Value;
use std::process::Output;

/// Returns true, and reports the test as skipped, if helm is missing.
fn lacks_helm(test: &str) -> bool {
    let missing = chart::missing();
    if let Some(why) = &missing {
        braid_tests::feature::tell_skip(&format!("chart::{test}"), why);
    }
    missing.is_some()
}

/// Renders the objects of the chart with arguments such as `--set=network.mtu=1400`.
#[track_caller]
fn rendered(arguments: &[&str]) -> Vec<Value> {
    let text = chart::render(arguments).unwrap_or_else(|err| panic!("{arguments:?}: {err:#}"));
    chart::objects(&text).expect("objects")
}

/// Runs helm and returns its output, even if it fails.
fn helm(arguments: &[&str]) -> Output {
    let mut helm = chart::helm(arguments).expect("helm");
    helm.output().expect("helm runs")
}

/// Returns the objects of a file in the checkout.
fn committed(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(sh::root().join(path)).expect(path);
    chart::objects(&text).expect(path)
}

/// Returns kind and name of an object, as kubectl accepts it.
fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    format!(
        "{}/{}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}
