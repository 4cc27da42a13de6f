//! Features of this kernel, asked once per boot and feature: the answers are kept in
//! `/run/braid/kernel`.

use super::probe::{Finding, PROBES, Probe, find};
use crate::sys::private;
use crate::sys::release::release;
use braid_core::plan::Feature;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// On tmpfs: an answer lasts as long as the kernel that gave it.
const PATH: &str = "/run/braid/kernel";

/// The answers so far. In the file: a line with the release, then one for each feature, with what
/// the kernel said behind a tab where it has none.
#[derive(Debug, Default, PartialEq, Eq)]
struct KnownFeatures {
    /// The kernel that answered.
    release: String,
    /// By the feature's name: nothing where it is there, otherwise what the kernel said.
    features: Vec<(String, Option<String>)>,
}

impl KnownFeatures {
    fn get(&self, feature: Feature) -> Option<&Option<String>> {
        let name = feature.name();
        self.features
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, said)| said)
    }
}

/// Answers for the features of `wanted`: `None` where the kernel has one, otherwise its own words.
/// One that can't be tried has no entry.
pub fn known(wanted: &[Feature]) -> Vec<(Feature, Option<String>)> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut known = load(Path::new(PATH), release());
    if wanted.iter().any(|feature| known.get(*feature).is_none()) {
        ask(&mut known, wanted);
    }
    wanted
        .iter()
        .filter_map(|feature| Some((*feature, known.get(*feature)?.clone())))
        .collect()
}

/// Asks for those that nothing is known of.
#[cold]
fn ask(known: &mut KnownFeatures, wanted: &[Feature]) {
    let unasked: Vec<_> = wanted
        .iter()
        .copied()
        .filter(|feature| known.get(*feature).is_none())
        .collect();
    match find(&unasked) {
        Ok(found) => note(known, &found),
        Err(err) => crate::tell!("ask the kernel for its features: {err}"),
    }
}

/// Asks for every feature, whatever is known. Where STATUS has asked before, it is told of modules
/// installed meanwhile.
pub fn find_all() -> Result<Vec<(&'static Probe, Finding)>, crate::sys::netns::NetNsError> {
    let all: Vec<Feature> = PROBES.iter().map(|probe| probe.feature).collect();
    let found = find(&all)?;
    if Path::new(PATH).exists() {
        note(&mut load(Path::new(PATH), release()), &found);
    }
    Ok(found)
}

/// Keeps the answers. A file that can't be written only means that the kernel is asked again.
fn note(known: &mut KnownFeatures, found: &[(&'static Probe, Finding)]) {
    for (probe, finding) in found {
        let name = probe.feature.name();
        known.features.retain(|(known, _)| known != name);
        match finding {
            Finding::Present => known.features.push((name.to_owned(), None)),
            Finding::Missing(said) => known
                .features
                .push((name.to_owned(), Some(said.replace('\n', " ")))),
            Finding::Unknown(_) => {}
        }
    }
    if let Err(err) = store(Path::new(PATH), known) {
        crate::tell!("write {PATH}: {err}");
    }
}

/// Answers that this kernel gave to earlier calls; none where the file is missing, damaged or
/// another kernel's.
fn load(path: &Path, release: String) -> KnownFeatures {
    let text = fs::read_to_string(path).unwrap_or_default();
    let features = parse(&text, &release).unwrap_or_default();
    KnownFeatures { release, features }
}

fn parse(text: &str, release: &str) -> Option<Vec<(String, Option<String>)>> {
    // The last line is empty, or cut.
    let (whole, _) = text.rsplit_once('\n')?;
    let mut lines = whole.split('\n');
    if lines.next() != Some(release) {
        return None;
    }
    let feature = |line: &str| match line.split_once('\t') {
        Some((name, said)) => (name.to_owned(), Some(said.to_owned())),
        None => (line.to_owned(), None),
    };
    Some(lines.map(feature).collect())
}

fn store(path: &Path, known: &KnownFeatures) -> io::Result<()> {
    private::make_folders(path.parent().unwrap_or(path))?;
    let mut text = format!("{}\n", known.release);
    for (name, said) in &known.features {
        text.push_str(name);
        if let Some(said) = said {
            text.push('\t');
            text.push_str(said);
        }
        text.push('\n');
    }
    // In place, by one call at a time: who finds half of it asks the kernel again, and a call that
    // is killed leaves no other file. Another call writes the same.
    let mut file = private::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if file.try_lock().is_err() {
        return Ok(());
    }
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_for_one_kernel_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("braid/kernel");
        let features = vec![
            ("veth".to_owned(), None),
            ("fq".to_owned(), Some("EOPNOTSUPP".to_owned())),
        ];
        let known = KnownFeatures {
            release: "6.1".to_owned(),
            features,
        };
        store(&path, &known).expect("written");
        let of = |release: &str| load(&path, release.to_owned());
        assert_eq!(of("6.1"), known);
        assert!(of("6.2").features.is_empty());
        // Cut anywhere, it tells of whole lines alone: not that there is what is missing.
        let text = fs::read_to_string(&path).expect("there");
        for len in 0..text.len() {
            fs::write(&path, &text[..len]).expect("written");
            let found = of("6.1").features;
            assert!(
                known.features.starts_with(&found) && found.len() < 2,
                "{found:?} at {len}"
            );
        }
        fs::write(&path, [0xff]).expect("written");
        assert!(of("6.1").features.is_empty());
    }
}
