//! Requests in an API server's audit log.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns the current number of lines in the log.
pub(super) fn len(log: &Path) -> Result<usize> {
    Ok(read(log)?.lines().count())
}

/// Counts the finished requests about a Kubernetes namespace, without the first `from` lines of the
/// log. Returns a text such as `2 get pods, patch pods/status`.
pub(super) fn requests(log: &Path, from: usize, namespace: &str) -> Result<String> {
    Ok(told(&read(log)?, from, namespace))
}

fn read(log: &Path) -> Result<String> {
    fs::read_to_string(log).with_context(|| format!("read the audit log {}", log.display()))
}

fn told(log: &str, from: usize, namespace: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in log
        .lines()
        .skip(from)
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let (object, text) = (&event["objectRef"], |value: &Value| {
            value.as_str().unwrap_or_default().to_owned()
        });
        if event["stage"] == "ResponseComplete" && object["namespace"] == namespace {
            let below = object["subresource"]
                .as_str()
                .map(|below| format!("/{below}"))
                .unwrap_or_default();
            let request = format!(
                "{} {}{below}",
                text(&event["verb"]),
                text(&object["resource"])
            );
            *counts.entry(request).or_default() += 1;
        }
    }
    let told = counts.into_iter().map(|(request, count)| match count {
        1 => request,
        count => format!("{count} {request}"),
    });
    let told = told.collect::<Vec<_>>();
    if told.is_empty() {
        "nothing".to_owned()
    } else {
        told.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finished_requests_of_one_namespace_are_counted_from_a_line_on() {
        let event = |stage: &str, verb: &str, namespace: &str, below: Option<&str>| {
            let object = json!({"resource": "pods", "namespace": namespace, "subresource": below});
            json!({"stage": stage, "verb": verb, "objectRef": object}).to_string()
        };
        let done = "ResponseComplete";
        let log = [
            event(done, "delete", "n", None),
            event("RequestReceived", "get", "n", None),
            event(done, "get", "n", None),
            event(done, "get", "other", None),
            event(done, "get", "n", None),
            event(done, "patch", "n", Some("status")),
        ];
        assert_eq!(
            told(&log.join("\n"), 1, "n"),
            "2 get pods, patch pods/status"
        );
        assert_eq!(told(&log.join("\n"), 1, ""), "nothing");
    }
}
