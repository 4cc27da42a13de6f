//! Text for the operator: failures that do not end the call, events of a daemon, and the standard
//! error of foreign plugins (other programs).

use std::fmt::{self, Arguments};
use std::rc::Rc;

type Line = dyn Fn(Arguments<'_>);
type Output = dyn Fn(&[u8]);

/// Receiver of text for the operator. The caller of the library decides where the text goes. The
/// library itself never writes to standard output or standard error.
#[derive(Clone)]
pub struct Log {
    line: Rc<Line>,
    output: Option<Rc<Output>>,
}

impl Log {
    /// Creates a log that passes each sentence to `write`, without a newline at the end. The
    /// standard error of foreign plugins is passed to `write` line by line.
    pub fn new(write: impl Fn(Arguments<'_>) + 'static) -> Self {
        Self {
            line: Rc::new(write),
            output: None,
        }
    }

    /// Passes the standard error of foreign plugins to `write` unchanged, instead of line by line.
    #[must_use]
    pub fn with_output(self, write: impl Fn(&[u8]) + 'static) -> Self {
        Self {
            output: Some(Rc::new(write)),
            ..self
        }
    }

    /// Reports a sentence.
    pub fn line(&self, sentence: Arguments<'_>) {
        (self.line)(sentence);
    }

    /// Reports an error that does not make the call fail.
    pub fn warn(&self, error: &dyn fmt::Display) {
        self.line(format_args!("{error}"));
    }

    /// Passes on the standard error of a foreign plugin.
    pub fn output(&self, stderr: &[u8]) {
        if stderr.is_empty() {
            return;
        }
        if let Some(output) = &self.output {
            return output(stderr);
        }
        for line in String::from_utf8_lossy(stderr).lines() {
            self.line(format_args!("{line}"));
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Returns the sentences and the bytes that [`Log::output`] passes to its two receivers.
    fn passed(stderr: &[u8], has_output: bool) -> (Vec<String>, Vec<u8>) {
        let lines: Rc<RefCell<Vec<String>>> = Rc::default();
        let bytes: Rc<RefCell<Vec<u8>>> = Rc::default();
        let (line, byte) = (Rc::clone(&lines), Rc::clone(&bytes));
        let mut log = Log::new(move |sentence| line.borrow_mut().push(sentence.to_string()));
        if has_output {
            log = log.with_output(move |stderr| byte.borrow_mut().extend(stderr));
        }
        log.output(stderr);
        (lines.take(), bytes.take())
    }

    #[test]
    fn standard_error_is_passed_on_by_line_or_unchanged() {
        let stderr = b"first\n\xff second";
        let lines = vec!["first".to_owned(), "\u{fffd} second".to_owned()];
        assert_eq!(passed(stderr, false), (lines, Vec::new()));
        assert_eq!(passed(stderr, true), (Vec::new(), stderr.to_vec()));
        assert_eq!(passed(b"", false), (Vec::new(), Vec::new()));
    }
}
