//! Whose something on the host is, as one text: what GC reads where no record is left.

use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};

/// Longest text where room is short, in bytes: a comment of `nft` (`NFTNL_UDATA_COMMENT_MAXLEN`), and what our maps keep.
pub const MAX_LEN: usize = 128;

/// Network, container id and interface; none of them holds a space.
pub fn whole(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{network} {container_id} {ifname}")
}

/// [`whole`], or what stands for it where it is longer than [`MAX_LEN`].
pub fn short(network: &str, container_id: &str, ifname: &str) -> String {
    let whole = whole(network, container_id, ifname);
    if whole.len() <= MAX_LEN { whole } else { prefix(network) + &encode_string(&Sha256::digest(whole.as_bytes())) }
}

/// Whether either text stands for something of this network.
pub fn is_of_network(text: &str, network: &str) -> bool {
    match text.split_once(' ') {
        Some((of, _)) => of == network,
        None => text.starts_with(&prefix(network)),
    }
}

/// Whether the text stands for another one.
pub fn is_digest(text: &str) -> bool {
    text.starts_with(DIGEST) && !text.contains(' ')
}

const DIGEST: &str = "sha256-";

/// What stands for all owners of a network begins with it.
fn prefix(network: &str) -> String {
    format!("{DIGEST}{}-", encode_string(&Sha256::digest(network.as_bytes())[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_a_digest_that_names_nobody_else() {
        let id = "f".repeat(100);
        assert_eq!(short("net", &id, "eth0"), format!("net {id} eth0"));
        let long = "n".repeat(40);
        let text = short(&long, &id, "eth0");
        assert!(text.len() <= MAX_LEN && is_digest(&text), "{text}");
        assert_ne!(text, short(&long, &id, "eth1"));
    }

    #[test]
    fn a_text_of_either_kind_is_of_one_network() {
        for network in ["net".to_owned(), "n".repeat(200)] {
            let text = short(&network, "c", "eth0");
            assert!(is_of_network(&text, &network), "{text}");
            for other in [format!("{network}n"), network[1..].to_owned()] {
                assert!(!is_of_network(&text, &other), "{text} {other}");
            }
            // A network may be named like a digest.
            let alike = format!("{}x", prefix(&network));
            assert!(!is_of_network(&whole(&alike, "c", "eth0"), &network));
        }
    }
}
