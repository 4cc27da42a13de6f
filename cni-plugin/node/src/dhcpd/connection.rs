//! Connection of a plugin to the daemon.

use braid_core::ipam::Lease;
use braid_core::ipam::dhcp::rpc::{RpcCall, Server};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Connection of a plugin to the daemon.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    server: Server,
    /// True if the plugin closed the connection.
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

    /// Reads the available bytes and returns the complete calls in them.
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
                        .map_err(|err| format!("write the response: {err}"))?;
                }
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(calls),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(format!("read: {err}")),
            }
        }
    }

    /// Sends the response to a call. A response is short, so if it does not fit into the socket
    /// buffer, the plugin is not reading.
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
