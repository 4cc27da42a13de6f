//! Lines of the values in a JSON text, or of the items in a list separated by commas.

use braid_core::cni::{FaultPlace, PathPart};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use std::fmt;

/// Maximum nesting of a text with lines. Each level takes several frames of the stack.
const MAX_DEPTH: usize = 32;

/// Lines of a text.
#[derive(Debug)]
pub(in super::super) enum Lines {
    /// JSON, read as YAML. Keys and values have spans.
    Values(Spanned<Node>),
    /// List separated by commas, as the first line of each item.
    Items(Vec<usize>),
    /// A text that is neither JSON nor such a list.
    Unknown,
}

/// A value, with the places of the values inside it.
#[derive(Debug)]
pub(in super::super) enum Node {
    Object(Vec<(Spanned<String>, Spanned<Node>)>),
    Array(Vec<Spanned<Node>>),
    Scalar,
}

impl Lines {
    /// Reads a configuration or an annotation.
    pub(in super::super) fn of(text: &str) -> Self {
        if !text.trim_start().starts_with(['[', '{']) {
            return Self::Items(items(text));
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: MAX_DEPTH,
                max_events: text.len() + MAX_DEPTH,
                max_nodes: text.len() + MAX_DEPTH,
            },
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            merge_keys: MergeKeyPolicy::AsOrdinary,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        };
        serde_saphyr::from_str_with_options(text, options).map_or(Self::Unknown, Self::Values)
    }

    /// Returns the line of a place in the text, counted from 1. If the place does not exist,
    /// returns the line of the innermost value that would contain it.
    pub(in super::super) fn line(&self, place: &FaultPlace) -> usize {
        let path = match place {
            FaultPlace::Position { line, .. } => return *line,
            FaultPlace::Path(path) => path.as_slice(),
        };
        match (self, path.first()) {
            (Self::Values(root), _) => match root.value.deepest(path) {
                Some((_, line)) => line,
                None => line_of(root),
            },
            (Self::Items(lines), Some(PathPart::Index(index))) => {
                lines.get(*index).copied().unwrap_or(1)
            }
            (Self::Items(_) | Self::Unknown, _) => 1,
        }
    }
}

impl Node {
    /// Returns the depth and line of the innermost value that exists on `path`. If a key occurs
    /// several times, the occurrence that matches most of the path counts. Of equal matches, the
    /// last one counts.
    fn deepest(&self, path: &[PathPart]) -> Option<(usize, usize)> {
        let (first, rest) = path.split_first()?;
        let below = |value: &Spanned<Self>, own: usize| {
            let inner = value.value.deepest(rest);
            inner.map_or((1, own), |(depth, line)| (depth + 1, line))
        };
        match (first, self) {
            (PathPart::Key(key), Self::Object(fields)) => {
                let mut deepest: Option<(usize, usize)> = None;
                for (name, value) in fields {
                    if !name.value.eq_ignore_ascii_case(key) {
                        continue;
                    }
                    let (depth, line) = below(value, line_of(name));
                    if deepest.is_none_or(|(deepest, _)| depth >= deepest) {
                        deepest = Some((depth, line));
                    }
                }
                deepest
            }
            (PathPart::Index(index), Self::Array(items)) => {
                let item = items.get(*index)?;
                Some(below(item, line_of(item)))
            }
            (PathPart::Key(_) | PathPart::Index(_), _) => None,
        }
    }
}

/// Returns the first line of each item of a list separated by commas.
fn items(text: &str) -> Vec<usize> {
    let (mut lines, mut line) = (Vec::new(), 1);
    for item in text.split(',') {
        let blank = item.len() - item.trim_start().len();
        lines.push(line + breaks(&item[..blank]));
        line += breaks(item);
    }
    lines
}

fn breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn line_of<T>(spanned: &Spanned<T>) -> usize {
    usize::try_from(spanned.referenced.line()).unwrap_or(1)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n \"a\\\"}\": [1, {\"x\":\n \"]\"}],\n \"Plugins\": [\n {\"type\": \"t\"},\n {\n  \"vlan\": -5e3,\n  \"b\": \
                        {\"c\":\n null}\n }\n ]\n}";

    fn path(words: &[&str]) -> FaultPlace {
        let part = |word: &&str| {
            word.parse()
                .map_or_else(|_| PathPart::Key((*word).to_owned()), PathPart::Index)
        };
        FaultPlace::Path(words.iter().map(part).collect())
    }

    #[test]
    fn value_has_the_line_of_its_key() {
        let lines = Lines::of(TEXT);
        for (words, line) in [
            (&[][..], 1),
            (&["a\"}", "1", "x"], 2),
            (&["plugins"], 4),
            (&["plugins", "0", "type"], 5),
            (&["plugins", "1"], 6),
            (&["plugins", "1", "vlan"], 7),
            (&["plugins", "1", "b", "c"], 8),
            (&["plugins", "9"], 4),
            (&["plugins", "1", "b", "none"], 8),
            (&["none"], 1),
            (&["plugins", "type"], 4),
        ] {
            assert_eq!(lines.line(&path(words)), line, "{words:?}");
        }
    }

    #[test]
    fn any_json_has_lines() {
        for (text, words, line) in [
            ("{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}", &["a", "b"][..], 3),
            ("\n\n {\"a\":\n1}", &[], 3),
            ("{\"a\":{\"x\":1},\n\"A\":{\"y\":2},\n\"a\":3}", &["a"], 3),
            (
                "{\"a\":{\"x\":1},\n\"A\":{\"y\":2},\n\"a\":3}",
                &["a", "x"],
                1,
            ),
            ("{\"<<\":{},\n\"y\":1}", &["y"], 2),
            (
                "{\"u\":\"\\ud83d\\ude00\\/\",\"n\":[1e400,123456789012345678901234567890123456789012],\n\"y\":1}",
                &["y"],
                2,
            ),
            (
                "{\"a\":\"# no comment\",\"b\":\"&a *a !t\",\n\"\":[]}",
                &[""],
                2,
            ),
            ("{\"a\":1,\r\n\"b\":2}", &["b"], 2),
            ("{\"a\":[[],{}],\n\"~\":true,\"null\":null}", &["null"], 2),
        ] {
            assert_eq!(Lines::of(text).line(&path(words)), line, "{text}");
        }
        for depth in [30, 120] {
            let deep = format!("{}\n{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(Lines::of(&deep).line(&path(&["0"])), 1);
        }
    }

    #[test]
    fn item_of_a_list_with_commas_has_its_first_line() {
        let lines = Lines::of("\na,\n b,c,\n\n d");
        let found = ["0", "1", "2", "3", "4"].map(|index| lines.line(&path(&[index])));
        assert_eq!(found, [2, 3, 3, 5, 1]);
    }

    #[test]
    fn any_prefix_of_a_text_has_lines() {
        for end in 0..TEXT.len() {
            let lines = Lines::of(&TEXT[..end]);
            assert!(lines.line(&path(&["plugins", "1", "b", "c"])) <= 8);
        }
        assert_eq!(Lines::of(&"[".repeat(1 << 20)).line(&path(&["1"])), 1);
    }
}
