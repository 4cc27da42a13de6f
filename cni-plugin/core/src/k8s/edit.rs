//! Changes of a running pod's networks: the pod's selections compared with its attachments.
//!
//! ```text
//!  selection with an interface ─► the attachment of this interface, if it has the same network
//!  selection without one ───────► the first attachment left with the same network
//!  selection without an attachment ─► attach; attachment without a selection ─► detach
//! ```
//!
//! So the removal of one selection does not touch the attachments of others, whatever their
//! positions.

use super::ObjectName;
use super::selection::Selection;
use crate::cni::{Error, Json};
use crate::name::IfName;
use std::collections::BTreeSet;

/// Requests that change without a new interface.
const IN_PLACE: [&str; 3] = ["bandwidth", "portMappings", "default-route"];

/// An attachment of a running pod.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// The interface in the pod.
    pub ifname: &'a IfName,
    /// The NetworkAttachmentDefinition of the network, if any.
    pub object: Option<&'a ObjectName>,
    /// The pod's requests to the network ([`Selection::requests`]); `None` if they are unknown, or if
    /// the pod did not select it. Such an attachment stays as it is.
    pub asked: Option<&'a Json>,
}

/// Changes after which a running pod has the networks that it selects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Indices of the attachments to detach.
    pub detach: Vec<usize>,
    /// Networks to attach, each with its interface.
    pub attach: Vec<Selection>,
    /// Attachments to change in place: index and new selection, with the attachment's interface.
    pub adjust: Vec<(usize, Selection)>,
}

