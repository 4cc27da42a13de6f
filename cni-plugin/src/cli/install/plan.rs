//! Plan of changes to a plugin folder, from its content.

use super::{COMPANION, PROGRAM};
use std::collections::BTreeMap;
use std::fmt;

/// Suffix of the names under which replaced plugins are kept.
const BACKUP: &str = ".before-braid";
/// File in the plugin folder that lists the names under which this program is installed.
pub(in crate::cli) const LIST: &str = ".braid.names";

/// Kind of file under a name in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Entry {
    /// No file.
    None,
    /// Script that starts this program.
    Ours,
    /// This program in another form: a link of an earlier version, a copy, or a script with another
    /// path.
    Former,
    /// Another plugin.
    Other,
    /// A directory, which blocks the name.
    Directory,
    /// Link to another program in the folder, such as a distribution's multi-call binary. The
    /// string is that program's file name.
    Alias(String),
    /// Link of another installer to a missing file.
    Dangling,
}

impl Entry {
    /// True if the entry starts this program.
    pub(in crate::cli) fn is_own(&self) -> bool {
        matches!(self, Self::Ours | Self::Former)
    }
}

/// Content of a plugin folder, from which changes are planned.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Programs in the folder, of [`PROGRAM`] and [`COMPANION`].
    pub(super) programs: Vec<&'static str>,
    /// Programs in the folder that are identical to the running version.
    pub(super) current: Vec<&'static str>,
    /// Entries by name, including kept plugins.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Names that start the program but that this version does not implement. Another version left
    /// them.
    pub(super) stale: Vec<String>,
    /// Names in [`LIST`]; `None` without this file.
    pub(super) listed: Option<Vec<String>>,
}

/// One change of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Copy the running version of a program to the folder.
    Copy(&'static str),
    /// Rename the plugin with this name to its backup name. This replaces an older backup.
    Keep(String),
    /// Replace the name with a script that starts the program.
    Script(String),
    /// Restore the kept plugin to this name.
    PutBack(String),
    /// Replace the first name with a link to the second, which is another program in the folder.
    Link(String, String),
    /// Remove a file.
    Remove(String),
    /// Write the list of names.
    List(Vec<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(name) => write!(f, "copy {name}"),
            Self::Keep(name) => write!(f, "keep {name} as {}", backup_of(name)),
            Self::Script(name) => write!(f, "replace {name} with a script that starts {PROGRAM}"),
            Self::PutBack(name) => write!(f, "restore {} as {name}", backup_of(name)),
            Self::Link(name, to) => write!(f, "link {name} to {to}"),
            Self::Remove(name) => write!(f, "remove {name}"),
            Self::List(names) => write!(f, "write {} names to {LIST}", names.len()),
        }
    }
}

/// Returns the name under which a replaced plugin is kept.
pub(in crate::cli) fn backup_of(name: &str) -> String {
    format!("{name}{BACKUP}")
}

impl Folder {
    fn entry(&self, name: &str) -> &Entry {
        self.entries.get(name).unwrap_or(&Entry::None)
    }

    /// Plans the removal of this program from a name. Restores the plugin that is kept for this
    /// name, if there is one.
    fn free(&self, name: &str) -> Vec<Action> {
        let (name, backup) = (name.to_owned(), backup_of(name));
        match self.entry(&backup) {
            Entry::None | Entry::Directory => vec![Action::Remove(name)],
            Entry::Alias(to) => vec![Action::Link(name, to.clone()), Action::Remove(backup)],
            Entry::Dangling => vec![Action::Remove(name), Action::Remove(backup)],
            Entry::Ours | Entry::Former | Entry::Other => vec![Action::PutBack(name)],
        }
    }
}

/// Returns the first directory that blocks one of the names or a name's backup. `None` if there is
/// no such directory.
pub(super) fn obstacle(folder: &Folder, names: &[&str]) -> Option<String> {
    for name in names {
        match folder.entry(name) {
            Entry::Directory => return Some((*name).to_owned()),
            Entry::Other | Entry::Alias(_) => {
                let backup = backup_of(name);
                if *folder.entry(&backup) == Entry::Directory {
                    return Some(backup);
                }
            }
            Entry::Ours | Entry::Former | Entry::Dangling | Entry::None => {}
        }
    }
    None
}

