//! The default network of the node: braid's own, or one of another program.

use super::others::Others;
use super::{SOURCE_KEY, is_own};
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

/// Chooses the default network. `present` is the conflist on disk, if it is valid JSON.
pub fn choose(conflist: &Path, present: Option<&Json>, others: &Others) -> Choice {
    let Some(present) = present else {
        return first_choice(others);
    };
    if is_own(present) {
        return text_at(present, SOURCE_KEY).map_or(Choice::Own, |path| Choice::Other(path.into()));
    }
    let is_braid = |plugin: &Json| text_at(plugin, "type") == Some("braid");
    if plugins_of(present).iter().any(is_braid) {
        return Choice::Other(conflist.to_owned());
    }
    Choice::NotYet(format!(
        "{} is another program's network: it needs another name",
        conflist.display()
    ))
}

fn first_choice(others: &Others) -> Choice {
    match (&others.unfinished, others.networks.first()) {
        (Some(path), _) => Choice::NotYet(format!("{} is not complete yet", path.display())),
        (None, Some(first)) => Choice::Other(first.clone()),
        (None, None) => Choice::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let json = present.map(|text| Json::parse(text.as_bytes(), "a test").expect("JSON"));
            assert_eq!(choose(own, json.as_ref(), others), expected, "{present:?}");
        }
    }
}
