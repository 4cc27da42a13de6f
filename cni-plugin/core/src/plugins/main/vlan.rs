//! `vlan`: a child of a link for one VLAN, with the parent's hardware address.

use super::child::{Child, ChildKind};
use crate::cni::{Error, Json, NetConf};

const MAX: u16 = 4094;

/// Reads the configuration.
pub fn parse(conf: &NetConf) -> Result<Child, Error> {
    Child::parse(
        conf,
        ChildKind::Vlan {
            id: id(&conf.json)?,
        },
    )
}

/// Reads `vlanId`; absent means 0, as in the reference plugin.
fn id(json: &Json) -> Result<u16, Error> {
    let id = json.i64("vlanId")?.unwrap_or(0);
    match u16::try_from(id) {
        Ok(id) if id <= MAX => Ok(id),
        _ => Err(Error::config(format!(
            "\"vlanId\": invalid VLAN ID {id} (must be between 0 and {MAX})"
        ))
        .at_key("vlanId")),
    }
}
