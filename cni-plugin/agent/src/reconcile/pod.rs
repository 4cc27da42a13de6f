//! The work on one pod, which blocks.

use crate::recorded::pod_of;
use braid_core::cni::Error;
use braid_core::k8s::ObjectName;
use braid_node::apply::host::This;
use braid_node::attach::call_conf;
use braid_node::attach::pods::{self, Edited};
use braid_node::log::Log;
use braid_node::source::cluster::Kubernetes;
use braid_node::store::holder::is_alive;
use braid_node::store::record::{self, Record};
use std::path::Path;

/// Gives the pod the networks that its annotation selects. `conflist` is the node's conflist.
pub(super) fn compare(pod: &ObjectName, conflist: &Path) -> Result<(), Error> {
    let compared = try_compare(pod, conflist);
    if let Err(err) = &compared {
        tracing::warn!(%pod, error = %err, "change the pod's networks");
    }
    compared
}

fn try_compare(pod: &ObjectName, conflist: &Path) -> Result<(), Error> {
    let mut records = record::list().map_err(Error::from)?;
    records.retain(|record| pod_of(record).as_ref() == Some(pod) && is_alive(record));
    if records.is_empty() {
        return Ok(());
    }
    let Some(conf) = call_conf::read(conflist)? else {
        return Ok(());
    };
    let machine = This::new(Log::new(|text| tracing::warn!("{text}")));
    for record in records {
        // A container of another network's list is attached by calls alone.
        if record.key.owner.network != conf.name {
            continue;
        }
        if pods::edit(record, &conf, &machine, &Kubernetes)? == Edited::Changed {
            tracing::info!(%pod, "changed the pod's networks");
        }
    }
    Ok(())
}

/// Returns the pods with records that are not as a plain ADD leaves them: with several networks, with
/// a status that is owed.
pub(super) fn special() -> Vec<ObjectName> {
    let records = record::list().unwrap_or_default();
    let is_special = |record: &&Record| {
        record.attachments.len() > 1 || record.owed.is_some() || record.is_unpublished
    };
    records
        .iter()
        .filter(is_special)
        .filter_map(pod_of)
        .collect()
}
