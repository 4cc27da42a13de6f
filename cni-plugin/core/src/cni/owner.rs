//! Owner of a kernel object: the attachment that it belongs to. The object is marked with the owner
//! as text. GC parses this text if no record of the attachment is left.

use base16ct::lower::encode_string;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Owner of a kernel object: a container's interface in a network. For a call without an
/// attachment, container and interface are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Network name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl Owner {
    /// Maximum length in bytes of [`Owner::short`]. Such a text fits an nft comment
    /// (`NFTNL_UDATA_COMMENT_MAXLEN`) and braid's BPF maps.
    pub const MAX_LEN: usize = 128;

    /// Prefix of the alias that marks a host link; the owner as text follows.
    pub const ALIAS_PREFIX: &str = "braid ";

    /// Returns an owner with these names.
    pub fn new(network: &str, container_id: &str, ifname: &str) -> Self {
        Self {
            network: network.to_owned(),
            container_id: container_id.to_owned(),
            ifname: ifname.to_owned(),
        }
    }

    /// Parses [`Owner::whole`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let [network, container_id, ifname] = text.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self::new(network, container_id, ifname))
    }

    /// Returns network, container id and interface, separated by spaces. None of the three contains
    /// a space.
    pub fn whole(&self) -> String {
        format!("{} {} {}", self.network, self.container_id, self.ifname)
    }

    /// Returns [`Owner::whole`], or the digest of this text if it is longer than
    /// [`Owner::MAX_LEN`].
    pub fn short(&self) -> String {
        let whole = self.whole();
        let digest = || prefix(&self.network) + &encode_string(&Sha256::digest(whole.as_bytes()));
        if whole.len() <= Self::MAX_LEN {
            whole
        } else {
            digest()
        }
    }

    /// True if `text` is from [`Owner::whole`] or [`Owner::short`] of an owner in this network.
    pub fn is_of_network(text: &str, network: &str) -> bool {
        match text.split_once(' ') {
            Some((own_network, _)) => own_network == network,
            None => text.starts_with(&prefix(network)),
        }
    }

    /// True if `text` is the digest of an owner, as [`Owner::short`] returns it.
    pub fn is_digest(text: &str) -> bool {
        text.starts_with(DIGEST) && !text.contains(' ')
    }
}

const DIGEST: &str = "sha256-";

/// Returns the prefix of all digests of owners in this network.
fn prefix(network: &str) -> String {
    format!(
        "{DIGEST}{}-",
        encode_string(&Sha256::digest(network.as_bytes())[..8])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_becomes_a_digest_of_one_owner() {
        let short = |network, ifname| Owner::new(network, &"f".repeat(100), ifname).short();
        assert_eq!(
            short("net", "eth0"),
            format!("net {} eth0", "f".repeat(100))
        );
        let long = "n".repeat(40);
        let text = short(&long, "eth0");
        assert!(
            text.len() <= Owner::MAX_LEN && Owner::is_digest(&text),
            "{text}"
        );
        assert_ne!(text, short(&long, "eth1"));
        assert_eq!(Owner::parse(&text), None);
    }

    #[test]
    fn text_of_either_form_belongs_to_one_network() {
        for network in ["net".to_owned(), "n".repeat(200)] {
            let text = Owner::new(&network, "c", "eth0").short();
            assert!(Owner::is_of_network(&text, &network), "{text}");
            for other in [format!("{network}n"), network[1..].to_owned()] {
                assert!(!Owner::is_of_network(&text, &other), "{text} {other}");
            }
            // A network may be named like a digest.
            let alike = Owner::new(&format!("{}x", prefix(&network)), "c", "eth0");
            assert!(!Owner::is_of_network(&alike.whole(), &network));
            assert_eq!(Owner::parse(&alike.whole()), Some(alike));
        }
    }
}
