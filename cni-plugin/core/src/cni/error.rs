//! Error that a plugin reports to the runtime: code, message and details. Only this module chooses
//! the code.

use super::bounds::{bounded, sentences};
use super::fault::{FaultPlace, PathPart};
use super::{Json, Version};
use std::fmt;
use std::io;

/// Kind of a failure. The kind decides the CNI error code. Codes 8 and 999 are from the reference
/// code, and all others are in the CNI specification 1.1.0, section 5. [`Kind::NoFreeAddress`] and
/// [`Kind::Internal`] share code 999, because only braid distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The configuration's `cniVersion` is not supported.
    IncompatibleVersion,
    /// A configuration field is not supported. The message contains its key and value.
    UnsupportedField,
    /// The container is not known. The runtime need not call DEL.
    UnknownContainer,
    /// A `CNI_*` variable is missing or invalid.
    InvalidEnv,
    /// Reading or writing failed.
    Io,
    /// The input is not the expected JSON.
    Decode,
    /// The configuration was parsed, but is invalid.
    InvalidConfig,
    /// `CNI_NETNS` is not a network namespace, or is the namespace that the plugin runs in.
    InvalidNetns,
    /// Temporary failure. The runtime should call again.
    TryAgain,
    /// Answer to STATUS: an ADD can't succeed.
    NotAvailable,
    /// Answer to STATUS: an ADD can succeed, with limited connectivity.
    LimitedConnectivity,
    /// No address of the IPAM's ranges is free.
    NoFreeAddress,
    /// Any other failure.
    Internal,
    /// Error code of an external plugin, passed on unchanged.
    Foreign(u32),
}

/// Kinds with their CNI error codes. A kind that is not listed has the code [`OTHER`].
const CODES: [(Kind, u32); 12] = [
    (Kind::IncompatibleVersion, 1),
    (Kind::UnsupportedField, 2),
    (Kind::UnknownContainer, 3),
    (Kind::InvalidEnv, 4),
    (Kind::Io, 5),
    (Kind::Decode, 6),
    (Kind::InvalidConfig, 7),
    (Kind::InvalidNetns, 8),
    (Kind::TryAgain, 11),
    (Kind::NotAvailable, 50),
    (Kind::LimitedConnectivity, 51),
    (Kind::Internal, 999),
];

/// CNI error code of a kind that [`CODES`] does not list.
const OTHER: u32 = 999;

impl Kind {
    /// Returns the CNI error code.
    pub fn code(self) -> u32 {
        if let Self::Foreign(code) = self {
            return code;
        }
        CODES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(OTHER, |(_, code)| *code)
    }

    /// Returns the kind with this CNI error code; [`Kind::Foreign`] for an unknown code.
    pub fn from_code(code: u32) -> Self {
        CODES
            .iter()
            .find(|(_, known)| *known == code)
            .map_or(Self::Foreign(code), |(kind, _)| *kind)
    }
}

/// Error of a failed CNI call, with the errors of the cleanup after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Kind of failure.
    pub kind: Kind,
    /// One sentence with the object, the value and the cause.
    pub msg: String,
    /// Additional text for `details` in the CNI error; often empty.
    pub details: String,
    /// Reasons why objects of a failed ADD are still on the node; `None` if all were deleted.
    left: Option<Vec<Error>>,
    /// Errors of the cleanup that followed this error.
    cleanup: Vec<Error>,
    /// Place of the fault in the parsed JSON, if known.
    place: Option<Box<FaultPlace>>,
}

impl Error {
    /// Returns an error of any kind, without details.
    pub fn new(kind: Kind, msg: impl Into<String>) -> Self {
        Self {
            kind,
            msg: bounded(msg.into()),
            details: String::new(),
            left: None,
            cleanup: Vec::new(),
            place: None,
        }
    }

    /// Returns an error with code 1: the configuration's version is not supported.
    pub fn version(msg: impl Into<String>) -> Self {
        Self::new(Kind::IncompatibleVersion, msg)
    }

    /// Returns an error with code 4: a `CNI_*` variable is missing or invalid.
    pub fn env(msg: impl Into<String>) -> Self {
        Self::new(Kind::InvalidEnv, msg)
    }

    /// Returns an error with code 5: reading or writing failed.
    pub fn io(msg: impl Into<String>) -> Self {
        Self::new(Kind::Io, msg)
    }

