//! Tables of `braid status`.

use super::report::{AttachmentStatus, NetworkStatus, NodeStatus};
use crate::cli::cluster::text;
use crate::cli::output;
use crate::cli::shaped::{Direction, short};
use braid_core::plan::thing::shaping::Traffic;

/// Number of displayed digits of a long container id. A long id has at least 64 digits, as the ids
/// of runtimes have. A shorter id is shown whole.
const SHORT_ID_LEN: usize = 12;
const LONG_ID_LEN: usize = 64;

/// Formats a table of the attachments, one of the devices of claims, one of the ranges, and one of the
/// limits, if there are any.
pub(super) fn of(status: &NodeStatus) -> String {
    let mut tables = vec![attachments_table(&status.attachments)];
    tables.extend(claims_table(&status.attachments));
    tables.extend(ranges_table(&status.networks));
    tables.extend(limits_table(&status.attachments));
    tables.join("\n")
}

fn attachments_table(all: &[AttachmentStatus]) -> String {
    // The columns for Kubernetes appear only if there is a pod.
    let has_pods = all.iter().any(|one| one.pod.is_some());
    let header = [
        "pod",
        "definition",
        "network",
        "type",
        "container",
        "ifname",
        "addresses",
        "host link",
        "netns",
        "age",
    ];
    let header = if has_pods { &header[..] } else { &header[2..] };
    let rows = all.iter().map(|one| attachment_row(one, has_pods));
    output::table(header, rows)
}

/// Formats one attachment; `has_pods` adds the columns for Kubernetes.
fn attachment_row(one: &AttachmentStatus, has_pods: bool) -> Vec<String> {
    let mut row = Vec::new();
    if has_pods {
        row.push(one.pod.clone().unwrap_or_default());
        row.push(
            one.network_attachment_definition
                .clone()
                .unwrap_or_default(),
        );
    }
    row.extend([
        one.network.clone(),
        one.plugin.clone(),
        short_id(&one.container_id),
        one.ifname.clone(),
        one.addresses.join(" "),
        one.host_link.clone().unwrap_or_default(),
        one.netns_state.to_string(),
        age_text(one.age_seconds),
    ]);
    row
}

fn claims_table(all: &[AttachmentStatus]) -> Option<String> {
    let mut rows = Vec::new();
    for one in all {
        if let Some(claim) = &one.claim {
            rows.push(vec![
                claim.name.clone(),
                claim.request.clone(),
                claim.device.clone(),
                claim.rate.clone().unwrap_or_default(),
                short_id(&one.container_id),
                one.ifname.clone(),
            ]);
        }
    }
    rows.sort();
    let header = ["claim", "request", "device", "rate", "container", "ifname"];
    (!rows.is_empty()).then(|| text::table(&header, rows, &[0, 1, 4]))
}

fn ranges_table(networks: &[NetworkStatus]) -> Option<String> {
    let mut rows = Vec::new();
    for network in networks {
        for range in &network.ranges {
            rows.push(vec![
                network.network.clone(),
                range.range.clone(),
                range.used.to_string(),
                range.free.to_string(),
            ]);
        }
    }
    let header = ["network", "range", "used", "free"];
    (!rows.is_empty()).then(|| output::table(&header, rows))
}

fn limits_table(all: &[AttachmentStatus]) -> Option<String> {
    let mut shaped = Vec::new();
    for one in all {
        for direction in &one.bandwidth {
            shaped.push(limit_row(one, direction));
        }
    }
    if shaped.is_empty() {
        return None;
    }
    let header = [
        "container",
        "ifname",
        "direction",
        "limit",
        "burst",
        "shaped by",
        "bytes",
        "packets",
        "delayed",
        "dropped",
        "marked",
        "bypassed",
        "guarded",
    ];
    Some(output::table(&header, shaped))
}

fn limit_row(one: &AttachmentStatus, direction: &Direction) -> Vec<String> {
    let mut row = vec![
        short_id(&one.container_id),
        one.ifname.clone(),
        direction.toward.name().to_owned(),
    ];
    row.extend([
        short(direction.rate),
        short(direction.burst),
        direction.queue.clone(),
    ]);
    row.extend(counter_cells(direction.passed));
    row
}

