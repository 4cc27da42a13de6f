//! Whereabouts' flat file: a node's defaults for all networks.

use braid_core::cni::{Error, Json, NetConf};
use braid_core::ipam::whereabouts::flat::{PATHS, merge};
use std::borrow::Cow;
use std::path::PathBuf;

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

/// Returns the kubeconfig in the first flat file that exists.
pub(super) fn kubeconfig() -> Result<Option<PathBuf>, Error> {
    for path in PATHS {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let flat = Json::parse(&bytes, path)?;
        let kubernetes = flat.object("kubernetes")?;
        let path = kubernetes.map(|it| it.text("kubeconfig")).transpose()?;
        let path = path.flatten().filter(|path| !path.is_empty());
        return Ok(path.map(PathBuf::from));
    }
    Ok(None)
}
