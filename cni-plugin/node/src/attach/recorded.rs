//! Attachments that are read back from a record.

use super::chain::{AddressSource, Chain};
use super::flannel;
use super::invocation::{DelRequest, Detached, Wanted};
use crate::ipam::host_local;
use crate::store::record::{Attached, Folder, Key, Record};
use braid_core::cni::{Attachment, Error, Json, NetConf, Owner};
use braid_core::ipam::Claim;
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::Thing;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(super) const PREV_RESULT: &str = "prevResult";

/// Returns the attachments to delete. Their plugins are taken from the record, because another
/// configuration could release an address at an IPAM that never assigned it. The first attachment
/// gets the call's `prevResult`, or else its recorded result. The other attachments get their
/// recorded results. If there is no record, or the first recorded configuration cannot be read, the
/// configuration of the call is used for the first attachment.
pub fn wanted(record: Option<&Record>, call: &DelRequest) -> Result<Vec<Wanted>, Error> {
    let DelRequest {
        key,
        attachment,
        conf,
        path,
        ..
    } = call;
    let mut first = None;
    if let Some(record) = record
        && let Some(attached) = record.attachments.first()
    {
        let prev = conf.json.get(PREV_RESULT).or(attached.result.as_ref());
        first = chain(attached, prev, path).ok();
    }
    let first = match first {
        Some(chain) => chain,
        // There is no record, or it is damaged: no version of braid wrote an unreadable
        // configuration.
        None => Chain::parse_left(&key.plugin, conf, attachment, path)?,
    };
    let mut wanted = vec![Wanted::new(attachment.clone(), first)];
    if let Some(record) = record {
        for other in further(record, attachment) {
            wanted.push(other?);
        }
    }
    Ok(wanted)
}

/// Returns the record's attachments after the first one, each with its recorded result. Their
/// network namespace is taken from `first`.
pub fn further(record: &Record, first: &Attachment) -> impl Iterator<Item = Result<Wanted, Error>> {
    record.attachments.iter().skip(1).map(|attached| {
        let attachment = Attachment {
            netns: first.netns.clone(),
            ..record.interface_of(attached)
        };
        let chain = chain(attached, attached.result.as_ref(), &record.path)?;
        Ok(as_wanted(attached, attachment, chain))
    })
}

/// Converts a recorded attachment to the attachment that ADD requested, with this interface and
/// these plugins.
pub fn as_wanted(attached: &Attached, attachment: Attachment, chain: Chain) -> Wanted {
    let claim = attached.claim.clone().map(|owner| Claim {
        owner,
        addresses: Vec::new(),
    });
    Wanted {
        claim,
        object: attached.object.clone(),
        default_route: attached.default_route(),
        ..Wanted::new(attachment, chain)
    }
}

/// Loads the record, with the attachments that a failed attempt has left.
pub fn load(key: &Key, folder: &Folder) -> Result<Record, Error> {
    let record = folder.load(key).map_err(Error::from)?;
    record.ok_or_else(|| Error::internal("the container has no record"))
}

/// Returns each attachment of a record with its plugins, as ADD ran them. Skips an attachment if
/// its configuration cannot be parsed.
pub fn chains(record: &Record) -> impl Iterator<Item = (&Attached, Chain)> {
    let with_chain = |attached| {
        let chain = chain_of(attached, &record.path).ok()?;
        Some((attached, chain))
    };
    record.attachments.iter().filter_map(with_chain)
}

/// Returns the plugins of an attachment as ADD ran them, with its recorded result. `path` is
/// `CNI_PATH`.
pub fn chain_of(attached: &Attached, path: &[PathBuf]) -> Result<Chain, Error> {
    chain(attached, attached.result.as_ref(), path)
}

/// Returns the plugins of an attachment as ADD ran them, without its recorded result.
pub fn plain_chain_of(attached: &Attached, path: &[PathBuf]) -> Result<Chain, Error> {
    chain(attached, None, path)
}

fn chain(attached: &Attached, prev: Option<&Json>, path: &[PathBuf]) -> Result<Chain, Error> {
    let mut json = Json::clone(&attached.conf);
    json.remove(PREV_RESULT);
    flannel::is_of_record(&mut json);
    let mut conf = NetConf::from_json(json)?;
    if let Some(prev) = prev {
        // The networks of a pod have different versions.
        conf.set_prev_result(prev)?;
    }
    parse(&attached.plugin, conf, &attached.args, path)
}

/// Parses a configuration. If this version of braid refuses it, reads only the part that is needed
/// to release the addresses.
fn parse(plugin_name: &str, conf: NetConf, args: &str, path: &[PathBuf]) -> Result<Chain, Error> {
    Chain::parse(plugin_name, conf.clone(), args, path)
        .or_else(|_| Chain::parse_for_release(plugin_name, conf, args, path))
}

/// Returns the `host-local` configurations of a chain, each with the index of its plugin.
pub fn host_locals(chain: &Chain) -> impl Iterator<Item = (usize, &host_local::HostLocalConfig)> {
    chain
        .items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match &item.addresses {
            AddressSource::Ours(ipam) => Some((at, ipam.as_host_local()?)),
            AddressSource::NoIpam | AddressSource::Foreign(_) => None,
        })
}

/// Returns the record's interfaces.
pub fn interfaces(record: &Record) -> Vec<Detached> {
    let mut interfaces = Vec::new();
    for attached in &record.attachments {
        let addresses = nets(attached.steps()).collect();
        interfaces.push(Detached {
            ifname: attached.ifname.clone(),
            addresses,
            network: attached.name(),
        });
    }
    interfaces
}

/// Returns the addresses in the record that were leased from the `host-local` folder `path` of this
/// network, each with its owner.
pub fn leased(record: &Record, network: &str, path: &Path) -> Vec<(IpAddr, Owner)> {
    let mut leased = Vec::new();
    for (attached, chain) in chains(record).filter(|(attached, _)| attached.network == network) {
        for (at, config) in host_locals(&chain) {
            if config.path() != path {
                continue;
            }
            for address in addresses(attached.parts.get(at).into_iter().flatten()) {
                leased.push((address, record.lease_owner_of(attached)));
            }
        }
    }
    leased
}

/// Returns the addresses that these steps add in the container.
pub fn addresses<'s>(steps: impl Iterator<Item = &'s Step>) -> Vec<IpAddr> {
    nets(steps).map(|net| net.addr()).collect()
}

fn nets<'s>(steps: impl Iterator<Item = &'s Step>) -> impl Iterator<Item = IpNet> {
    steps.filter_map(|step| {
        let Step::Add(Thing::Addr(addr)) = step else {
            return None;
        };
        (addr.at.ns == Ns::Pod).then_some(addr.net)
    })
}
