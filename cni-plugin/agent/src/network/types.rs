//! Types of the default network that this kernel has.

use crate::cluster::config::Kind;
use braid_core::plan::Feature;
use braid_node::apply::features::known;
use braid_node::log::Log;
use braid_node::sys::release::release;

/// Returns the reason why this node cannot have a default network of this type. With such a conflist
/// STATUS fails, and the runtime takes the node out of service.
pub fn refusal(kind: Kind) -> Option<String> {
    let feature = match kind {
        // Every kernel of a Kubernetes node has veth and bridge.
        Kind::Ptp | Kind::Bridge => return None,
        Kind::Netkit => Feature::Netkit,
    };
    let log = Log::new(|sentence| tracing::warn!("{sentence}"));
    let (_, lacks) = known(&[feature], &log).pop()?;
    let (name, feature) = (kind.name(), feature.name());
    Some(format!(
        "{name} needs {feature}, which kernel {} lacks: {}",
        release(),
        lacks?
    ))
}
