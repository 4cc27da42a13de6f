//! What this kernel has, asked once per boot and feature: the answers are kept in `/run/braid/kernel.json`.

use crate::plan::Feature;
use crate::sys::probe::{Finding, PROBES, Probe, find};
use nix::sys::utsname::uname;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// On tmpfs: an answer lasts as long as the kernel that gave it.
const PATH: &str = "/run/braid/kernel.json";

/// The answers so far.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    /// The kernel that answered.
    release: String,
    /// By the feature's name: nothing where it is there, otherwise what the kernel said.
    features: BTreeMap<String, Option<String>>,
}

/// The running kernel's release, `6.12.0-1-amd64` for example.
pub fn release() -> String {
    uname().map(|names| names.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether the running kernel is of this release or a later one.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    parsed(&release()).is_some_and(|version| version >= (major, minor))
}

fn parsed(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What is known of the features of `wanted`: nothing where the kernel has one, otherwise its own words. One that can't be
/// tried has no entry.
pub fn known(wanted: &[Feature]) -> BTreeMap<Feature, Option<String>> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let mut known = load(Path::new(PATH), &release());
    let unasked: Vec<Feature> =
        wanted.iter().copied().filter(|feature| !known.features.contains_key(feature.name())).collect();
    if !unasked.is_empty() {
        match find(&unasked) {
            Ok(found) => note(&mut known, &found),
            Err(err) => eprintln!("ask the kernel for its features: {err}"),
        }
    }
    wanted.iter().filter_map(|feature| Some((*feature, known.features.get(feature.name())?.clone()))).collect()
}

/// Asks for every feature, whatever is known. Where STATUS has asked before, it is told of modules installed meanwhile.
pub fn find_all() -> Result<Vec<(&'static Probe, Finding)>, crate::sys::netns::NetNsError> {
    let all: Vec<Feature> = PROBES.iter().map(|probe| probe.feature).collect();
    let found = find(&all)?;
    if Path::new(PATH).exists() {
        note(&mut load(Path::new(PATH), &release()), &found);
    }
    Ok(found)
}

/// Keeps the answers. A file that can't be written only means that the kernel is asked again.
fn note(known: &mut Known, found: &[(&'static Probe, Finding)]) {
    for (probe, finding) in found {
        let name = probe.feature.name().to_owned();
        match finding {
            Finding::Present => known.features.insert(name, None),
            Finding::Missing(said) => known.features.insert(name, Some(said.clone())),
            Finding::Unknown(_) => known.features.remove(&name),
        };
    }
    if let Err(err) = store(Path::new(PATH), known) {
        eprintln!("write {PATH}: {err}");
    }
}

/// What an earlier call was told by this kernel; nothing where the file is missing, damaged or another kernel's.
fn load(path: &Path, release: &str) -> Known {
    let known = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Known>(&bytes).ok());
    let known = known.filter(|known| known.release == release);
    known.unwrap_or_else(|| Known { release: release.to_owned(), features: BTreeMap::new() })
}

fn store(path: &Path, known: &Known) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    // In place: who finds it half written asks the kernel again, and a call that is killed leaves no other file.
    fs::write(path, serde_json::to_vec(known)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_two_numbers() {
        assert_eq!(parsed("6.12.90-1-amd64"), Some((6, 12)));
        assert_eq!(parsed("6.18-rc1"), Some((6, 18)));
        assert_eq!(parsed(""), None);
        assert!(is_at_least(5, 0) && !is_at_least(1000, 0));
    }

    #[test]
    fn answers_are_kept_for_one_kernel_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("braid/kernel.json");
        let features = [("veth".to_owned(), None), ("ipvlan".to_owned(), Some("EOPNOTSUPP".to_owned()))];
        let known = Known { release: "6.1".to_owned(), features: BTreeMap::from(features) };
        store(&path, &known).expect("written");
        assert_eq!(load(&path, "6.1"), known);
        assert!(load(&path, "6.2").features.is_empty());
        fs::write(&path, "{").expect("written");
        assert!(load(&path, "6.1").features.is_empty());
    }
}
