//! Sentences for the operator on standard error, which may be closed or full: that is no reason to
//! fail.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Writes a line in one piece.
pub fn line(sentence: Arguments<'_>) {
    let _ = stderr().write_all(format!("{sentence}\n").as_bytes());
}

/// Writes a line as `eprintln!` does, and goes on where it can't be written.
#[macro_export]
macro_rules! tell {
    ($($sentence:tt)*) => {
        $crate::sys::stderr::line(format_args!($($sentence)*))
    };
}