    /// Returns an error with code 6: the input is not the expected JSON.
    pub fn decode(msg: impl Into<String>) -> Self {
        Self::new(Kind::Decode, msg)
    }

    /// Returns an error with code 7: the configuration was parsed, but is invalid.
    pub fn config(msg: impl Into<String>) -> Self {
        Self::new(Kind::InvalidConfig, msg)
    }

    /// Returns an error with code 8: the path is not a network namespace, or is the namespace that
    /// the plugin runs in.
    pub fn netns(msg: impl Into<String>) -> Self {
        Self::new(Kind::InvalidNetns, msg)
    }

    /// Returns an error with code 50, the answer to STATUS if an ADD can't succeed.
    pub fn not_available(msg: impl Into<String>) -> Self {
        Self::new(Kind::NotAvailable, msg)
    }

    /// Returns an error with code 999: no address is free.
    pub fn no_free_address(msg: impl Into<String>) -> Self {
        Self::new(Kind::NoFreeAddress, msg)
    }

    /// Returns an error with code 999: any other failure.
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(Kind::Internal, msg)
    }

    /// Returns an error with code 11 if `passes` is true (a temporary failure), else with code 999.
    pub fn because(msg: impl Into<String>, passes: bool) -> Self {
        Self::new(
            if passes {
                Kind::TryAgain
            } else {
                Kind::Internal
            },
            msg,
        )
    }

    /// Sets `details`.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = bounded(details.into());
        self
    }

    /// Prepends context to the message: `outer: inner`. The code stays.
    #[must_use]
    pub fn context(mut self, outer: impl fmt::Display) -> Self {
        self.msg = bounded(format!("{outer}: {}", self.msg));
        self
    }

    /// Prepends `key` to the path of the fault in the JSON. The innermost key must be added first,
    /// as for [`Self::context`].
    #[must_use]
    pub fn at_key(self, key: &str) -> Self {
        self.within(PathPart::Key(key.to_owned()))
    }

    /// Prepends a list index to the path of the fault, like [`Self::at_key`].
    #[must_use]
    pub fn at_index(self, index: usize) -> Self {
        self.within(PathPart::Index(index))
    }

    /// Prepends several keys, joined by dots, to the path of the fault, like [`Self::at_key`].
    #[must_use]
    pub fn at_keys(mut self, keys: &str) -> Self {
        for key in keys.rsplit('.') {
            self = self.at_key(key);
        }
        self
    }

    /// Sets the place of the fault to a line and column of the text, both from 1.
    #[must_use]
    pub fn at_position(mut self, line: usize, column: usize) -> Self {
        self.place = Some(Box::new(FaultPlace::Position { line, column }));
        self
    }

    /// Returns the place of the fault. An unknown place is the empty path, which means the whole
    /// text.
    pub fn place(&self) -> FaultPlace {
        let place = self.place.as_deref().cloned();
        place.unwrap_or_else(|| FaultPlace::Path(Vec::new()))
    }

    fn within(mut self, part: PathPart) -> Self {
        self.place = Some(Box::new(self.place().within(part)));
        self
    }

    /// Joins several errors into one, without repeated sentences; `Ok` if `errors` is empty. The
    /// new error is temporary only if all errors are temporary. Otherwise it has the first kind
    /// other than [`Kind::TryAgain`].
    pub fn joined(errors: &[Self]) -> Result<(), Self> {
        let lasting = errors.iter().find(|error| error.kind != Kind::TryAgain);
        let Some(Self { kind, .. }) = lasting.or(errors.first()) else {
            return Ok(());
        };
        let msg = sentences(distinct(errors.iter().map(|error| error.msg.as_str())));
        let mut details = Vec::new();
        for error in errors {
            if !says(&msg, &error.details) {
                details.push(error.details.as_str());
            }
        }
        let mut joined = Self::new(*kind, &msg).with_details(sentences(distinct(details)));
        for error in errors {
            if let Some(left) = &error.left {
                joined = joined.and_left_behind(left);
            }
            joined = joined.and_cleanup(&error.cleanup);
        }
        Err(joined)
    }

    /// Adds reasons why a failed ADD left objects on the node until DEL or GC. Without reasons,
    /// nothing changes.
    #[must_use]
    pub fn and_left_behind(mut self, reasons: &[Self]) -> Self {
        if !reasons.is_empty() {
            let left = self.left.get_or_insert_default();
            left.extend_from_slice(reasons);
        }
        self
    }

    /// Adds errors of the cleanup that followed this error.
    #[must_use]
    pub fn and_cleanup(mut self, cleanup: &[Self]) -> Self {
        self.cleanup.extend_from_slice(cleanup);
        self
    }

    /// Returns the message. If a failed ADD left objects, appends `; left behind until DEL or GC:
    /// reasons`.
    pub fn full_msg(&self) -> String {
        const LEFT: &str = "left behind until DEL or GC";
        let Some(reasons) = &self.left else {
            return self.msg.clone();
        };
        let msg = &self.msg;
        let reasons = news(&[msg, &self.details], reasons);
        bounded(if reasons.is_empty() {
            format!("{msg}; {LEFT}")
        } else {
            format!("{msg}; {LEFT}: {reasons}")
        })
    }

    /// Returns the details, followed by the errors of the cleanup.
    pub fn full_details(&self) -> String {
        let msg = self.full_msg();
        let cleanup = news(&[&msg, &self.details], &self.cleanup);
        let mut texts = vec![&self.details, &cleanup];
        texts.retain(|text| !text.is_empty());
        bounded(sentences(texts))
    }

    /// Returns the JSON document for standard output. `version` is the configuration's
    /// `cniVersion`. If that version is unknown, the caller passes the newest one.
    pub fn to_json(&self, version: Version) -> Json {
        let mut json = Json::object_of([
            ("cniVersion", version.to_string().into()),
            ("code", self.kind.code().into()),
            ("msg", self.full_msg().into()),
        ]);
        let details = self.full_details();
        if !details.is_empty() {
            json.set("details", details);
        }
        json
    }

    /// Returns the text of [`Self::to_json`], indented by 4 spaces.
    pub fn to_stdout(&self, version: Version) -> String {
        self.to_json(version).pretty()
    }

    /// Parses the error that an external plugin printed. Returns `Err` if `stdout` is not an error
    /// document.
    pub fn from_stdout(stdout: &[u8]) -> Result<Self, Self> {
        let json = Json::parse(stdout, "the plugin's error")?;
        json.expect_object("the plugin's error")?;
        let code = json.u32("code")?.unwrap_or(0);
        let (msg, details) = (json.string("msg")?, json.string("details")?);
        // Drops details that repeat the message.
        let details = if says(&msg, &details) {
            String::new()
        } else {
            details
        };
        Ok(Self::new(Kind::from_code(code), msg).with_details(details))
    }
}

