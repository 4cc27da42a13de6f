//! GC for pods: detaches containers that the runtime does not list. For the other containers,
//! publishes the network statuses that ADD could not publish.

use super::claims;
use super::find::Finder;
use super::multus;
use super::publish::pay;
use crate::apply::host::Machine;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::del::collect;
use crate::attach::gc::{self, Valid};
use crate::attach::unrecorded::{Calls, forget_unlisted};
use crate::attach::{leases, orphans, recorded};
use crate::source::cluster::Cluster;
use crate::store::record::Record;
use braid_core::cni::{Error, Owner, Request};
use braid_core::k8s::settings::Settings;
use std::collections::BTreeMap;

/// Detaches the containers that the runtime does not list from all networks. Also deletes
/// everything in these networks that has no valid owner.
pub fn gc(
    request: &Request,
    settings: &Settings,
    plugin_name: &str,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<(), Error> {
    let path = settings.path(request.path.clone());
    let mut finder = Finder::new(settings, machine, cluster);
    let default = match finder.default_conf(&request.conf, None) {
        Ok(conf) => Some(Chain::parse(BRAID, conf, "", &path)?),
        // The records have this configuration, if any container is attached to the network.
        Err(_) if finder.default_may_be_object() => None,
        Err(err) => return Err(err),
    };
    let network = &request.conf.name;
    let plugin = Chain::plugin_name_of(plugin_name, &request.conf);
    let records = orphans::records(machine)?;
    let mut folders = leases::folders(&records, machine.root());
    folders.extend(
        default
            .iter()
            .flat_map(recorded::host_locals)
            .map(|(_, config)| config.path()),
    );
    let (kept, lost) = gc::split(
        records,
        network,
        plugin,
        request.conf.valid_attachments.as_deref(),
    );
    let mut errors: Vec<Error> = lost
        .iter()
        .filter_map(|record| collect(record, machine).err())
        .collect();
    if let Some(listed) = &request.conf.valid_attachments {
        let calls = Calls {
            network,
            plugin,
            are_of_pods: true,
        };
        errors.extend(forget_unlisted(calls, listed, machine));
    }
    let mut chains: BTreeMap<String, Chain> = BTreeMap::new();
    for (attached, chain) in kept.iter().chain(&lost).flat_map(recorded::chains) {
        chains.entry(attached.network.clone()).or_insert(chain);
    }
    let owners: Vec<Owner> = kept.iter().flat_map(Record::owners).collect();
    if request.conf.valid_attachments.is_some() {
        // The runtime lists attachments of the default network only.
        for (network, chain) in &mut chains {
            let own = owners
                .iter()
                .filter(|owner| owner.network == *network)
                .cloned()
                .collect();
            chain.conf.valid_attachments = Some(own);
        }
    }
    if let Some(mut default) = default {
        default
            .conf
            .valid_attachments
            .clone_from(&request.conf.valid_attachments);
        chains.insert(default.network().to_owned(), default);
    }
    let containers = |listed: &Vec<Owner>| {
        listed
            .iter()
            .map(|owner| owner.container_id.clone())
            .collect()
    };
    let valid = Valid {
        owners,
        containers: request.conf.valid_attachments.as_ref().map(containers),
    };
    errors.extend(multus::collect(request, settings, &valid, machine));
    errors.extend(gc::collect_networks(chains.values(), &valid, machine).err());
    errors.extend(orphans::sweep_empty(machine));
    errors.extend(claims::free(&folders, settings, machine, cluster).err());
    errors.extend(pay_all(&kept, settings, machine, cluster).err());
    Error::joined(&errors)
}

/// Publishes the network statuses in `kept` that ADD could not publish.
fn pay_all(
    kept: &[Record],
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<(), Error> {
    let mut owing = kept
        .iter()
        .filter(|record| record.owed.is_some())
        .peekable();
    if owing.peek().is_none() {
        return Ok(());
    }
    let mut source = cluster.source(settings, None)?;
    for record in owing {
        let folder = machine
            .folder(&record.key.owner.container_id)
            .map_err(Error::from)?;
        // Another call may have published the status or detached the container in the meantime.
        let Some(mut record) = folder.load(&record.key).map_err(Error::from)? else {
            continue;
        };
        let Some(owed) = record.owed.take() else {
            continue;
        };
        pay(&owed, &mut *source)?;
        folder.store(&record).map_err(Error::from)?;
    }
    Ok(())
}
