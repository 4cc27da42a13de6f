//! STATUS: whether an ADD could be served now, and if not, why.

use super::chain::{Chain, From, Work};
use super::gc::mend;
use super::joined;
use super::liveness::Known;
use crate::apply::features;
use crate::apply::kernel::Kernel;
use crate::apply::observe::observe;
use crate::apply::record;
use crate::cni::{Command, Error, Request};
use crate::plan::Feature;

/// Looks at the store, the kernel, what each plugin needs of the host, and the addresses.
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
    joined(errors)
}

/// What the plugins ask of the kernel and this one has not.
fn lacks(chain: &Chain) -> Vec<Error> {
    let mut errors = Vec::new();
    for item in &chain.items {
        let Work::Native(plugin) = &item.work else { continue };
        let sentence = |(feature, kernel_said): (Feature, Option<String>)| {
            let (network, plugin, release) = (chain.network(), &item.conf.plugin, features::release());
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
            let note = plugin.status(&facts.map_err(|err| Error::not_available(err.to_string()))?)?;
            if let Some(note) = note {
                eprintln!("network {:?}: {note}", chain.network());
            }
        }
        Work::Ipam => {}
    }
    match &item.addresses {
        From::Nobody => Ok(()),
        From::Ours(ipam) => ipam.status(Known::of(chain.network()).host()),
        From::Foreign(ipam) => chain.delegate(ipam, at, Command::Status, None, None).map(drop),
    }
}
