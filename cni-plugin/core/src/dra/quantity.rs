//! Quantities of Kubernetes: a decimal number with an exponent or a suffix, as in `200M`, `1.5Gi`
//! and `2e8`.

use crate::cni::bounds::shortened;
use crate::cni::{Error, Json};

/// Maximum length of a quantity in bytes. The API server writes at most 19 digits.
const MAX_LEN: usize = 32;
/// Suffixes with the power of ten that each stands for.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes with the power of two that each stands for.
const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// Parses a quantity. Rounds up to a whole number.
pub fn parse(text: &str) -> Result<u64, Error> {
    let wrong = |why: &str| Error::config(format!("quantity {:?}: {why}", shortened(text)));
    if text.starts_with('-') {
        return Err(wrong("negative"));
    }
    let (digits, scale) =
        split(text).ok_or_else(|| wrong("not a number with a suffix, as in 200M or 1Gi"))?;
    let whole = scaled(digits, scale).and_then(|number| u64::try_from(number).ok());
    whole.ok_or_else(|| wrong("too large"))
}

/// Parses a quantity in JSON, which is a string or a number.
pub fn of_json(json: &Json) -> Result<u64, Error> {
    match json {
        Json::String(text) => parse(text),
        Json::Number(number) => parse(&number.to_string()),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
            Err(json.mismatch("a quantity"))
        }
    }
}

/// Factor of a number: a power of two times a power of ten.
#[derive(Clone, Copy)]
struct Scale {
    two: u32,
    ten: i32,
}

/// Returns the digits of a quantity as a whole number, and the factor that moves the decimal point
/// to its place. `None` if the text is not a quantity.
fn split(text: &str) -> Option<(u128, Scale)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_digit(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || fraction.contains('.') || text.len() > MAX_LEN {
        return None;
    }
    let scale = scale(suffix)?;
    let places = i32::try_from(fraction.len()).ok()?;
    Some((
        digits.parse().ok()?,
        Scale {
            ten: scale.ten.checked_sub(places)?,
            ..scale
        },
    ))
}

fn scale(suffix: &str) -> Option<Scale> {
    if let Some((_, two)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some(Scale { two: *two, ten: 0 });
    }
    if let Some((_, ten)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(Scale { two: 0, ten: *ten });
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some(Scale {
        two: 0,
        ten: exponent.parse().ok()?,
    })
}

/// Returns the product, rounded up; `None` if it is too large.
fn scaled(digits: u128, Scale { two, ten }: Scale) -> Option<u128> {
    if digits == 0 {
        return Some(0);
    }
    let number = digits.checked_mul(1 << two)?;
    let power = 10_u128.checked_pow(ten.unsigned_abs());
    match power {
        Some(power) if ten >= 0 => number.checked_mul(power),
        Some(power) => Some(number.div_ceil(power)),
        None if ten >= 0 => None,
        // Smaller than 1, and rounded up.
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_a_whole_number_rounded_up() {
        for (text, expected) in [
            ("0", 0),
            ("200M", 200_000_000),
            ("1G", 1_000_000_000),
            ("1Gi", 1 << 30),
            ("100k", 100_000),
            ("1.5G", 1_500_000_000),
            ("1.5Ki", 1536),
            (".5k", 500),
            ("5.", 5),
            ("+7", 7),
            ("2e8", 200_000_000),
            ("2E8", 200_000_000),
            ("2e+1", 20),
            ("1500e-3", 2),
            ("1E", 1_000_000_000_000_000_000),
            ("1500m", 2),
            ("1n", 1),
            ("2000000u", 2),
            ("1e-99", 1),
            ("0e99", 0),
            ("18446744073709551615", u64::MAX),
            ("15Ei", 15 << 60),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        assert_eq!(of_json(&Json::from(5_u32)), Ok(5));
        assert_eq!(of_json(&Json::from("1k")), Ok(1000));
    }

    #[test]
    fn other_text_is_refused_by_its_name() {
        let long = "1".repeat(33);
        for text in [
            "", "G", ".", "1..2", "1 G", "1g", "1KiB", "Mbit", "1e", "1ee5", "é", &long,
        ] {
            let error = parse(text).expect_err(text);
            let start = format!("quantity {text:?}: not a number");
            assert!(error.msg.starts_with(&start), "{error}");
        }
        for text in [
            "18446744073709551616",
            "16Ei",
            "1e30",
            "1e999",
            "99999999Ei",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.msg, format!("quantity {text:?}: too large"));
        }
        assert_eq!(
            parse("-1").expect_err("negative").msg,
            r#"quantity "-1": negative"#
        );
        assert!(of_json(&Json::Bool(true)).is_err());
    }
}
