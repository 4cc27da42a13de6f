//! JSON parsed by Go's rules: keys match in any case, the last duplicate is used, and a field with
//! `null` keeps its default.
//!
//! This module has the value, its parser and its printer; the module `fields` reads typed fields.

use super::error::Error;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::ser::{self, PrettyFormatter};
use std::collections::BTreeMap;
use std::fmt;

/// Initial capacity in bytes of the printed text. Most results are not longer.
const TYPICAL_LEN: usize = 1024;

/// Key that serde_json uses for a number that is not a 64-bit integer. serde_json passes such a
/// number as an object with this key and the number as text.
const NUMBER: &str = "$serde_json::private::Number";

/// A JSON value that keeps the order and the duplicates of its keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`, which counts as an absent value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number as written, except for the form of its exponent.
    Number(serde_json::Number),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// An object with its fields in the order written.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Maximum length of the input in bytes. Kubernetes refuses objects above 1.5 MiB.
    pub const MAX_BYTES: usize = 4 << 20;

    /// Parses one JSON document. Refuses more than 128 levels of nesting. Errors have CNI code 6
    /// and begin with `what`, the name of the document.
    ///
    /// Objects under duplicate keys are joined, as Go decodes both into one struct:
    /// `{"ipam":{"a":1},"IPAM":{"b":2}}` has one `ipam` with `a` and `b`.
    pub fn parse(bytes: &[u8], what: &str) -> Result<Self, Error> {
        if bytes.len() > Self::MAX_BYTES {
            let (size, most) = (bytes.len(), Self::MAX_BYTES);
            return Err(Error::decode(format!(
                "{what}: {size} bytes of JSON are more than the {most} allowed"
            )));
        }
        let mut json: Self = serde_json::from_slice(bytes).map_err(|e| {
            Error::decode(format!("{what}: invalid JSON: {e}")).at_position(e.line(), e.column())
        })?;
        json.join_duplicate_objects();
        Ok(json)
    }

    /// Returns an object with these fields.
    pub fn object_of<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    /// Formats with an indentation of 4 spaces and no newline at the end, like the reference
    /// plugins.
    pub fn pretty(&self) -> String {
        let mut text = Vec::with_capacity(TYPICAL_LEN);
        let written = self.serialize(&mut ser::Serializer::with_formatter(
            &mut text,
            PrettyFormatter::with_indent(b"    "),
        ));
        // Writing strings and numbers to memory can't fail. `Display` is the fallback without the
        // indentation.
        match String::from_utf8(text) {
            Ok(text) if written.is_ok() => text,
            _ => self.to_string(),
        }
    }

    /// Sorts the keys of all objects alphabetically.
    #[must_use]
    pub fn sorted(self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.into_iter().map(Self::sorted).collect()),
            Self::Object(fields) => {
                let mut fields: Vec<_> = fields
                    .into_iter()
                    .map(|(key, value)| (key, value.sorted()))
                    .collect();
                fields.sort_by(|(a, _), (b, _)| a.cmp(b));
                Self::Object(fields)
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => self,
        }
    }

    /// Joins objects under duplicate keys at every depth. Works from the top down. So each value is
    /// visited once, however deep duplicates are nested in duplicates.
    fn join_duplicate_objects(&mut self) {
        match self {
            Self::Array(items) => items.iter_mut().for_each(Self::join_duplicate_objects),
            Self::Object(fields) => {
                join_same_keys(fields);
                for (_, value) in fields {
                    value.join_duplicate_objects();
                }
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => {}
        }
    }
}

