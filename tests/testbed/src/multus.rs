//! Programs and manifest of Multus for the checks of a cluster.

use crate::{sh, tools};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns the program that writes a node's configuration in the pods of Multus' `DaemonSet`.
/// Builds it if it is missing.
pub fn entrypoint() -> Result<PathBuf> {
    Ok(tools::multus()?.join("thin_entrypoint"))
}

/// Returns the manifest of Multus' `DaemonSet`, from the module that its programs are built from.
pub fn manifest() -> Result<PathBuf> {
    let module = sh::read(&mut sh::cmd(
        "go",
        ["mod", "download", "-json", &tools::multus_module()],
    ))?;
    let module: Value =
        serde_json::from_str(&module).context("parse the description of Multus' module")?;
    let folder = module["Dir"]
        .as_str()
        .context("Multus' module has no folder")?;
    Ok(Path::new(folder).join("deployments/multus-daemonset.yml"))
}
