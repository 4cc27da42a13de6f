//! Programs and manifest of Multus, for checks on a cluster.

use crate::{sh, tools};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Returns the path of Multus' entry point, the program that writes a node's CNI configuration in
/// the pods of Multus' `DaemonSet`. Builds the program if it is missing.
pub fn entrypoint() -> Result<PathBuf> {
    Ok(tools::multus()?.join("thin_entrypoint"))
}

/// Returns the path of the manifest of Multus' `DaemonSet`, in the Go module from which Multus'
/// programs are built.
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
