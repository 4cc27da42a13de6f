//! The error that a runtime reads: code, message, details. No other module chooses the code.

use super::bounds::{bounded, sentences};
use super::{Json, Version};
use std::fmt;
use std::io;

/// Error codes of the CNI specification 1.1.0, section 5, and `8`, which only the reference code
/// defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The configuration's `cniVersion` is not supported.
    IncompatibleVersion,
    /// A field is not supported. The message contains key and value.
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
    /// `CNI_NETNS` is not a network namespace, or is the plugin's own.
    InvalidNetns,
    /// Temporary failure. The runtime should call again.
    TryAgain,
    /// STATUS: an ADD can't succeed.
    NotAvailable,
    /// STATUS: an ADD can succeed, with limited connectivity.
    LimitedConnectivity,
    /// Any other failure.
    Internal,
    /// Code received from an external plugin, passed on unchanged.
    Foreign(u32),
}

/// Codes with a name, and their numbers.
const NUMBERS: [(Code, u32); 12] = [
    (Code::IncompatibleVersion, 1),
    (Code::UnsupportedField, 2),
    (Code::UnknownContainer, 3),
    (Code::InvalidEnv, 4),
    (Code::Io, 5),
    (Code::Decode, 6),
    (Code::InvalidConfig, 7),
    (Code::InvalidNetns, 8),
    (Code::TryAgain, 11),
    (Code::NotAvailable, 50),
    (Code::LimitedConnectivity, 51),
    (Code::Internal, 999),
];

impl Code {
    /// Returns the number in the JSON document.
    pub fn number(self) -> u32 {
        if let Self::Foreign(number) = self {
            return number;
        }
        NUMBERS
            .iter()
            .find(|(code, _)| *code == self)
            .map_or(999, |(_, number)| *number)
    }

    /// Returns the code with this number; [`Code::Foreign`] for a number without a name.
    pub fn from_number(number: u32) -> Self {
        NUMBERS
            .iter()
            .find(|(_, n)| *n == number)
            .map_or(Self::Foreign(number), |(code, _)| *code)
    }
}

/// Error that a failed verb returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Kind of failure.
    pub code: Code,
    /// One sentence with the object, the value and the cause.
    pub msg: String,
    /// Further text, often empty.
    pub details: String,
}