/// Plans an installation. The programs are copied first, so that every name works at any time: the
/// companion before the program that starts it. For each name, only the newest plugin of another installer is kept. The node would have that plugin
/// without this program.
pub(super) fn install(folder: &Folder, names: &[&str]) -> Vec<Action> {
    let mut actions = Vec::new();
    for program in [COMPANION, PROGRAM] {
        if !folder.current.contains(&program) {
            actions.push(Action::Copy(program));
        }
    }
    for name in names {
        match folder.entry(name) {
            Entry::Ours => continue,
            Entry::Other | Entry::Alias(_) => actions.push(Action::Keep((*name).to_owned())),
            Entry::Former | Entry::Dangling | Entry::Directory | Entry::None => {}
        }
        actions.push(Action::Script((*name).to_owned()));
    }
    // This version refuses calls by these names.
    for name in &folder.stale {
        actions.extend(folder.free(name));
    }
    let mut listed = folder.listed.clone().unwrap_or_default();
    listed.retain(|name| !folder.stale.contains(name));
    listed.extend(names.iter().map(|name| (*name).to_owned()));
    listed.sort_unstable();
    listed.dedup();
    if folder.listed.as_ref() != Some(&listed) {
        actions.push(Action::List(listed));
    }
    actions
}

/// Plans a removal. The programs are removed last, when no name starts them. Plugins of others stay as
/// they are.
pub(super) fn remove(folder: &Folder, names: &[&str]) -> Vec<Action> {
    let mut actions = Vec::new();
    for name in names {
        if folder.entry(name).is_own() {
            actions.extend(folder.free(name));
        }
    }
    for name in &folder.stale {
        actions.extend(folder.free(name));
    }
    for name in names {
        // Another installer has taken this name since, so the kept plugin is older.
        let is_taken = !matches!(
            folder.entry(name),
            Entry::None | Entry::Ours | Entry::Former
        );
        let backup = backup_of(name);
        if is_taken && !matches!(folder.entry(&backup), Entry::None | Entry::Directory) {
            actions.push(Action::Remove(backup));
        }
    }
    let left = left_names(folder, names);
    if left.is_empty() {
        if folder.listed.is_some() {
            actions.push(Action::Remove(LIST.to_owned()));
        }
        for program in [PROGRAM, COMPANION] {
            if folder.programs.contains(&program) {
                actions.push(Action::Remove(program.to_owned()));
            }
        }
    } else if let Some(listed) = &folder.listed
        && listed.iter().any(|name| !left.contains(name))
    {
        actions.push(Action::List(left));
    }
    actions
}

