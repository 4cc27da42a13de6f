//! Plugins in a folder beside the file of a plugin list. Each plugin runs only once for an
//! interface: either braid or the runtime runs it.

use crate::apply::host::Machine;
use braid_core::cni::{Error, NetConf};
use braid_core::k8s::nad::Definition;
use braid_core::k8s::on_disk::{DiskFile, OnDisk, is_run_by_runtime};
use std::path::{Path, PathBuf};

/// Plugin folders that are already used for the default network's interface. Either braid runs
/// their plugins after the default network's own plugins, or the runtime runs them.
#[derive(Debug, Default)]
pub(super) struct Chained(Vec<PathBuf>);

impl Chained {
    /// Returns the definition of a network from a file in `folder`, with the plugins in the folder
    /// beside the file. For the interface that the runtime requests, `call` is the configuration of
    /// the CNI call. It is `None` for other interfaces.
    pub(super) fn definition(
        &mut self,
        network: OnDisk<'_>,
        (folder, call): (&Path, Option<&NetConf>),
        machine: &dyn Machine,
    ) -> Result<Definition, Error> {
        let files = match (network.folder()?, call) {
            (None, _) => Vec::new(),
            (Some(name), Some(call)) => self.plugins(folder, name, call, machine)?,
            (Some(name), None) => machine.plugins_beside(&folder.join(name))?,
        };
        network.definition(&files)
    }

    /// Returns the plugins in the folder `name` beside the list. Returns none if they already run
    /// for the default network's interface, or if the runtime runs them.
    pub(super) fn plugins(
        &mut self,
        folder: &Path,
        name: &str,
        call: &NetConf,
        machine: &dyn Machine,
    ) -> Result<Vec<DiskFile>, Error> {
        let path = folder.join(name);
        if self.0.contains(&path) {
            return Ok(Vec::new());
        }
        let files = machine.plugins_beside(&path)?;
        self.0.push(path);
        if !files.is_empty()
            && call.name == name
            && is_run_by_runtime(name, call, &machine.files(folder)?)
        {
            return Ok(Vec::new());
        }
        Ok(files)
    }
}
