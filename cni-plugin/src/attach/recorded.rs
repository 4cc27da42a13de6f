//! The call that a record is of, read back from it.

use super::chain::{Chain, From};
use crate::apply::record::Record;
use crate::cni::{Attachment, Command, Error, NetConf, Request};
use crate::ipam::{Ipam, host_local};
use crate::plan::IfName;

/// DEL with what the record remembers of ADD.
pub fn request(record: &Record) -> Result<Request, Error> {
    let conf = NetConf::from_json(record.conf.clone())?;
    let ifname = IfName::parse(&record.key.ifname).map_err(|err| Error::internal(err.to_string()))?;
    let attachment = Attachment {
        container_id: record.key.container_id.clone(),
        ifname,
        netns: record.netns.clone(),
        args: record.args.clone(),
    };
    let (attachment, path) = (Some(attachment), record.path.clone());
    Ok(Request { command: Command::Del, attachment, path, netns_override: false, conf })
}

/// The chain that ADD ran; only what it takes to give back, where this braid refuses the configuration.
pub fn chain(record: &Record) -> Result<Chain, Error> {
    let request = request(record)?;
    let face = &record.key.plugin;
    Chain::parse(face, &request.conf, &request).or_else(|_| Chain::parse_for_release(face, &request.conf, &request))
}

/// The `host-local` configurations of a chain, each with its plugin's place.
pub fn host_locals(chain: &Chain) -> impl Iterator<Item = (usize, &host_local::Config)> {
    chain.items.iter().enumerate().filter_map(|(at, item)| match &item.addresses {
        From::Ours(Ipam::HostLocal(config)) => Some((at, config)),
        _ => None,
    })
}
