//! Text and tables on standard output.

use super::{FAILURE, SUCCESS};
use braid_core::cni::trace::TraceId;
use braid_node::log::Log;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr};
use std::ops::ControlFlow;

/// Output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns for people.
    Table,
    /// Objects; keys are never removed.
    Json,
}

/// Output format of a text.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum TextFormat {
    /// Lines for people.
    Text,
    /// JSON.
    Json,
}

/// Writes the last part of the output, and returns the exit code.
pub(super) fn print(text: &str) -> u8 {
    print_more(text).break_value().unwrap_or(SUCCESS)
}

/// Writes to standard output. Breaks with the exit code if the write fails. The code is 0 if the
/// reader has closed the pipe early (`| head`).
pub(super) fn print_more(text: &str) -> ControlFlow<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => ControlFlow::Continue(()),
        Err(err) if err.kind() == ErrorKind::BrokenPipe => ControlFlow::Break(SUCCESS),
        Err(err) => {
            tell(format_args!("braid: write to standard output: {err}"));
            ControlFlow::Break(FAILURE)
        }
    }
}

/// Writes a line for the operator to standard error, in one piece. Ignores errors, because standard
/// error may be closed or full.
pub(super) fn tell(sentence: Arguments<'_>) {
    let _ = stderr().write_all(format!("{sentence}\n").as_bytes());
}

/// Returns a log for messages of the library and for the standard error of foreign plugins. The log
/// writes both to standard error.
pub(super) fn log() -> Log {
    Log::new(tell).with_output(copy)
}

/// Returns [`log`] with the trace at the end of each sentence.
pub(super) fn traced_log(trace: Option<TraceId>) -> Log {
    match trace {
        None => log(),
        Some(trace) => {
            let line =
                move |sentence: Arguments<'_>| tell(format_args!("{sentence} trace_id={trace}"));
            Log::new(line).with_output(copy)
        }
    }
}

/// Copies text to standard error. Ignores errors like [`tell`].
fn copy(text: &[u8]) {
    let _ = stderr().write_all(text);
}

/// Formats columns without borders, each as wide as its longest cell, without trailing spaces.
pub(super) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    columns(header, rows, 3)
}

/// Formats columns like [`table`], with `gap` blanks between two columns.
pub(super) fn columns(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    gap: u16,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, gap));
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// Formats indented JSON with a newline at the end.
pub(super) fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_with_text() {
        let rows = [
            vec!["cni0".to_owned(), "up".to_owned()],
            vec!["veth1234".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["link", "state"], rows),
            "link       state\ncni0       up\nveth1234\n"
        );
    }
}