impl Error {
    /// Returns an error of any code, without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: bounded(msg.into()),
            details: String::new(),
        }
    }

    /// Returns an error with code 1: the configuration's version is not supported.
    pub fn version(msg: impl Into<String>) -> Self {
        Self::new(Code::IncompatibleVersion, msg)
    }

    /// Returns an error with code 4: a `CNI_*` variable is missing or invalid.
    pub fn env(msg: impl Into<String>) -> Self {
        Self::new(Code::InvalidEnv, msg)
    }

    /// Returns an error with code 5: reading or writing failed.
    pub fn io(msg: impl Into<String>) -> Self {
        Self::new(Code::Io, msg)
    }

    /// Returns an error with code 6: the input is not the expected JSON.
    pub fn decode(msg: impl Into<String>) -> Self {
        Self::new(Code::Decode, msg)
    }

    /// Returns an error with code 7: the configuration was parsed, but is invalid.
    pub fn config(msg: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, msg)
    }

    /// Returns an error with code 8: the path is not a network namespace, or is the plugin's own.
    pub fn netns(msg: impl Into<String>) -> Self {
        Self::new(Code::InvalidNetns, msg)
    }

    /// Returns an error with code 50: STATUS, an ADD can't succeed.
    pub fn not_available(msg: impl Into<String>) -> Self {
        Self::new(Code::NotAvailable, msg)
    }

    /// Returns an error with code 999: any other failure.
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(Code::Internal, msg)
    }

    /// Returns an error with code 11 if the failure is temporary, else 999.
    pub fn because(msg: impl Into<String>, passes: bool) -> Self {
        Self::new(
            if passes {
                Code::TryAgain
            } else {
                Code::Internal
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

    /// Joins several errors into one, without repeated sentences. The code is the first other than
    /// [`Code::TryAgain`], so the result is temporary only if all errors are.
    pub fn joined(errors: &[Self]) -> Result<(), Self> {
        let lasting = errors.iter().find(|error| error.code != Code::TryAgain);
        let Some(Self { code, .. }) = lasting.or(errors.first()) else {
            return Ok(());
        };
        let msg = sentences(distinct(errors.iter().map(|error| error.msg.as_str())));
        let details = errors
            .iter()
            .map(|error| error.details.as_str())
            .filter(|details| !says(&msg, details));
        Err(Self::new(*code, &msg).with_details(sentences(distinct(details))))
    }

    /// Appends the messages of `left`: `why; left behind until DEL or GC: left`. A nested call of
    /// braid may have appended some of them already, which are not repeated.
    #[must_use]
    pub fn and_left_behind(mut self, left: &[Self]) -> Self {
        const LEFT: &str = "left behind until DEL or GC";
        if left.is_empty() {
            return self;
        }
        let more = self.news(left);
        let is_said = says(&self.msg, LEFT) || self.msg.contains(&format!("; {LEFT}: "));
        let said = if is_said {
            self.msg
        } else {
            format!("{}; {LEFT}", self.msg)
        };
        let before = if said.ends_with(LEFT) { ": " } else { "; " };
        self.msg = if more.is_empty() {
            bounded(said)
        } else {
            bounded(format!("{said}{before}{more}"))
        };
        self
    }

    /// Appends the errors of the cleanup to the details.
    #[must_use]
    pub fn and_cleanup(self, cleanup: &[Self]) -> Self {
        let more = self.news(cleanup);
        let details = sentences(
            [&self.details, &more]
                .into_iter()
                .filter(|text| !text.is_empty()),
        );
        self.with_details(details)
    }

    /// Joins the sentences of other errors that this error does not contain.
    fn news(&self, others: &[Self]) -> String {
        let own = self.to_string();
        let all = others
            .iter()
            .flat_map(|error| [error.msg.as_str(), &error.details]);
        sentences(distinct(all.filter(|sentence| !says(&own, sentence))))
    }

    /// Returns the document for standard output; `version` is the configuration's, or the newest if
    /// that is unknown.
    pub fn to_json(&self, version: Version) -> Json {
        let mut json = Json::object_of([
            ("cniVersion", version.to_string().into()),
            ("code", self.code.number().into()),
            ("msg", self.msg.as_str().into()),
        ]);
        if !self.details.is_empty() {
            json.set("details", self.details.as_str());
        }
        json
    }

    /// Returns [`Self::to_json`] as printed.
    pub fn to_stdout(&self, version: Version) -> String {
        self.to_json(version).pretty()
    }

    /// Parses the error that an external plugin printed. `Err` says why `stdout` is not such a
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
        Ok(Self::new(Code::from_number(code), msg).with_details(details))
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

/// True if `text` contains this sentence whole: alone, in a list, or after a context.
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

/// Returns the sentences, except those that another sentence contains.
fn distinct<'a>(sentences: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for sentence in sentences.filter(|sentence| !sentence.is_empty()) {
        if !all.iter().any(|said| says(said, sentence)) {
            all.retain(|said| !says(sentence, said));
            all.push(sentence);
        }
    }
    all
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if !self.details.is_empty() {
            write!(f, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_through_its_number() {
        for number in [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51, 100, 999, u32::MAX] {
            assert_eq!(Code::from_number(number).number(), number);
        }
        assert_eq!(Code::from_number(7), Code::InvalidConfig);
        assert_eq!(Code::from_number(100), Code::Foreign(100));
    }

    #[test]
    fn context_goes_outside_and_keeps_code_and_details() {
        let error = Error::config("vlan 5000 is outside 1-4094")
            .with_details("d")
            .context("network \"storage\"");
        assert_eq!(
            error.to_string(),
            "network \"storage\": vlan 5000 is outside 1-4094; d"
        );
        assert_eq!(error.code, Code::InvalidConfig);
    }

    #[test]
    fn several_errors_become_one_without_repeated_sentences() {
        let [wait, lost] = [
            Error::new(Code::TryAgain, "lock x: held"),
            Error::internal("link a: EPERM").with_details("d"),
        ];
        let same = lost.clone().context("container c");
        let joined = |errors: &[Error]| Error::joined(errors).expect_err("an error");
        assert_eq!(Error::joined(&[]), Ok(()));
        assert_eq!(joined(&[wait.clone(), wait.clone()]), wait);
        let all = Error::internal("lock x: held; container c: link a: EPERM").with_details("d");
        assert_eq!(
            joined(&[wait.clone(), lost.clone(), same, lost.clone()]),
            all
        );
        let near = Error::internal("link a: EPERMANENT");
        assert_eq!(
            joined(&[lost.clone(), near]).msg,
            "link a: EPERM; link a: EPERMANENT"
        );
        let many: Vec<Error> = (0..500)
            .map(|at| Error::internal(format!("link {at}: EPERM")))
            .collect();
        assert!(joined(&many).msg.ends_with(" more)") && joined(&many).msg.len() < 2048);
    }

    #[test]
    fn left_behind_objects_are_reported_once() {
        let error = Error::internal("spy failed").with_details("d");
        let left = error
            .clone()
            .and_left_behind(&[error.clone(), Error::internal("link a: EPERM")]);
        assert_eq!(
            left.to_string(),
            "spy failed; left behind until DEL or GC: link a: EPERM; d"
        );
        let left = error.clone().and_left_behind(std::slice::from_ref(&error));
        assert_eq!(left.msg, "spy failed; left behind until DEL or GC");
        let outer = left.and_left_behind(&[Error::internal("link a: EPERM")]);
        assert_eq!(
            outer.msg,
            "spy failed; left behind until DEL or GC: link a: EPERM"
        );
        let outermost = outer.and_left_behind(&[
            Error::internal("link b: EPERM"),
            Error::internal("spy failed"),
        ]);
        assert_eq!(
            outermost.msg,
            "spy failed; left behind until DEL or GC: link a: EPERM; link b: EPERM"
        );
        assert_eq!(error.clone().and_left_behind(&[]), error);
    }

    #[test]
    fn error_length_is_bounded() {
        let long = "x".repeat(1 << 20);
        let read = |error: Error| error.to_stdout(Version::V1_1_0).len();
        assert!(read(Error::internal(&long).with_details(&long).context(&long)) < 5000);
        let foreign = format!(r#"{{"code":107,"msg":"{long}","details":"{long}"}}"#);
        assert!(read(Error::from_stdout(foreign.as_bytes()).expect("an error")) < 5000);
    }

    #[test]
    fn document_has_details_only_if_set() {
        let error = Error::env("m");
        assert_eq!(
            error.to_stdout(Version::V1_0_0),
            "{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 4,\n    \"msg\": \"m\"\n}"
        );
        let json = error.with_details("more").to_json(Version::V0_4_0);
        assert_eq!(
            json.to_string(),
            r#"{"cniVersion":"0.4.0","code":4,"msg":"m","details":"more"}"#
        );
    }

    #[test]
    fn printed_error_is_read_back_unchanged() {
        for error in [
            Error::new(Code::TryAgain, "wait").with_details("a bit"),
            Error::new(Code::Foreign(123), "own"),
            Error::new(Code::Foreign(0), ""),
        ] {
            assert_eq!(
                Error::from_stdout(error.to_stdout(Version::V1_1_0).as_bytes()),
                Ok(error)
            );
        }
    }

    #[test]
    fn output_that_is_not_an_error_document_is_refused() {
        for stdout in ["", "panic: oh", "[]", r#"{"code":"x"}"#, r#"{"code":-1}"#] {
            assert_eq!(
                Error::from_stdout(stdout.as_bytes()).unwrap_err().code,
                Code::Decode,
                "{stdout}"
            );
        }
    }
}
