//! Pods of records.

use braid_core::k8s::ObjectName;
use braid_core::k8s::settings::PodRef;
use braid_node::attach::chain::BRAID;
use braid_node::store::record::Record;

/// Returns the pod of a record of braid's calls; `None` if it has none.
pub(crate) fn pod_of(record: &Record) -> Option<ObjectName> {
    let first = record.attachments.first()?;
    let pod_ref = PodRef::of(&first.args).ok()??;
    (record.key.plugin == BRAID).then_some(pod_ref.name)
}
