//! Addresses as Whereabouts reads them: IPv4 numbers may have leading zeros, and are decimal.

use crate::cni::Error;
use crate::cni::address::{parse_cidr, parse_ip};
use ipnet::IpNet;
use std::net::IpAddr;

/// Parses an address.
pub(super) fn ip(text: &str) -> Result<IpAddr, Error> {
    parse_ip(&without_zeros(text.trim()))
}

/// Parses an address with a prefix length, and keeps the host bits.
pub(super) fn net(text: &str) -> Result<IpNet, Error> {
    parse_cidr(&without_zeros(text.trim()))
}

/// Parses a network, or a bare address as the network of this address alone.
pub(super) fn net_or_ip(text: &str) -> Result<IpNet, Error> {
    if text.contains('/') {
        return net(text).map(|net| net.trunc());
    }
    ip(text).map(IpNet::from)
}

/// Removes leading zeros of the numbers between dots. IPv6 groups are hexadecimal, with zeros that
/// count nothing.
fn without_zeros(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    let (head, numbers) = match text.rfind(':') {
        Some(at) => text.split_at(at + 1),
        None => ("", text),
    };
    let (numbers, length) = match numbers.split_once('/') {
        Some((numbers, length)) => (numbers, Some(length)),
        None => (numbers, None),
    };
    let short = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let numbers: Vec<String> = numbers.split('.').map(short).collect();
    let length = length.map_or_else(String::new, |length| format!("/{length}"));
    format!("{head}{}{length}", numbers.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_decimal() {
        for (text, expected) in [
            ("010.001.000.09", "10.1.0.9"),
            ("10.0.0.0", "10.0.0.0"),
            (" 10.0.0.1", "10.0.0.1"),
            ("fd00::0001", "fd00::1"),
            ("::ffff:010.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(ip(text).unwrap().to_string(), expected);
        }
        assert_eq!(net("010.00.0.5/024").unwrap().to_string(), "10.0.0.5/24");
        assert_eq!(net_or_ip("10.0.0.5/24").unwrap().to_string(), "10.0.0.0/24");
        assert_eq!(net_or_ip("fd00::5").unwrap().to_string(), "fd00::5/128");
        for bad in ["10.0.0", "10.0.0.", "10.0.0.256", "010.0.0.1.2", "", "x"] {
            assert!(ip(bad).is_err(), "{bad:?}");
        }
    }
}
