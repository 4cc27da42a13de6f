//! Method calls on the system bus (D-Bus Specification 0.43).
//!
//! The protocol is implemented here because the libraries add threads or an async runtime for one
//! message and its reply. `rustbus` adds neither, but loops forever if a bus closes the connection
//! during authentication (0.19.3), and has no timeout for authentication.

use base16ct::lower::encode_string;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SOCKET: &str = "/run/dbus/system_bus_socket";
/// Environment variable with the address of a system bus at another path: `unix:path=<path>`.
const ADDRESS: &str = "DBUS_SYSTEM_BUS_ADDRESS";
/// Timeout for a reply, the same as in libdbus.
const PATIENCE: Duration = Duration::from_secs(25);
/// Maximum length of a message in bytes.
const LONGEST: usize = 1 << 27;
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const NO_AUTO_START: u8 = 2;
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;
/// Length of a message's fixed part, including the length of its field array.
const HEAD_LEN: usize = 16;

/// Destination of a method call.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// Name on the bus.
    pub destination: &'static str,
    /// Path of the object.
    pub path: &'static str,
    /// Interface of the method.
    pub interface: &'static str,
}

const BUS: Object = Object {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};

/// Body of a method's reply, or the name and the message of an error reply.
pub type Answer = Result<Vec<u8>, String>;

/// A connection to the system bus.
#[derive(Debug)]
pub struct Bus {
    stream: UnixStream,
    serial: u32,
}

