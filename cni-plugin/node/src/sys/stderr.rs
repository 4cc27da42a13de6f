//! Messages for the operator on standard error. It may be closed or full, which is not a failure.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Writes a line in one write.
pub fn line(sentence: Arguments<'_>) {
    let _ = stderr().write_all(format!("{sentence}\n").as_bytes());
}

/// Writes a line like `eprintln!`, but ignores errors.
#[macro_export]
macro_rules! tell {
    ($($sentence:tt)*) => {
        $crate::sys::stderr::line(format_args!($($sentence)*))
    };
}
