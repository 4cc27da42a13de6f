//! Typed fields of a JSON object, found and checked like Go's decoder.
//!
//! A key matches in any ASCII case. If several keys match, the last value that is not `null` is
//! used. `null` counts as absent. For a value of the wrong type, the error (code 6) has key,
//! expected type and value.

use super::bounds::shortened;
use super::{Error, Json};

impl Json {
    /// Returns the value of `key`; `None` if it is absent or `null`, or this is not an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        for (name, value) in self.fields().iter().rev() {
            if name.eq_ignore_ascii_case(key) && *value != Self::Null {
                return Some(value);
            }
        }
        None
    }

    /// True if `key` is present, even with `null`.
    pub fn has(&self, key: &str) -> bool {
        self.fields()
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(key))
    }

    /// Returns the object's fields in the order written; empty if this is not an object.
    pub fn fields(&self) -> &[(String, Self)] {
        if let Self::Object(fields) = self {
            fields
        } else {
            &[]
        }
    }

    /// Returns the text of a JSON string; `None` for any other value.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// Replaces all fields with this key by one field at the end. A value that is not an object
    /// becomes an object.
    pub fn set(&mut self, key: &str, value: impl Into<Self>) {
        self.remove(key);
        let field = (key.to_owned(), value.into());
        if let Self::Object(fields) = self {
            fields.push(field);
        } else {
            *self = Self::Object(vec![field]);
        }
    }

    /// Removes all fields with this key, in any ASCII case.
    pub fn remove(&mut self, key: &str) {
        if let Self::Object(fields) = self {
            fields.retain(|(name, _)| !name.eq_ignore_ascii_case(key));
        }
    }

    /// Returns an error unless this is an object or `null`; `what` names the value in the error.
    pub fn expect_object(&self, what: &str) -> Result<(), Error> {
        let is_one = matches!(self, Self::Object(_) | Self::Null);
        if is_one {
            Ok(())
        } else {
            Err(self.mismatch("an object").context(what))
        }
    }

    /// Returns the string at `key`; `None` if absent.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", Self::as_str)
    }

    /// Returns the string at `key`; `None` if absent or empty.
    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        let text = self.str(key)?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Returns the string at `key`, or `default` if absent.
    pub fn str_or<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, Error> {
        Ok(self.str(key)?.unwrap_or(default))
    }

    /// Returns the string at `key`; empty if absent.
    pub fn string(&self, key: &str) -> Result<String, Error> {
        Ok(self.str_or(key, "")?.to_owned())
    }

    /// Returns the boolean at `key`; `None` if absent.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", |value| {
            if let Self::Bool(b) = value {
                Some(*b)
            } else {
                None
            }
        })
    }

    /// Returns the boolean at `key`, or `default` if absent.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, Error> {
        Ok(self.bool(key)?.unwrap_or(default))
    }

    /// Returns the whole number at `key`; `None` if absent. `1.5` and `1e3` are refused.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, Error> {
        self.integer(key, i64::MIN.into(), i64::MAX.into())
    }

    /// Returns the whole number of at least 0 at `key`; `None` if absent.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.integer(key, 0, u64::MAX.into())
    }

    /// Returns the whole number from 0 to 2^32 - 1 at `key`; `None` if absent.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.integer(key, 0, u32::MAX.into())
    }

    /// Returns the whole number from 0 to 255 at `key`; `None` if absent.
    pub fn u8(&self, key: &str) -> Result<Option<u8>, Error> {
        self.integer(key, 0, u8::MAX.into())
    }

    /// Returns the items of the list at `key`; `None` if absent.
    pub fn list(&self, key: &str) -> Result<Option<&[Self]>, Error> {
        self.typed(key, "a list", |value| {
            if let Self::Array(items) = value {
                Some(items.as_slice())
            } else {
                None
            }
        })
    }

    /// Returns the object at `key`; `None` if absent.
    pub fn object(&self, key: &str) -> Result<Option<&Self>, Error> {
        self.typed(key, "an object", |value| {
            matches!(value, Self::Object(_)).then_some(value)
        })
    }

    /// Returns the object at `key` inside the object at `outer`; `None` if either is absent.
    pub fn object_in(&self, outer: &str, key: &str) -> Result<Option<&Self>, Error> {
        match self.object(outer)? {
            Some(outer) => outer.object(key),
            None => Ok(None),
        }
    }

    /// Parses the object at `key` with `read`; `None` if absent. Errors get `key` as context.
    pub fn nested<'a, T>(
        &'a self,
        key: &str,
        read: impl FnOnce(&'a Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let Some(object) = self.object(key)? else {
            return Ok(None);
        };
        let value = read(object).map_err(|e| e.context(key).at_key(key))?;
        Ok(Some(value))
    }

    /// Parses each item of the list at `key` with `read`; empty if the list is absent. Errors get
    /// `key[index]` as context.
    pub fn each<'a, T>(
        &'a self,
        key: &str,
        mut read: impl FnMut(&'a Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut values = Vec::new();
        let items = self.list(key)?.unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let value = read(item).map_err(|e| {
                e.context(format_args!("{key}[{index}]"))
                    .at_index(index)
                    .at_key(key)
            })?;
            values.push(value);
        }
        Ok(values)
    }

    /// Parses a list like [`Self::each`]. Each item must be an object.
    pub fn each_object<'a, T>(
        &'a self,
        key: &str,
        mut read: impl FnMut(&'a Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.each(key, |item| {
            if let Self::Object(_) = item {
                read(item)
            } else {
                Err(item.mismatch("an object"))
            }
        })
    }

    /// Returns the list of strings at `key`; empty if absent.
    pub fn strings(&self, key: &str) -> Result<Vec<String>, Error> {
        self.each(key, |item| {
            let Some(text) = item.as_str() else {
                return Err(item.mismatch("a string"));
            };
            Ok(text.to_owned())
        })
    }

    /// Returns the object at `key` as pairs of key and string, in the order written and with
    /// duplicates; empty if absent. Keys inside the object are data, so they keep their case.
    pub fn string_map(&self, key: &str) -> Result<Vec<(String, String)>, Error> {
        self.entries(key, "a string", |value| match value {
            Self::Null => Some(String::new()),
            Self::String(text) => Some(text.clone()),
            Self::Bool(_) | Self::Number(_) | Self::Array(_) | Self::Object(_) => None,
        })
    }

    /// Returns the object at `key` as pairs of key and boolean, like [`Self::string_map`].
    pub fn bool_map(&self, key: &str) -> Result<Vec<(String, bool)>, Error> {
        self.entries(key, "true or false", |value| match value {
            Self::Null => Some(false),
            Self::Bool(b) => Some(*b),
            Self::Number(_) | Self::String(_) | Self::Array(_) | Self::Object(_) => None,
        })
    }

    /// Returns the error (code 6) for a value that is not `expected`, such as `expected a number,
    /// got "abc"`.
    pub fn mismatch(&self, expected: &str) -> Error {
        Error::decode(format!(
            "expected {expected}, got {}",
            shortened(&self.to_string())
        ))
    }

    /// Returns the error of [`Self::mismatch`], with `key` as context.
    pub(super) fn mismatch_of(&self, key: &str, expected: &str) -> Error {
        self.mismatch(expected)
            .context(format_args!("{key:?}"))
            .at_key(key)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let typed = read(value);
        if typed.is_none() {
            return Err(value.mismatch_of(key, expected));
        }
        Ok(typed)
    }

    fn integer<T: TryFrom<i128>>(
        &self,
        key: &str,
        min: i128,
        max: i128,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let expected = match value {
            Self::Number(number) => match number.as_i128().and_then(|n| T::try_from(n).ok()) {
                Some(integer) => return Ok(Some(integer)),
                None => format!("a whole number from {min} to {max}"),
            },
            Self::Null | Self::Bool(_) | Self::String(_) | Self::Array(_) | Self::Object(_) => {
                "a number".to_owned()
            }
        };
        Err(value.mismatch_of(key, &expected))
    }

    fn entries<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Self) -> Option<T>,
    ) -> Result<Vec<(String, T)>, Error> {
        let mut entries = Vec::new();
        for (name, value) in self.object(key)?.map_or(&[][..], Self::fields) {
            let Some(typed) = read(value) else {
                return Err(value.mismatch_of(name, expected).context(key).at_key(key));
            };
            entries.push((name.clone(), typed));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn keys_match_in_any_case_and_the_last_non_null_value_is_used() {
        let json = parse(r#"{"mtu":1,"RuntimeConfig":{},"MTU":2,"Mtu":null,"n":null}"#);
        assert_eq!(json.u32("mtu"), Ok(Some(2)));
        assert!(json.object("runtimeConfig").unwrap().is_some());
        assert_eq!(
            (json.get("n"), json.has("n"), json.has("m")),
            (None, true, false)
        );
    }

    #[test]
    fn a_wrong_type_names_key_expectation_and_value() {
        let json = parse(r#"{"mtu":"abc","l":[1],"m":{"k":1},"o":[],"s":{"a":[1,2]},"b":1}"#);
        assert_eq!(
            text(json.u32("mtu")),
            r#""mtu": expected a number, got "abc""#
        );
        assert_eq!(text(json.strings("l")), "l[0]: expected a string, got 1");
        assert_eq!(
            text(json.string_map("m")),
            r#"m: "k": expected a string, got 1"#
        );
        assert_eq!(text(json.object("o")), r#""o": expected an object, got []"#);
        assert_eq!(
            text(json.str("s")),
            r#""s": expected a string, got {"a":[1,2]}"#
        );
        assert_eq!(
            text(json.bool("b")),
            r#""b": expected true or false, got 1"#
        );
        assert_eq!(
            text(json.nested("s", |s| s.bool("a"))),
            r#"s: "a": expected true or false, got [1,2]"#
        );
    }

    #[test]
    fn an_empty_text_and_an_absent_outer_object_count_as_absent() {
        let json = parse(r#"{"e":"","t":"x","o":{"i":{"k":1},"n":2}}"#);
        assert_eq!(
            (json.text("e"), json.text("t"), json.text("m")),
            (Ok(None), Ok(Some("x")), Ok(None))
        );
        assert!(json.object_in("o", "i").unwrap().is_some());
        assert_eq!(json.object_in("m", "i"), Ok(None));
        assert_eq!(json.object_in("o", "m"), Ok(None));
        assert_eq!(
            text(json.object_in("o", "n")),
            r#""n": expected an object, got 2"#
        );
    }

    #[test]
    fn a_long_value_is_cut_in_the_error() {
        let json = parse(&format!(r#"{{"k":"{}"}}"#, "ü".repeat(1000)));
        let error = json.bool("k").unwrap_err().msg;
        assert!(
            error.chars().count() < 110 && error.ends_with("ü..."),
            "{error}"
        );
    }

    #[test]
    fn integers_are_whole_and_within_their_type() {
        let json = parse(
            r#"{"f":1.5,"e":1e3,"n":-1,"m":4294967295,"o":4294967296,"b":18446744073709551615}"#,
        );
        assert_eq!(json.u32("m"), Ok(Some(u32::MAX)));
        assert_eq!(json.u64("b"), Ok(Some(u64::MAX)));
        assert_eq!(json.i64("n"), Ok(Some(-1)));
        for key in ["f", "e", "n", "o", "b"] {
            assert!(json.u32(key).is_err(), "{key}");
        }
        assert!(json.i64("b").is_err());
        assert_eq!(
            json.u8("o").unwrap_err().msg,
            r#""o": expected a whole number from 0 to 255, got 4294967296"#
        );
    }

    #[test]
    fn set_leaves_one_field_and_remove_leaves_none() {
        let mut json = parse(r#"{"a":1,"A":2,"b":3}"#);
        json.set("a", "x");
        assert_eq!(json.to_string(), r#"{"b":3,"a":"x"}"#);
        json.remove("B");
        assert_eq!(json.to_string(), r#"{"a":"x"}"#);
    }

    #[test]
    fn the_keys_of_a_map_are_data() {
        let json = parse(r#"{"m":{"a":"1","A":"2","a":null}}"#);
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            json.string_map("m"),
            Ok(vec![pair("a", "1"), pair("A", "2"), pair("a", "")])
        );
    }
}
