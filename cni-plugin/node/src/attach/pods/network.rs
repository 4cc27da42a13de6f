//! A network's call, made of its definition and of the pod's.

use crate::attach::device_file::DeviceFile;
use braid_core::cni::{Attachment, Error, Json, NetConf};
use braid_core::k8s::IpamClaim;
use braid_core::k8s::network::Network;
use braid_core::name::IfName;

/// A network of a pod, with what else of the pod's is given to it.
#[derive(Debug)]
pub(super) struct OfNetwork {
    pub(super) network: Network,
    /// The claim whose addresses it has.
    pub(super) claim: Option<IpamClaim>,
    /// The file with its device information.
    pub(super) file: Option<DeviceFile>,
}

/// The configuration `json` of a network, called with a result.
pub(super) fn netconf(json: Json, prev: Option<Json>) -> Result<NetConf, Error> {
    let mut conf = NetConf::from_json(json)?;
    if let Some(prev) = prev {
        conf.set_prev_result(&prev)?;
    }
    Ok(conf)
}

/// The same container's interface of another name.
pub(super) fn interface(attachment: &Attachment, ifname: &IfName) -> Attachment {
    Attachment {
        ifname: ifname.clone(),
        ..attachment.clone()
    }
}
