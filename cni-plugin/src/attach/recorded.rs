//! The call that a record is of, read back from it.

use super::chain::{Chain, From};
use crate::apply::record::Record;
use crate::cni::{Attachment, Command, Error, NetConf, Request};
use crate::ipam::host_local;
use crate::plan::IfName;
use crate::plan::step::{Ns, Step};
use crate::plan::thing::Thing;
use std::net::IpAddr;
use std::path::Path;

const PREV_RESULT: &str = "prevResult";

/// DEL with what the record remembers of ADD.
pub fn request(record: &Record) -> Result<Request, Error> {
    let conf = NetConf::from_json(record.conf.clone())?;
    let ifname = IfName::parse(&record.key.owner.ifname).map_err(|err| Error::internal(err.to_string()))?;
    let attachment = Attachment {
        container_id: record.key.owner.container_id.clone(),
        ifname,
        netns: record.netns.clone(),
        args: record.args.clone(),
    };
    let (attachment, path) = (Some(attachment), record.path.clone());
    Ok(Request { command: Command::Del, attachment, path, netns_override: false, conf })
}

/// The chain that ADD ran.
pub fn chain(record: &Record) -> Result<Chain, Error> {
    let request = request(record)?;
    parse(&record.key.plugin, &request.conf, &request)
}

/// The chain to take back at DEL: the one that ADD ran, told the result that `call` brings along. Without a record the call's
/// own. Another configuration than ADD's would give an address back to who never gave it.
pub fn chain_of(record: Option<&Record>, face: &str, call: &Request) -> Result<Chain, Error> {
    let recorded = record.and_then(|record| {
        let mut json = record.conf.clone();
        json.remove(PREV_RESULT);
        if let Some(result) = call.conf.json.get(PREV_RESULT) {
            json.set(PREV_RESULT, result.clone());
        }
        parse(&record.key.plugin, &NetConf::from_json(json).ok()?, call).ok()
    });
    recorded.map_or_else(|| parse(face, &call.conf, call), Ok)
}

/// Reads a configuration; only what it takes to give back, where this braid refuses it.
fn parse(face: &str, conf: &NetConf, call: &Request) -> Result<Chain, Error> {
    Chain::parse(face, conf, call).or_else(|_| Chain::parse_for_release(face, conf, call))
}

/// The `host-local` configurations of a chain, each with its plugin's place.
pub fn host_locals(chain: &Chain) -> impl Iterator<Item = (usize, &host_local::Config)> {
    chain.items.iter().enumerate().filter_map(|(at, item)| match &item.addresses {
        From::Ours(ipam) => Some((at, ipam.as_host_local()?)),
        From::Nobody | From::Foreign(_) => None,
    })
}

/// The addresses that an attachment has of the data directory at `path`.
pub fn leased(record: &Record, path: &Path) -> Vec<IpAddr> {
    let Ok(chain) = chain(record) else { return Vec::new() };
    let of_it = host_locals(&chain).filter(|(_, config)| config.path() == path);
    let steps = of_it.filter_map(|(at, _)| record.parts.get(at)).flatten();
    let address = |step: &Step| match step {
        Step::Add(Thing::Addr(addr)) if addr.at.ns == Ns::Pod => Some(addr.net.addr()),
        _ => None,
    };
    steps.filter_map(address).collect()
}