/// Formats the counters; empty cells without counters.
fn counter_cells(passed: Option<Traffic>) -> [String; 7] {
    let Some(passed) = passed else {
        return [const { String::new() }; 7];
    };
    let Traffic {
        bytes,
        packets,
        delayed,
        dropped,
        marked,
        bypassed,
        guarded,
    } = passed;
    [bytes, packets, delayed, dropped, marked, bypassed, guarded].map(|number| number.to_string())
}

/// Returns the displayed part of a container id.
pub(in crate::cli) fn short_id(id: &str) -> String {
    let is_long = id.len() >= LONG_ID_LEN;
    match id.get(..SHORT_ID_LEN) {
        Some(short) if is_long => short.to_owned(),
        Some(_) | None => id.to_owned(),
    }
}

/// Formats the two largest units: `45s`, `3m5s`, `2h10m`, `9d4h`.
fn age_text(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::super::{claim_of, shown};
    use super::*;
    use braid_core::k8s::ObjectName;
    use braid_core::k8s::claimed::ClaimedDevice;
    use braid_node::ipam::liveness::Netns;
    use std::time::Duration;

    #[test]
    fn claimed_device_has_a_row_with_its_rate_in_80_columns() {
        let mut record = record();
        let claim = ObjectName {
            namespace: "shop".to_owned(),
            name: format!("reader-{}-storage", "x".repeat(60)),
        };
        let attached = &mut record.attachments[0];
        attached.claimed = Some(ClaimedDevice {
            claim: claim.clone(),
            claim_uid: "u".to_owned(),
            request: "nic/fast".to_owned(),
            pool: "n1".to_owned(),
            device: "eth1".to_owned(),
            share_id: None,
        });
        let mut all = shown(&record, Duration::from_secs(1), Netns::Alive);
        assert_eq!(all[0].claim.as_ref().and_then(|one| one.rate.clone()), None);
        let direction = r#"{"direction":"egress","rate":2500000000,"burst":1,"queue":"fq"}"#;
        let directions: Vec<Direction> =
            vec![serde_json::from_str(direction).expect("a direction")];
        let device = record.attachments[0].claimed.as_ref().expect("a device");
        all[0].claim = Some(claim_of(device, &directions));
        let json = serde_json::to_string(&all[0].claim).expect("json");
        let expected =
            format!(r#"{{"name":"{claim}","request":"nic/fast","device":"eth1","rate":"2500M"}}"#);
        assert_eq!(json, expected);
        let text = claims_table(&all).expect("a table");
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            row[1..],
            ["nic/fast", "eth1", "2500M", "4f1c5d0e9a7b33", "eth0"]
        );
        assert!(row[0].starts_with("shop/reader-") && row[0].ends_with("-storage"));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        all[0].claim = None;
        assert_eq!(claims_table(&all), None);
    }

    #[test]
    fn table_shortens_container_ids_of_runtimes() {
        let mut record = record();
        record.key.owner.container_id = "4f1c5d0e9a7b33aa".repeat(4);
        let text = attachments_table(&shown(&record, Duration::from_secs(3725), Netns::Gone));
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            [
                "pods",
                "ptp+tuning",
                "4f1c5d0e9a7b",
                "eth0",
                "10.1.0.2/24",
                "veth1",
                "gone",
                "1h2m"
            ]
        );
    }

    #[test]
    fn pod_and_definition_have_columns_if_there_is_one() {
        let mut record = record();
        record.attachments[0].args =
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web".to_owned();
        record.attachments[0].object = Some(ObjectName {
            namespace: "ns".to_owned(),
            name: "blue".to_owned(),
        });
        let text = attachments_table(&shown(&record, Duration::from_secs(1), Netns::Alive));
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().take(3).collect())
            .collect();
        assert_eq!(
            words,
            [
                ["pod", "definition", "network"],
                ["ns/web", "ns/blue", "pods"]
            ]
        );
    }

    #[test]
    fn age_has_its_two_largest_units() {
        let texts = [0, 59, 61, 3600, 90_061].map(age_text);
        assert_eq!(texts, ["0s", "59s", "1m1s", "1h0m", "1d1h"]);
    }
}