/// True if a failure of this kind is temporary.
pub fn passes(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, Interrupted, ResourceBusy, TimedOut, WouldBlock};
    // `ExecutableFileBusy`: the program is being installed.
    matches!(
        kind,
        ExecutableFileBusy | Interrupted | ResourceBusy | TimedOut | WouldBlock
    )
}

/// Joins the messages and details of `errors`. Omits sentences that already are in one of `texts`.
fn news(texts: &[&str], errors: &[Error]) -> String {
    let mut inner = Vec::new();
    for error in errors {
        inner.extend([error.full_msg(), error.full_details()]);
    }
    inner.retain(|sentence| !texts.iter().any(|text| says(text, sentence)));
    sentences(distinct(inner.iter().map(String::as_str)))
}

/// True if `text` contains `sentence` whole: as the whole text, as an item of a list (`; `), or
/// after a context (`: `).
fn says(text: &str, sentence: &str) -> bool {
    let begins = |at: usize| {
        at == 0
            || [": ", "; "]
                .iter()
                .any(|before| text[..at].ends_with(before))
    };
    let ends = |at: usize| at == text.len() || text[at..].starts_with("; ");
    text.match_indices(sentence)
        .any(|(at, _)| begins(at) && ends(at + sentence.len()))
}

/// Returns the sentences that are not empty and that no other sentence contains.
fn distinct<'a>(sentences: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut kept: Vec<&str> = Vec::new();
    for sentence in sentences {
        if sentence.is_empty() || kept.iter().any(|said| says(said, sentence)) {
            continue;
        }
        kept.retain(|said| !says(sentence, said));
        kept.push(sentence);
    }
    kept
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full_msg())?;
        let details = self.full_details();
        if !details.is_empty() {
            write!(f, "; {details}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
