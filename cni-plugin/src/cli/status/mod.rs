//! `braid status`: the attachments and networks on this node, from the records.

pub(in crate::cli) mod report;
mod table;

use super::conf::type_of;
use super::install::detect;
use super::output::{self, Format};
use super::shaped::{self, Direction};
use super::{Outcome, install};
use braid_core::cni::{Json, NetConf, NetConfList};
use braid_core::dra::rate::Rate;
use braid_core::k8s::claimed::ClaimedDevice;
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::{LinkRef, Thing};
use braid_node::attach::call_conf;
use braid_node::attach::chain::BRAID;
use braid_node::attach::liveness::netns_of;
use braid_node::attach::status::full;
use braid_node::attach::usage::UsageReader;
use braid_node::ipam::liveness::Netns;
use braid_node::store::record::{self, Attached, Record};
use braid_node::store::root::NODE;
use braid_node::takeover::place;
use braid_node::takeover::root::Root;
use clap::Args;
use report::{AttachmentStatus, ClaimStatus, NetworkStatus, NodeStatus};
use std::path::Path;
use std::time::{Duration, SystemTime};
pub(super) use table::short_id;

/// Show the attachments and networks on this node
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let status = read()?;
    let shown = output::print(&match arguments.output {
        Format::Table => table::of(&status),
        Format::Json => output::json(&status)?,
    });
    for sentence in &status.warnings {
        output::tell(format_args!("{sentence}"));
    }
    Ok(shown)
}

/// Reads the status of this node.
fn read() -> Result<NodeStatus, braid_node::Error> {
    let now = SystemTime::now();
    let age = |written| now.duration_since(written).unwrap_or_default();
    let dated = record::list_dated()?;
    let mut attachments = Vec::new();
    for (record, written) in &dated {
        attachments.extend(shown(record, age(*written), netns_of(record)));
    }
    attachments.sort_by(|a, b| {
        (&a.network, &a.container_id, &a.ifname).cmp(&(&b.network, &b.container_id, &b.ifname))
    });
    let records: Vec<Record> = dated.into_iter().map(|(record, _)| record).collect();
    let mut warnings = Vec::new();
    let networks = networks(&records, &mut warnings);
    warnings.extend(full(&records, &NODE, &output::log()));
    // `braid doctor` reports the error.
    warnings.extend(install::lost_names().ok().flatten());
    Ok(NodeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        attachments,
        networks,
        warnings,
    })
}

/// Reads the networks of the records and of the node's conflist.
fn networks(records: &[Record], warnings: &mut Vec<String>) -> Vec<NetworkStatus> {
    let mut usage = UsageReader::default();
    let folder = detect::folders(&Root::new(Path::new("/"))).networks;
    match call_conf::read(&folder.join(place::NAME)) {
        Ok(Some(conf)) => usage.add_network(conf),
        Ok(None) => {}
        Err(err) => warnings.push(format!("{}: {err}", folder.join(place::NAME).display())),
    }
    for record in records {
        usage.add_record(record);
    }
    report::networks(usage.usage())
}

fn shown(record: &Record, age: Duration, netns: Netns) -> Vec<AttachmentStatus> {
    let report = |attached: &Attached| {
        let bandwidth = shaped::of(record, attached);
        let claimed = attached.claimed.as_ref();
        let claim = claimed.map(|device| claim_of(device, &bandwidth));
        AttachmentStatus {
            pod: pod_of(attached),
            network: attached.network.clone(),
            network_attachment_definition: attached.object.as_ref().map(ToString::to_string),
            plugin: types(attached),
            container_id: record.key.owner.container_id.clone(),
            ifname: attached.ifname.to_string(),
            addresses: addresses(attached),
            host_link: host_link_of(attached),
            netns: record.netns.as_ref().map(|path| path.display().to_string()),
            netns_state: netns.name().into(),
            age_seconds: age.as_secs(),
            bandwidth,
            claim,
        }
    };
    record.attachments.iter().map(report).collect()
}

/// Returns a device of a claim with the limit of its directions. The claim gives both the same limit.
fn claim_of(device: &ClaimedDevice, directions: &[Direction]) -> ClaimStatus {
    let rate = directions.first().map(|direction| Rate(direction.rate));
    ClaimStatus {
        name: device.claim.to_string(),
        request: device.request.clone(),
        device: device.device.clone(),
        rate: rate.map(|rate| rate.to_string()),
    }
}

/// Returns `<namespace>/<name>` of an attachment's pod, if the runtime passed it.
pub(super) fn pod_of(attached: &Attached) -> Option<String> {
    attached.pod().map(|pod| pod.name.to_string())
}

fn addresses(attached: &Attached) -> Vec<String> {
    let mut addresses = Vec::new();
    for step in attached.steps() {
        if let Step::Add(Thing::Addr(addr)) = step
            && addr.at.ns == Ns::Pod
            && addr.at.name == attached.ifname
        {
            addresses.push(addr.net.to_string());
        }
    }
    addresses
}

/// Returns the plugin types of a list, joined by `+`, or the single type of the attachment.
fn types(attached: &Attached) -> String {
    match list_of(attached) {
        Some(list) => {
            let types: Vec<&str> = list.plugins.iter().filter_map(type_of).collect();
            types.join("+")
        }
        None => attached.plugin.clone(),
    }
}

fn list_of(attached: &Attached) -> Option<NetConfList> {
    if attached.plugin != BRAID {
        return None;
    }
    let conf = NetConf::from_json(Json::clone(&attached.conf)).ok()?;
    NetConfList::from_braid(&conf).ok()?
}

fn host_link_of(attached: &Attached) -> Option<String> {
    let link = attached.steps().find_map(host_link)?;
    Some(link.name.to_string())
}

/// Returns the host link of a step that creates a link. For a link with a parent, such as a macvlan
/// or ipvlan, this is the parent. For any other link on the host, this is the link itself. `None`
/// for other links and steps.
pub(super) fn host_link(step: &Step) -> Option<&LinkRef> {
    let Step::Add(Thing::Link(link)) = step else {
        return None;
    };
    if let Some(parent) = link.kind.parent() {
        return Some(parent);
    }
    (link.at.ns == Ns::Host).then_some(&link.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::conf;
    use braid_core::cni::Owner;
    use braid_core::name::IfName;
    use braid_core::plan::thing::{Addr, Link, LinkKind};
    use braid_node::store::record::Key;

    pub(super) fn record() -> Record {
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
            r#""age_seconds":7,"bandwidth":[],"claim":null}"#
        );
        assert_eq!(json, expected);
    }
}
