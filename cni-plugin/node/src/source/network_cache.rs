//! The agent's copy of all `NetworkAttachmentDefinition`s on disk, for calls while agent and API are
//! both away, also after a reboot.

use super::files;
use crate::sys::private;
use crate::sys::replace::replace;
use braid_core::k8s::{Nad, ObjectName, names, object};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the copies.
pub const FOLDER: &str = "/var/lib/braid/networks";

/// Mode of a copy. A network's configuration may contain secrets.
const MODE: u32 = 0o600;
/// Ending of the files. `replace` writes hidden files with another one.
const ENDING: &str = ".json";

/// Returns the network in the folder's copy, if there is one.
pub(super) fn read(folder: &Path, name: &ObjectName) -> Option<Nad> {
    let bytes = files::bytes(&path(folder, name)?).ok()?;
    object::nad(name, &bytes).ok()
}

/// Makes the folder a copy of these networks, each as JSON in the format of the API server. Returns
/// the first error, after all files were tried.
pub fn write(folder: &Path, networks: &BTreeMap<ObjectName, String>) -> io::Result<()> {
    private::make_folders(folder)?;
    let mut errors = Vec::new();
    let mut expected = Vec::new();
    for (name, json) in networks {
        if let Some(path) = path(folder, name) {
            errors.extend(replace(&path, json, MODE).err());
            expected.push(path);
        }
    }
    expected.sort_unstable();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if expected.binary_search(&path).is_err() {
            errors.extend(fs::remove_file(&path).err());
        }
    }
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Returns the path of a network's copy; `None` for a name that Kubernetes does not allow.
fn path(folder: &Path, name: &ObjectName) -> Option<PathBuf> {
    let ObjectName { namespace, name } = name;
    // No name contains an underscore, so no two networks have one file.
    (names::is_namespace(namespace) && names::is_object(name))
        .then(|| folder.join(format!("{namespace}_{name}{ENDING}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName {
            namespace: "lan".into(),
            name: name.into(),
        }
    }

    #[test]
    fn the_folder_has_the_networks_last_written_and_no_other_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let folder = folder.path().join("networks");
        let json = r#"{"metadata":{"annotations":{"a":"b"}},"spec":{"config":"{}"}}"#;
        let both = BTreeMap::from([(name("a"), json.to_owned()), (name("b"), json.to_owned())]);
        write(&folder, &both)?;
        let nad = read(&folder, &name("b")).expect("a network");
        assert_eq!(nad.config, "{}");
        assert_eq!(nad.annotations["a"], "b");
        write(&folder, &BTreeMap::from([(name("a"), json.to_owned())]))?;
        assert_eq!(fs::read_dir(&folder)?.count(), 1);
        assert_eq!(read(&folder, &name("b")), None);
        assert_eq!(read(&folder, &name("../a")), None);
        Ok(())
    }
}
