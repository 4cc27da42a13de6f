//! Trace of a call: the identifier in `TRACEPARENT`, by W3C Trace Context.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Variable with the caller's position in a trace:
/// `00-<32 digits: trace>-<16 digits: parent>-<2 digits: flags>`.
pub const TRACEPARENT: &str = "TRACEPARENT";

/// Identifier of a trace: 32 hexadecimal digits in lower case, not all 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceId(String);

impl TraceId {
    /// Parses the value of [`TRACEPARENT`]; `None` for anything that the standard refuses. A version
    /// after 00 may have more fields at the end.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut fields = traceparent.splitn(5, '-');
        let version = fields.next().filter(|text| is_hex(text, 2))?;
        let trace = fields.next()?;
        let parent = fields.next().filter(|text| is_hex(text, 16))?;
        let _flags = fields.next().filter(|text| is_hex(text, 2))?;
        let has_more = fields.next().is_some();
        let is_valid = version != "ff" && !is_zero(parent) && !(has_more && version == "00");
        is_valid.then(|| Self::try_from(trace.to_owned()).ok())?
    }
}

impl TryFrom<String> for TraceId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_hex(&text, 32) && !is_zero(&text) {
            Ok(Self(text))
        } else {
            Err("not the identifier of a trace".to_owned())
        }
    }
}

impl From<TraceId> for String {
    fn from(id: TraceId) -> Self {
        id.0
    }
}

impl Display for TraceId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_trace_is_read_from_each_version_of_the_standard() {
        for text in [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("cc-{TRACE}-00f067aa0ba902b7-01-more-of-it"),
        ] {
            let id = TraceId::parse(&text).expect("an identifier");
            assert_eq!(id.to_string(), TRACE);
        }
    }

    #[test]
    fn anything_else_is_no_trace() {
        let zero = "0".repeat(32);
        for text in [
            String::new(),
            TRACE.to_owned(),
            format!("00-{TRACE}"),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{zero}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}\n-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(TraceId::parse(&text), None, "{text:?}");
        }
        assert!(serde_json::from_str::<TraceId>("\"a b\"").is_err());
    }
}
