//! A plugin folder: its content, and the changes to it.

use super::plan::{self, Action, Entry, Folder};
use super::{COMPANION, PROGRAM};
use braid_node::sys::executable::{self, OWN};
use braid_node::takeover::root::{Presence, Root};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Mode of the program and of the scripts.
const MODE: u32 = 0o755;

/// A folder of plugins and the programs in it.
pub(in crate::cli) struct Bin {
    /// Folder as this process sees it.
    pub(super) dir: PathBuf,
    /// Path of the program on the node, which scripts name.
    pub(super) program: PathBuf,
    /// The running version of the companion, as this process sees it.
    pub(super) companion: PathBuf,
    pub(super) root: Root,
}

impl Bin {
    /// Reads the entries that an installation or removal may change: the `known` names, names from
    /// another version, and the backups of both.
    pub(super) fn look(&self, known: &[&str]) -> io::Result<Folder> {
        let mut entries = BTreeMap::new();
        let stale = self.stale(known)?;
        let mut names = known.to_vec();
        names.extend(stale.iter().map(String::as_str));
        for name in names {
            for name in [name.to_owned(), plan::backup_of(name)] {
                entries.insert(name.clone(), self.entry(&name)?);
            }
        }
        let (mut programs, mut current) = (Vec::new(), Vec::new());
        for program in [PROGRAM, COMPANION] {
            if self.has(program) {
                programs.push(program);
            }
            match fs::read(self.at(program)) {
                Ok(bytes) if bytes == fs::read(self.running(program))? => current.push(program),
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Folder {
            programs,
            current,
            entries,
            stale,
            listed: self.listed()?,
        })
    }

    /// Returns the plugin folder `dir` of the node that this process runs on.
    pub(in crate::cli) fn of_node(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            program: dir.join(PROGRAM),
            companion: companion(),
            root: Root::new(Path::new("/")),
        }
    }

    /// Fails without the companion, because then no pod with networks could start where no agent
    /// answers.
    pub(super) fn refuse_alone(&self) -> Result<(), String> {
        match File::open(&self.companion) {
            Ok(_) => Ok(()),
            Err(err) => Err(format!(
                "open {}, which is to be installed as well: {err}",
                self.companion.display()
            )),
        }
    }

    /// Returns the path of the running version of a program.
    fn running(&self, program: &str) -> &Path {
        if program == COMPANION {
            &self.companion
        } else {
            Path::new(OWN)
        }
    }

