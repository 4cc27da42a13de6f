//! `macvlan`: a child of a link with a separate hardware address.

use super::child::{Child, ChildKind};
use crate::cni::{Error, NetConf};
use crate::plan::thing::link::MacvlanMode;
use crate::plugins::interface;

/// Reads the configuration. Precedence of the hardware address: config < `CNI_ARGS` <
/// `runtimeConfig`.
pub fn parse(conf: &NetConf, args: &str) -> Result<Child, Error> {
    let json = &conf.json;
    let own = interface::mac_of_conf(conf)?;
    let from_args = interface::mac_of_args(args)?;
    let kind = ChildKind::Macvlan {
        mode: mode(json.str_or("mode", "")?)?,
        mac: interface::mac_of_runtime(conf)?.or(from_args).or(own),
        bc_queue_len: json.u32("bcqueuelen")?.filter(|len| *len > 0),
    };
    Child::parse(conf, kind)
}

fn mode(text: &str) -> Result<MacvlanMode, Error> {
    Ok(match text {
        "" | "bridge" => MacvlanMode::Bridge,
        "private" => MacvlanMode::Private,
        "vepa" => MacvlanMode::Vepa,
        "passthru" => MacvlanMode::Passthru,
        _ => return Err(Error::config(format!("unknown macvlan mode: {text:?}")).at_key("mode")),
    })
}
