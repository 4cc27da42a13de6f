//! A message of DHCPv4 in bytes (RFC 2131 §2, options by RFC 2132, long ones by RFC 3396).
//!
//! Answers are read leniently: an option that is cut ends the options, and nothing else. The crate
//! dhcproto would bring 35 crates along, ICU's tables among them, drops what follows an option that
//! it can't read, and keeps only the last piece of a long one.

use super::number::{MESSAGE_TYPE, OVERLOAD};
use crate::name::Mac;
use std::net::Ipv4Addr;

/// Length of the fixed part with the cookie, in bytes.
const HEAD: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const BROADCAST: u16 = 0x8000;
/// Smallest message that every server and relay takes: BOOTP's.
const LEAST: usize = 300;
const END: u8 = 255;

/// Type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Looks for servers.
    Discover = 1,
    /// A server's offer.
    Offer = 2,
    /// Takes an offer, or prolongs a lease.
    Request = 3,
    /// A server agrees.
    Ack = 5,
    /// A server refuses.
    Nak = 6,
    /// Gives a lease back.
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

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// True from a server.
    pub is_reply: bool,
    /// The number of the exchange.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The answer is to be broadcast.
    pub broadcast: bool,
    /// The client's address, where it has one.
    pub ciaddr: Ipv4Addr,
    /// The address that it is given.
    pub yiaddr: Ipv4Addr,
    /// The client's hardware address.
    pub mac: Mac,
    /// Options in order, without the end and padding; a code may come in several pieces.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Message {
    /// A client's message of this kind.
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

    /// Its kind, where that is known.
    pub fn kind(&self) -> Option<MessageType> {
        self.get(MESSAGE_TYPE)
            .and_then(|value| MessageType::of(*value.first()?))
    }

    /// An option, its pieces put together.
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

    /// An option that is one number.
    pub fn number(&self, code: u8) -> Option<u32> {
        self.get(code)
            .and_then(|value| Some(u32::from_be_bytes(value.try_into().ok()?)))
    }

    /// The addresses of an option.
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let value = self.get(code).unwrap_or_default();
        value
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| Ipv4Addr::from(*bytes))
            .collect()
    }

    /// The bytes behind UDP's header.
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

    /// Reads a message; `None` for what is none.
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
        // Options may go on in the fields of the file, then of the server's name.
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
    fn a_message_is_read_back_with_a_long_option_whole() {
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
    fn options_go_on_in_the_fields_of_file_and_name() {
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
    fn a_cut_message_has_the_options_before_the_cut() {
        let bytes = message().encode();
        for len in 0..bytes.len() {
            let read = Message::decode(&bytes[..len]);
            assert_eq!(read.is_some(), len >= HEAD, "{len} bytes");
        }
        let read = Message::decode(&bytes[..HEAD + 10]).expect("a message");
        assert_eq!((read.kind(), read.get(121)), (Some(MessageType::Ack), None));
    }
}
