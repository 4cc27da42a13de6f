//! A [`Kernel`] for unit tests with scripted sockets.

use super::{Kernel, Pod};
use crate::log::Log;
use crate::sys::netlink::Socket;
use crate::sys::netlink::fake::Script;
use crate::sys::netns::NetNs;
use std::collections::BTreeMap;

/// The route socket of the host.
pub(crate) const HOST: &str = "host";
/// The route socket of the container.
pub(crate) const POD: &str = "pod";
/// The nf_tables socket of the host.
pub(crate) const NFT: &str = "nft";

impl Kernel {
    /// A kernel with scripted sockets. Its container has the namespace of this thread.
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
