//! Settings of the devices of a node, in the agent's configuration.
//!
//! ```yaml
//! enabled: true
//! include: [eth1, "enp*"]
//! exclude: ["*v[0-9]"]
//! capacity: {"bond*": 40G}
//! reserve: 500M
//! ```

use super::rate::Rate;
use crate::name::IfName;
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Settings of the devices of a node. Each key has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Offers links of the node as devices.
    #[serde(rename = "enabled")]
    pub is_enabled: bool,
    /// Links that are offered. Empty: the links with a device behind them. Virtual functions, and
    /// links over offered ones, need their full name.
    pub include: Vec<Glob>,
    /// Links that are not offered, although they are included.
    pub exclude: Vec<Glob>,
    /// Capacity of links in bits per second, which precedes the driver's speed. Of several globs that
    /// match, the longest one decides.
    pub capacity: BTreeMap<Glob, Rate>,
    /// Part of the capacity of each link that is kept for the host, in bits per second.
    pub reserve: Rate,
}

impl Settings {
    /// True if `include` has the name of the link, not only a pattern that matches it.
    pub fn is_named(&self, link: &IfName) -> bool {
        let mut include = self.include.iter();
        include.any(|glob| glob.is_literal() && glob.matches(link))
    }

    /// Returns the configured capacity of a link.
    pub fn capacity_of(&self, link: &IfName) -> Option<Rate> {
        let matching = self.capacity.iter().filter(|(glob, _)| glob.matches(link));
        let longest = matching.max_by_key(|(glob, _)| (glob.is_literal(), glob.0.len()));
        longest.map(|(_, rate)| *rate)
    }
}

/// A pattern of link names: `*` is any text, `?` any character, `[a-c]` and `[!a-c]` one of a set or
/// none of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob(String);

impl Glob {
    /// Parses a pattern; `None` if no link can have such a name.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = !text.is_empty() && !text.contains(['/', ' ', '\t', '\n', '\0']);
        (is_name && is_closed(text)).then(|| Self(text.to_owned()))
    }

    /// True if the pattern is one name.
    pub fn is_literal(&self) -> bool {
        !self.0.contains(['*', '?', '['])
    }

    /// True if the link has such a name.
    pub fn matches(&self, link: &IfName) -> bool {
        matches(self.0.as_bytes(), link.as_str().as_bytes())
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "a pattern of link names, such as eth*";
        let invalid = || D::Error::invalid_value(Unexpected::Str(&text), &expected);
        Self::parse(&text).ok_or_else(invalid)
    }
}

/// True if each set of characters has an end.
fn is_closed(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'[' => match set(after) {
                Some(set) => set.rest,
                None => return false,
            },
            _ => after,
        };
    }
    true
}

fn matches(glob: &[u8], name: &[u8]) -> bool {
    let Some((first, after)) = glob.split_first() else {
        return name.is_empty();
    };
    if *first == b'*' {
        return (0..=name.len()).any(|skipped| matches(after, &name[skipped..]));
    }
    let Some((character, rest)) = name.split_first() else {
        return false;
    };
    match first {
        b'?' => matches(after, rest),
        b'[' => set(after).is_some_and(|set| set.has(*character) && matches(set.rest, rest)),
        _ => first == character && matches(after, rest),
    }
}

/// A set of characters.
struct Set<'g> {
    is_negated: bool,
    members: &'g [u8],
    /// Pattern after the set.
    rest: &'g [u8],
}

/// Parses a set after its bracket. A bracket that comes first is a member.
fn set(text: &[u8]) -> Option<Set<'_>> {
    let is_negated = matches!(text.first(), Some(b'!' | b'^'));
    let text = &text[usize::from(is_negated)..];
    let end = 1 + text.get(1..)?.iter().position(|one| *one == b']')?;
    Some(Set {
        is_negated,
        members: &text[..end],
        rest: &text[end + 1..],
    })
}

impl Set<'_> {
    fn has(&self, character: u8) -> bool {
        let mut members = self.members;
        let mut is_member = false;
        while let Some((first, after)) = members.split_first() {
            members = if let [b'-', last, rest @ ..] = after {
                is_member |= (*first..=*last).contains(&character);
                rest
            } else {
                is_member |= *first == character;
                after
            };
        }
        is_member != self.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a name")
    }

    #[test]
    fn globs_match_whole_names() {
        for (glob, yes, no) in [
            ("eth1", "eth1", "eth10"),
            ("eth*", "eth", "veth"),
            ("*s0f?", "enp3s0f1", "enp3s0f10"),
            ("eth[0-24]", "eth4", "eth3"),
            ("eth[!0-2]", "eth3", "eth1"),
            ("a[]]b", "a]b", "a[b"),
            ("a[x-]", "a-", "ay"),
            ("*.*", "eth0.7", "eth0"),
            ("*a*a*", "banana", "bann"),
        ] {
            let glob = Glob::parse(glob).expect("a glob");
            assert!(glob.matches(&name(yes)), "{glob:?} {yes}");
            assert!(!glob.matches(&name(no)), "{glob:?} {no}");
        }
        for text in ["", "eth[", "eth[]", "a b", "a/b", "[!]"] {
            assert_eq!(Glob::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_longest_glob_decides_the_capacity_and_a_name_precedes_globs() {
        let settings: Settings = serde_json::from_str(
            r#"{"capacity": {"*": "1G", "eth*": 5000000000, "eth[0-9]*": "7G", "eth1": "9G"}}"#,
        )
        .expect("settings");
        let of = |text| settings.capacity_of(&name(text)).map(|rate| rate.0);
        let rates = ["eth1", "eth2", "ethx", "lo"].map(of);
        let expected = [9_000_000_000, 7_000_000_000, 5_000_000_000, 1_000_000_000];
        assert_eq!(rates, expected.map(Some));
        assert_eq!(Settings::default().capacity_of(&name("eth1")), None);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused() {
        for (text, words) in [
            (r#"{"includes": []}"#, "unknown field `includes`"),
            (r#"{"include": ["eth["]}"#, "a pattern of link names"),
            (r#"{"capacity": {"": "1G"}}"#, "a pattern of link names"),
            (
                r#"{"capacity": {"eth1": "fast"}}"#,
                "quantity \"fast\": not a number",
            ),
            (r#"{"reserve": -1}"#, "bits per second"),
            (r#"{"enabled": "yes"}"#, "boolean"),
        ] {
            let err = serde_json::from_str::<Settings>(text).expect_err(text);
            assert!(err.to_string().contains(words), "{err}");
        }
    }
}