    /// True if a file of this name is in the folder.
    pub(in crate::cli) fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.at(name)).is_ok()
    }

    /// Returns the known names that once started braid and no longer do. A name once started braid
    /// if the list of names contains the name, or if the folder keeps a plugin that braid replaced
    /// under the name.
    pub(in crate::cli) fn lost(&self, known: &[&str]) -> io::Result<Vec<String>> {
        let listed = self.listed()?.unwrap_or_default();
        let mut lost = Vec::new();
        for name in known {
            let was_ours = listed.iter().any(|one| one == name)
                || self.entry(&plan::backup_of(name))? != Entry::None;
            if was_ours && !self.entry(name)?.is_own() {
                lost.push((*name).to_owned());
            }
        }
        Ok(lost)
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the names in the folder that start this program but are not in `known`.
    fn stale(&self, known: &[&str]) -> io::Result<Vec<String>> {
        let mut stale = Vec::new();
        let entries = match fs::read_dir(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(stale),
            entries => entries?,
        };
        for found in entries {
            let Ok(name) = found?.file_name().into_string() else {
                continue;
            };
            let is_known = [PROGRAM, COMPANION].contains(&name.as_str())
                || name.contains('.')
                || known.contains(&name.as_str());
            if !is_known && self.entry(&name)?.is_own() {
                stale.push(name);
            }
        }
        stale.sort_unstable();
        Ok(stale)
    }

    /// Returns the names that earlier installations wrote to the list of names, sorted and without
    /// duplicates. `None` if the list does not exist.
    pub(in crate::cli) fn listed(&self) -> io::Result<Option<Vec<String>>> {
        let text = match fs::read_to_string(self.at(plan::LIST)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }

    pub(in crate::cli) fn entry(&self, name: &str) -> io::Result<Entry> {
        let path = self.at(name);
        let found = match fs::symlink_metadata(&path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Entry::None),
            found => found?,
        };
        if found.is_symlink() {
            return self.link(name, &fs::read_link(&path)?);
        }
        if !found.is_file() {
            return Ok(if found.is_dir() {
                Entry::Directory
            } else {
                Entry::Other
            });
        }
        let script = executable::script(&self.program).unwrap_or_default();
        // Only files of the script's length are read whole, because programs are large.
        if found.len() == script.len() as u64 && fs::read(&path)? == script {
            let is_executable = found.mode() & 0o7777 == MODE;
            return Ok(if is_executable {
                Entry::Ours
            } else {
                Entry::Former
            });
        }
        let starts = match executable::interpreter_of(&path) {
            // Only the owner may read it, and root without capabilities is not the owner.
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => return Ok(Entry::Other),
            starts => starts?,
        };
        let is_own =
            starts.is_some_and(|program| program.file_name().is_some_and(|name| name == PROGRAM));
        let is_own =
            is_own || executable::is_own(&path, &found) || self.is_copy(&path, found.len())?;
        Ok(if is_own { Entry::Former } else { Entry::Other })
    }

    /// Classifies a symbolic link, which an earlier version of braid or a distribution may have
    /// created.
    fn link(&self, name: &str, target: &Path) -> io::Result<Entry> {
        let Some(file) = target.file_name().and_then(|name| name.to_str()) else {
            return Ok(Entry::Other);
        };
        if file == PROGRAM {
            return Ok(Entry::Former);
        }
        let plugin = name.strip_suffix(&plan::backup_of("")).unwrap_or(name);
        let is_elsewhere = target != Path::new(file) && file != plugin;
        if is_elsewhere && !self.is_gone(Path::new(file)) {
            let is_of_others = match fs::read_link(self.at(file)) {
                Ok(program) => program.file_name().is_none_or(|name| name != PROGRAM),
                Err(_) => self.entry(file)? == Entry::Other,
            };
            if is_of_others {
                return Ok(Entry::Alias(file.to_owned()));
            }
        }
        Ok(if self.is_gone(target) {
            Entry::Dangling
        } else {
            Entry::Other
        })
    }

    /// True if the link's target certainly does not exist.
    fn is_gone(&self, target: &Path) -> bool {
        let on_node = self.program.parent().unwrap_or(Path::new("/")).join(target);
        self.root.presence(&on_node) == Presence::Missing
    }

    /// True if a file has the same content as the installed program.
    fn is_copy(&self, path: &Path, len: u64) -> io::Result<bool> {
        let program = self.at(PROGRAM);
        let is_as_long =
            fs::metadata(&program).is_ok_and(|meta| meta.is_file() && meta.len() == len);
        Ok(is_as_long && fs::read(path)? == fs::read(program)?)
    }

    /// Carries out an action atomically, so that a name starts either its old or its new program.
    /// `staged` is a copy of this program that can be renamed to its final path.
    pub(super) fn carry_out(&self, action: &Action, staged: Option<&Path>) -> io::Result<()> {
        let temp = self.at(&format!(".{PROGRAM}.{}.tmp", std::process::id()));
        // An earlier container with this process id may have been killed.
        let _ = fs::remove_file(&temp);
        let done = self.carry_out_by(action, staged, &temp);
        if done.is_err() {
            let _ = fs::remove_file(&temp);
        }
        done
    }

    /// Carries out an action; new content is at `temp` until it is complete.
    fn carry_out_by(&self, action: &Action, staged: Option<&Path>, temp: &Path) -> io::Result<()> {
        let name = match action {
            Action::PutBack(name) => {
                return fs::rename(self.at(&plan::backup_of(name)), self.at(name));
            }
            Action::Remove(name) => return fs::remove_file(self.at(name)),
            Action::Copy(program) => {
                if let Some(staged) = staged.filter(|_| *program == PROGRAM) {
                    return fs::rename(staged, self.at(PROGRAM));
                }
                copy(self.running(program), temp)?;
                *program
            }
            Action::Script(name) => {
                let script = executable::script(&self.program);
                write(temp, &script.ok_or(io::ErrorKind::InvalidFilename)?, MODE)?;
                name
            }
            Action::Link(name, to) => {
                symlink(to, temp)?;
                name
            }
            Action::Keep(name) => {
                fs::hard_link(self.at(name), temp)?;
                return fs::rename(temp, self.at(&plan::backup_of(name)));
            }
            Action::List(names) => {
                let text = names.join("\n") + "\n";
                write(temp, text.as_bytes(), 0o644)?;
                plan::LIST
            }
        };
        fs::rename(temp, self.at(name))
    }
}

/// Returns the path of the running version of the companion.
pub(super) fn companion() -> PathBuf {
    executable::beside(COMPANION).unwrap_or_else(|_| COMPANION.into())
}

/// Copies the running program to `to` and syncs the copy to disk. This works even if the file at
/// the program's path was replaced after the program started.
pub(super) fn copy_own(to: &Path) -> io::Result<()> {
    copy(Path::new(OWN), to)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, Permissions::from_mode(MODE))?;
    File::open(to)?.sync_all()
}

