//! DHCPv4 messages (RFC 2131 §2, options by RFC 2132, long options by RFC 3396).
//!
//! Parsing is lenient: a truncated option is ignored, and the options before it are used. The crate
//! dhcproto is not used, because it would add 35 crates, including ICU's tables. It also drops
//! everything after an option that it can't parse, and keeps only the last piece of a long option.

use super::number::{MESSAGE_TYPE, OVERLOAD};
use crate::name::Mac;
use std::net::Ipv4Addr;

/// Length in bytes of the fixed part of a message, including the magic cookie.
const HEAD: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const BROADCAST: u16 = 0x8000;
/// Length in bytes to which shorter messages are padded. It is the minimum length of BOOTP, which
/// every server and relay accepts.
const LEAST: usize = 300;
const END: u8 = 255;

/// Type of a DHCPv4 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Discovers servers.
    Discover = 1,
    /// Offers a lease.
    Offer = 2,
    /// Requests an offered lease, or renews a lease.
    Request = 3,
    /// Grants the request.
    Ack = 5,
    /// Refuses the request.
    Nak = 6,
    /// Releases a lease.
    Release = 7,
}

impl MessageType {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Discover,
            Self::Offer,
            Self::Request,
            Self::Ack,
            Self::Nak,
            Self::Release,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// A DHCPv4 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// True for a message from a server.
    pub is_reply: bool,
    /// Transaction id.
    pub xid: u32,
    /// Seconds since the start of the exchange.
    pub secs: u16,
    /// True if the server must broadcast its answer.
    pub broadcast: bool,
    /// Current address of the client, if any.
    pub ciaddr: Ipv4Addr,
    /// Address that the server assigns.
    pub yiaddr: Ipv4Addr,
    /// Hardware address of the client.
    pub mac: Mac,
    /// Options in order, without end and padding. A long option has several pieces with the same
    /// code.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Message {
    /// Returns a client's message of type `kind`.
    pub fn new(kind: MessageType, xid: u32, mac: Mac) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        let options = vec![(MESSAGE_TYPE, vec![kind as u8])];
        Self {
            is_reply: false,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: none,
            yiaddr: none,
            mac,
            options,
        }
    }

    /// Returns the message type, if known.
    pub fn kind(&self) -> Option<MessageType> {
        let value = self.get(MESSAGE_TYPE)?;
        MessageType::of(*value.first()?)
    }

    /// Returns the value of an option with its pieces joined; `None` if the option is absent.
    pub fn get(&self, code: u8) -> Option<Vec<u8>> {
        let mut pieces = self
            .options
            .iter()
            .filter(|(other, _)| *other == code)
            .map(|(_, value)| value)
            .peekable();
        pieces
            .peek()
            .is_some()
            .then(|| pieces.flatten().copied().collect())
    }

    /// Returns the value of an option as a number; `None` if the value does not have four bytes.
    pub fn number(&self, code: u8) -> Option<u32> {
        let value = self.get(code)?;
        Some(u32::from_be_bytes(value.try_into().ok()?))
    }

    /// Returns the addresses in an option; empty if the option is absent.
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let value = self.get(code).unwrap_or_default();
        value
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| Ipv4Addr::from(*bytes))
            .collect()
    }

    /// Encodes the message as a UDP payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.is_reply { 2 } else { 1 }, 1, 6, 0];
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(if self.broadcast { BROADCAST } else { 0 }.to_be_bytes());
        out.extend(self.ciaddr.octets());
        out.extend(self.yiaddr.octets());
        out.extend([0; 8]);
        out.extend(self.mac.0);
        out.resize(HEAD - COOKIE.len(), 0);
        out.extend(COOKIE);
        for (code, value) in &self.options {
            for piece in value.chunks(255) {
                out.extend([*code, u8::try_from(piece.len()).unwrap_or(255)]);
                out.extend(piece);
            }
        }
        out.push(END);
        out.resize(out.len().max(LEAST), 0);
        out
    }

    /// Parses a message; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let four = |at: usize| head[at..].first_chunk::<4>().copied().unwrap_or_default();
        if head[1..3] != [1, 6] || !(1..=2).contains(&head[0]) || head[HEAD - 4..] != COOKIE {
            return None;
        }
        let mut message = Self {
            is_reply: head[0] == 2,
            xid: u32::from_be_bytes(four(4)),
            secs: u16::from_be_bytes([head[8], head[9]]),
            broadcast: u16::from_be_bytes([head[10], head[11]]) & BROADCAST != 0,
            ciaddr: four(12).into(),
            yiaddr: four(16).into(),
            mac: Mac(head[28..].first_chunk::<6>().copied()?),
            options: Vec::new(),
        };
        read_options(rest, &mut message.options);
        // Options may continue in the `file` field, then in `sname`.
        let overload = message
            .get(OVERLOAD)
            .and_then(|value| value.first().copied())
            .unwrap_or_default();
        for (bit, field) in [(1, &head[108..236]), (2, &head[44..108])] {
            if overload & bit != 0 {
                read_options(field, &mut message.options);
            }
        }
        Some(message)
    }
}

fn read_options(mut bytes: &[u8], options: &mut Vec<(u8, Vec<u8>)>) {
    loop {
        match bytes {
            [0, rest @ ..] => bytes = rest,
            [END, ..] | [] | [_] => return,
            [code, len, rest @ ..] => {
                let Some((value, rest)) = rest.split_at_checked(usize::from(*len)) else {
                    return;
                };
                options.push((*code, value.to_vec()));
                bytes = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let mut message = Message::new(MessageType::Ack, 0x0102_0304, Mac([2, 0, 0, 0, 0, 1]));
        message.options.push((121, vec![7; 300]));
        Message {
            is_reply: true,
            secs: 9,
            broadcast: true,
            yiaddr: Ipv4Addr::new(10, 1, 0, 7),
            ..message
        }
    }

    #[test]
    fn message_is_decoded_with_its_long_option_joined() {
        let read = Message::decode(&message().encode()).expect("a message");
        assert_eq!(read.get(121), Some(vec![7; 300]));
        assert_eq!(read.kind(), Some(MessageType::Ack));
        assert_eq!(
            Message {
                options: message().options,
                ..read.clone()
            },
            message()
        );
        assert_eq!(read.encode(), message().encode());
        assert_eq!(
            Message::new(MessageType::Discover, 1, Mac([0; 6]))
                .encode()
                .len(),
            LEAST
        );
    }

    #[test]
    fn options_continue_in_the_fields_file_and_sname() {
        let mut message = message();
        message.options = vec![(OVERLOAD, vec![3])];
        let mut bytes = message.encode();
        bytes[108..112].copy_from_slice(&[1, 2, 8, 9]);
        bytes[112] = END;
        bytes[44..47].copy_from_slice(&[3, 1, 5]);
        let read = Message::decode(&bytes).expect("a message");
        assert_eq!(read.options[1..], [(1, vec![8, 9]), (3, vec![5])]);
    }

    #[test]
    fn truncated_message_has_the_options_before_the_cut() {
        let bytes = message().encode();
        for len in 0..bytes.len() {
            let read = Message::decode(&bytes[..len]);
            assert_eq!(read.is_some(), len >= HEAD, "{len} bytes");
        }
        let read = Message::decode(&bytes[..HEAD + 10]).expect("a message");
        assert_eq!((read.kind(), read.get(121)), (Some(MessageType::Ack), None));
    }
}
