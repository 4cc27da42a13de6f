use super::super::agents::Agent;
use super::super::text::WIDTH;
use super::*;
use crate::cli::status::report::ClaimStatus;
use serde_json::{Value, json};

fn node(name: &str, has_agent: bool) -> Node {
    let agent = has_agent.then(|| Agent {
        namespace: "kube-system".to_owned(),
        pod: format!("braid-{name}"),
        is_running: true,
        ..Agent::default()
    });
    Node {
        name: name.to_owned(),
        agent,
    }
}

fn status(used: u64, free: u64, pod: &str) -> Value {
    let limit = json!({"direction": "egress", "rate": 10_000_000, "burst": 1, "queue": "fq", "bytes": 1,
        "packets": 1, "delayed": 2000, "dropped": 3, "marked": 0, "bypassed": 0, "guarded": 0});
    let attachment = json!({"pod": pod, "network": "pods", "network_attachment_definition": null,
        "type": "ptp", "container_id": "4f1c", "ifname": "eth0", "addresses": ["10.1.0.2/24"],
        "host_link": null, "netns": null, "netns_state": "alive", "age_seconds": 1, "bandwidth": [limit]});
    let ranges = json!([{"range": "10.1.0.1-10.1.0.6", "used": used, "free": free},
        {"range": "fd00::1-fd00::ffff", "used": used, "free": 100}]);
    json!({"version": "0.1.0", "attachments": [attachment],
        "networks": [{"network": "pods", "attachments": 1, "ranges": ranges}], "warnings": ["full"]})
}

fn answered(stdout: &Value) -> Answer {
    Answer {
        has_succeeded: true,
        stdout: stdout.to_string(),
        words: String::new(),
    }
}

fn reports() -> Vec<NodeReport> {
    let pod = format!("shop/{}", "web".repeat(40));
    vec![
        report(node("n1", true), Ok(answered(&status(3, 2, "shop/web")))),
        report(node("n2", true), Ok(answered(&status(1, 4, &pod)))),
        report(node("n3", true), Err("no answer within 20 s".to_owned())),
        report(node("n4", false), Err("no agent".to_owned())),
    ]
}

#[test]
fn addresses_of_a_network_are_added_up_by_family() {
    let text = networks_table(&reports()).expect("a table");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        vec!["pods", "2", "2", "IPv4", "4", "6", "2", "free", "on", "n1"],
        vec!["IPv6", "4", "200", "100", "free", "on", "n1"],
    ];
    assert_eq!(rows, expected);
}

#[test]
fn devices_of_claims_have_a_row_each() {
    assert_eq!(claims_table(&reports()), None, "of an older version too");
    let mut nodes = reports();
    for (node, rate) in nodes.iter_mut().zip([Some("200M"), None]) {
        node.attachments[0].claim = Some(ClaimStatus {
            name: "shop/nic".to_owned(),
            request: "a".to_owned(),
            device: "eth1".to_owned(),
            rate: rate.map(str::to_owned),
        });
    }
    let text = claims_table(&nodes).expect("a table");
    let row = |node: &str| {
        let mut lines = text.lines().filter(|line| line.ends_with(node));
        let line = lines.next().unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>()
    };
    let expected = ["shop/nic", "a", "200M", "shop/web", "eth0", "eth1", "n1"];
    assert_eq!(row("n1"), expected);
    assert_eq!(row("n2")[3..], ["eth0", "eth1", "n2"]);
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
}

#[test]
fn all_nodes_have_a_row_and_reasons_follow() {
    let text = tables(&reports());
    for line in [
        "n1    0.1.0    1         1         warning",
        "n3                                 no answer",
        "n4                                 no agent",
        "n3: no answer within 20 s",
        "n1: full",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    let limits: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("egress"))
        .collect();
    assert_eq!(limits.len(), 2, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
}

#[test]
fn only_an_agent_without_an_answer_is_a_failure() {
    let failed = reports()
        .iter()
        .map(NodeReport::has_failed)
        .collect::<Vec<_>>();
    assert_eq!(failed, [false, false, true, false]);
    let words = Answer {
        has_succeeded: false,
        stdout: String::new(),
        words: "container not found (\"agent\")".to_owned(),
    };
    let report = report(node("n1", true), Ok(words));
    assert_eq!(
        report.error.as_deref(),
        Some("container not found (\"agent\")")
    );
}
