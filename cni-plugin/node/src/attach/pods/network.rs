//! Call for a network, from its definition and the pod's call.

use braid_core::cni::{Attachment, Error, Json, NetConf};
use braid_core::name::IfName;

/// Parses the configuration `json` of a network, with `prev` as its `prevResult`.
pub(super) fn netconf(json: Json, prev: Option<Json>) -> Result<NetConf, Error> {
    let mut conf = NetConf::from_json(json)?;
    if let Some(prev) = prev {
        conf.set_prev_result(&prev)?;
    }
    Ok(conf)
}

/// Returns the same container's attachment with another interface name.
pub(super) fn interface(attachment: &Attachment, ifname: &IfName) -> Attachment {
    Attachment {
        ifname: ifname.clone(),
        ..attachment.clone()
    }
}
