//! Configuration, interface and result of one network of a pod.

use crate::attach::device_file::DeviceFile;
use crate::attach::invocation::{OfPod, Wanted};
use braid_core::cni::{AddResult, Attachment, Error, Json, NetConf};
use braid_core::name::IfName;

/// A network of a pod, with the result of its plugins.
#[derive(Debug, Clone, Copy)]
pub struct AttachedNetwork<'r> {
    pub(super) of: &'r OfPod,
    /// Device information file of the attachment, if any.
    pub(super) file: Option<&'r DeviceFile>,
    pub(super) result: Option<&'r AddResult>,
}

impl<'r> AttachedNetwork<'r> {
    /// Returns the networks of a call with their results.
    pub fn all(wanted: &'r [Wanted], results: &'r [Option<AddResult>]) -> Vec<Self> {
        let mut all = Vec::new();
        for (wanted, result) in wanted.iter().zip(results) {
            if let Some(of) = &wanted.of_pod {
                all.push(Self {
                    of,
                    file: wanted.device_file.as_ref(),
                    result: result.as_ref(),
                });
            }
        }
        all
    }
}

/// Parses the configuration `json` of a network, with `prev` as its `prevResult`.
pub(super) fn netconf(json: Json, prev: Option<Json>) -> Result<NetConf, Error> {
    let mut conf = NetConf::from_json(json)?;
    if let Some(prev) = prev {
        conf.set_prev_result(&prev)?;
    }
    Ok(conf)
}

/// Returns a copy of `attachment` with another interface name.
pub(super) fn interface(attachment: &Attachment, ifname: &IfName) -> Attachment {
    Attachment {
        ifname: ifname.clone(),
        ..attachment.clone()
    }
}
