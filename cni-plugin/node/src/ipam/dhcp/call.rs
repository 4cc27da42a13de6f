//! RPC client of the DHCP daemon at a socket.

use braid_core::ipam::Lease;
use braid_core::ipam::dhcp::rpc::{Args, CONNECT, Client};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A connection to the daemon.
#[derive(Debug)]
pub struct Daemon {
    stream: UnixStream,
    socket: PathBuf,
}

impl Daemon {
    /// Connects to the daemon's socket. The error contains the socket's path.
    pub fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket)
            .map_err(|err| format!("connect {}: {err}", socket.display()))?;
        Ok(Self {
            stream,
            socket: socket.to_owned(),
        })
    }

    /// Calls `method` and returns the daemon's response, waiting at most `patience`.
    pub fn call(&mut self, method: &str, args: &Args, patience: Duration) -> Result<Lease, String> {
        let until = Instant::now() + patience;
        let mut client = Client::default();
        self.write(CONNECT, until)?;
        while !client.is_connected() {
            let bytes = self.read(until)?;
            client.read(&bytes)?;
        }
        self.write(&Client::call(method, args), until)?;
        loop {
            let bytes = self.read(until)?;
            if let Some(said) = client.read(&bytes)? {
                return said;
            }
        }
    }

    fn write(&mut self, bytes: &[u8], until: Instant) -> Result<(), String> {
        let failed = |err: io::Error| self.failed("write to", &err);
        let mut stream = &self.stream;
        stream
            .set_write_timeout(Some(left(until)))
            .map_err(failed)?;
        stream.write_all(bytes).map_err(failed)
    }

    fn read(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        let failed = |err: io::Error| self.failed("read from", &err);
        let mut stream = &self.stream;
        stream.set_read_timeout(Some(left(until))).map_err(failed)?;
        let mut bytes = vec![0; 4096];
        let len = stream.read(&mut bytes).map_err(failed)?;
        if len == 0 {
            return Err(format!(
                "{} closed the connection before responding",
                self.socket.display()
            ));
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn failed(&self, doing: &str, err: &io::Error) -> String {
        let socket = self.socket.display();
        if matches!(
            err.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ) {
            return format!("{socket} did not respond in time");
        }
        format!("{doing} {socket}: {err}")
    }
}

/// Returns the time left until `until`, at least 1 ms, as a socket timeout of zero means no
/// timeout.
fn left(until: Instant) -> Duration {
    until
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}
