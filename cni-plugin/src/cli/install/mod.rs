//! `braid install`: puts this program into a runtime's plugin folder, under the names of the
//! reference plugins.

mod cluster;
pub(super) mod detect;
pub(super) mod folder;
mod lock;
mod mounts;
pub(super) mod plan;
mod ready;
mod stage;

use super::names::{COMPANION, PROGRAM, drop_in_names};
use super::{Outcome, SUCCESS, output};
use braid_node::takeover::root::{Presence, Root};
use clap::Args;
use folder::Bin;
use lock::Lock;
use plan::{Action, Folder};
use stage::Stage;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Names that are installed only on request, because another project writes to the same path. The
/// project's `DaemonSet` copies its own plugin to that path whenever the `DaemonSet` starts.
const WRITTEN_BY_OTHERS: &[&str] = &["flannel"];

/// Put this program into a runtime's plugin folder, under the names of the plugins it replaces
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Plugin folder of the runtime; by default the one in the runtime's configuration, else a
    /// well-known one
    #[arg(long, value_name = "PATH")]
    bin_dir: Option<PathBuf>,
    /// Path on the node of the program that the names start; by default `braid` in --bin-dir,
    /// without --root
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Use only these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Vec<String>,
    /// Remove the names, and restore the plugins that had them
    #[arg(long)]
    remove: bool,
    /// Only print the planned changes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    files: cluster::Files,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let known: Vec<&str> = drop_in_names().collect();
    let names = wanted(arguments, &known)?;
    let root = arguments.files.root()?;
    let folders = detect::folders(&root);
    let files = arguments.files.chosen(&folders.networks);
    let bin = bin(arguments, &folders.plugins, root)?;
    let code = say(reasons(arguments, &folders));
    let held = (!arguments.dry_run)
        .then(|| lock::hold(&bin.dir, arguments.remove))
        .transpose()?;
    let mut folder = bin
        .look(&known)
        .map_err(|err| format!("read {}: {err}", bin.dir.display()))?;
    if !arguments.names.is_empty() {
        folder.stale.clear();
    }
    let target = Target {
        bin,
        folder,
        names,
        files,
        networks: folders.networks,
        is_dry_run: arguments.dry_run,
    };
    let changed = if arguments.remove {
        target.remove()?
    } else {
        target.install(held)?
    };
    Ok(code.max(changed))
}

/// Plugin folder to change, with its content and the requested names and files.
struct Target<'a> {
    bin: Bin,
    folder: Folder,
    names: Vec<&'a str>,
    files: cluster::Files,
    /// The runtime's folder of configurations.
    networks: PathBuf,
    is_dry_run: bool,
}

impl Target<'_> {
    /// Removes the names and the files. The configurations are removed before the program that they
    /// name.
    fn remove(&self) -> Outcome {
        let actions = plan::remove(&self.folder, &self.names);
        if removes_program(&actions) {
            self.files.refuse_in_use(&self.networks)?;
        }
        let code = say(self.files.remove(self.is_dry_run)?);
        if !self.is_dry_run {
            stage::clean(&self.bin);
        }
        Ok(code.max(self.change(&actions, None)?))
    }

    /// Installs the names and writes the files. Before any change, refuses a configuration that can
    /// never work, and a directory at the path of a name.
    fn install(&self, held: Option<Lock>) -> Outcome {
        let actions = plan::install(&self.folder, &self.names);
        let planned = self.files.plan(&self.bin, &self.names)?;
        if let Some(name) = plan::obstacle(&self.folder, &self.names) {
            return Err(format!(
                "{} is a directory: remove it, or select other names with --names",
                self.bin.at(&name).display()
            )
            .into());
        }
        if !self.is_dry_run {
            self.bin.refuse_alone()?;
        }
        let mut stage = None;
        if !self.is_dry_run && !actions.is_empty() {
            let is_current = self.folder.current.contains(&PROGRAM);
            stage = Some(Stage::try_names(&self.bin, is_current, &self.names)?);
        }
        let staged = stage.as_ref().and_then(|stage| stage.copy.as_deref());
        let code = self.change(&actions, staged)?;
        drop(stage);
        let mut lines = cluster::Files::write(&planned, self.is_dry_run)?;
        drop(held);
        lines.extend(planned.remarks);
        if !self.is_dry_run
            && let Some(list) = planned.list
        {
            lines.extend(ready::remark(&self.bin, &list));
        }
        let code = code.max(say(lines));
        match planned.waits {
            Some(waits) => Err(waits.into()),
            None => Ok(code),
        }
    }

    /// Carries out the actions and prints them.
    fn change(&self, actions: &[Action], staged: Option<&Path>) -> Result<u8, String> {
        let path = self.bin.dir.display();
        let mut code = SUCCESS;
        if actions.is_empty() {
            code = output::print(&format!("{path}: nothing to do\n"));
        }
        for action in actions {
            if !self.is_dry_run {
                self.bin
                    .carry_out(action, staged)
                    .map_err(|err| format!("{path}: {action}: {err}"))?;
            }
            code = code.max(output::print(&format!("{path}: {action}\n")));
        }
        Ok(code)
    }
}

