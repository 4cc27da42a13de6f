//! Rates in bits per second, as Kubernetes writes quantities.

use super::quantity;
use crate::cni;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt::{self, Display, Formatter};

/// Suffixes of powers of 1000, the largest first.
const DECIMAL: [(&str, u64); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];
/// A rate in bits per second. Shown in Kubernetes' canonical form, in which the API server returns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// Largest rate. Kubernetes' schedulers add quantities as signed integers.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());

    /// Returns the rate of a link's speed in Mbit/s.
    pub fn of_mbit(speed: u32) -> Self {
        Self(u64::from(speed) * 1_000_000)
    }

    /// Parses a quantity, such as `10G`, `2.5G` or `64Ki`. Rounds up to whole bits.
    pub fn parse(text: &str) -> Result<Self, cni::Error> {
        quantity::parse(text).map(Self)
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut units = DECIMAL.iter().filter(|_| self.0 > 0);
        match units.find(|(_, unit)| self.0.is_multiple_of(*unit)) {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => self.0.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfNumberOrText;

        impl Visitor<'_> for OfNumberOrText {
            type Value = Rate;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("bits per second below 2^63, such as 10G")
            }

            fn visit_u64<E: Error>(self, bits: u64) -> Result<Rate, E> {
                let rate = Some(Rate(bits)).filter(|rate| *rate <= Rate::MAX);
                rate.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(bits), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
                let rate = Rate::parse(text).map_err(|err| E::custom(err.msg))?;
                let invalid = || E::invalid_value(Unexpected::Str(text), &self);
                Some(rate)
                    .filter(|rate| *rate <= Rate::MAX)
                    .ok_or_else(invalid)
            }
        }

        deserializer.deserialize_any(OfNumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_bits_are_parsed_and_shown_in_the_canonical_form() {
        for (text, bits, shown) in [
            ("10G", 10_000_000_000, "10G"),
            ("10000M", 10_000_000_000, "10G"),
            ("2.5G", 2_500_000_000, "2500M"),
            ("1500k", 1_500_000, "1500k"),
            ("0", 0, "0"),
            ("1234567", 1_234_567, "1234567"),
            ("1Mi", 1_048_576, "1048576"),
            ("0.001k", 1, "1"),
            ("9E", 9_000_000_000_000_000_000, "9E"),
        ] {
            let rate = Rate::parse(text);
            assert_eq!(rate, Ok(Rate(bits)), "{text}");
            assert_eq!(Rate(bits).to_string(), shown);
        }
        for (text, why) in [
            (r#""10 G""#, "not a number with a suffix"),
            (r#""-1""#, "negative"),
            (r#""10E""#, "below 2^63"),
            ("9223372036854775808", "below 2^63"),
        ] {
            let err = serde_json::from_str::<Rate>(text).expect_err(text);
            assert!(err.to_string().contains(why), "{text}: {err}");
        }
    }
}
