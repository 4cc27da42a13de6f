//! Versions of the CNI specification that braid supports.

use super::bounds::shortened;
use super::{Error, Json};
use std::fmt;

/// A version of the CNI specification, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each arm is the version it is named for")]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

/// Versions that share one JSON layout of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// 0.1.0 and 0.2.0: one `ip4` and one `ip6` object.
    V02x,
    /// 0.3.0 to 0.4.0: lists of interfaces, addresses and routes; each address has a `version`.
    V04x,
    /// 1.0.0 and 1.1.0: lists of interfaces, addresses and routes; addresses have no `version`.
    V10x,
}

/// CNI verbs that were added after the first version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gated {
    /// CHECK, since 0.4.0.
    Check,
    /// GC, since 1.1.0.
    Gc,
    /// STATUS, since 1.1.0.
    Status,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The newest version.
    pub const NEWEST: Self = Self::V1_1_0;

    /// Version for an absent or empty `cniVersion`.
    pub const DEFAULT: Self = Self::V0_1_0;

    /// Parses a version exactly as the specification writes it; `None` for any other text. An empty
    /// string means [`Self::DEFAULT`].
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::DEFAULT);
        }
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
    }

    /// Parses a version like [`Self::parse`]. A version outside `supported` is an error with code
    /// 1.
    pub fn among(text: &str, supported: &[Self]) -> Result<Self, Error> {
        if let Some(version) = Self::parse(text)
            && supported.contains(&version)
        {
            return Ok(version);
        }
        let names: Vec<String> = supported.iter().map(|v| format!("\"{v}\"")).collect();
        let config = if text.is_empty() {
            Self::DEFAULT.as_str()
        } else {
            text
        };
        let details = format!(
            "config is {:?}, plugin supports [{}]",
            shortened(config),
            names.join(" ")
        );
        Err(Error::version("incompatible CNI versions").with_details(details))
    }

    /// Returns the version as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Returns major, minor and patch number.
    pub fn numbers(self) -> [u32; 3] {
        match self {
            Self::V0_1_0 => [0, 1, 0],
            Self::V0_2_0 => [0, 2, 0],
            Self::V0_3_0 => [0, 3, 0],
            Self::V0_3_1 => [0, 3, 1],
            Self::V0_4_0 => [0, 4, 0],
            Self::V1_0_0 => [1, 0, 0],
            Self::V1_1_0 => [1, 1, 0],
        }
    }

    /// Returns the family of versions that share the JSON layout of this version's results.
    pub fn family(self) -> Family {
        match self {
            Self::V0_1_0 | Self::V0_2_0 => Family::V02x,
            Self::V0_3_0 | Self::V0_3_1 | Self::V0_4_0 => Family::V04x,
            Self::V1_0_0 | Self::V1_1_0 => Family::V10x,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Family {
    /// Returns the family's versions, oldest first.
    pub fn versions(self) -> impl Iterator<Item = Version> {
        Version::ALL
            .into_iter()
            .filter(move |version| version.family() == self)
    }
}

impl Gated {
    /// Returns the first version that has the verb.
    pub fn since(self) -> Version {
        match self {
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
        })
    }
}

/// Returns the output for VERSION: one line with its newline. Its `cniVersion` is always the newest
/// version, because VERSION reads no configuration.
pub fn version_reply(supported: &[Version]) -> String {
    let supported: Vec<Json> = supported
        .iter()
        .map(|version| version.as_str().into())
        .collect();
    let reply = Json::object_of([
        ("cniVersion", Version::NEWEST.as_str().into()),
        ("supportedVersions", supported.into()),
    ]);
    format!("{reply}\n")
}

/// Returns the text that a plugin prints to standard error if `CNI_COMMAND` is missing: two lines
/// with newlines.
pub fn about(plugin: &str, build: &str, supported: &[Version]) -> String {
    let supported: Vec<&str> = supported.iter().map(|version| version.as_str()).collect();
    format!(
        "CNI {plugin} plugin {build}\nCNI protocol versions supported: {}\n",
        supported.join(", ")
    )
}

/// Parses a version of one to three numbers separated by dots, like libcni. Missing numbers are 0;
/// errors have code 6. The version need not be in [`Version::ALL`].
pub fn parse_numbers(text: &str) -> Result<[u32; 3], Error> {
    let mut numbers = [0; 3];
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > numbers.len() {
        return Err(Error::decode(format!(
            "invalid version {:?}: too many parts",
            shortened(text)
        )));
    }
    for (number, part) in numbers.iter_mut().zip(parts) {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match part.parse() {
            Ok(parsed) if digits => *number = parsed,
            _ => {
                return Err(Error::decode(format!(
                    "invalid version {:?}: {:?} is not a number",
                    shortened(text),
                    shortened(part)
                )));
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_prints_as_it_is_parsed() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
            assert_eq!(parse_numbers(version.as_str()), Ok(version.numbers()));
        }
        assert_eq!(Version::parse(""), Some(Version::V0_1_0));
        for unknown in ["1.0", "v1.0.0", "1.2.0", "0.3.2", " 1.0.0"] {
            assert_eq!(Version::parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn unsupported_version_error_has_both_versions() {
        let error = Version::among("1.0", &[Version::V0_4_0, Version::V1_0_0]).unwrap_err();
        assert_eq!(error.kind.code(), 1);
        assert_eq!(error.msg, "incompatible CNI versions");
        assert_eq!(
            error.details,
            r#"config is "1.0", plugin supports ["0.4.0" "1.0.0"]"#
        );
        assert_eq!(
            Version::among("", &[Version::V1_0_0])
                .unwrap_err()
                .details
                .split(',')
                .next(),
            Some(r#"config is "0.1.0""#)
        );
    }

    #[test]
    fn check_exists_since_0_4_0_and_gc_and_status_since_1_1_0() {
        let knows = |verb: Gated| {
            Version::ALL
                .into_iter()
                .filter(|v| *v >= verb.since())
                .count()
        };
        assert_eq!(
            (knows(Gated::Check), knows(Gated::Gc), knows(Gated::Status)),
            (3, 1, 1)
        );
    }

    #[test]
    fn plugin_reports_its_versions_on_both_channels() {
        let supported = [Version::V0_4_0, Version::V1_1_0];
        assert_eq!(
            version_reply(&supported),
            "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.4.0\",\"1.1.0\"]}\n"
        );
        assert_eq!(
            about("bridge", "braid 0.1.0", &supported),
            "CNI bridge plugin braid 0.1.0\nCNI protocol versions supported: 0.4.0, 1.1.0\n"
        );
    }

    #[test]
    fn numbers_may_be_short_but_must_be_numbers() {
        assert_eq!(parse_numbers("1.0"), Ok([1, 0, 0]));
        assert_eq!(parse_numbers("2"), Ok([2, 0, 0]));
        for bad in ["", "1.", "a", "1.0.0.0", "+1.0.0", "1.0.99999999999"] {
            assert_eq!(
                parse_numbers(bad).unwrap_err().kind,
                super::super::Kind::Decode,
                "{bad}"
            );
        }
    }
}
