//! Sentences for the operator: failures that end no call, and events of a daemon.

use std::fmt::{self, Arguments};
use std::rc::Rc;

/// Receiver of sentences. The caller of the library decides where they go.
#[derive(Clone)]
pub struct Log(Rc<dyn Fn(Arguments<'_>)>);

impl Log {
    /// Passes each sentence, which has no newline at its end, to `write`.
    pub fn new(write: impl Fn(Arguments<'_>) + 'static) -> Self {
        Self(Rc::new(write))
    }

    /// Reports a sentence.
    pub fn line(&self, sentence: Arguments<'_>) {
        (self.0)(sentence);
    }

    /// Reports an error that does not make the call fail.
    pub fn warn(&self, error: &dyn fmt::Display) {
        self.line(format_args!("{error}"));
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
