//! Pods of records.

use braid_core::k8s::ObjectName;
use braid_node::attach::chain::BRAID;
use braid_node::store::record::Record;

/// Returns the pod of a record of braid's calls; `None` if it has none.
pub(crate) fn pod_of(record: &Record) -> Option<ObjectName> {
    let pod = record.attachments.first()?.pod()?;
    (record.key.plugin == BRAID).then_some(pod.name)
}
