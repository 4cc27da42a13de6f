//! Plan of changes to a plugin folder, from what is in it.

use super::PROGRAM;
use std::collections::BTreeMap;
use std::fmt;

/// Kind of file under a name in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing.
    None,
    /// A link to this program.
    Ours,
    /// Another plugin.
    Other,
}

/// The folder, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// The program is there.
    pub(super) has_program: bool,
    /// Byte for byte the one that runs.
    pub(super) is_current: bool,
    /// By name; those of kept plugins as well.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Names that lead to the program and are none of its own: another version of it had them.
    pub(super) stale: Vec<String>,
}

/// One change of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Copy the running program there.
    Copy,
    /// Keep the plugin of this name under another one.
    Keep(String),
    /// Make the name a link to the program.
    Link(String),
    /// Give the name back to the plugin that was kept.
    PutBack(String),
    /// Remove a file.
    Remove(String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy => write!(f, "copy this program to {PROGRAM}"),
            Self::Keep(name) => write!(f, "keep {name} as {}", backup_of(name)),
            Self::Link(name) => write!(f, "link {name} to {PROGRAM}"),
            Self::PutBack(name) => write!(f, "put {} back as {name}", backup_of(name)),
            Self::Remove(name) => write!(f, "remove {name}"),
        }
    }
}

/// Name under which a replaced plugin is kept.
pub(super) fn backup_of(name: &str) -> String {
    format!("{name}.before-{PROGRAM}")
}

impl Folder {
    fn entry(&self, name: &str) -> Entry {
        self.entries.get(name).copied().unwrap_or(Entry::None)
    }

    fn has_backup(&self, name: &str) -> bool {
        self.entry(&backup_of(name)) != Entry::None
    }

    /// Gives a name back to whoever had it first.
    fn free(&self, name: &str) -> Action {
        let name = name.to_owned();
        if self.has_backup(&name) { Action::PutBack(name) } else { Action::Remove(name) }
    }
}

/// The program first, so that no name leads nowhere. A plugin is kept only if none is kept yet: a copy of this program
/// that somebody put there later must not take the place of the plugin that was there first.
pub(super) fn install(folder: &Folder, names: &[&str]) -> Vec<Action> {
    let mut actions = Vec::new();
    if !folder.is_current {
        actions.push(Action::Copy);
    }
    for name in names {
        match folder.entry(name) {
            Entry::Ours => continue,
            Entry::Other if !folder.has_backup(name) => actions.push(Action::Keep((*name).to_owned())),
            Entry::Other | Entry::None => {}
        }
        actions.push(Action::Link((*name).to_owned()));
    }
    // Whoever calls the program by such a name is refused.
    actions.extend(folder.stale.iter().map(|name| folder.free(name)));
    actions
}

/// The program goes last, once no name leads to it. What is not ours stays as it is.
pub(super) fn remove(folder: &Folder, names: &[&str]) -> Vec<Action> {
    let ours = names.iter().copied().filter(|name| folder.entry(name) == Entry::Ours);
    let all = ours.chain(folder.stale.iter().map(String::as_str));
    let mut actions: Vec<Action> = all.map(|name| folder.free(name)).collect();
    let is_left = |(name, entry): (&String, &Entry)| *entry == Entry::Ours && !names.contains(&name.as_str());
    if folder.has_program && !folder.entries.iter().any(is_left) {
        actions.push(Action::Remove(PROGRAM.to_owned()));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(entries: &[(&str, Entry)]) -> Folder {
        let entries = entries.iter().map(|(name, entry)| ((*name).to_owned(), *entry)).collect();
        Folder { has_program: true, is_current: true, entries, stale: Vec::new() }
    }

    fn texts(actions: &[Action]) -> Vec<String> {
        actions.iter().map(Action::to_string).collect()
    }

    #[test]
    fn an_empty_folder_gets_the_program_before_its_names() {
        let actions = install(&Folder::default(), &["bridge", "ptp"]);
        assert_eq!(texts(&actions), ["copy this program to braid", "link bridge to braid", "link ptp to braid"]);
    }

    #[test]
    fn the_plugin_that_was_there_first_is_the_one_kept() {
        let kept = folder(&[("bridge", Entry::Other), ("bridge.before-braid", Entry::Other), ("ptp", Entry::Other)]);
        let actions = texts(&install(&kept, &["bridge", "ptp"]));
        assert_eq!(actions, ["link bridge to braid", "keep ptp as ptp.before-braid", "link ptp to braid"]);
    }

    #[test]
    fn a_name_that_another_version_had_goes_back_to_whoever_had_it_before() {
        let mut folder = folder(&[("bridge", Entry::Ours), ("sbr.before-braid", Entry::Other)]);
        folder.stale = ["sbr", "vlan"].map(str::to_owned).to_vec();
        let freed = ["put sbr.before-braid back as sbr", "remove vlan"];
        assert_eq!(texts(&install(&folder, &["bridge"])), freed);
        assert_eq!(texts(&remove(&folder, &["bridge"])), ["remove bridge", freed[0], freed[1], "remove braid"]);
    }

    #[test]
    fn the_program_goes_with_its_last_name() {
        let two = folder(&[("bridge", Entry::Ours), ("bridge.before-braid", Entry::Other), ("ptp", Entry::Ours)]);
        assert_eq!(texts(&remove(&two, &["bridge"])), ["put bridge.before-braid back as bridge"]);
        let all = texts(&remove(&two, &["bridge", "ptp"]));
        assert_eq!(all, ["put bridge.before-braid back as bridge", "remove ptp", "remove braid"]);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let other = Folder { has_program: false, ..folder(&[("bridge", Entry::Other)]) };
        assert_eq!(remove(&other, &["bridge"]), []);
    }
}
