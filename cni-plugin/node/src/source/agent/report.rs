//! Report of a finished call to the agent: one datagram, best effort. It costs a call three system
//! calls: socket, sendto, close. Without an agent the second one fails, and nothing else happens.

use braid_core::cni::Command;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use std::fmt::{self, Display, Formatter};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// The agent's socket for reports.
pub const SOCKET: &str = "/run/braid/calls.sock";
/// Longest report in bytes.
pub const MAX_BYTES: usize = 256;
/// Longest type in a report, in bytes. braid's own types are shorter.
const MAX_TYPE: usize = 64;
/// Type that stands for one that does not fit.
const OTHER: &str = "other";

/// A finished call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport<'a> {
    /// Verb.
    pub command: Command,
    /// Type of the first plugin.
    pub plugin: &'a str,
    /// CNI error code; 0 after a success.
    pub code: u32,
    /// Time from the start of the process to its answer.
    pub duration: Duration,
}

impl<'a> CallReport<'a> {
    /// Parses a datagram; `None` for anything but a report.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > MAX_BYTES {
            return None;
        }
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let report = Self {
            command: Command::parse(words.next()?)?,
            plugin: words.next().filter(|plugin| is_type(plugin))?,
            code: words.next()?.parse().ok()?,
            duration: Duration::from_micros(words.next()?.parse().ok()?),
        };
        words.next().is_none().then_some(report)
    }

    /// Sends the report to the agent. Does not wait, and tries only once.
    pub fn send(&self) {
        self.send_to(Path::new(SOCKET));
    }

    fn send_to(&self, path: &Path) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let Ok(socket) = socket(AddressFamily::Unix, SockType::Datagram, flags, None) else {
            return;
        };
        if let Ok(agent) = UnixAddr::new(path) {
            let bytes = self.to_string();
            // Fails without an agent, and if its queue is full.
            let _ = sendto(
                socket.as_raw_fd(),
                bytes.as_bytes(),
                &agent,
                MsgFlags::MSG_NOSIGNAL,
            );
        }
    }
}

impl Display for CallReport<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            plugin,
            code,
            duration,
        } = self;
        let plugin = if is_type(plugin) { plugin } else { OTHER };
        let micros = duration.as_micros();
        write!(f, "{} {plugin} {code} {micros}", command.as_str())
    }
}

/// True if a report can contain this type.
fn is_type(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_TYPE).contains(&text.len()) && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    fn report(plugin: &str) -> CallReport<'_> {
        CallReport {
            command: Command::Add,
            plugin,
            code: 11,
            duration: Duration::from_micros(1_234),
        }
    }

    #[test]
    fn a_report_is_read_back_and_a_type_that_does_not_fit_is_other() {
        let long = "a".repeat(MAX_TYPE + 1);
        for (plugin, read) in [
            ("host-device", "host-device"),
            ("", OTHER),
            ("a b", OTHER),
            ("a\n", OTHER),
            ("é", OTHER),
            (&long, OTHER),
        ] {
            let text = report(plugin).to_string();
            assert_eq!(CallReport::parse(text.as_bytes()), Some(report(read)));
        }
    }

    #[test]
    fn anything_but_a_report_is_refused() {
        let long = format!("ADD ptp 0 {}1", "0".repeat(MAX_BYTES));
        let datagrams: [&[u8]; 11] = [
            b"",
            b"ADD",
            b"ADD ptp 0",
            b"add ptp 0 1",
            b"ADD ptp 0 1 2",
            b"ADD  0 1",
            b"ADD ptp -1 1",
            b"ADD ptp 4294967296 1",
            b"ADD ptp 0 1.5",
            b"ADD \xff 0 1",
            long.as_bytes(),
        ];
        for bytes in datagrams {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(CallReport::parse(bytes), None, "{text:?}");
        }
    }

    #[test]
    fn an_agent_that_is_away_or_does_not_read_delays_no_call() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("calls.sock");
        report("ptp").send_to(&path);
        let agent = UnixDatagram::bind(&path).expect("a socket");
        // More than any queue has room for: a blocking send would never return.
        for _ in 0..2_000 {
            report("ptp").send_to(&path);
        }
        let mut bytes = [0; MAX_BYTES];
        let len = agent.recv(&mut bytes).expect("a report");
        assert_eq!(CallReport::parse(&bytes[..len]), Some(report("ptp")));
    }
}
