//! The Internet checksum.

/// Returns the Internet checksum (RFC 1071). All parts except the last must have an even length.
pub(super) fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum: u32 = 0;
    for part in parts {
        for word in part.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            sum += u32::from(word[0]) << 8 | u32::from(low);
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}
