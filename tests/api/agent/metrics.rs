//! Metrics of an agent after calls, as curl gets them, judged by promtool.

use super::reports::listed;
use super::socket::{Pod, Served, asks};
use super::{CONFLIST, await_true, serde_json_of};
use crate::json;
use braid_testbed::tools;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const URL: &str = "http://127.0.0.1:4628/metrics";
const REPORTS: &str = "/run/braid/calls.sock";
const TRACE: &str = "/run/trace";
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Returns the agent's metrics.
pub(crate) fn scrape() -> String {
    let curl = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "20",
            URL,
        ])
        .output()
        .expect("curl runs");
    assert!(curl.status.success(), "{curl:?}");
    String::from_utf8(curl.stdout).expect("text")
}

/// Returns the value of a sample; `None` without this sample.
pub(crate) fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample))?;
    line.strip_prefix(' ')?.parse().ok()
}

/// Runs promtool; `None` if it is not built.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let program = tools::promtool_path();
    if !program.is_file() {
        let why = format!("needs {}: cargo xtask test builds it", program.display());
        braid_tests::feature::tell_skip("api::agent::metrics::promtool", &why);
        return None;
    }
    let mut promtool = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    Some(promtool.wait_with_output().expect("promtool ends"))
}

/// Attaches a pod of the node's own network with a limit.
fn limited(node: &Served, name: &str) -> Pod {
    let mut pod = node.pod(name, &json!({}));
    let list = serde_json_of(CONFLIST);
    let plugins = list["plugins"][0]["plugins"].clone();
    let limit = json!({"egressRate": 80_000_000, "egressBurst": 8_000_000});
    pod.call = pod.call.with("name", list["name"].clone());
    pod.call = pod.call.with("plugins", plugins).with("bandwidth", limit);
    pod.call.add().result();
    pod
}

