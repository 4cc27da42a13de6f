//! A container's link for DHCP and probes: lookup, identity, and sockets for its packets.

use crate::sys::netlink::{Socket, find};
use crate::sys::netns::{self, NetNs, NetNsError};
use crate::sys::packet::{PacketSocket, Protocol, ServersSocket};
use crate::sys::rtnl::{self, link};
use braid_core::ipam::dhcp::{Output, v4, v6};
use braid_core::name::{IfName, Mac};
use libc::{IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_PERM_ADDRESS};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;

const IFF_UP: u32 = 1;
/// Length of `struct ifinfomsg`.
const INFO_LEN: usize = 16;

/// A link in a container's network namespace.
#[derive(Debug)]
pub struct ContainerLink {
    netns: NetNs,
    /// Cookie of the network namespace, unique since boot; `None` before Linux 5.14.
    pub cookie: Option<u64>,
    /// Inode of the network namespace.
    pub inode: u64,
    /// State of the link when it was looked up.
    pub link: LinkNow,
}

/// State of a link, from `RTM_NEWLINK`.
#[derive(Debug)]
pub struct LinkNow {
    /// Current name.
    pub ifname: IfName,
    /// Interface index.
    pub index: u32,
    /// Current hardware address; all zeros if the link has no address of six bytes.
    pub mac: Mac,
    /// True if the link is up.
    pub is_up: bool,
    /// Properties that a container cannot change.
    pub fixed: Fixed,
}

/// Properties of a link that a container cannot change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Kind of the link; empty for a physical device.
    pub kind: String,
    /// Permanent hardware address (`IFLA_PERM_ADDRESS`).
    pub permanent: Option<Mac>,
}

impl ContainerLink {
    /// Looks up a link by name; `None` if the namespace or the link is gone.
    pub fn find(path: &Path, ifname: &IfName) -> Result<Option<Self>, NetNsError> {
        Self::look(path, |out| link::get_by_name(ifname, out))
    }

    /// Looks up a link by index; `None` if the namespace or the link is gone.
    pub fn at(path: &Path, index: u32) -> Result<Option<Self>, NetNsError> {
        Self::look(path, |out| link::by_index(index, out))
    }

    fn look(path: &Path, request: impl FnOnce(&mut Vec<u8>)) -> Result<Option<Self>, NetNsError> {
        let netns = match NetNs::open(path) {
            Err(NetNsError::Gone(_)) => return Ok(None),
            netns => netns?,
        };
        let fail = |errno: Errno| NetNsError::Io {
            op: "look up a link in",
            path: path.to_owned(),
            source: errno.into(),
        };
        let Some((cookie, link)) = netns.run(|| look(request))?.map_err(fail)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            inode: netns.inode(),
            netns,
            cookie,
            link,
        }))
    }

    /// Returns the path of the namespace.
    pub fn path(&self) -> &Path {
        self.netns.path()
    }

    /// Opens a socket for DHCPv4.
    pub fn open4(&self) -> Result<PacketSocket, Errno> {
        let open = || PacketSocket::open(self.link.index, v4::CLIENT_PORT);
        self.netns.run(open).map_err(|_gone| Errno::ENODEV)?
    }

    /// Opens a socket for DHCPv6.
    pub fn open6(&self) -> Result<ServersSocket, Errno> {
        let open =
            || ServersSocket::open(self.link.ifname.as_str(), self.link.index, v6::CLIENT_PORT);
        self.netns.run(open).map_err(|_gone| Errno::ENODEV)?
    }

    /// Opens a socket for packets of a protocol.
    pub fn open_for(&self, protocol: Protocol) -> Result<PacketSocket, Errno> {
        let open = || PacketSocket::of_protocol(self.link.index, protocol);
        self.netns.run(open).map_err(|_gone| Errno::ENODEV)?
    }

    /// Sends all packets, even after an error, without waiting for responses. Returns the first
    /// error.
    pub fn send_all(&self, outputs: &[Output]) -> Result<(), NetNsError> {
        let mut failed = None;
        for output in outputs {
            failed = failed.or(self.send(output).err());
        }
        let fail = |errno: Errno| NetNsError::Io {
            op: "send in",
            path: self.path().to_owned(),
            source: errno.into(),
        };
        failed.map_or(Ok(()), |errno| Err(fail(errno)))
    }

    fn send(&self, output: &Output) -> Result<(), Errno> {
        match output {
            Output::Send4(packet) => {
                let socket = self.open4()?;
                let sent = socket.send(&packet.bytes, packet.to);
                socket.close();
                sent
            }
            Output::Send6(message) => self.open6()?.send(message, v6::SERVER_PORT),
            Output::Bound | Output::Lost { .. } | Output::GaveUp => Ok(()),
        }
    }
}

/// Looks up a link in this thread's namespace, and returns it with the namespace's cookie. Returns
/// `None` if the link does not exist.
fn look(request: impl FnOnce(&mut Vec<u8>)) -> Result<Option<(Option<u64>, LinkNow)>, Errno> {
    let mut socket = Socket::route().map_err(|err| err.errno)?;
    let answer = match socket.get(rtnl::GETLINK, request) {
        Err(err) if err.errno == Errno::ENODEV => return Ok(None),
        answer => answer.map_err(|err| err.errno)?,
    };
    Ok(seen(&answer.body).map(|link| (netns::cookie_of(&socket).ok(), link)))
}

/// Parses `RTM_NEWLINK`.
fn seen(body: &[u8]) -> Option<LinkNow> {
    let (head, attributes) = body.split_at_checked(INFO_LEN)?;
    let index = u32::from_ne_bytes(*head[4..].first_chunk()?);
    let flags = u32::from_ne_bytes(*head[8..].first_chunk()?);
    let mac = |kind| {
        let bytes: [u8; 6] = find(kind, attributes)?.try_into().ok()?;
        Some(Mac(bytes))
    };
    let fixed = Fixed {
        kind: kind_of(attributes).unwrap_or_default(),
        permanent: mac(IFLA_PERM_ADDRESS),
    };
    let ifname = IfName::parse(&rtnl::text_of(find(IFLA_IFNAME, attributes)?)).ok()?;
    Some(LinkNow {
        ifname,
        index,
        mac: mac(IFLA_ADDRESS).unwrap_or(Mac([0; 6])),
        is_up: flags & IFF_UP != 0,
        fixed,
    })
}

fn kind_of(attributes: &[u8]) -> Option<String> {
    let info = find(IFLA_LINKINFO, attributes)?;
    Some(rtnl::text_of(find(IFLA_INFO_KIND, info)?))
}

/// Returns a generator of random numbers from `/dev/urandom`.
pub fn rng() -> impl FnMut() -> u64 {
    let mut source = File::open("/dev/urandom").ok();
    move || {
        let mut bytes = [0; 8];
        if let Some(source) = &mut source {
            let _ = source.read_exact(&mut bytes);
        }
        u64::from_ne_bytes(bytes)
    }
}