/// Writes a new file and syncs it to disk, before the caller renames it.
fn write(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_node::takeover::root;

    fn bin(dir: &Path) -> Bin {
        Bin {
            companion: OWN.into(),
            ..Bin::of_node(dir)
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names = root::file_names(dir);
        names.sort();
        names
    }

    fn apply(dir: &Path, plan: impl Fn(&Folder, &[&str]) -> Vec<Action>) -> usize {
        let (bin, known) = (bin(dir), ["bridge", "ptp"]);
        let actions = plan(&bin.look(&known).expect("looked at"), &known);
        for action in &actions {
            bin.carry_out(action, None).expect("done");
        }
        actions.len()
    }

    #[test]
    fn replaced_plugin_is_kept_and_restored() {
        let dir = tempfile::tempdir().expect("a folder");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        fs::write(bin.join("bridge"), "the reference").expect("a file");
        assert_eq!(apply(&bin, plan::install), 6);
        assert_eq!(
            names(&bin),
            [
                ".braid.names",
                "braid",
                "braid-agent",
                "bridge",
                "bridge.before-braid",
                "ptp"
            ]
        );
        let script = format!("#!{}\n", bin.join("braid").display());
        assert_eq!(
            fs::read_to_string(bin.join("bridge")).expect("a script"),
            script
        );
        assert_eq!(
            apply(&bin, plan::install),
            0,
            "the second time there is nothing to do"
        );
        symlink(PROGRAM, bin.join("vlan")).expect("a link");
        assert_eq!(
            apply(&bin, plan::install),
            1,
            "a name of another version goes"
        );
        apply(&bin, plan::remove);
        assert_eq!(names(&bin), ["bridge"]);
        assert_eq!(
            fs::read_to_string(bin.join("bridge")).expect("a file"),
            "the reference"
        );
    }

    #[test]
    fn another_installers_copy_changes_one_name_until_the_next_install() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("bridge"), "first").expect("a file");
        apply(dir.path(), plan::install);
        let program = fs::read(dir.path().join(PROGRAM)).expect("the program");
        // `cp` and Go's `os.WriteFile` write the same way.
        fs::write(dir.path().join("bridge"), "second").expect("written");
        assert!(fs::read(dir.path().join(PROGRAM)).expect("the program") == program);
        assert!(bin(dir.path()).entry("ptp").expect("read") == Entry::Ours);
        assert_eq!(
            bin(dir.path())
                .lost(&["bridge", "ptp", "sbr"])
                .expect("read"),
            ["bridge"]
        );
        assert_eq!(apply(dir.path(), plan::install), 2);
        apply(dir.path(), plan::remove);
        assert_eq!(
            fs::read_to_string(dir.path().join("bridge")).expect("a file"),
            "second"
        );
        assert_eq!(names(dir.path()), ["bridge"]);
    }

    #[test]
    fn every_form_of_this_program_is_recognised() {
        let dir = tempfile::tempdir().expect("a folder");
        apply(dir.path(), plan::install);
        let path_of = |name: &str| dir.path().join(name);
        symlink(PROGRAM, path_of("link")).expect("a link");
        symlink("/other/folder/braid", path_of("far-link")).expect("a link");
        fs::copy(path_of(PROGRAM), path_of("copy")).expect("a copy");
        fs::write(path_of("script"), "#!/other/folder/braid\n").expect("a script");
        fs::write(path_of("sh"), "#!/bin/sh\n").expect("a script");
        let entry = |name: &str| bin(dir.path()).entry(name).expect(name);
        let own = ["bridge", "link", "far-link", "copy", "script"];
        let expected = [
            Entry::Ours,
            Entry::Former,
            Entry::Former,
            Entry::Former,
            Entry::Former,
        ];
        assert_eq!(own.map(entry), expected);
        assert_eq!(["sh", "nothing"].map(entry), [Entry::Other, Entry::None]);
        fs::set_permissions(path_of("ptp"), Permissions::from_mode(0o644)).expect("a mode");
        assert_eq!(entry("ptp"), Entry::Former, "not executable any more");
    }

    #[test]
    fn links_of_a_distribution_are_followed_to_its_present_program() {
        let dir = tempfile::tempdir().expect("a folder");
        let path_of = |name: &str| dir.path().join(name);
        fs::create_dir(path_of("new")).expect("a folder");
        fs::write(path_of("new/cni"), "").expect("a file");
        for (name, target) in [
            ("bridge", "old/cni"),
            ("ptp", "new/cni"),
            ("sbr", "new/sbr"),
            ("vlan", "cni"),
        ] {
            symlink(path_of(target), path_of(name)).expect("a link");
        }
        let entry = |name: &str| bin(dir.path()).entry(name).expect(name);
        assert_eq!(
            ["bridge", "ptp", "sbr"].map(entry),
            [Entry::Dangling, Entry::Other, Entry::Dangling]
        );
        symlink(path_of("new/cni"), path_of("cni")).expect("a link");
        let alias = Entry::Alias("cni".to_owned());
        assert_eq!(["bridge", "ptp"].map(entry), [alias.clone(), alias]);
        assert_eq!(["sbr", "cni"].map(entry), [Entry::Dangling, Entry::Other]);
        for (name, target) in [("tap", "new/dummy"), ("dummy", "new/tap")] {
            fs::write(path_of(target), "").expect("a file");
            symlink(path_of(target), path_of(name)).expect("a link");
        }
        assert_eq!(
            ["tap", "dummy"].map(entry),
            ["dummy", "tap"].map(|name| Entry::Alias(name.to_owned()))
        );
    }

    #[test]
    fn a_call_that_runs_an_older_program_keeps_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join(PROGRAM);
        fs::write(&program, "older").expect("a file");
        let mut running = File::open(&program).expect("open");
        apply(dir.path(), plan::install);
        assert_eq!(io::read_to_string(&mut running).expect("read"), "older");
        assert!(
            fs::read(&program).expect("read") == fs::read(OWN).expect("read"),
            "the new one is not there"
        );
    }
}
