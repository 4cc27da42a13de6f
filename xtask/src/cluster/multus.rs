//! Programs of Multus for the checks of a cluster.

use crate::tools;
use anyhow::Result;
use std::path::PathBuf;

/// The program that generates a node's configuration in the pods of Multus' `DaemonSet`; built where it is missing.
pub fn entrypoint() -> Result<PathBuf> {
    Ok(tools::multus()?.join("thin_entrypoint"))
}
