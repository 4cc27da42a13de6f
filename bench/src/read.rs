//! Reading of files in `/proc`.

use anyhow::{Context, Result};

/// Reads a file; the error names it.
pub(crate) fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("read {file}"))
}
