//! Netlink messages: headers, errors, attributes.

use super::KernelError;
use nix::errno::Errno;

const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Length of `struct nlmsghdr`.
pub(super) const HEADER_LEN: usize = 16;

/// A received message, without the netlink header.
#[derive(Debug, Clone)]
pub struct Message {
    /// Bytes after the header.
    pub body: Vec<u8>,
}

/// Outcome of one request.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Error returned by the kernel.
    pub error: Option<KernelError>,
    /// Messages of the reply.
    pub messages: Vec<Message>,
}

/// Fields of `struct nlmsghdr` in a reply.
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) seq: u32,
}

/// Passes each message of a datagram to `see`. Stops at a truncated message.
pub(super) fn each_message(mut bytes: &[u8], mut see: impl FnMut(&Header, &[u8])) {
    while let Some(head) = bytes.first_chunk::<HEADER_LEN>() {
        let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let header = Header {
            kind: u16::from_ne_bytes([head[4], head[5]]),
            flags: u16::from_ne_bytes([head[6], head[7]]),
            seq: u32::from_ne_bytes([head[8], head[9], head[10], head[11]]),
        };
        let Some(body) = bytes.get(HEADER_LEN..len) else {
            return;
        };
        see(&header, body);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Parses `struct nlmsgerr`: the negative errno, then (capped) the request's header, then
/// attributes. `None` for an acknowledgement, which has the errno 0.
pub(super) fn refusal(header: &Header, body: &[u8]) -> Option<KernelError> {
    let code = i32::from_ne_bytes(*body.first_chunk()?);
    if code == 0 {
        return None;
    }
    let text = |text| {
        String::from_utf8_lossy(text)
            .trim_end_matches('\0')
            .to_owned()
    };
    let mut ext_ack = None;
    if header.flags & NLM_F_ACK_TLVS != 0
        && let Some(attributes) = body.get(4 + HEADER_LEN..)
    {
        ext_ack = find(NLMSGERR_ATTR_MSG, attributes).map(text);
    }
    Some(KernelError {
        ext_ack,
        ..Errno::from_raw(-code).into()
    })
}

/// Iterates over the attributes in `bytes`: type (without its flag bits) and value. Stops at a
/// truncated attribute.
pub fn attributes_of(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const TYPE_MASK: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute with the type `wanted`.
pub fn find(wanted: u16, bytes: &[u8]) -> Option<&[u8]> {
    for (kind, value) in attributes_of(bytes) {
        if kind == wanted {
            return Some(value);
        }
    }
    None
}

/// `NLA_F_NESTED`.
pub const NESTED: u16 = 0x8000;

/// Writes an attribute.
pub fn attr(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    let start = begin(kind, out);
    out.extend_from_slice(value);
    end(start, out);
}

/// Writes an attribute with the contents from `inside`. For nested attributes, `kind` includes
/// [`NESTED`] if the kernel requires it.
pub fn nest(kind: u16, out: &mut Vec<u8>, inside: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(kind, out);
    inside(out);
    end(start, out);
}

/// Begins an attribute and returns its offset for [`end`].
pub fn begin(kind: u16, out: &mut Vec<u8>) -> usize {
    let [first, second] = kind.to_ne_bytes();
    out.extend_from_slice(&[0, 0, first, second]);
    out.len() - 4
}

/// Ends the attribute that began at `start`.
pub fn end(start: usize, out: &mut Vec<u8>) {
    let len = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    pad(out);
}

/// Pads to a multiple of 4 bytes, like the kernel's messages and attributes.
pub(super) fn pad(out: &mut Vec<u8>) {
    const ZEROS: [u8; 3] = [0; 3];
    out.extend_from_slice(&ZEROS[..out.len().wrapping_neg() % 4]);
}

/// Builds a request's header, in which the length is still 0. The result is one array, since
/// several small copies take longer.
pub fn request(kind: u16, flags: u16, seq: u32) -> [u8; HEADER_LEN] {
    const NLM_F_REQUEST: u16 = 0x1;
    let mut header = [0; HEADER_LEN];
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    header[8..12].copy_from_slice(&seq.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_attributes_end_the_list() {
        let bytes = [8, 0, 1, 0, 1, 2, 3, 4, 9, 0, 2, 0, 1];
        assert_eq!(
            attributes_of(&bytes).collect::<Vec<_>>(),
            [(1, &[1u8, 2, 3, 4][..])]
        );
    }
}
