//! A plugin's connection.

use braid_core::ipam::Lease;
use braid_core::ipam::dhcp::rpc::{RpcCall, Server};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    server: Server,
    /// The plugin has gone.
    pub(super) is_over: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            server: Server::default(),
            is_over: false,
        }
    }

    /// Reads what has come, and returns the calls in it.
    pub(super) fn read(&mut self) -> Result<Vec<RpcCall>, String> {
        let (mut bytes, mut calls) = ([0; 8 * 1024], Vec::new());
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.is_over = true;
                    return Ok(calls);
                }
                Ok(len) => {
                    let (more, out) = self.server.read(&bytes[..len])?;
                    calls.extend(more);
                    self.stream
                        .write_all(&out)
                        .map_err(|err| format!("answer: {err}"))?;
                }
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(calls),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(format!("read: {err}")),
            }
        }
    }

    /// Answers a call. An answer is short, so one that does not fit at once is to nobody who reads.
    pub(super) fn answer(
        &mut self,
        seq: u64,
        method: &str,
        said: Result<Option<&Lease>, &str>,
    ) -> io::Result<()> {
        self.stream
            .write_all(&self.server.answer(seq, method, said))
    }
}
