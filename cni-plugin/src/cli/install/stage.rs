//! Trial of all names before an installation changes any name. A separate folder gets a script for
//! each name. Each script must start this program.

use super::PROGRAM;
use super::folder::{self, Bin};
use braid_core::cni::Json;
use braid_node::sys::executable;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the trial's folder. It is always the same, so that a trial removes the folder of an
/// earlier trial that was killed.
const FOLDER: &str = ".braid.trial";

/// Removes the folder of a killed trial.
pub(super) fn clean(bin: &Bin) {
    // It contains only names that braid has created.
    let _ = fs::remove_dir_all(bin.at(FOLDER));
}

/// Folder of a trial, which is removed on drop.
pub(super) struct Stage {
    folder: PathBuf,
    /// Path of a copy of this program, which can be renamed to its final path. `None` if the
    /// program in the plugin folder is current.
    pub(super) copy: Option<PathBuf>,
}

impl Stage {
    /// Creates the folder, and starts the program under each name. If `is_current`, the program is
    /// the one in `bin`. Otherwise it is a copy of the running program in the folder.
    pub(super) fn try_names(bin: &Bin, is_current: bool, names: &[&str]) -> Result<Self, String> {
        let folder = bin.at(FOLDER);
        let failed = |what: &str, err: io::Error| format!("{what} {}: {err}", folder.display());
        match fs::remove_dir_all(&folder) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(failed("remove", err)),
            Ok(()) | Err(_) => fs::create_dir_all(&folder).map_err(|err| failed("create", err))?,
        }
        let mut stage = Self {
            folder: folder.clone(),
            copy: None,
        };
        let program = if is_current {
            bin.at(PROGRAM)
        } else {
            folder.join(PROGRAM)
        };
        if !is_current {
            folder::copy_own(&program).map_err(|err| failed("copy this program to", err))?;
            stage.copy = Some(program.clone());
        }
        // In a container the node's path is different, so the script has the program's path in this
        // process.
        let script = executable::script(&program)
            .ok_or_else(|| format!("{}: {UNREADABLE}", program.display()))?;
        let mode = Permissions::from_mode(0o755);
        for name in names {
            let path = folder.join(name);
            let written =
                fs::write(&path, &script).and_then(|()| fs::set_permissions(&path, mode.clone()));
            written.map_err(|err| failed("write to", err))?;
            answers(&path, name)
                .map_err(|err| format!("{} does not work: {err}", path.display()))?;
        }
        Ok(stage)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // If this fails, the next trial removes it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Reason why a path can't be in a script's first line.
pub(super) const UNREADABLE: &str =
    "a script needs an absolute path of at most 253 bytes, without blanks";

/// Starts a plugin and checks that it answers VERSION and prints its name.
fn answers(path: &Path, name: &str) -> Result<(), String> {
    let start = |command: Option<&str>| {
        let mut process = Command::new(path);
        process
            .env_remove("CNI_COMMAND")
            .envs(command.map(|command| ("CNI_COMMAND", command)));
        process
            .stdin(Stdio::null())
            .output()
            .map_err(|err| format!("start it: {err}"))
    };
    let answer = start(Some("VERSION"))?;
    let said = || {
        String::from_utf8_lossy(&[&answer.stdout[..], &answer.stderr].concat())
            .trim()
            .to_owned()
    };
    let is_answer = Json::parse(&answer.stdout, "VERSION")
        .is_ok_and(|json| json.get("supportedVersions").is_some());
    if !answer.status.success() || !is_answer {
        return Err(format!("VERSION returned {:?}", said()));
    }
    let about = start(None)?;
    let about = String::from_utf8_lossy(&about.stderr);
    if about.starts_with(&format!("CNI {name} plugin ")) {
        Ok(())
    } else {
        Err(format!(
            "it reports another name: {:?}",
            about.lines().next().unwrap_or_default()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("bridge");
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
        path
    }

    #[test]
    fn plugin_that_does_not_answer_by_its_name_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let version = "[ $CNI_COMMAND ] && echo '{\"supportedVersions\":[]}' && exit";
        for (text, expected) in [
            (
                format!("#!/bin/sh\n{version}\necho CNI bridge plugin x >&2\n"),
                None,
            ),
            (
                format!("#!/bin/sh\n{version}\necho CNI braid plugin x >&2\n"),
                Some("reports another name"),
            ),
            ("#!/bin/sh\nexit 3\n".to_owned(), Some("VERSION returned")),
            (
                "#!/no/such/braid\n".to_owned(),
                Some("start it: No such file"),
            ),
        ] {
            let answer = answers(&plugin(dir.path(), &text), "bridge");
            match expected {
                None => assert_eq!(answer, Ok(())),
                Some(words) => assert!(
                    answer.as_ref().is_err_and(|err| err.contains(words)),
                    "{answer:?}"
                ),
            }
        }
    }
}