impl Bus {
    /// Connects to the bus; `None` if there is no bus.
    pub fn connect() -> io::Result<Option<Self>> {
        let address = std::env::var(ADDRESS).unwrap_or_default();
        let path = address
            .strip_prefix("unix:path=")
            .map_or(SOCKET, |path| path.split([',', ';']).next().unwrap_or(path));
        let stream = match UnixStream::connect(path) {
            Err(err)
                if matches!(
                    err.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            connected => connected?,
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bus = Self { stream, serial: 0 };
        bus.authenticate()?;
        bus.call(BUS, "Hello", &[])?.map_err(io::Error::other)?;
        Ok(Some(bus))
    }

    /// Authenticates with the socket's credentials.
    fn authenticate(&mut self) -> io::Result<()> {
        let uid = nix::unistd::geteuid().to_string();
        let hex = encode_string(uid.as_bytes());
        self.stream
            .write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        // After its line, the bus sends nothing until it gets a reply.
        let mut line = String::new();
        BufReader::new(&self.stream).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            let sentence = format!("the system bus answered {:?}", line.trim());
            return Err(io::Error::new(ErrorKind::PermissionDenied, sentence));
        }
        self.stream.write_all(b"BEGIN\r\n")
    }

    /// True if the name has an owner on the bus.
    pub fn has_owner(&mut self, name: &str) -> io::Result<bool> {
        let answer = self.call(BUS, "NameHasOwner", &[name])?;
        Ok(is_true(&answer.map_err(io::Error::other)?))
    }

    /// Calls a method with string arguments and returns the body of its reply. Does not start
    /// services.
    pub fn call(&mut self, object: Object, member: &str, arguments: &[&str]) -> io::Result<Answer> {
        self.serial += 1;
        self.stream
            .write_all(&method_call(self.serial, object, member, arguments))?;
        loop {
            let Message {
                kind,
                answers,
                error_name,
                body,
            } = Message::read(&mut self.stream)?;
            match kind {
                METHOD_RETURN if answers == self.serial => return Ok(Ok(body)),
                ERROR if answers == self.serial => {
                    let (text, _) = string_at(&body, 0).unwrap_or_default();
                    return Ok(Err(format!("{error_name}: {text}")));
                }
                // A signal.
                _ => {}
            }
        }
    }
}

/// True if a body is one boolean with value true.
pub fn is_true(body: &[u8]) -> bool {
    number_at(body, 0) == Some(1)
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend(u32::try_from(text.len()).unwrap_or_default().to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn put_signature(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).unwrap_or_default());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn method_call(serial: u32, object: Object, member: &str, arguments: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for argument in arguments {
        put_string(&mut body, argument);
    }
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or_default().to_le_bytes();
    let mut bytes = vec![b'l', METHOD_CALL, NO_AUTO_START, 1];
    bytes.extend(len(&body));
    bytes.extend(serial.to_le_bytes());
    bytes.extend([0; 4]);
    let fields = [
        (PATH, "o", object.path),
        (DESTINATION, "s", object.destination),
        (INTERFACE, "s", object.interface),
        (MEMBER, "s", member),
    ];
    for (code, kind, text) in fields {
        pad(&mut bytes, 8);
        bytes.push(code);
        put_signature(&mut bytes, kind);
        put_string(&mut bytes, text);
    }
    if !arguments.is_empty() {
        pad(&mut bytes, 8);
        bytes.push(SIGNATURE);
        put_signature(&mut bytes, "g");
        put_signature(&mut bytes, &"s".repeat(arguments.len()));
    }
    let fields_len = len(&bytes[HEAD_LEN..]);
    bytes[HEAD_LEN - 4..HEAD_LEN].copy_from_slice(&fields_len);
    pad(&mut bytes, 8);
    bytes.extend(body);
    bytes
}

/// Fields of a message that matter to a caller waiting for a reply.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    kind: u8,
    /// Serial of the call that this message replies to.
    answers: u32,
    error_name: String,
    body: Vec<u8>,
}

impl Message {
    fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD_LEN];
        stream.read_exact(&mut head)?;
        let bad = |what: &str| {
            io::Error::new(
                ErrorKind::InvalidData,
                format!("a message of the system bus {what}"),
            )
        };
        // Replies have the byte order of the call: dbus-daemon and dbus-broker forward messages
        // unchanged.
        if head[0] != b'l' {
            return Err(bad("is not little-endian"));
        }
        let number = |at| {
            number_at(&head, at)
                .and_then(|len| usize::try_from(len).ok())
                .unwrap_or(usize::MAX)
        };
        let (body_len, fields_len) = (number(4), number(12));
        if body_len > LONGEST || fields_len > LONGEST {
            return Err(bad("is too long"));
        }
        let mut fields = vec![0; fields_len.next_multiple_of(8)];
        stream.read_exact(&mut fields)?;
        let mut message = Self {
            kind: head[1],
            body: vec![0; body_len],
            ..Self::default()
        };
        stream.read_exact(&mut message.body)?;
        message
            .parse(&fields[..fields_len])
            .ok_or_else(|| bad("has a field that can't be read"))?;
        Ok(message)
    }

    /// Parses the fields. Their alignment is the same as in the message, since the array starts at
    /// a multiple of eight.
    fn parse(&mut self, fields: &[u8]) -> Option<()> {
        let mut offset = 0;
        while offset < fields.len() {
            let code = *fields.get(offset)?;
            // The code is followed by a signature of one letter.
            let kind = *fields.get(offset + 2)?;
            let value = offset + 4;
            offset = match kind {
                b's' | b'o' => {
                    let (text, end) = string_at(fields, value)?;
                    if code == ERROR_NAME {
                        self.error_name = text;
                    }
                    end
                }
                b'u' => {
                    let number = number_at(fields, value)?;
                    if code == REPLY_SERIAL {
                        self.answers = number;
                    }
                    value + 4
                }
                b'g' => value + 2 + usize::from(*fields.get(value)?),
                _ => return None,
            };
            offset = offset.next_multiple_of(8);
        }
        Some(())
    }
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the string at offset `at`, and the offset after its NUL.
fn string_at(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let len = usize::try_from(number_at(bytes, at)?).ok()?;
    let start = at + 4;
    let text = bytes.get(start..start.checked_add(len)?)?;
    Some((String::from_utf8_lossy(text).into_owned(), start + len + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_call_has_the_layout_of_the_specification() {
        let object = Object {
            destination: "a.b",
            path: "/a",
            interface: "a.b.c",
        };
        let bytes = method_call(7, object, "Do", &["x", "yz"]);
        assert_eq!(bytes[..12], [b'l', 1, 2, 1, 15, 0, 0, 0, 7, 0, 0, 0]);
        let fields_len = number_at(&bytes, 12).expect("a length") as usize;
        let body = HEAD_LEN + fields_len.next_multiple_of(8);
        assert_eq!(
            bytes[HEAD_LEN..HEAD_LEN + 11],
            [1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'a', 0]
        );
        assert_eq!(
            bytes[body..],
            [1, 0, 0, 0, b'x', 0, 0, 0, 2, 0, 0, 0, b'y', b'z', 0]
        );
        let sent = Message::read(&mut bytes.as_slice()).expect("a message");
        assert_eq!(
            (sent.kind, sent.answers, sent.body.len()),
            (METHOD_CALL, 0, 15)
        );
    }

    #[test]
    fn error_is_parsed_and_truncated_message_is_refused() {
        let mut fields = vec![REPLY_SERIAL, 1, b'u', 0, 7, 0, 0, 0, ERROR_NAME, 1, b's', 0];
        put_string(&mut fields, "a.Error");
        let mut body = Vec::new();
        put_string(&mut body, "NOT_ENABLED");
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short").to_le_bytes();
        let mut bytes = vec![b'l', ERROR, 0, 1];
        bytes.extend([len(&body), [9, 0, 0, 0], len(&fields)].concat());
        bytes.extend(&fields);
        pad(&mut bytes, 8);
        bytes.extend(&body);
        let message = Message::read(&mut bytes.as_slice()).expect("a message");
        assert_eq!(
            (message.kind, message.answers, message.error_name.as_str()),
            (ERROR, 7, "a.Error")
        );
        assert_eq!(
            string_at(&message.body, 0).expect("a string").0,
            "NOT_ENABLED"
        );
        for len in 0..bytes.len() {
            assert!(Message::read(&mut &bytes[..len]).is_err(), "{len}");
        }
        bytes[HEAD_LEN + 2] = b'v';
        assert!(Message::read(&mut bytes.as_slice()).is_err());
    }
}