/// Compares the selections of a running pod with its attachments. Fails if two networks would have
/// one interface.
pub fn compare(asked: &[Selection], present: &[Present<'_>]) -> Result<Changes, Error> {
    let matches = matches(asked, present);
    let mut changes = Changes::default();
    for (at, one) in present.iter().enumerate() {
        if one.asked.is_some() && !matches.contains(&Some(at)) {
            changes.detach.push(at);
        }
    }
    let mut named = Vec::new();
    for (selection, at) in asked.iter().zip(matches) {
        let Some(at) = at else {
            named.push(selection.clone());
            continue;
        };
        let selection = Selection {
            interface: Some(present[at].ifname.clone()),
            ..selection.clone()
        };
        let (old, new) = (present[at].asked, selection.requests());
        match old.map(|old| differences(old, &new)) {
            None => {}
            Some(keys) if keys.is_empty() => {}
            Some(keys) if keys.iter().all(|key| IN_PLACE.contains(&key.as_str())) => {
                changes.adjust.push((at, selection));
            }
            Some(_) => {
                changes.detach.push(at);
                named.push(selection);
            }
        }
    }
    changes.detach.sort_unstable();
    changes.attach = with_interfaces(named, &taken(present, &changes.detach))?;
    Ok(changes)
}

/// Returns the attachment of each selection, by index.
fn matches(asked: &[Selection], present: &[Present<'_>]) -> Vec<Option<usize>> {
    let mut matches = vec![None; asked.len()];
    let is_free = |matches: &[Option<usize>], at: usize| !matches.contains(&Some(at));
    for (by_name, is_known) in [(true, true), (true, false), (false, true), (false, false)] {
        for (index, selection) in asked.iter().enumerate() {
            if selection.interface.is_some() != by_name || matches[index].is_some() {
                continue;
            }
            let is_its = |(at, one): &(usize, &Present<'_>)| {
                one.asked.is_some() == is_known
                    && *at > 0
                    && one.object == Some(&selection.object)
                    && is_free(&matches, *at)
                    && selection
                        .interface
                        .as_ref()
                        .is_none_or(|name| name == one.ifname)
            };
            let found = present.iter().enumerate().find(is_its);
            matches[index] = found.map(|(at, _)| at);
        }
    }
    matches
}

/// Returns the keys with different values.
fn differences(old: &Json, new: &Json) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for json in [old, new] {
        let Json::Object(fields) = json else { continue };
        for (key, _) in fields {
            if old.get(key) != new.get(key) {
                keys.insert(key.clone());
            }
        }
    }
    keys
}

/// Returns the interfaces of the attachments that stay.
fn taken(present: &[Present<'_>], detach: &[usize]) -> BTreeSet<String> {
    let mut taken = BTreeSet::from(["lo".to_owned()]);
    for (at, one) in present.iter().enumerate() {
        if !detach.contains(&at) {
            taken.insert(one.ifname.to_string());
        }
    }
    taken
}

/// Gives each selection an interface: the requested one, or else `net<number>` with the lowest free
/// number.
fn with_interfaces(
    mut selections: Vec<Selection>,
    taken: &BTreeSet<String>,
) -> Result<Vec<Selection>, Error> {
    let mut taken = taken.clone();
    for Selection {
        interface,
        object,
        item,
        ..
    } in &selections
    {
        if let Some(name) = interface
            && !taken.insert(name.to_string())
        {
            return Err(Error::config(format!(
                "network {object} (item {item}): interface {name} is already used by another network"
            )));
        }
    }
    for selection in &mut selections {
        let mut number = 1;
        while selection.interface.is_none() {
            let name = format!("net{number}");
            if !taken.contains(&name) {
                let parsed = IfName::parse(&name);
                let parsed = parsed.map_err(|error| Error::internal(format!("{name}: {error}")))?;
                selection.interface = Some(parsed);
                taken.insert(name);
                break;
            }
            number += 1;
        }
    }
    Ok(selections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::annotation::networks;

    fn asked(text: &str) -> Vec<Selection> {
        networks(text, "ns").expect("selections")
    }

    /// Attachments as an ADD with this annotation leaves them, after the default network.
    struct Pod {
        all: Vec<(IfName, Option<ObjectName>, Option<Json>)>,
    }

    impl Pod {
        fn of(text: &str) -> Self {
            let mut all = vec![(IfName::parse("eth0").expect("a name"), None, None)];
            for (number, selection) in asked(text).into_iter().enumerate() {
                let by_position = IfName::parse(&format!("net{}", number + 1)).expect("a name");
                let requests = selection.requests();
                let name = selection.interface.unwrap_or(by_position);
                all.push((name, Some(selection.object), Some(requests)));
            }
            Self { all }
        }

        /// Compares, and returns the changes as `-1 +ns/a@net1 ~2`.
        fn changes(&self, text: &str) -> Result<String, String> {
            let mut present = Vec::new();
            for (ifname, object, asked) in &self.all {
                present.push(Present {
                    ifname,
                    object: object.as_ref(),
                    asked: asked.as_ref(),
                });
            }
            let changes = compare(&asked(text), &present).map_err(|error| error.to_string())?;
            let mut words = Vec::new();
            for at in &changes.detach {
                words.push(format!("-{}", present[*at].ifname));
            }
            for selection in &changes.attach {
                let name = selection.interface.as_ref().expect("an interface");
                words.push(format!("+{}@{name}", selection.object));
            }
            for (at, _) in &changes.adjust {
                words.push(format!("~{}", present[*at].ifname));
            }
            Ok(words.join(" "))
        }
    }

    #[test]
    fn a_selection_keeps_the_attachment_of_its_interface_or_of_its_network() {
        for (before, after, changes) in [
            ("a,b", "a,b", ""),
            ("a,b", "b,a", ""),
            ("a,b,c", "a,c", "-net2"),
            ("a,b,c", "b,c", "-net1"),
            ("a,a,a", "a,a", "-net3"),
            ("a", "a,b", "+ns/b@net2"),
            ("a,b,c", "a,c,d", "-net2 +ns/d@net2"),
            ("", "a,b", "+ns/a@net1 +ns/b@net2"),
            ("a,b", "", "-net1 -net2"),
            // An interface that the pod names wins over positions.
            ("a@x,b@y", "b@y", "-x"),
            ("a@x,b@y", "a@y,b@x", "-x -y +ns/a@y +ns/b@x"),
            ("a@x", "b@x", "-x +ns/b@x"),
            ("a,a", "a@net2", "-net1"),
            ("a,a", "a,a@net1", ""),
            ("a", "a@net1", ""),
            ("a", "a@x", "-net1 +ns/a@x"),
            ("a@net2", "a@net2,b,c", "+ns/b@net1 +ns/c@net3"),
            ("a@x", "a,b@net1,c", "+ns/b@net1 +ns/c@net2"),
            // Another namespace is another network.
            ("a", "other/a", "-net1 +other/a@net1"),
        ] {
            let got = Pod::of(before).changes(after);
            assert_eq!(got.as_deref(), Ok(changes), "{before:?} to {after:?}");
        }
    }

    #[test]
    fn a_changed_request_changes_only_its_own_attachment() {
        let with = |keys: &str| format!(r#"[{{"name":"z"}},{{"name":"a"{keys}}}]"#);
        let rate = r#","bandwidth":{"ingressRate":1000000}"#;
        let ports = r#","portMappings":[{"hostPort":1,"containerPort":2}]"#;
        let route = r#","default-route":["10.0.0.1"]"#;
        let address = r#","ips":["10.0.0.5/24"]"#;
        let mac = r#","mac":"02:00:00:00:00:01""#;
        let args = r#","cni-args":{"k":[1]}"#;
        for (before, after, changes) in [
            ("", rate, "~net2"),
            (rate, "", "~net2"),
            (rate, r#","bandwidth":{"ingressRate":2000000}"#, "~net2"),
            ("", ports, "~net2"),
            ("", route, "~net2"),
            (route, r#","default-route":["10.0.0.2"]"#, "~net2"),
            (rate, rate, ""),
            (args, args, ""),
            ("", address, "-net2 +ns/a@net2"),
            (mac, "", "-net2 +ns/a@net2"),
            (args, r#","cni-args":{"k":[2]}"#, "-net2 +ns/a@net2"),
            ("", r#","ipam-claim-reference":"c""#, "-net2 +ns/a@net2"),
            ("", r#","deviceID":"0000:00:01.0""#, "-net2 +ns/a@net2"),
            (address, &format!("{address}{rate}"), "~net2"),
            ("", &format!("{address}{rate}"), "-net2 +ns/a@net2"),
        ] {
            let got = Pod::of(&with(before)).changes(&with(after));
            assert_eq!(got.as_deref(), Ok(changes), "{before:?} to {after:?}");
        }
    }

    #[test]
    fn an_interface_twice_is_refused() {
        for (after, part) in [
            ("a@x,b@x", "item 2): interface x is already used"),
            ("a@eth0", "interface eth0 is already used"),
            ("a@lo", "interface lo is already used"),
        ] {
            let error = Pod::of("").changes(after).expect_err(after);
            assert!(error.contains(part), "{after}: {error}");
        }
    }

    #[test]
    fn an_attachment_with_unknown_requests_stays() {
        let mut pod = Pod::of("a");
        pod.all[1].2 = None;
        assert_eq!(pod.changes("").as_deref(), Ok(""));
        assert_eq!(pod.changes("b").as_deref(), Ok("+ns/b@net2"));
        for same in ["a", "a@net1", r#"[{"name":"a","ips":["10.0.0.5/24"]}]"#] {
            assert_eq!(pod.changes(same).as_deref(), Ok(""), "{same}");
        }
        assert_eq!(pod.changes("a,a").as_deref(), Ok("+ns/a@net2"));
        let mut both = Pod::of("a,a");
        both.all[1].2 = None;
        assert_eq!(both.changes("a").as_deref(), Ok(""), "the known one");
    }
}
