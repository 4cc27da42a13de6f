//! The owner of something on the host, and the texts that name it there: GC reads them where no
//! record is left.

use base16ct::lower::encode_string;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One interface of a container in one network; container and interface are empty where a call is
/// about none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl Owner {
    /// Longest text where room is short, in bytes: a comment of `nft`
    /// (`NFTNL_UDATA_COMMENT_MAXLEN`), and what our maps keep.
    pub const MAX_LEN: usize = 128;

    /// Start of the alias of a host link; the owner's text stands behind it.
    pub const ALIAS_PREFIX: &str = "braid ";

    /// An owner of these names.
    pub fn new(network: &str, container_id: &str, ifname: &str) -> Self {
        let [network, container_id, ifname] = [network, container_id, ifname].map(str::to_owned);
        Self {
            network,
            container_id,
            ifname,
        }
    }

    /// Reads [`Owner::whole`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let [network, container_id, ifname] = text.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self::new(network, container_id, ifname))
    }

    /// Network, container id and interface; none of them holds a space.
    pub fn whole(&self) -> String {
        format!("{} {} {}", self.network, self.container_id, self.ifname)
    }

    /// [`Owner::whole`], or what stands for it where it is longer than [`Owner::MAX_LEN`].
    pub fn short(&self) -> String {
        let whole = self.whole();
        let digest = || prefix(&self.network) + &encode_string(&Sha256::digest(whole.as_bytes()));
        if whole.len() <= Self::MAX_LEN {
            whole
        } else {
            digest()
        }
    }

    /// True if the text, whole or short, stands for something of this network.
    pub fn is_of_network(text: &str, network: &str) -> bool {
        match text.split_once(' ') {
            Some((of, _)) => of == network,
            None => text.starts_with(&prefix(network)),
        }
    }

    /// True if the text is a digest that stands for a longer one.
    pub fn is_digest(text: &str) -> bool {
        text.starts_with(DIGEST) && !text.contains(' ')
    }
}

const DIGEST: &str = "sha256-";

/// The beginning of each digest that stands for an owner of this network.
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
    fn a_text_that_is_too_long_is_a_digest_that_names_nobody_else() {
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
    fn a_text_of_either_kind_is_of_one_network() {
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
