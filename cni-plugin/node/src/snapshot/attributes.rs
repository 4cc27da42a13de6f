//! Netlink attributes as JSON, by tables of numbers, names and forms.

use crate::sys::netlink::attributes_of;
use crate::sys::rtnl::{ip_of, text_of};
use base16ct::lower::encode_string;
use serde_json::{Map, Value};

/// Fields of one JSON object.
pub(super) type Fields = Map<String, Value>;

/// An attribute: its number, its name in the output, and the form of its value.
pub(super) type Attribute = (u16, &'static str, Form);

/// Form of an attribute's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// A number of 1, 2, 4 or 8 bytes in the byte order of the processor.
    Number,
    /// The same in network byte order.
    NetworkNumber,
    /// Text, which may end with a NUL.
    Text,
    /// An IPv4 or IPv6 address.
    Ip,
    /// A hardware address.
    Mac,
    /// Attributes of the value.
    Nested(&'static [Attribute]),
    /// Hexadecimal digits.
    Hex,
    /// Numbers with their lengths in bytes, one after the other.
    Struct(&'static [(&'static str, usize)]),
    /// Verdict of a rule, a signed number in network byte order.
    Verdict,
    /// Counters and settings that are not shown.
    Skipped,
}

/// Adds the attributes in `bytes` to an object.
pub(super) fn add(bytes: &[u8], table: &[Attribute], fields: &mut Fields) {
    for (number, value) in attributes_of(bytes) {
        let known = table.iter().find(|(known, _, _)| *known == number);
        match known {
            Some((_, _, Form::Skipped)) => {}
            Some((_, name, form)) => {
                fields.insert((*name).to_owned(), shown(value, *form));
            }
            None => {
                fields.insert(format!("attribute {number}"), hex(value));
            }
        }
    }
}

/// Returns an object with the attributes in `bytes`.
pub(super) fn object(bytes: &[u8], table: &[Attribute]) -> Value {
    let mut fields = Fields::new();
    add(bytes, table, &mut fields);
    Value::Object(fields)
}

fn shown(value: &[u8], form: Form) -> Value {
    match form {
        Form::Number => number(value, false),
        Form::NetworkNumber => number(value, true),
        Form::Text => text_of(value).into(),
        Form::Ip => match ip_of(value) {
            Some(ip) => ip.to_string().into(),
            None => hex(value),
        },
        Form::Mac => mac(value).into(),
        Form::Nested(table) => object(value, table),
        Form::Struct(parts) => numbers(value, parts),
        Form::Verdict => verdict(value),
        Form::Hex => hex(value),
        Form::Skipped => Value::Null,
    }
}

fn number(value: &[u8], is_network: bool) -> Value {
    let mut bytes = value.to_vec();
    if is_network != cfg!(target_endian = "big") {
        bytes.reverse();
    }
    // Now the bytes are in little-endian order.
    bytes.resize(8, 0);
    match bytes.first_chunk() {
        Some(bytes) if value.len() <= 8 => u64::from_le_bytes(*bytes).into(),
        _ => hex(value),
    }
}

/// Returns an object with the numbers in `value`.
pub(super) fn numbers(value: &[u8], parts: &[(&str, usize)]) -> Value {
    let (mut fields, mut left) = (Fields::new(), value);
    for (name, len) in parts {
        // An older kernel has fewer counters.
        let Some((bytes, rest)) = left.split_at_checked(*len) else {
            break;
        };
        fields.insert((*name).to_owned(), number(bytes, false));
        left = rest;
    }
    Value::Object(fields)
}

/// Names the verdicts of `include/uapi/linux/netfilter.h` and `nf_tables.h`.
fn verdict(value: &[u8]) -> Value {
    let Some(bytes) = value.first_chunk() else {
        return hex(value);
    };
    match i32::from_be_bytes(*bytes) {
        0 => "drop".into(),
        1 => "accept".into(),
        -1 => "continue".into(),
        -2 => "break".into(),
        -3 => "jump".into(),
        -4 => "goto".into(),
        -5 => "return".into(),
        other => other.into(),
    }
}

/// Formats a hardware address of any length.
fn mac(value: &[u8]) -> String {
    let digits: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":")
}

fn hex(value: &[u8]) -> Value {
    encode_string(value).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::{attr, nest};
    use serde_json::json;

    const INNER: &[Attribute] = &[(1, "port", Form::NetworkNumber)];
    const TABLE: &[Attribute] = &[
        (1, "ifname", Form::Text),
        (2, "mtu", Form::Number),
        (3, "gateway", Form::Ip),
        (4, "address", Form::Mac),
        (5, "data", Form::Nested(INNER)),
        (6, "value", Form::Hex),
        (
            7,
            "stats",
            Form::Struct(&[("rx", 8), ("tx", 4), ("new", 8)]),
        ),
        (8, "code", Form::Verdict),
        (9, "noise", Form::Skipped),
    ];

    #[test]
    fn each_form_is_shown_and_unknown_attributes_are_digits() {
        let mut bytes = Vec::new();
        attr(1, b"eth0\0", &mut bytes);
        attr(2, &1500_u32.to_ne_bytes(), &mut bytes);
        attr(3, &[10, 1, 0, 1], &mut bytes);
        attr(4, &[2, 0, 0, 0, 0, 1], &mut bytes);
        nest(5, &mut bytes, |out| attr(1, &[0, 80], out));
        attr(6, &[0, 0x50], &mut bytes);
        let stats = [&5_u64.to_ne_bytes()[..], &7_u32.to_ne_bytes()].concat();
        attr(7, &stats, &mut bytes);
        attr(8, &(-3_i32).to_be_bytes(), &mut bytes);
        attr(9, &[1], &mut bytes);
        attr(40, &[0xab, 0xcd], &mut bytes);
        let expected = json!({
            "ifname": "eth0", "mtu": 1500, "gateway": "10.1.0.1", "address": "02:00:00:00:00:01",
            "data": {"port": 80}, "value": "0050", "stats": {"rx": 5, "tx": 7},
            "code": "jump", "attribute 40": "abcd",
        });
        assert_eq!(object(&bytes, TABLE), expected);
    }

    #[test]
    fn values_of_another_length_are_digits() {
        let mut bytes = Vec::new();
        attr(2, &[1; 9], &mut bytes);
        attr(3, &[10, 1], &mut bytes);
        attr(8, &[1], &mut bytes);
        let expected = json!({"mtu": "010101010101010101", "gateway": "0a01", "code": "01"});
        assert_eq!(object(&bytes, TABLE), expected);
    }
}
