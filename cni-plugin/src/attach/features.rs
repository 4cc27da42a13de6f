//! What this kernel has, asked once per boot and feature: the answers are kept in `/run/braid/kernel.json`.

use crate::plan::Feature;
use crate::sys::probe::{Finding, PROBES, Probe, find};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io, process};

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
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The features of `wanted` that the kernel lacks, with its own words. What can't be tried is not called missing.
pub fn missing(wanted: &[Feature]) -> Vec<(&'static str, String)> {
    if wanted.is_empty() {
        return Vec::new();
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
    let lack = |feature: &Feature| Some((feature.name(), known.features.get(feature.name())?.clone()?));
    wanted.iter().filter_map(lack).collect()
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
    // Calls run side by side, so each writes a file of its own; the last one stays.
    let temp = path.with_extension(format!("{}.tmp", process::id()));
    fs::write(&temp, serde_json::to_vec(known)?)?;
    fs::rename(&temp, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NetConf;
    use crate::plugins;

    #[test]
    fn a_plugin_asks_only_for_what_its_keys_need() {
        let features = |conf: &str| {
            let conf = NetConf::parse(format!(r#"{{"name":"n",{conf}}}"#).as_bytes()).expect("a configuration");
            let plugin = plugins::parse(&conf, "").expect("parsed").expect("ours");
            plugin.features().into_iter().map(Feature::name).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(features(r#""type":"bridge""#), "veth, bridge");
        let all = features(r#""type":"bridge","vlan":5,"ipMasq":true,"macspoofchk":true"#);
        assert_eq!(all, "veth, bridge, bridge vlan_filtering, nf_tables masquerade, nf_tables bridge");
        assert_eq!(features(r#""type":"bridge","vlanTrunk":[{"id":7}]"#), "veth, bridge, bridge vlan_filtering");
        assert_eq!(features(r#""type":"ptp","ipMasq":true"#), "veth, nf_tables masquerade");
        assert_eq!(features(r#""type":"macvlan""#), "macvlan");
        assert_eq!(features(r#""type":"ipvlan""#), "ipvlan");
        assert_eq!(features(r#""type":"tuning""#), "");
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
        assert_eq!(fs::read_dir(dir.path().join("braid")).expect("a folder").count(), 1, "a temporary file is left");
    }
}