/// Returns the names that still start the program after the removal of `names`.
fn left_names(folder: &Folder, names: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    for (name, entry) in &folder.entries {
        let is_freed = names.contains(&name.as_str()) || folder.stale.contains(name);
        if entry.is_own() && !is_freed && !name.ends_with(BACKUP) {
            left.push(name.clone());
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(entries: &[(&str, Entry)]) -> Folder {
        let mut listed = Vec::new();
        let mut by_name = BTreeMap::new();
        for (name, entry) in entries {
            if !name.contains('.') {
                listed.push((*name).to_owned());
            }
            by_name.insert((*name).to_owned(), entry.clone());
        }
        Folder {
            programs: vec![PROGRAM, COMPANION],
            current: vec![PROGRAM, COMPANION],
            entries: by_name,
            stale: Vec::new(),
            listed: Some(listed),
        }
    }

    fn texts(actions: &[Action]) -> Vec<String> {
        actions.iter().map(Action::to_string).collect()
    }

    #[test]
    fn an_empty_folder_gets_the_program_before_its_names() {
        let actions = install(&Folder::default(), &["bridge", "ptp"]);
        let scripts =
            ["bridge", "ptp"].map(|name| format!("replace {name} with a script that starts braid"));
        let expected = [
            "copy braid-agent",
            "copy braid",
            &scripts[0],
            &scripts[1],
            "write 2 names to .braid.names",
        ];
        assert_eq!(texts(&actions), expected);
    }

    #[test]
    fn last_plugin_of_another_installer_is_kept() {
        let kept = [
            ("bridge", Entry::Other),
            ("bridge.before-braid", Entry::Other),
            ("ptp", Entry::Other),
        ];
        let actions = texts(&install(&folder(&kept), &["bridge", "ptp"]));
        let script = |name: &str| format!("replace {name} with a script that starts braid");
        let expected = ["bridge", "ptp"]
            .map(|name| [format!("keep {name} as {name}.before-braid"), script(name)]);
        assert_eq!(actions, expected.concat());
    }

    #[test]
    fn a_link_of_an_earlier_version_becomes_a_script_and_is_not_kept() {
        let former = folder(&[
            ("bridge", Entry::Former),
            ("ptp", Entry::Ours),
            ("tap", Entry::Dangling),
        ]);
        let actions = texts(&install(&former, &["bridge", "ptp", "tap"]));
        assert_eq!(
            actions,
            [
                "replace bridge with a script that starts braid",
                "replace tap with a script that starts braid"
            ]
        );
    }

    #[test]
    fn stale_name_is_restored_to_its_previous_plugin() {
        let mut folder = folder(&[("bridge", Entry::Ours), ("sbr.before-braid", Entry::Other)]);
        folder.stale = ["sbr", "vlan"].map(str::to_owned).to_vec();
        let freed = ["restore sbr.before-braid as sbr", "remove vlan"];
        assert_eq!(texts(&install(&folder, &["bridge"])), freed);
        let removed = [
            "remove bridge",
            freed[0],
            freed[1],
            "remove .braid.names",
            "remove braid",
            "remove braid-agent",
        ];
        assert_eq!(texts(&remove(&folder, &["bridge"])), removed);
    }

    #[test]
    fn program_is_removed_with_its_last_name() {
        let two = folder(&[
            ("bridge", Entry::Ours),
            ("bridge.before-braid", Entry::Other),
            ("ptp", Entry::Former),
        ]);
        let one = [
            "restore bridge.before-braid as bridge",
            "write 1 names to .braid.names",
        ];
        assert_eq!(texts(&remove(&two, &["bridge"])), one);
        let all = texts(&remove(&two, &["bridge", "ptp"]));
        assert_eq!(
            all,
            [
                one[0],
                "remove ptp",
                "remove .braid.names",
                "remove braid",
                "remove braid-agent"
            ]
        );
    }

    #[test]
    fn name_gets_the_distributions_current_program_and_never_a_dangling_link() {
        let cni = Entry::Alias("cni".to_owned());
        let k3s = folder(&[
            ("bridge", Entry::Ours),
            ("bridge.before-braid", cni),
            ("ptp", Entry::Ours),
            ("ptp.before-braid", Entry::Dangling),
        ]);
        let mut expected = vec![
            "link bridge to cni",
            "remove bridge.before-braid",
            "remove ptp",
        ];
        expected.extend([
            "remove ptp.before-braid",
            "remove .braid.names",
            "remove braid",
            "remove braid-agent",
        ]);
        assert_eq!(texts(&remove(&k3s, &["bridge", "ptp"])), expected);
    }

    #[test]
    fn name_of_another_installer_stays_and_no_kept_plugin_is_left() {
        let other = Folder {
            programs: Vec::new(),
            listed: None,
            ..folder(&[("bridge", Entry::Other)])
        };
        assert_eq!(remove(&other, &["bridge"]), []);
        let lost = Folder {
            programs: Vec::new(),
            listed: None,
            ..folder(&[
                ("bridge", Entry::Other),
                ("bridge.before-braid", Entry::Other),
            ])
        };
        assert_eq!(
            texts(&remove(&lost, &["bridge"])),
            ["remove bridge.before-braid"]
        );
    }
    #[test]
    fn blocking_directory_is_found_and_kept_by_a_removal() {
        let two = [
            ("bridge", Entry::Directory),
            ("ptp", Entry::Ours),
            ("ptp.before-braid", Entry::Directory),
        ];
        let two = folder(&two);
        assert_eq!(
            obstacle(&two, &["ptp", "bridge"]).as_deref(),
            Some("bridge")
        );
        assert_eq!(obstacle(&two, &["ptp"]), None, "nothing is to be kept");
        assert_eq!(
            texts(&remove(&two, &["bridge", "ptp"])),
            [
                "remove ptp",
                "remove .braid.names",
                "remove braid",
                "remove braid-agent"
            ]
        );
        let kept = folder(&[
            ("ptp", Entry::Other),
            ("ptp.before-braid", Entry::Directory),
        ]);
        assert_eq!(
            obstacle(&kept, &["ptp"]).as_deref(),
            Some("ptp.before-braid")
        );
        assert_eq!(
            texts(&remove(&kept, &["ptp"])),
            ["remove .braid.names", "remove braid", "remove braid-agent"]
        );
    }
}
