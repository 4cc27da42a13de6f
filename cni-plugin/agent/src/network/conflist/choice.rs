//! The default network of the node: braid's own, or one of another program.

use super::others::Others;
use super::{Present, SOURCE_KEY, is_own};
use braid_core::cni::Json;
use braid_core::k8s::takeover::plugins_of;
use braid_core::k8s::text_at;
use std::path::{Path, PathBuf};

/// Default network of the node. Chosen once, before the first conflist of the agent: later the pods
/// would lose their network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Made from the node's ranges.
    Own,
    /// The network in this file, which may be the conflist that `braid install` wrote.
    Other(PathBuf),
    /// None yet, with the reason.
    NotYet(String),
}

/// Chooses the default network. `present` is the conflist on disk.
pub fn choose(conflist: &Path, present: &Present, others: &Others) -> Choice {
    let present = match present {
        Present::List(list) => list,
        Present::Missing => return first_choice(others),
        Present::Invalid => return after_damage(conflist, others),
    };
    if is_own(present) {
        return text_at(present, SOURCE_KEY).map_or(Choice::Own, |path| Choice::Other(path.into()));
    }
    if has_braid(present) {
        return Choice::Other(conflist.to_owned());
    }
    Choice::NotYet(format!(
        "{} is another program's network: it needs another name",
        conflist.display()
    ))
}

/// Returns the reason why runtimes do not call braid for pods: the conflist is not the first of the
/// folder, or is not braid's.
pub fn obstacle(conflist: &Path, present: &Present, others: &Others) -> Option<String> {
    let is_first = |path: &&PathBuf| path.file_name() < conflist.file_name();
    if let Some(first) = others.networks.iter().find(is_first) {
        return Some(format!(
            "runtimes use {}, as it sorts first",
            first.display()
        ));
    }
    let conflist = conflist.display();
    match present {
        Present::Missing => Some(format!("{conflist} is not written yet")),
        Present::Invalid => Some(format!("{conflist} is not valid JSON")),
        Present::List(list) if has_braid(list) => None,
        Present::List(_) => Some(format!("{conflist} is another program's network")),
    }
}

fn has_braid(list: &Json) -> bool {
    let mut plugins = plugins_of(list).iter();
    plugins.any(|plugin| text_at(plugin, "type") == Some("braid"))
}

fn first_choice(others: &Others) -> Choice {
    match (&others.unfinished, others.networks.first()) {
        (Some(path), _) => Choice::NotYet(format!("{} is not complete yet", path.display())),
        (None, Some(first)) => Choice::Other(first.clone()),
        (None, None) => Choice::Own,
    }
}

/// Chooses if the former choice cannot be read. Braid's own network is certain only if there is no
/// other.
fn after_damage(conflist: &Path, others: &Others) -> Choice {
    let other = others.unfinished.as_ref().or(others.networks.first());
    other.map_or(Choice::Own, |other| {
        Choice::NotYet(format!(
            "{} is not valid JSON, and pods may use its network or the one in {}: delete the wrong one",
            conflist.display(),
            other.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_conflist_never_changes_the_default_network() {
        let own = Path::new("/n/00-braid.conflist");
        let flannel = Others {
            networks: vec![PathBuf::from("/n/10-flannel.conflist")],
            ..Others::default()
        };
        let choice = |others: &Others| choose(own, &Present::Invalid, others);
        assert_eq!(choice(&Others::default()), Choice::Own);
        let Choice::NotYet(why) = choice(&flannel) else {
            panic!("a choice without the former one");
        };
        for part in ["00-braid.conflist is not valid JSON", "10-flannel.conflist"] {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn the_first_network_of_another_program_is_chosen_only_before_the_agents_first_conflist() {
        let own = Path::new("/n/00-braid.conflist");
        let others = |networks: &[&str], unfinished: Option<&str>| Others {
            networks: networks.iter().map(PathBuf::from).collect(),
            unfinished: unfinished.map(PathBuf::from),
            ..Others::default()
        };
        let flannel = others(&["/n/10-flannel.conflist", "/n/20-b.conf"], None);
        let half = others(&["/n/10-flannel.conflist"], Some("/n/05-a.conf"));
        let other = |path: &str| Choice::Other(path.into());
        let written = r#"{"writtenBy": "braid agent", "plugins": [{"type": "braid"}]}"#;
        let taken = r#"{"writtenBy": "braid agent", "takenFrom": "/n/20-b.conf", "plugins": []}"#;
        let installed = r#"{"plugins": [{"type": "braid", "clusterNetwork": "/n/20-b.conf"}]}"#;
        for (present, others, expected) in [
            (None, &Others::default(), Choice::Own),
            (None, &flannel, other("/n/10-flannel.conflist")),
            (
                None,
                &half,
                Choice::NotYet("/n/05-a.conf is not complete yet".into()),
            ),
            (Some(written), &flannel, Choice::Own),
            (Some(written), &half, Choice::Own),
            (Some(taken), &flannel, other("/n/20-b.conf")),
            (Some(installed), &flannel, other("/n/00-braid.conflist")),
            (
                Some(r#"{"plugins": [{"type": "bridge"}]}"#),
                &flannel,
                Choice::NotYet(
                    "/n/00-braid.conflist is another program's network: it needs another name"
                        .into(),
                ),
            ),
        ] {
            let on_disk = present.map_or(Present::Missing, |text| {
                Present::List(Json::parse(text.as_bytes(), "a test").expect("JSON"))
            });
            assert_eq!(choose(own, &on_disk, others), expected, "{present:?}");
        }
    }

    #[test]
    fn another_network_that_sorts_first_keeps_runtimes_from_braid() {
        let own = Path::new("/n/10-braid.conflist");
        let list =
            |text: &str| Present::List(Json::parse(text.as_bytes(), "a test").expect("JSON"));
        let braid = list(r#"{"plugins": [{"type": "braid"}]}"#);
        let bridge = list(r#"{"plugins": [{"type": "bridge"}]}"#);
        for (present, other, expected) in [
            (&braid, "/n/20-a.conflist", None),
            (
                &braid,
                "/n/05-a.conflist",
                Some("runtimes use /n/05-a.conflist"),
            ),
            (
                &bridge,
                "/n/20-a.conflist",
                Some("10-braid.conflist is another"),
            ),
            (
                &Present::Missing,
                "/n/20-a.conflist",
                Some("not written yet"),
            ),
            (
                &Present::Invalid,
                "/n/20-a.conflist",
                Some("not valid JSON"),
            ),
        ] {
            let others = Others {
                networks: vec![PathBuf::from(other)],
                ..Others::default()
            };
            let why = obstacle(own, present, &others);
            assert_eq!(why.is_some(), expected.is_some(), "{why:?}");
            let why = why.unwrap_or_default();
            assert!(why.contains(expected.unwrap_or_default()), "{why}");
        }
    }
}