/// Returns the plugin names to install or remove. Refuses a name in `--names` that this program
/// can't replace.
fn wanted<'a>(arguments: &Arguments, known: &[&'a str]) -> Result<Vec<&'a str>, String> {
    for name in &arguments.names {
        if !known.contains(&name.as_str()) {
            return Err(format!(
                "--names: braid can't replace {name:?}; supported: {}",
                known.join(", ")
            ));
        }
    }
    let mut names = known.to_vec();
    names.retain(|name| wants(arguments, name));
    Ok(names)
}

fn removes_program(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Remove(name) if name == PROGRAM))
}

/// Returns a line for each folder that the user did not choose, with the reason for the choice.
fn reasons(arguments: &Arguments, folders: &detect::Folders) -> Vec<String> {
    let reason =
        |what: &str, folder: &Path| format!("{what} in {}: {}", folder.display(), folders.why);
    let mut reasons = Vec::new();
    if arguments.bin_dir.is_none() {
        reasons.push(reason("plugins", &folders.plugins));
    }
    if arguments.files.is_chosen() {
        reasons.push(reason("configurations", &folders.networks));
    }
    reasons
}

/// Returns the changes of an installation without options into the node's folder.
pub(super) fn changes(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names: Vec<&str> = drop_in_names().collect();
    let content = Bin::of_node(folder).look(&names)?;
    names.retain(|name| !WRITTEN_BY_OTHERS.contains(name));
    let actions = plan::install(&content, &names);
    Ok(actions.iter().map(ToString::to_string).collect())
}

/// Returns a message about names that no longer start this program; `None` if all of them do.
pub(super) fn lost_names() -> std::io::Result<Option<String>> {
    let folder = detect::folders(&Root::new(Path::new("/"))).plugins;
    let lost = Bin::of_node(&folder).lost(&drop_in_names().collect::<Vec<_>>())?;
    if lost.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "{}: {} no longer start braid; run braid install again",
        folder.display(),
        lost.join(" ")
    )))
}

fn say(lines: Vec<String>) -> u8 {
    let mut text = String::new();
    for line in lines {
        text += &line;
        text += "\n";
    }
    output::print(&text)
}

fn wants(arguments: &Arguments, name: &str) -> bool {
    let is_asked_for = arguments.names.iter().any(|wanted| wanted == name);
    is_asked_for
        || arguments.names.is_empty() && (arguments.remove || !WRITTEN_BY_OTHERS.contains(&name))
}

/// Returns the plugin folder, with the program's path on the node. Refuses a path at which the node
/// would not find the program.
fn bin(arguments: &Arguments, chosen: &Path, root: Root) -> Result<Bin, String> {
    let dir = arguments
        .bin_dir
        .clone()
        .unwrap_or_else(|| root.seen(chosen));
    let dir = std::path::absolute(dir).map_err(|err| format!("--bin-dir: {err}"))?;
    let given = arguments.program.clone();
    let folder = if arguments.bin_dir.is_some() {
        root.of_node(&dir)
    } else {
        chosen.to_owned()
    };
    let program = given.clone().unwrap_or_else(|| folder.join(PROGRAM));
    let bin = Bin {
        dir,
        program,
        companion: folder::companion(),
        root,
    };
    if !arguments.remove {
        refuse_other_path(&bin)?;
    }
    if given.is_none() {
        refuse_other_mount(&bin)?;
    }
    Ok(bin)
}

fn refuse_other_path(bin: &Bin) -> Result<(), String> {
    let (program, dir) = (bin.program.display(), bin.dir.display());
    let (Some(name), Some(folder)) = (bin.program.file_name(), bin.program.parent()) else {
        return Err(format!("--program {program}: {}", stage::UNREADABLE));
    };
    if braid_node::sys::executable::script(&bin.program).is_none() {
        return Err(format!("--program {program}: {}", stage::UNREADABLE));
    }
    if bin
        .program
        .components()
        .any(|part| part == Component::ParentDir)
    {
        return Err(format!(
            "the names would start {program}: use a path without \"..\""
        ));
    }
    let identity = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let seen = bin.root.seen(folder);
    let is_there = match bin.root.presence(folder) {
        Presence::Here => identity(&seen) == identity(&bin.dir),
        // The first installation creates it.
        Presence::Missing | Presence::Unseen => seen == bin.dir,
    };
    if name != PROGRAM || !is_there {
        let hint = "set --root to the node's /, and --program to the program's path on the node";
        return Err(format!(
            "the node does not have {dir}/{PROGRAM} at {program}: {hint}"
        ));
    }
    Ok(())
}

/// Refuses a plugin folder that this container has mounted from another path of the node. Checks
/// the mount, because the folder's path and `--root` do not show the source of the mount.
fn refuse_other_mount(bin: &Bin) -> Result<(), String> {
    let folder = bin.program.parent().unwrap_or(Path::new("/"));
    let Some(mount) = mounts::of(&bin.dir) else {
        return Ok(());
    };
    let is_other = if bin.root.is_node() {
        mount.is_below(folder)
    } else {
        !mount.is_probably(folder)
    };
    if !is_other {
        return Ok(());
    }
    let (dir, source, program) = (
        bin.dir.display(),
        mount.source.display(),
        bin.program.display(),
    );
    let hint = "set --root and mount the folder at the node's path below it, or set --program";
    Err(format!(
        "{dir} is {source} on the node, and the names would start {program}: {hint}"
    ))
}
