//! `braid status`: the attachments on this node, from the records.

use super::output::{self, Format};
use super::shaped::{self, Direction, short};
use super::{Outcome, install};
use braid_core::cni::{Json, NetConf, NetConfList};
use braid_core::k8s::settings::PodRef;
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::shaping::Traffic;
use braid_core::plan::thing::{LinkRef, Thing};
use braid_node::attach::chain::BRAID;
use braid_node::attach::liveness::netns_of;
use braid_node::attach::status::full;
use braid_node::ipam::liveness::Netns;
use braid_node::store::record::{self, Attached, Record};
use braid_node::store::root::NODE;
use clap::Args;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// Show the attachments on this node
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Displayed digits of a runtime's container id, which has 64 hexadecimal digits. A shorter id is
/// shown whole.
const SHORT_ID_LEN: usize = 12;
const LONG_ID_LEN: usize = 64;

/// One attachment.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct StatusReport {
    /// `<namespace>/<name>` of the pod, if the runtime passed it.
    pod: Option<String>,
    network: String,
    /// NetworkAttachmentDefinition of the network, as `<namespace>/<name>`.
    network_attachment_definition: Option<String>,
    /// Type of the plugin; the types of a list are joined by `+`.
    #[serde(rename = "type")]
    plugin: String,
    container_id: String,
    ifname: String,
    /// Addresses with prefix on the container's interface.
    addresses: Vec<String>,
    /// Host end of the veth, or parent of a macvlan or ipvlan.
    host_link: Option<String>,
    netns: Option<String>,
    /// `alive`, `gone` or `unknown`.
    netns_state: &'static str,
    /// Seconds since the record was last written.
    age_seconds: u64,
    /// Shaped directions.
    bandwidth: Vec<Direction>,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let now = SystemTime::now();
    let age = |written| now.duration_since(written).unwrap_or_default();
    let records = record::list_dated()?;
    let mut all: Vec<StatusReport> = records
        .iter()
        .flat_map(|(record, written)| shown(record, age(*written), netns_of(record)))
        .collect();
    all.sort_by(|a, b| {
        (&a.network, &a.container_id, &a.ifname).cmp(&(&b.network, &b.container_id, &b.ifname))
    });
    let shown = output::print(&match arguments.output {
        Format::Table => table(&all),
        Format::Json => output::json(&all)?,
    });
    let records: Vec<Record> = records.into_iter().map(|(record, _)| record).collect();
    for sentence in full(&records, &NODE, &output::log()) {
        output::tell(format_args!("{sentence}"));
    }
    // `braid doctor` reports the error.
    if let Ok(Some(sentence)) = install::lost_names() {
        output::tell(format_args!("{sentence}"));
    }
    Ok(shown)
}

fn shown(record: &Record, age: Duration, netns: Netns) -> Vec<StatusReport> {
    let report = |attached: &Attached| StatusReport {
        pod: PodRef::of(&attached.args)
            .ok()
            .flatten()
            .map(|pod| pod.name.to_string()),
        network: attached.network.clone(),
        network_attachment_definition: attached.object.as_ref().map(ToString::to_string),
        plugin: types(attached),
        container_id: record.key.owner.container_id.clone(),
        ifname: attached.ifname.to_string(),
        addresses: addresses(attached),
        host_link: attached
            .steps()
            .find_map(host_link)
            .map(|link| link.name.to_string()),
        netns: record.netns.as_ref().map(|path| path.display().to_string()),
        netns_state: netns.name(),
        age_seconds: age.as_secs(),
        bandwidth: shaped::of(record, attached),
    };
    record.attachments.iter().map(report).collect()
}

fn addresses(attached: &Attached) -> Vec<String> {
    let own = |at: &LinkRef| at.ns == Ns::Pod && at.name == attached.ifname;
    let all = attached.steps().filter_map(|step| {
        if let Step::Add(Thing::Addr(addr)) = step {
            Some(addr)
        } else {
            None
        }
    });
    all.filter(|addr| own(&addr.at))
        .map(|addr| addr.net.to_string())
        .collect()
}

/// Returns the types of a list, or the attachment's own.
fn types(attached: &Attached) -> String {
    let list = || {
        NetConfList::from_braid(&NetConf::from_json(Json::clone(&attached.conf)).ok()?)
            .ok()
            .flatten()
    };
    match list().filter(|_| attached.plugin == BRAID) {
        Some(list) => {
            let types = list
                .plugins
                .iter()
                .filter_map(|plugin| plugin.get("type").and_then(Json::as_str));
            types.collect::<Vec<_>>().join("+")
        }
        None => attached.plugin.clone(),
    }
}

/// Returns the host end of a created link: the link itself if it is on the host, or the parent of a
/// child.
pub(super) fn host_link(step: &Step) -> Option<&LinkRef> {
    let Step::Add(Thing::Link(link)) = step else {
        return None;
    };
    let own = Some(&link.at).filter(|at| at.ns == Ns::Host);
    link.kind.parent().or(own)
}

