//! Metrics of the agent, from its `/metrics`.
//!
//! The agent listens at an address of the node, which its manifest chooses. The kernel lists who
//! listens.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time to connect, and for the whole answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);
/// Longest answer in bytes.
const MOST: usize = 8 << 20;
/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Reads the metrics from the program that listens on this port.
pub(super) fn read(port: u16) -> Result<Vec<u8>, String> {
    let mut listeners = Vec::new();
    for (path, is_v4) in [("/proc/self/net/tcp", true), ("/proc/self/net/tcp6", false)] {
        // A kernel without IPv6 has no tcp6.
        let table = fs::read_to_string(path).unwrap_or_default();
        listeners.extend(addresses(&table, is_v4));
    }
    let Some(at) = listeners.into_iter().find(|at| at.port() == port) else {
        return Err(format!("no agent listens on port {port}"));
    };
    get(at).map_err(|err| format!("read http://{at}/metrics: {err}"))
}

/// Returns the addresses of the listening sockets in a table of `/proc/net`. For a socket that listens
/// on all addresses, returns the loopback address.
fn addresses(table: &str, is_v4: bool) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for line in table.lines().skip(1) {
        let mut words = line.split_whitespace().skip(1);
        let (Some(local), Some(_), Some(LISTEN)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        addresses.extend(address(local, is_v4));
    }
    addresses
}

/// Parses an address: words of 32 bits as the processor reads them from memory, and the port.
fn address(local: &str, is_v4: bool) -> Option<SocketAddr> {
    let (digits, port) = local.split_once(':')?;
    let mut bytes = Vec::new();
    for at in (0..digits.len()).step_by(8) {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = if is_v4 {
        Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()
    } else {
        Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical()
    };
    let ip = match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Sends a request without a library: an answer to HTTP/1.0 ends with the connection.
fn get(at: SocketAddr) -> io::Result<Vec<u8>> {
    let end = Instant::now() + LIMIT;
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_LIMIT)?;
    stream.set_write_timeout(Some(CONNECT_LIMIT))?;
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            break;
        }
        answer.extend_from_slice(&chunk[..len]);
        if answer.len() > MOST {
            return Err(io::Error::other(format!("more than {MOST} bytes")));
        }
    }
    body_of(answer)
}

fn body_of(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    const BLANK: &[u8] = b"\r\n\r\n";
    let head = answer.windows(BLANK.len()).position(|part| part == BLANK);
    let Some(head) = head else {
        return Err(io::Error::other("no answer of a web server"));
    };
    let body = answer.split_off(head + BLANK.len());
    let head = String::from_utf8_lossy(&answer);
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err(io::Error::other(format!("the answer is {status:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    #[cfg(target_endian = "little")]
    fn listening_sockets_are_found_in_the_kernels_tables() {
        let v4 = "  sl  local_address rem_address   st tx_queue\n   \
            0: 0100007F:1214 00000000:0000 0A 00000000:00000000\n   \
            1: 00000000:0016 00000000:0000 0A 00000000:00000000\n   \
            2: 0100007F:1214 0100007F:D2F0 01 00000000:00000000\n";
        let expected: Vec<SocketAddr> = ["127.0.0.1:4628", "127.0.0.1:22"]
            .map(|at| at.parse().expect("an address"))
            .into();
        assert_eq!(addresses(v4, true), expected);
        let v6 = "  sl  local_address\n   0: B80D0120000000000000000001000000:1214 \
            00000000000000000000000000000000:0000 0A 00\n";
        let expected: Vec<SocketAddr> = vec!["[2001:db8::1]:4628".parse().expect("an address")];
        assert_eq!(addresses(v6, false), expected);
    }

    /// Returns the result of [`read`] for a server with this answer.
    fn read_from(answer: &'static str) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 512];
            let len = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("answered");
            String::from_utf8_lossy(&request[..len]).into_owned()
        });
        let read = read(port);
        let request = server.join().expect("a request");
        assert!(
            request.starts_with("GET /metrics HTTP/1.0\r\n"),
            "{request}"
        );
        read
    }

    #[test]
    fn metrics_are_the_body_of_a_successful_answer() {
        let read = read_from("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n");
        assert_eq!(read.as_deref(), Ok(&b"a 1\n"[..]));
        let err = read_from("HTTP/1.1 503 Service Unavailable\r\n\r\nno").expect_err("a refusal");
        assert!(
            err.ends_with(r#"the answer is "HTTP/1.1 503 Service Unavailable""#),
            "{err}"
        );
    }

    #[test]
    fn absent_agent_is_an_error() {
        assert_eq!(read(0).expect_err("no agent"), "no agent listens on port 0");
    }
}
