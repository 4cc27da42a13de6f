//! Whereabouts' flat file: a node's defaults for all networks.

use braid_core::cni::{Error, Json, NetConf};
use braid_core::ipam::whereabouts::flat::{PATHS, merge};
use std::borrow::Cow;

const WHEREABOUTS: &str = "whereabouts";

/// Returns the configuration for the IPAM `kind`, with the keys of the first flat file that exists.
pub(super) fn complete<'c>(kind: &str, conf: &'c NetConf) -> Result<Cow<'c, NetConf>, Error> {
    if kind != WHEREABOUTS {
        return Ok(Cow::Borrowed(conf));
    }
    let ipam = conf.json.object("ipam")?.unwrap_or(&Json::Null);
    let own = ipam
        .text("configuration_path")
        .map_err(|err| err.at_key("ipam"))?;
    for path in own.into_iter().chain(PATHS) {
        // A folder, which Whereabouts' installer writes for the node's name, is none.
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let mut merged = ipam.clone();
        merge(&mut merged, &Json::parse(&bytes, path)?);
        let mut json = Json::clone(&conf.json);
        json.set("ipam", merged);
        return NetConf::from_json(json).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(conf))
}
