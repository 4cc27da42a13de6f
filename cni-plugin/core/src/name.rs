//! Kernel names that plans and system calls share: interface names, hardware addresses, namespaces,
//! hooks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of a network interface: 1 to 15 bytes, not `.` or `..`, without `/`, `:`, NUL or white
/// space.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct IfName(String);

impl TryFrom<String> for IfName {
    type Error = IfNameError;

    fn try_from(name: String) -> Result<Self, IfNameError> {
        Self::parse(&name)
    }
}

/// Reason why a string is not an interface name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfNameError {
    /// The name is empty.
    Empty,
    /// The name has more than 15 bytes (`IFNAMSIZ` without the NUL).
    TooLong,
    /// The name is `.` or `..`.
    Dots,
    /// The name contains a `/`, `:`, NUL or white space.
    BadCharacter,
}

impl fmt::Display for IfNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "interface name is empty",
            Self::TooLong => "interface name is too long",
            Self::Dots => "interface name is . or ..",
            Self::BadCharacter => "interface name contains / or : or whitespace characters",
        })
    }
}

impl std::error::Error for IfNameError {}

impl IfName {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 15;

    /// Returns a temporary name for the new link. A link is created under this name if the kernel
    /// refuses its final name, and is then renamed at once.
    #[must_use]
    pub fn until_renamed(&self) -> Self {
        let mut name = self.0.clone();
        while name.len() >= Self::MAX_LEN {
            name.pop();
        }
        Self(name + "~")
    }

    /// Parses `name`. Refuses names that the kernel or the CNI specification refuses.
    pub fn parse(name: &str) -> Result<Self, IfNameError> {
        match name {
            "" => Err(IfNameError::Empty),
            _ if name.len() > Self::MAX_LEN => Err(IfNameError::TooLong),
            "." | ".." => Err(IfNameError::Dots),
            _ if Self::has_bad_character(name) => Err(IfNameError::BadCharacter),
            _ => Ok(Self(name.to_owned())),
        }
    }

    fn has_bad_character(name: &str) -> bool {
        name.chars()
            .any(|c| c == '/' || c == ':' || c == '\0' || c.is_whitespace())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Name that identifies a link in a configuration: its interface name, or an alternative name of 1
/// to 127 bytes (`ALTIFNAMSIZ` without the NUL, Linux 5.5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "IFLA_ALT_IFNAME")]
pub struct LinkName(String);

impl LinkName {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 127;

    /// Parses `name`. Refuses text that can be neither an interface name nor an alternative name.
    pub fn parse(name: &str) -> Result<Self, IfNameError> {
        if name.len() > Self::MAX_LEN {
            return Err(IfNameError::TooLong);
        }
        match IfName::parse(name) {
            Ok(_) | Err(IfNameError::TooLong) if !IfName::has_bad_character(name) => {
                Ok(Self(name.to_owned()))
            }
            Ok(_) | Err(IfNameError::TooLong) => Err(IfNameError::BadCharacter),
            Err(err) => Err(err),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as an interface name; `None` if it is longer than 15 bytes.
    pub fn short(&self) -> Option<IfName> {
        IfName::parse(&self.0).ok()
    }
}

impl From<IfName> for LinkName {
    fn from(name: IfName) -> Self {
        Self(name.0)
    }
}

impl fmt::Display for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A 48-bit Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Parses six bytes in the form `aa:bb:cc:dd:ee:ff`, `aa-bb-…` or `aabb.ccdd.eeff`; `None` for
    /// any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (separator, digits) = match text.as_bytes().get(2)? {
            b':' => (':', 2),
            b'-' => ('-', 2),
            _ => ('.', 4),
        };
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() * digits != 12 || groups.iter().any(|g| g.len() != digits) {
            return None;
        }
        let hex = groups.concat();
        let mut bytes = [0; 6];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
        let pairs = self
            .0
            .iter()
            .flat_map(|byte| [':', digit(byte >> 4), digit(byte & 0xf)]);
        f.write_str(&pairs.skip(1).collect::<String>())
    }
}

/// A network namespace: the host's or the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ns {
    /// The host's namespace, in which the plugin runs.
    Host,
    /// The container's namespace.
    Pod,
}

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Pod => "pod",
        })
    }
}

/// Direction of the packets that a program on a link processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Incoming packets.
    Ingress,
    /// Outgoing packets, before they are queued.
    Egress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_name_has_1_to_15_bytes_and_no_path_or_space() {
        assert!(IfName::parse("eth0").is_ok());
        assert!(IfName::parse("netzwerk-ü").is_ok());
        assert!(IfName::parse("123456789012345").is_ok());
        assert_eq!(IfName::parse(""), Err(IfNameError::Empty));
        assert_eq!(IfName::parse("1234567890123456"), Err(IfNameError::TooLong));
        assert_eq!(IfName::parse(".."), Err(IfNameError::Dots));
        for bad in ["a/b", "a:b", "a b", "a\n", "a\0"] {
            assert_eq!(
                IfName::parse(bad),
                Err(IfNameError::BadCharacter),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_mac_reads_in_three_notations_and_prints_in_one() {
        for text in ["0A:1b:2c:3d:4e:5f", "0a-1b-2c-3d-4e-5f", "0a1b.2c3d.4e5f"] {
            assert_eq!(
                Mac::parse(text).map(|m| m.to_string()).as_deref(),
                Some("0a:1b:2c:3d:4e:5f")
            );
        }
        for bad in [
            "",
            "0a",
            "0a:1b:2c:3d:4e",
            "0a:1b:2c:3d:4e:5g",
            "0a:1b-2c:3d:4e:5f",
            "+a:1b:2c:3d:4e:5f",
        ] {
            assert_eq!(Mac::parse(bad), None, "{bad}");
        }
    }
}
