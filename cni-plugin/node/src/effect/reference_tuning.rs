//! Backup that the reference `tuning` made before it changed an interface:
//! `<dataDir>/<container>_<ifname>.json`.

use super::attr::set_attrs;
use crate::kernel::Kernel;
use crate::sys::rtnl;
use crate::{Cause, Context};
use braid_core::name::Mac;
use braid_core::plan::thing::{LinkAttr, LinkRef};
use serde::Deserialize;
use std::io::ErrorKind;

/// Values of the changed attributes before the change.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Backup {
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    #[serde(rename = "txQLen")]
    tx_queue_len: Option<u32>,
}

impl Backup {
    fn attrs(&self) -> Vec<LinkAttr> {
        let mut attrs = Vec::new();
        if let Some(mtu) = self.mtu {
            attrs.push(LinkAttr::Mtu(mtu));
        }
        if let Some(len) = self.tx_queue_len {
            attrs.push(LinkAttr::TxQueueLen(len));
        }
        if let Some(mac) = self.mac.as_deref().and_then(Mac::parse) {
            attrs.push(LinkAttr::Mac(mac));
        }
        if let Some(is_on) = self.promisc {
            attrs.push(LinkAttr::Promisc(is_on));
        }
        if let Some(is_on) = self.allmulti {
            attrs.push(LinkAttr::AllMulti(is_on));
        }
        attrs
    }
}

/// Restores the attributes in `file` and removes the file. Refusals of the kernel are only logged,
/// as in the reference plugin. An interface that cannot be restored must not block the deletion of
/// its container.
pub(super) fn restore(kernel: &mut Kernel, at: &LinkRef, file: &str) -> Result<(), Cause> {
    let noted = match std::fs::read(file) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.doing(format_args!("read {file}"))?,
    };
    let backup: Backup = serde_json::from_slice(&noted).unwrap_or_default();
    if let Ok(index) = kernel.index(at) {
        for attr in backup.attrs() {
            let set = kernel
                .route(at.ns)?
                .call(rtnl::NEWLINK, 0, |out| set_attrs(index, [&attr], out));
            if let Err(err) = set {
                kernel
                    .log()
                    .line(format_args!("restore {attr:?} of {at} from {file}: {err}"));
            }
        }
    }
    Ok(std::fs::remove_file(file).doing(format_args!("remove {file}"))?)
}
