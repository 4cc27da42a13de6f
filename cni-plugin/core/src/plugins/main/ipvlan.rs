//! `ipvlan`: a child of a link with its parent's hardware address.

use super::child::{Child, ChildKind};
use crate::cni::{Error, NetConf};
use crate::plan::thing::link::IpvlanMode;

/// Reads the configuration.
pub fn parse(conf: &NetConf) -> Result<Child, Error> {
    Child::parse(
        conf,
        ChildKind::Ipvlan {
            mode: mode(conf.json.str_or("mode", "")?)?,
        },
    )
}

fn mode(text: &str) -> Result<IpvlanMode, Error> {
    Ok(match text {
        "" | "l2" => IpvlanMode::L2,
        "l3" => IpvlanMode::L3,
        "l3s" => IpvlanMode::L3s,
        _ => return Err(Error::config(format!("unknown ipvlan mode: {text:?}")).at_key("mode")),
    })
}
