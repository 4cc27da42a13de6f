//! A [`Kernel`] for unit tests with scripted sockets.

use super::{Kernel, Pod};
use crate::log::Log;
use crate::sys::netlink::Socket;
use crate::sys::netlink::fake::Script;
use crate::sys::netns::NetNs;
use std::collections::BTreeMap;

/// Name of the host's route socket in a script.
pub(crate) const HOST: &str = "host";
/// Name of the container's route socket in a script.
pub(crate) const POD: &str = "pod";
/// Name of the host's nf_tables socket in a script.
pub(crate) const NFT: &str = "nft";

impl Kernel {
    /// Creates a kernel with scripted sockets. The container's namespace is that of this thread.
    pub(crate) fn scripted(script: &Script, log: Log) -> Self {
        let socket = |name| Socket::scripted(script.socket(name));
        let pod = Pod {
            netns: NetNs::current().expect("the namespace of this thread"),
            socket: Some(socket(POD)),
            nft: None,
        };
        Self {
            host: socket(HOST),
            pod: Some(pod),
            nft: Some(socket(NFT)),
            indexes: BTreeMap::new(),
            holders: BTreeMap::new(),
            is_timed: false,
            log,
        }
    }
}
