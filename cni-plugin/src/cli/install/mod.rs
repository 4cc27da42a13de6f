//! `braid install`: this program and the names of the reference plugins in a runtime's plugin folder.

mod cluster;
mod plan;

use super::SUCCESS;
use super::{Outcome, drop_in_names, output};
use braid_node::sys::executable::OWN;
use clap::Args;
use plan::{Action, Entry, Folder};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Folder in which runtimes look for plugins.
pub(super) const DEFAULT_BIN_DIR: &str = "/opt/cni/bin";
/// The program's own name.
pub(super) const PROGRAM: &str = "braid";
/// Names under which a `DaemonSet` of others copies its plugin whenever it starts. Through a link the copy would replace this
/// program itself.
const WRITTEN_BY_OTHERS: &[&str] = &["flannel"];

/// Put this program into a runtime's plugin folder, under the names of the plugins it replaces
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The runtime's plugin folder
    #[arg(long, value_name = "PATH", default_value = DEFAULT_BIN_DIR)]
    bin_dir: PathBuf,
    /// Take only these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Vec<String>,
    /// Take the names back, and put back the plugins that had them
    #[arg(long)]
    remove: bool,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    files: cluster::Files,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let known: Vec<&str> = drop_in_names().collect();
    if let Some(unknown) = arguments.names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("--names: braid can't take the place of {unknown:?}; it knows {}", known.join(", ")).into());
    }
    let names: Vec<&str> = known.iter().copied().filter(|name| wants(arguments, name)).collect();
    let mut folder = look(&arguments.bin_dir, &known)?;
    if !arguments.names.is_empty() {
        folder.stale.clear();
    }
    let actions = if arguments.remove { plan::remove(&folder, &names) } else { plan::install(&folder, &names) };
    // No configuration names a program that is not there.
    let mut code = if arguments.remove { say(arguments.files.remove(arguments.dry_run)?) } else { SUCCESS };
    if actions.is_empty() {
        code = output::print(&format!("{}: nothing to do\n", arguments.bin_dir.display()));
    }
    for action in &actions {
        if !arguments.dry_run {
            let path = arguments.bin_dir.display();
            carry_out(&arguments.bin_dir, action).map_err(|err| format!("{path}: {action}: {err}"))?;
        }
        code = output::print(&format!("{}: {action}\n", arguments.bin_dir.display()));
    }
    Ok(if arguments.remove { code } else { code.max(say(arguments.files.write(arguments.dry_run)?)) })
}

fn say(lines: Vec<String>) -> u8 {
    output::print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
}

fn wants(arguments: &Arguments, name: &str) -> bool {
    let is_asked_for = arguments.names.iter().any(|wanted| wanted == name);
    is_asked_for || arguments.names.is_empty() && (arguments.remove || !WRITTEN_BY_OTHERS.contains(&name))
}

/// Reads the entries of the plugin folder under the names that matter.
fn look(bin_dir: &Path, known: &[&str]) -> io::Result<Folder> {
    let mut entries = BTreeMap::new();
    let stale = stale(bin_dir, known)?;
    for name in known.iter().copied().chain(stale.iter().map(String::as_str)) {
        for name in [name.to_owned(), plan::backup_of(name)] {
            entries.insert(name.clone(), entry(&bin_dir.join(&name))?);
        }
    }
    let is_current = match File::open(bin_dir.join(PROGRAM)) {
        Ok(_) => fs::read(bin_dir.join(PROGRAM))? == fs::read(OWN)?,
        Err(err) if err.kind() == io::ErrorKind::NotFound => false,
        Err(err) => return Err(err),
    };
    Ok(Folder { is_current, has_program: entry(&bin_dir.join(PROGRAM))? != Entry::None, entries, stale })
}

/// Names in the folder that lead to this program, which does not know them.
fn stale(bin_dir: &Path, known: &[&str]) -> io::Result<Vec<String>> {
    let mut stale = Vec::new();
    let entries = match fs::read_dir(bin_dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(stale),
        entries => entries?,
    };
    for found in entries {
        let Ok(name) = found?.file_name().into_string() else { continue };
        if !known.contains(&name.as_str()) && entry(&bin_dir.join(&name))? == Entry::Ours {
            stale.push(name);
        }
    }
    stale.sort_unstable();
    Ok(stale)
}

fn entry(path: &Path) -> io::Result<Entry> {
    match fs::symlink_metadata(path) {
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound) => Ok(Entry::None),
        Err(err) => Err(err),
        Ok(found) if found.is_symlink() && fs::read_link(path)? == Path::new(PROGRAM) => Ok(Entry::Ours),
        Ok(_) => Ok(Entry::Other),
    }
}

/// Each action leaves the name with its old or its new meaning, never without any.
fn carry_out(bin_dir: &Path, action: &Action) -> io::Result<()> {
    let at = |name: &str| bin_dir.join(name);
    let temp = at(&format!(".{PROGRAM}.{}.tmp", std::process::id()));
    let done = match action {
        Action::Copy => copy(bin_dir, &temp).and_then(|()| fs::rename(&temp, at(PROGRAM))),
        Action::Link(name) => symlink(PROGRAM, &temp).and_then(|()| fs::rename(&temp, at(name))),
        Action::Keep(name) => fs::hard_link(at(name), at(&plan::backup_of(name))),
        Action::PutBack(name) => fs::rename(at(&plan::backup_of(name)), at(name)),
        Action::Remove(name) => fs::remove_file(at(name)),
    };
    if done.is_err() {
        let _ = fs::remove_file(&temp);
    }
    done
}

/// A whole copy on disk under another name: a program that runs keeps the file it was started from.
fn copy(bin_dir: &Path, temp: &Path) -> io::Result<()> {
    fs::create_dir_all(bin_dir)?;
    fs::copy(OWN, temp)?;
    fs::set_permissions(temp, Permissions::from_mode(0o755))?;
    File::open(temp)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn apply(dir: &Path, plan: impl Fn(&Folder, &[&str]) -> Vec<Action>) -> usize {
        let known = ["bridge", "ptp"];
        let actions = plan(&look(dir, &known).expect("looked at"), &known);
        for action in &actions {
            carry_out(dir, action).expect("done");
        }
        actions.len()
    }

    #[test]
    fn a_replaced_plugin_is_kept_once_and_comes_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        fs::write(bin.join("bridge"), "the reference").expect("a file");
        assert_eq!(apply(&bin, plan::install), 4);
        assert_eq!(names(&bin), ["braid", "bridge", "bridge.before-braid", "ptp"]);
        assert_eq!(fs::read_link(bin.join("bridge")).expect("a link"), Path::new("braid"));
        assert_eq!(apply(&bin, plan::install), 0, "the second time there is nothing to do");
        symlink(PROGRAM, bin.join("vlan")).expect("a link");
        assert_eq!(apply(&bin, plan::install), 1, "a name of another version goes");
        apply(&bin, plan::remove);
        assert_eq!(names(&bin), ["bridge"]);
        assert_eq!(fs::read_to_string(bin.join("bridge")).expect("a file"), "the reference");
    }

    #[test]
    fn a_call_that_runs_an_older_program_keeps_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join(PROGRAM);
        fs::write(&program, "older").expect("a file");
        let mut running = File::open(&program).expect("open");
        apply(dir.path(), plan::install);
        assert_eq!(io::read_to_string(&mut running).expect("read"), "older");
        assert!(fs::read(&program).expect("read") == fs::read(OWN).expect("read"), "the new one is not there");
    }
}