fn table(all: &[StatusReport]) -> String {
    // The columns for Kubernetes appear only if there is a pod.
    let has_pods = all.iter().any(|one| one.pod.is_some());
    let row = |one: &StatusReport| {
        let short = short_id(&one.container_id);
        let host_link = one.host_link.clone().unwrap_or_default();
        let columns = [
            &one.network,
            &one.plugin,
            &short,
            &one.ifname,
            &one.addresses.join(" "),
            &host_link,
        ];
        let mut row: Vec<String> = columns.into_iter().cloned().collect();
        if has_pods {
            let of_pod = [&one.pod, &one.network_attachment_definition];
            row.splice(0..0, of_pod.map(|name| name.clone().unwrap_or_default()));
        }
        row.extend([one.netns_state.to_owned(), age_text(one.age_seconds)]);
        row
    };
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
    let attachments = output::table(header, all.iter().map(row));
    let shaped = all.iter().flat_map(|one| {
        one.bandwidth
            .iter()
            .map(move |direction| limit_row(one, direction))
    });
    let shaped: Vec<Vec<String>> = shaped.collect();
    if shaped.is_empty() {
        return attachments;
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
    attachments + "\n" + &output::table(&header, shaped)
}

fn limit_row(one: &StatusReport, direction: &Direction) -> Vec<String> {
    let mut row = vec![
        short_id(&one.container_id),
        one.ifname.clone(),
        direction.toward.to_owned(),
    ];
    row.extend([
        short(direction.rate),
        short(direction.burst),
        direction.queue.clone(),
    ]);
    let cells = |passed: Traffic| {
        let Traffic {
            bytes,
            packets,
            delayed,
            dropped,
            marked,
            bypassed,
            guarded,
        } = passed;
        [bytes, packets, delayed, dropped, marked, bypassed, guarded]
            .map(|number| number.to_string())
    };
    row.extend(
        direction
            .passed
            .map_or_else(|| [const { String::new() }; 7], cells),
    );
    row
}

/// Returns the displayed part of a container id.
pub(super) fn short_id(id: &str) -> String {
    id.get(..SHORT_ID_LEN)
        .filter(|_| id.len() >= LONG_ID_LEN)
        .unwrap_or(id)
        .to_owned()
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
    use super::*;
    use crate::cli::conf;
    use braid_core::cni::Owner;
    use braid_core::k8s::ObjectName;
    use braid_core::name::IfName;
    use braid_core::plan::thing::{Addr, Link, LinkKind};
    use braid_node::store::record::Key;

    fn record() -> Record {
        let name = |text| IfName::parse(text).expect("a name");
        let key = Key {
            owner: Owner::new("pods", "4f1c5d0e9a7b33", "eth0"),
            plugin: BRAID.to_owned(),
        };
        let conf =
            br#"{"name":"pods","type":"braid","plugins":[{"type":"ptp"},{"type":"tuning"}]}"#;
        let conf = Json::parse(conf, "test").expect("json").into();
        let attachment =
            conf::attachment(&key.owner.container_id, "eth0", None, "").expect("an attachment");
        let attached = Attached::new(&key.owner.network, BRAID, &attachment, conf);
        let mut record = Record::new(key, Some("/run/netns/a".into()), vec![attached]);
        let link = Link {
            at: LinkRef::host(name("veth1")),
            mac: None,
            mtu: None,
            up: true,
            master: None,
            kind: LinkKind::Veth {
                peer: LinkRef::pod(name("eth0")),
                peer_mac: None,
            },
        };
        let addr = |at, net: &str| {
            Step::add(Addr {
                at,
                net: net.parse().expect("a net"),
                no_prefix_route: false,
                no_dad: false,
            })
        };
        record.attachments[0].parts = vec![vec![
            Step::Add(Thing::Link(link)),
            addr(LinkRef::pod(name("eth0")), "10.1.0.2/24"),
            addr(LinkRef::host(name("veth1")), "10.1.0.1/32"),
        ]];
        record
    }

    #[test]
    fn json_keys_are_stable() {
        let json =
            serde_json::to_string(&shown(&record(), Duration::from_secs(7), Netns::Alive)[0])
                .expect("json");
        let expected = concat!(
            r#"{"pod":null,"network":"pods","network_attachment_definition":null,"type":"ptp+tuning","container_id":"4f1c5d0e9a7b33","ifname":"eth0","#,
            r#""addresses":["10.1.0.2/24"],"host_link":"veth1","netns":"/run/netns/a","netns_state":"alive","#,
            r#""age_seconds":7,"bandwidth":[]}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn table_shortens_container_ids_of_runtimes() {
        let mut record = record();
        record.key.owner.container_id = "4f1c5d0e9a7b33aa".repeat(4);
        let text = table(&shown(&record, Duration::from_secs(3725), Netns::Gone));
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
        let text = table(&shown(&record, Duration::from_secs(1), Netns::Alive));
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
        let texts: Vec<String> = [0, 59, 61, 3600, 90_061]
            .into_iter()
            .map(age_text)
            .collect();
        assert_eq!(texts, ["0s", "59s", "1m1s", "1h0m", "1d1h"]);
    }
}
