//! STATUS: reports whether an ADD could succeed now, and if not, why.

use super::chain::{AddressSource, Chain, ForeignCall, Runner};
use super::gc::mend;
use super::liveness::NodeState;
use super::recorded::{self, host_locals};
use crate::apply::host::{Host, Machine};
use crate::ipam::host_local;
use crate::log::Log;
use crate::store::record::Record;
use crate::store::root::Root;
use crate::sys::release::release;
use braid_core::cni::{Command, Error};

/// Checks the store, the kernel, each plugin's requirements on the host, and the addresses.
#[inline(never)]
pub fn status(chain: &Chain, machine: &dyn Machine) -> Result<(), Error> {
    let mut errors = Vec::new();
    if let Err(err) = machine.probe() {
        errors.push(not_available(&err));
    }
    match machine.open(None) {
        Ok(mut host) => {
            errors.extend(lacks(chain, &mut *host));
            mend(&chain.features(), &mut *host);
            if let Err(err) = chain.ready() {
                errors.push(Error::not_available(err.msg));
            }
            if errors.is_empty() {
                for at in 0..chain.items.len() {
                    errors.extend(of_item(chain, at, &mut *host).err());
                }
            }
        }
        Err(err) => errors.push(not_available(&err)),
    }
    Error::joined(&errors)
}

pub(super) fn not_available(err: &crate::Error) -> Error {
    Error::not_available(err.to_string())
}

/// Returns an error for each feature that the plugins need and this kernel lacks.
fn lacks(chain: &Chain, host: &mut dyn Host) -> Vec<Error> {
    let mut errors = Vec::new();
    for item in &chain.items {
        let Runner::Native(plugin) = &item.work else {
            continue;
        };
        for (feature, said) in host.lacks(&plugin.features()) {
            let (network, plugin, feature, release) = (
                chain.network(),
                &item.conf.plugin,
                feature.name(),
                release(),
            );
            let lack = format!(
                "network {network:?}: {plugin} needs {feature}, which kernel {release} lacks"
            );
            errors.push(Error::not_available(format!("{lack}: {said}")));
        }
    }
    errors
}

fn of_item(chain: &Chain, at: usize, host: &mut dyn Host) -> Result<(), Error> {
    let item = &chain.items[at];
    match &item.work {
        Runner::Foreign => {
            let call = ForeignCall::of_network(&item.conf.plugin, at, Command::Status);
            return chain.delegate(&call, host.log()).map(drop);
        }
        Runner::Native(plugin) => {
            let facts = host
                .observe(&plugin.status_needs())
                .map_err(|err| not_available(&err))?;
            say(chain, plugin.status(&facts)?, host);
        }
        Runner::Ipam => {}
    }
    match &item.addresses {
        AddressSource::NoIpam => Ok(()),
        AddressSource::Ours(ipam) => {
            let known = NodeState::of(host.root(), chain.network(), host.log());
            say(chain, ipam.status(known.host())?, host);
            Ok(())
        }
        AddressSource::Foreign(ipam) => {
            let call = ForeignCall::of_network(ipam, at, Command::Status);
            chain.delegate(&call, host.log()).map(drop)
        }
    }
}

fn say(chain: &Chain, note: Option<String>, host: &mut dyn Host) {
    if let Some(note) = note {
        host.log()
            .line(format_args!("network {:?}: {note}", chain.network()));
    }
}

/// Returns a sentence for each full `host-local` range set in `records`. A full range set has no
/// free address.
pub fn full(records: &[Record], root: &Root, log: &Log) -> Vec<String> {
    let mut seen = Vec::new();
    let mut sentences = Vec::new();
    for (_, chain) in records.iter().flat_map(recorded::chains) {
        for (_, config) in host_locals(&chain) {
            let pool = (config.path(), config.ranges.clone());
            if seen.contains(&pool) {
                continue;
            }
            seen.push(pool);
            let network = chain.network();
            let said = host_local::full(config, NodeState::of(root, network, log).host())
                .unwrap_or_else(|err| Some(err.to_string()));
            sentences.extend(said.map(|sentence| format!("network {network:?}: {sentence}")));
        }
    }
    sentences
}
