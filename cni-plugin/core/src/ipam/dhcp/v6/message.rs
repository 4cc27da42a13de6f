//! DHCPv6 messages (RFC 8415 §8, §21) of a client for one address. A truncated option is ignored,
//! and the options before it are used.

use std::net::Ipv6Addr;

// Options.
pub(super) const CLIENT_ID: u16 = 1;
pub(super) const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const ADDRESS: u16 = 5;
const REQUEST_LIST: u16 = 6;
const ELAPSED: u16 = 8;
const STATUS: u16 = 13;
/// Maximum Solicit timeout, which a server may set (RFC 7083).
const SOL_MAX_RT: u16 = 82;

/// Type of a DHCPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Discovers servers.
    Solicit = 1,
    /// Offers a lease.
    Advertise = 2,
    /// Requests an offered lease.
    Request = 3,
    /// Asks the server to renew a lease.
    Renew = 5,
    /// Asks any server to renew a lease.
    Rebind = 6,
    /// Answers a client.
    Reply = 7,
    /// Releases a lease.
    Release = 8,
}

/// A DHCPv6 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Number of the message type.
    pub kind: u8,
    /// Transaction id of three bytes.
    pub xid: [u8; 3],
    /// Options in order, as code and value.
    pub options: Vec<(u16, Vec<u8>)>,
}

/// Address that a server grants to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Granted address.
    pub address: Ipv6Addr,
    /// Valid lifetime in seconds.
    pub valid: u32,
    /// T1 in seconds; 0 leaves the choice to the client.
    pub renew: u32,
    /// T2 in seconds; 0 leaves the choice to the client.
    pub rebind: u32,
}

impl Message {
    /// Returns a client's message about the identity association `iaid`, with `address` if present.
    pub fn new(
        kind: MessageType,
        xid: [u8; 3],
        duid: &[u8],
        (iaid, address): ([u8; 4], Option<Ipv6Addr>),
    ) -> Self {
        let mut ia = [&iaid[..], &[0; 8]].concat();
        if let Some(address) = address {
            put(ADDRESS, &[&address.octets()[..], &[0; 8]].concat(), &mut ia);
        }
        Self {
            kind: kind as u8,
            xid,
            options: vec![(CLIENT_ID, duid.to_vec()), (IA_NA, ia)],
        }
    }

    /// Adds two options: the time since the start of the exchange, in hundredths of a second, and
    /// the list of requested options.
    #[must_use]
    pub fn after(mut self, hundredths: u16) -> Self {
        self.options
            .push((ELAPSED, hundredths.to_be_bytes().to_vec()));
        self.options
            .push((REQUEST_LIST, SOL_MAX_RT.to_be_bytes().to_vec()));
        self
    }

    /// Returns the value of an option; `None` if the option is absent.
    pub fn get(&self, code: u16) -> Option<&[u8]> {
        get(&self.options, code)
    }

    /// Returns the address that the server grants to the identity association `iaid`; `None` if the
    /// server refuses, or if the message is about another association.
    pub fn granted(&self, iaid: [u8; 4]) -> Option<Granted> {
        let four = |bytes: &[u8], at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .copied()
                .map(u32::from_be_bytes)
        };
        let associations = self
            .options
            .iter()
            .filter(|(code, value)| *code == IA_NA && value.starts_with(&iaid));
        let ia = associations
            .map(|(_, value)| value)
            .find(|value| value.len() >= 12)?;
        let inner = read(&ia[12..]);
        if !is_success(&self.options) || !is_success(&inner) {
            return None;
        }
        let (renew, rebind) = (four(ia, 4)?, four(ia, 8)?);
        inner
            .iter()
            .filter(|(code, _)| *code == ADDRESS)
            .find_map(|(_, value)| {
                let address = Ipv6Addr::from(*value.first_chunk::<16>()?);
                let valid = four(value, 20).filter(|valid| *valid > 0)?;
                is_success(&read(value.get(24..)?)).then_some(Granted {
                    address,
                    valid,
                    renew,
                    rebind,
                })
            })
    }

    /// Encodes the message as a UDP payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.kind];
        out.extend(self.xid);
        self.options
            .iter()
            .for_each(|(code, value)| put(*code, value, &mut out));
        out
    }

    /// Parses a message; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        Some(Self {
            kind: head[0],
            xid: [head[1], head[2], head[3]],
            options: read(rest),
        })
    }
}

/// True if the options contain no status code, or the status code Success.
fn is_success(options: &[(u16, Vec<u8>)]) -> bool {
    get(options, STATUS).is_none_or(|status| status.starts_with(&[0, 0]))
}

fn get(options: &[(u16, Vec<u8>)], code: u16) -> Option<&[u8]> {
    options
        .iter()
        .find(|(other, _)| *other == code)
        .map(|(_, value)| value.as_slice())
}

fn put(code: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend(code.to_be_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(value);
}

fn read(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let Some((value, rest)) = rest.split_at_checked(len) else {
            break;
        };
        options.push((u16::from_be_bytes([head[0], head[1]]), value.to_vec()));
        bytes = rest;
    }
    options
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const IAID: [u8; 4] = [1, 2, 3, 4];

    /// Returns a server's answer to the message `to`. The answer grants an address for `valid`
    /// seconds.
    pub(in super::super) fn grant(
        kind: MessageType,
        to: &Message,
        (iaid, address): ([u8; 4], Ipv6Addr),
        valid: u32,
    ) -> Message {
        let mut inner = Vec::new();
        put(
            ADDRESS,
            &[
                &address.octets()[..],
                &valid.to_be_bytes(),
                &valid.to_be_bytes(),
            ]
            .concat(),
            &mut inner,
        );
        let ia = [&iaid[..], &[0; 8], &inner].concat();
        let client = to.get(CLIENT_ID).unwrap_or_default().to_vec();
        let options = vec![(CLIENT_ID, client), (SERVER_ID, vec![0, 1, 9]), (IA_NA, ia)];
        Message {
            kind: kind as u8,
            xid: to.xid,
            options,
        }
    }

    fn request() -> Message {
        Message::new(
            MessageType::Request,
            [1, 2, 3],
            &[0, 4, 7],
            (IAID, Some(Ipv6Addr::LOCALHOST)),
        )
        .after(5)
    }

    #[test]
    fn a_message_is_read_back() {
        assert_eq!(Message::decode(&request().encode()), Some(request()));
        let bytes = request().encode();
        for len in 0..bytes.len() {
            assert_eq!(
                Message::decode(&bytes[..len]).is_some(),
                len >= 4,
                "{len} bytes"
            );
        }
    }

    #[test]
    fn address_is_granted_unless_a_status_refuses() {
        let address = Ipv6Addr::LOCALHOST;
        let reply = grant(MessageType::Reply, &request(), (IAID, address), 60);
        assert_eq!(
            reply.granted(IAID),
            Some(Granted {
                address,
                valid: 60,
                renew: 0,
                rebind: 0
            })
        );
        assert_eq!(reply.granted([9; 4]), None);
        assert_eq!(
            grant(MessageType::Reply, &request(), (IAID, address), 0).granted(IAID),
            None
        );
        let mut refused = reply.clone();
        refused.options.push((STATUS, vec![0, 2]));
        assert_eq!(refused.granted(IAID), None);
        let mut refused = reply;
        put(STATUS, &[0, 3], &mut refused.options[2].1);
        assert_eq!(refused.granted(IAID), None);
        let mut cut = grant(MessageType::Reply, &request(), (IAID, address), 60);
        cut.options[2].1.truncate(30);
        assert_eq!(cut.granted(IAID), None);
    }
}
