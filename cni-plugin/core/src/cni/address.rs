//! IP addresses and prefixes, parsed by Go's rules: leading zeros and IPv6 zones are refused. An
//! IPv4-mapped IPv6 address becomes IPv4, and a prefix keeps its host bits.

use super::bounds::shortened;
use super::{Error, Json};
use ipnet::IpNet;
use std::net::IpAddr;

/// Prefix length of IPv4-mapped IPv6 addresses, `::ffff:0:0/96`.
const MAPPED_PREFIX_LEN: u8 = 96;

/// Parses an IP address without a prefix length; errors have CNI code 6.
pub fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    let address = text.parse::<IpAddr>().ok();
    let address = address
        .ok_or_else(|| Error::decode(format!("invalid IP address: {:?}", shortened(text))))?;
    Ok(address.to_canonical())
}

/// Parses `address/prefix length` and keeps the host bits; errors have CNI code 6.
pub fn parse_cidr(text: &str) -> Result<IpNet, Error> {
    cidr(text).ok_or_else(|| Error::decode(format!("invalid CIDR address: {:?}", shortened(text))))
}

fn cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let written: IpAddr = address.parse().ok()?;
    let address = written.to_canonical();
    if !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    let mapped = written.is_ipv6() && address.is_ipv4();
    IpNet::new(
        address,
        if mapped {
            length.checked_sub(MAPPED_PREFIX_LEN)?
        } else {
            length
        },
    )
    .ok()
}

impl Json {
    /// Returns the IP address at `key`; `None` if absent or empty.
    pub fn ip(&self, key: &str) -> Result<Option<IpAddr>, Error> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let addr = parse_ip(text).map_err(|e| e.context(format_args!("{key:?}")).at_key(key))?;
        Ok(Some(addr))
    }

    /// Returns the address with prefix length (CIDR) at `key`; `None` if absent.
    pub fn cidr(&self, key: &str) -> Result<Option<IpNet>, Error> {
        let Some(text) = self.str(key)? else {
            return Ok(None);
        };
        let net = parse_cidr(text).map_err(|e| e.context(format_args!("{key:?}")).at_key(key))?;
        Ok(Some(net))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_in_canonical_form() {
        for (text, canonical) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("::", "::"),
        ] {
            assert_eq!(parse_ip(text).unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn addresses_that_go_refuses_are_refused() {
        for bad in [
            "",
            "10.0.0.01",
            "10.0.0",
            "10.0.0.256",
            "fe80::1%eth0",
            "1:2:3:4:5:6:7::8:9",
            " 10.0.0.1",
            "0x7f.1",
        ] {
            assert!(parse_ip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_prefix_keeps_the_host_bits() {
        for (text, canonical) in [
            ("10.0.0.5/24", "10.0.0.5/24"),
            ("10.0.0.5/024", "10.0.0.5/24"),
            ("::ffff:10.0.0.5/120", "10.0.0.5/24"),
            ("2001:db8::5/64", "2001:db8::5/64"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(parse_cidr(text).unwrap().to_string(), canonical);
        }
        for bad in [
            "10.0.0.1",
            "10.0.0.1/",
            "10.0.0.1/33",
            "10.0.0.1/+8",
            "10.0.0.1/-1",
            "::/129",
            "::ffff:1.2.3.4/64",
            "/8",
        ] {
            assert!(parse_cidr(bad).is_err(), "{bad}");
        }
    }
}
