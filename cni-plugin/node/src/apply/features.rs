//! Features of this kernel, probed once per boot and feature, and cached in `/run/braid/kernel`.

use super::probe::{Finding, PROBES, Probe, find};
use crate::log::Log;
use crate::sys::private;
use crate::sys::release::release;
use braid_core::plan::Feature;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Features with probes that read `/dev/net/tun` and cgroup2 of the node. The agent's container has
/// neither file.
const OF_FILES: [Feature; 2] = [Feature::Tun, Feature::CgroupBpf];

/// Path of the cache. It is on a tmpfs, as the results are only valid for the running kernel.
const PATH: &str = "/run/braid/kernel";

/// Cached results of the probes. The file's first line is the kernel release. Each further line is
/// the name of a feature. If the kernel lacks the feature, a tab and the kernel's error follow the
/// name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KnownFeatures {
    /// Release of the probed kernel.
    release: String,
    /// Result by feature name: `None` if present, otherwise the kernel's error.
    features: Vec<(String, Option<String>)>,
}

impl KnownFeatures {
    fn get(&self, feature: Feature) -> Option<&Option<String>> {
        let name = feature.name();
        for (known, said) in &self.features {
            if known == name {
                return Some(said);
            }
        }
        None
    }
}

/// Returns a result for each feature in `wanted`: `None` if the kernel has the feature, otherwise
/// the kernel's error. A feature that cannot be probed has no entry.
pub fn known(wanted: &[Feature], log: &Log) -> Vec<(Feature, Option<String>)> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut known = load(Path::new(PATH), release());
    if wanted.iter().any(|feature| known.get(*feature).is_none()) {
        ask(&mut known, wanted, log);
    }
    let mut results = Vec::new();
    for &feature in wanted {
        if let Some(said) = known.get(feature) {
            results.push((feature, said.clone()));
        }
    }
    results
}

/// Probes the features without a cached result.
#[cold]
fn ask(known: &mut KnownFeatures, wanted: &[Feature], log: &Log) {
    let mut unasked = wanted.to_vec();
    unasked.retain(|feature| known.get(*feature).is_none());
    match find(&unasked) {
        Ok(found) => note(known, &found, log),
        Err(err) => log.line(format_args!("probe the features of the kernel: {err}")),
    }
}

/// Probes every feature, even with a cached result. If the cache exists, updates it, so that STATUS
/// sees kernel modules installed since the last probe.
pub fn find_all(
    log: &Log,
) -> Result<Vec<(&'static Probe, Finding)>, crate::sys::netns::NetNsError> {
    let all: Vec<Feature> = PROBES.iter().map(|probe| probe.feature).collect();
    let found = find(&all)?;
    if Path::new(PATH).exists() {
        note(&mut load(Path::new(PATH), release()), &found, log);
    }
    Ok(found)
}

/// True if this process can't find out whether the node has the feature, because it is in the agent's
/// container.
pub fn is_hidden(feature: Feature) -> bool {
    OF_FILES.contains(&feature) && is_in_container()
}

/// True if the folder of the cache is a mount of the node's folder. On a node it is on the tmpfs at
/// `/run`.
pub fn is_in_container() -> bool {
    let folder = Path::new(PATH).parent();
    let [folder, run] =
        [folder, folder.and_then(Path::parent)].map(|path| Some(fs::metadata(path?).ok()?.dev()));
    folder.is_some() && folder != run
}

/// Stores results in the cache. A hidden feature keeps its result of the node. If storing fails, the
/// error is logged, and a later call probes the kernel again.
fn note(known: &mut KnownFeatures, found: &[(&'static Probe, Finding)], log: &Log) {
    let mut stored = known.clone();
    let visible = found.iter().filter(|(probe, _)| !is_hidden(probe.feature));
    merge(&mut stored, visible);
    if let Err(err) = store(Path::new(PATH), &stored) {
        log.line(format_args!("write {PATH}: {err}"));
    }
    merge(known, found.iter());
}

/// Replaces the results of the features that were probed.
fn merge<'a>(
    known: &mut KnownFeatures,
    found: impl Iterator<Item = &'a (&'static Probe, Finding)>,
) {
    for (probe, finding) in found {
        let name = probe.feature.name();
        known.features.retain(|(known, _)| known != name);
        let said = match finding {
            Finding::Present => None,
            Finding::Missing(said) => Some(said.replace('\n', " ")),
            Finding::Unknown(_) => continue,
        };
        known.features.push((name.to_owned(), said));
    }
}

/// Loads the cached results for the kernel `release`. They are empty if the file is missing,
/// damaged or from another kernel.
fn load(path: &Path, release: String) -> KnownFeatures {
    let text = fs::read_to_string(path).unwrap_or_default();
    let features = parse(&text, &release).unwrap_or_default();
    KnownFeatures { release, features }
}

fn parse(text: &str, release: &str) -> Option<Vec<(String, Option<String>)>> {
    // The last line is empty or truncated.
    let (whole, _) = text.rsplit_once('\n')?;
    let mut lines = whole.split('\n');
    if lines.next() != Some(release) {
        return None;
    }
    let mut features = Vec::new();
    for line in lines {
        features.push(match line.split_once('\t') {
            Some((name, said)) => (name.to_owned(), Some(said.to_owned())),
            None => (line.to_owned(), None),
        });
    }
    Some(features)
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
    // Written in place, by one call at a time. A reader of a partial file probes again, and a
    // killed call leaves no other file. A concurrent call would write the same.
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
    fn results_are_cached_for_one_kernel_only() {
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
        let loaded = |release: &str| load(&path, release.to_owned());
        assert_eq!(loaded("6.1"), known);
        assert!(loaded("6.2").features.is_empty());
        // A file that is truncated at any length yields only whole lines, and no missing feature as
        // present.
        let text = fs::read_to_string(&path).expect("there");
        for len in 0..text.len() {
            fs::write(&path, &text[..len]).expect("written");
            let found = loaded("6.1").features;
            assert!(
                known.features.starts_with(&found) && found.len() < 2,
                "{found:?} at {len}"
            );
        }
        fs::write(&path, [0xff]).expect("written");
        assert!(loaded("6.1").features.is_empty());
    }
}
