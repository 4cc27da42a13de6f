//! STATUS: whether the node could serve an ADD now, and if not, why.

use super::chain::{Chain, From, Work};
use super::gc::mend;
use super::liveness::Known;
use super::recorded::{self, host_locals};
use crate::apply::features;
use crate::apply::kernel::Kernel;
use crate::apply::observe::observe;
use crate::apply::record::{self, Record};
use crate::cni::{Command, Error, Request};
use crate::ipam::host_local;
use crate::plan::Feature;
use crate::sys::release::release;

/// Looks at the store, the kernel, what each plugin needs of the host, and the addresses.
#[inline(never)]
pub fn status(_request: &Request, chain: &Chain) -> Result<(), Error> {
    let not_available = |err: crate::apply::Error| Error::not_available(err.to_string());
    let mut errors: Vec<Error> = record::probe().map_err(not_available).err().into_iter().collect();
    errors.extend(lacks(chain));
    errors.extend(mend(chain).err());
    match Kernel::open(None) {
        Ok(mut kernel) => {
            for at in 0..chain.items.len() {
                errors.extend(of_item(chain, at, &mut kernel).err());
            }
        }
        Err(err) => errors.push(not_available(err)),
    }
    Error::joined(&errors)
}

/// What the plugins ask of the kernel and this one has not.
fn lacks(chain: &Chain) -> Vec<Error> {
    let mut errors = Vec::new();
    for item in &chain.items {
        let Work::Native(plugin) = &item.work else { continue };
        let sentence = |(feature, kernel_said): (Feature, Option<String>)| {
            let (network, plugin, release) = (chain.network(), &item.conf.plugin, release());
            let feature = feature.name();
            let lack = format!("network {network:?}: {plugin} needs {feature}, which kernel {release} lacks");
            kernel_said.map(|said| Error::not_available(format!("{lack}: {said}")))
        };
        errors.extend(features::known(&plugin.features()).into_iter().filter_map(sentence));
    }
    errors
}

fn of_item(chain: &Chain, at: usize, kernel: &mut Kernel) -> Result<(), Error> {
    let item = &chain.items[at];
    match &item.work {
        Work::Foreign => return chain.delegate(&item.conf.plugin, at, Command::Status, None, None).map(drop),
        Work::Native(plugin) => {
            let facts = observe(kernel, &plugin.status_needs());
            say(chain, plugin.status(&facts.map_err(|err| Error::not_available(err.to_string()))?)?);
        }
        Work::Ipam => {}
    }
    match &item.addresses {
        From::Nobody => Ok(()),
        From::Ours(ipam) => ipam.status(Known::of(chain.network()).host()).map(|note| say(chain, note)),
        From::Foreign(ipam) => chain.delegate(ipam, at, Command::Status, None, None).map(drop),
    }
}

fn say(chain: &Chain, note: Option<String>) {
    if let Some(note) = note {
        crate::sys::stderr::tell!("network {:?}: {note}", chain.network());
    }
}

/// A sentence for each range set, of those that the attachments have addresses of, with none left.
pub fn full(records: &[Record]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut sentences = Vec::new();
    for chain in records.iter().filter_map(|record| recorded::chain(record).ok()) {
        for (_, config) in host_locals(&chain) {
            let pool = (config.path(), config.ranges.clone());
            if seen.contains(&pool) {
                continue;
            }
            seen.push(pool);
            let network = chain.network();
            let said = host_local::full(config, Known::of(network).host()).unwrap_or_else(|err| Some(err.to_string()));
            sentences.extend(said.map(|sentence| format!("network {network:?}: {sentence}")));
        }
    }
    sentences
}