/// Joins objects with the same key: appends the fields of the later objects to the first one. When
/// a duplicate field is read, the last one is used.
fn join_same_keys(fields: &mut Vec<(String, Json)>) {
    if fields
        .iter()
        .filter(|(_, value)| matches!(value, Json::Object(_)))
        .count()
        < 2
    {
        return;
    }
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut joined: Vec<(String, Json)> = Vec::with_capacity(fields.len());
    for (key, value) in fields.drain(..) {
        let Json::Object(mut more) = value else {
            joined.push((key, value));
            continue;
        };
        let at = *first
            .entry(key.to_ascii_lowercase())
            .or_insert(joined.len());
        match joined.get_mut(at) {
            Some((_, Json::Object(earlier))) => earlier.append(&mut more),
            _ => joined.push((key, Json::Object(more))),
        }
    }
    *fields = joined;
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        if let Some(key) = access.next_key::<String>()? {
            if key == NUMBER {
                let number: String = access.next_value()?;
                return number.parse().map(Json::Number).map_err(de::Error::custom);
            }
            fields.push((key, access.next_value()?));
        }
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Json::Object(fields))
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::String(value) => serializer.serialize_str(value),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}

/// Prints the value as one line of JSON.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_error| fmt::Error)?)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Number(value.into())
    }
}

impl From<Vec<Json>> for Json {
    fn from(items: Vec<Json>) -> Self {
        Self::Array(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    #[test]
    fn a_document_prints_with_its_order_and_duplicates() {
        let text = r#"{"z":1,"a":[null,true,-2,1.5,"x\n"],"z":"again"}"#;
        assert_eq!(parse(text).to_string(), text);
    }

    #[test]
    fn numbers_keep_every_digit() {
        for text in [
            "9007199254740993",
            "18446744073709551616",
            "-0",
            "1.10",
            "1e+400",
            "0.1e-5",
        ] {
            assert_eq!(parse(&format!("[{text}]")).to_string(), format!("[{text}]"));
        }
        assert_eq!(parse("[1E5,1e5]").to_string(), "[1e+5,1e+5]");
    }

    #[test]
    fn reserved_number_key_does_not_break_the_parser() {
        for (text, is_read) in [("1", true), ("x", false), ("1,2", false), ("", false)] {
            let text = format!(r#"{{"{NUMBER}":"{text}"}}"#);
            assert_eq!(
                Json::parse(text.as_bytes(), "test").is_ok(),
                is_read,
                "{text}"
            );
        }
        assert!(Json::parse(format!(r#"{{"{NUMBER}":[]}}"#).as_bytes(), "test").is_err());
    }

    #[test]
    fn objects_under_duplicate_keys_are_joined_at_every_depth() {
        let json =
            parse(r#"{"ipam":{"a":{"x":1},"t":"old"},"n":1,"IPAM":{"t":"new","A":{"y":2}}}"#);
        assert_eq!(
            json.to_string(),
            r#"{"ipam":{"a":{"x":1,"y":2},"t":"old","t":"new"},"n":1}"#
        );
    }

    #[test]
    fn pretty_text_is_indented_by_four_spaces_without_a_newline_at_the_end() {
        assert_eq!(
            parse(r#"{"a":{"b":[1]}}"#).pretty(),
            "{\n    \"a\": {\n        \"b\": [\n            1\n        ]\n    }\n}"
        );
    }

    #[test]
    fn too_long_too_deep_or_invalid_input_is_refused_with_its_name() {
        let long = format!("\"{}\"", "x".repeat(Json::MAX_BYTES));
        let deep = "[".repeat(100_000);
        for text in [long.as_str(), &deep, "", "{", "{} {}", "\u{feff}{}", "'a'"] {
            let error = Json::parse(text.as_bytes(), "network config").unwrap_err();
            assert_eq!(error.kind, super::super::Kind::Decode);
            assert!(
                error.msg.starts_with("network config: ") && error.msg.len() < 120,
                "{}",
                error.msg
            );
        }
        assert!(Json::parse(b"\"\xff\"", "x").is_err());
    }

    #[test]
    fn many_object_keys_are_joined_in_linear_time() {
        let fields: Vec<String> = (0..200_000).map(|i| format!("\"{i}\":{{}}")).collect();
        let Json::Object(fields) = parse(&format!("{{{}}}", fields.join(","))) else {
            panic!("no object")
        };
        assert_eq!(fields.len(), 200_000);
    }
}
