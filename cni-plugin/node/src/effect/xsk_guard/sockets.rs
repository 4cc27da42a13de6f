//! Number of `AF_XDP` sockets in a network namespace.
//!
//! `sock_diag` would also report their links, but is often not built (`CONFIG_XDP_SOCKETS_DIAG`).

use std::fs;
use std::io;

/// File with a line for each protocol: its name, the size of a socket, the number of sockets in the
/// namespace, and more.
const PROTOCOLS: &str = "/proc/thread-self/net/protocols";

/// Counts the `AF_XDP` sockets in this thread's namespace, bound or not.
pub(super) fn count() -> io::Result<u64> {
    count_in(&fs::read_to_string(PROTOCOLS)?)
}

fn count_in(protocols: &str) -> io::Result<u64> {
    for line in protocols.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("XDP") {
            continue;
        }
        let count = words.nth(1).and_then(|count| count.parse().ok());
        return count.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the number of XDP sockets is missing",
            )
        });
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_protocol() {
        let protocols = "protocol  size sockets  memory press maxhdr\nPACKET    1472      1      -1   NI       0\n";
        assert_eq!(count_in(protocols).expect("no such protocol"), 0);
        let protocols = protocols.to_owned() + "XDP       1088      3      -1   NI       0\n";
        assert_eq!(count_in(&protocols).expect("a number"), 3);
        assert!(count_in("XDP 1088 many").is_err());
        count().expect("those of this namespace");
    }
}
