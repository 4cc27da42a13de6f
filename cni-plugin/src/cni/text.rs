//! A buffer for JSON in memory.

use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// Bytes one behind the other. JSON is written in pieces of few bytes, most of one, for which a copy's overhead is most
/// of the work.
#[derive(Debug)]
pub struct Text(Vec<u8>);

impl Text {
    /// An empty one with room for so many bytes.
    pub fn with_capacity(len: usize) -> Self {
        Self(Vec::with_capacity(len))
    }

    /// `value` behind what is there.
    pub fn write<T: serde::Serialize>(&mut self, value: &T, formatter: impl Formatter) -> serde_json::Result<()> {
        value.serialize(&mut Serializer::with_formatter(self, formatter))
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