#[test]
fn metrics_of_calls_pass_promtool_and_pods_that_went_leave_no_series() {
    let Some(node) = Served::new("metrics", 190) else {
        return;
    };
    await_true("conflist", || fs::exists(CONFLIST).is_ok_and(|is| is));
    let network = serde_json_of(CONFLIST)["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let range = format!(r#"network="{network}",range="10.190.1.1-10.190.1.254""#);
    let before = scrape();
    assert_eq!(
        value(&before, &format!("braid_addresses_free{{{range}}}")),
        Some(253.0)
    );
    assert_eq!(
        value(&before, &format!("braid_addresses_used{{{range}}}")),
        Some(0.0)
    );
    assert_eq!(value(&before, "braid_shaped_bytes_total"), Some(0.0));

    let pods: Vec<Pod> = (0..30)
        .map(|number| limited(&node, &format!("web-{number}")))
        .collect();
    pods[0].ns.run("ping -c 3 -i 0.1 -W 1 192.0.2.1");
    let refused = node.pod("refused", &json!({}));
    let wrong = json!([{"type": "ptp", "mtu": "x"}]);
    refused.call.clone().with("plugins", wrong).add().error();
    let mut text = String::new();
    await_true("30 attachments in the metrics", || {
        text = scrape();
        value(
            &text,
            &format!("braid_attachments{{network=\"{network}\"}}"),
        ) == Some(30.0)
    });
    assert_eq!(
        value(&text, &format!("braid_addresses_used{{{range}}}")),
        Some(30.0)
    );
    assert_eq!(
        value(&text, &format!("braid_addresses_free{{{range}}}")),
        Some(223.0)
    );
    let labels = r#"namespace="metrics",pod="web-0",interface="eth0",direction="egress""#;
    let bytes = value(&text, &format!("braid_shaped_bytes_total{{{labels}}}"));
    // Three echo requests of 98 bytes.
    assert!(
        bytes.is_some_and(|bytes| bytes >= 294.0),
        "{bytes:?} {text}"
    );
    assert_eq!(text.matches("braid_shaped_bytes_total{").count(), 30);
    let calls = |verb: &str, result: &str| {
        let labels = format!(r#"verb="{verb}",type="ptp",result="{result}""#);
        value(
            &text,
            &format!("braid_call_duration_seconds_count{{{labels}}}"),
        )
    };
    assert_eq!(calls("ADD", "success"), Some(30.0));
    assert_eq!(calls("ADD", "error"), Some(1.0));
    let failures = text
        .lines()
        .filter(|line| line.starts_with("braid_call_failures_total") && !line.ends_with(" 0"));
    assert_eq!(failures.count(), 1);
    if let Some(checked) = promtool(&["check", "metrics"], &text) {
        assert!(
            checked.status.success() && checked.stderr.is_empty(),
            "{checked:?}"
        );
    }

    for pod in &pods {
        pod.call.del().ok();
    }
    await_true("no series of pods", || {
        text = scrape();
        !text.contains("pod=\"")
    });
    assert_eq!(
        value(&text, &format!("braid_addresses_used{{{range}}}")),
        Some(0.0)
    );
    let deleted = r#"verb="DEL",type="ptp",result="success""#;
    let deleted = format!("braid_call_duration_seconds_count{{{deleted}}}");
    assert_eq!(value(&text, &deleted), Some(30.0));
}

#[test]
fn a_call_reports_with_three_system_calls_with_and_without_an_agent() {
    let Some(mut node) = Served::new("metrics-calls", 191) else {
        return;
    };
    let mode = fs::metadata(REPORTS)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let garbage = UnixDatagram::unbound().expect("a socket");
    for datagram in [&b"garbage"[..], b"ADD ptp 0", b"", &[0xff; 4096]] {
        garbage.send_to(datagram, REPORTS).expect("sent");
    }
    let pod = node.pod("web", &json!({}));
    let reported = |command: &str, result: &str| {
        let under = format!("strace -f -qq -o {TRACE} -e trace=socket,sendto,close");
        let answer = pod.call.clone().under(&under).run(command);
        let trace = fs::read_to_string(TRACE).expect("a trace");
        drop(answer);
        let lines: Vec<&str> = trace.lines().collect();
        let at = lines.iter().position(|line| line.contains("calls.sock"));
        let at = at.unwrap_or_else(|| panic!("no report in {trace}"));
        assert!(
            lines[at - 1].contains("SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK"),
            "{trace}"
        );
        assert!(lines[at].contains(result), "{trace}");
        assert_eq!(lines.len(), at + 2, "{trace}");
        assert_eq!(trace.matches("calls.sock").count(), 1, "{trace}");
    };
    reported("ADD", "= ");
    let counted = r#"braid_call_duration_seconds_count{verb="ADD",type="ptp",result="success"}"#;
    await_true("the call in the metrics", || {
        value(&scrape(), counted) == Some(1.0)
    });
    node.agent.child.kill().expect("the agent runs");
    node.agent.child.wait().expect("the agent ends");
    reported("DEL", "= -1 ECONNREFUSED");
}

#[test]
fn the_trace_of_a_call_is_in_its_events() {
    let Some(node) = Served::new("metrics-trace", 192) else {
        return;
    };
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let mut pod = node.pod("web", &asks());
    pod.call = pod.call.env("TRACEPARENT", parent.as_str());
    pod.call.add().result();
    await_true("the trace in the events of both interfaces", || {
        let events = listed(&node, &format!("regarding.name={}", pod.name));
        let traces = events
            .iter()
            .map(|event| &event["metadata"]["annotations"]["braid/trace-id"]);
        traces.filter(|found| **found == trace).count() == 2
    });
    pod.call.del().ok();
}

/// Returns the words of a text that are names of braid's metrics.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !is_part(char));
    words
        .filter(|word| word.starts_with("braid_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let Some(_node) = Served::new("metrics-names", 193) else {
        return;
    };
    let samples = names(&scrape());
    for file in ["braid-dashboard.json", "braid-alerts.yaml"] {
        let path = Path::new(DEPLOY).join(file);
        let text = fs::read_to_string(&path).expect("the file");
        let named = names(&text);
        assert!(named.len() > 8, "{file}: {named:?}");
        let unknown: Vec<&String> = named.difference(&samples).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let alerts = Path::new(DEPLOY).join("braid-alerts.yaml");
    let alerts = alerts.to_str().expect("a path");
    if let Some(checked) = promtool(&["check", "rules", "--lint-fatal", alerts], "") {
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_report_has_the_metrics_of_the_agent_and_not_its_token() {
    let Some(node) = Served::new("metrics-sysdump", 224) else {
        return;
    };
    let token = "/run/braid/api/token";
    await_true("a token", || fs::exists(token).is_ok_and(|is| is));
    let dumped = Command::new(braid_tests::binary::braid())
        .args(["sysdump", "--output", "/run/dump.tar.gz"])
        .output()
        .expect("braid starts");
    assert!(dumped.status.success(), "{dumped:?}");
    let world = &node.pair.world;
    let all = world.sandbox.run("tar xzOf /run/dump.tar.gz");
    let metrics = "tar xzOf /run/dump.tar.gz --wildcards */metrics.txt";
    let metrics = world.sandbox.run(metrics);
    assert!(
        metrics.contains("braid_collected_total{kind=\"status\"} 0"),
        "{metrics}"
    );
    let token = fs::read_to_string(token).expect("a token");
    let signature = token.rsplit('.').next().expect("a signature");
    assert!(signature.len() > 20 && !all.contains(signature.trim()));
}
