//! A value that is a text in one kind of object, and anything in other kinds.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A scalar, or a value that is not read.
#[derive(Debug, Default)]
pub(super) enum AnyValue {
    Scalar(String),
    /// A list, an object or null.
    #[default]
    Other,
}

impl AnyValue {
    /// Returns the text of a scalar; empty for any other value.
    pub(super) fn text(self) -> String {
        match self {
            Self::Scalar(text) => text,
            Self::Other => String::new(),
        }
    }
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = AnyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<AnyValue, E> {
        Ok(AnyValue::Other)
    }

    fn visit_bool<E>(self, value: bool) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<AnyValue, E> {
        Ok(AnyValue::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<AnyValue, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(AnyValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<AnyValue, A::Error> {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(AnyValue::Other)
    }
}
