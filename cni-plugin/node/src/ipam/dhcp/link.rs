//! A link that leases are got through: where it is, and what is sent and heard there.

use crate::sys::netlink::{Socket, find};
use crate::sys::netns::{self, NetNs, NetNsError};
use crate::sys::packet::{PacketSocket, ServersSocket};
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

/// A link in a container's namespace.
#[derive(Debug)]
pub struct ContainerLink {
    netns: NetNs,
    /// The number that tells its namespace from all others since boot; none before Linux 5.14.
    pub cookie: Option<u64>,
    /// The namespace's inode.
    pub inode: u64,
    /// The link.
    pub link: LinkNow,
}

/// A link as the kernel shows it.
#[derive(Debug)]
pub struct LinkNow {
    /// Its name now.
    pub ifname: IfName,
    /// Its index.
    pub index: u32,
    /// Its hardware address now; all zeros where it has none of six bytes.
    pub mac: Mac,
    /// True if it is up.
    pub is_up: bool,
    /// Its properties that a container can't change.
    pub fixed: Fixed,
}

/// Properties of a link that a container can't change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Its kind; empty for a device.
    pub kind: String,
    /// The address that the device was made with.
    pub permanent: Option<Mac>,
}

impl ContainerLink {
    /// Looks a link up by its name; `None` where the namespace or the link is gone.
    pub fn find(path: &Path, ifname: &IfName) -> Result<Option<Self>, NetNsError> {
        Self::look(path, |out| link::get_by_name(ifname, out))
    }

    /// Looks a link up by its index.
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

    /// The path of the namespace.
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

    /// Sends packets whose answers nobody waits for.
    pub fn send_all(&self, outputs: &[Output]) -> Result<(), NetNsError> {
        let mut failed = None;
        for output in outputs {
            let sent = match output {
                Output::Send4(packet) => self.open4().and_then(|socket| {
                    let sent = socket.send(&packet.bytes, packet.to);
                    socket.close();
                    sent
                }),
                Output::Send6(message) => self
                    .open6()
                    .and_then(|socket| socket.send(message, v6::SERVER_PORT)),
                Output::Bound | Output::Lost { .. } | Output::GaveUp => Ok(()),
            };
            failed = failed.or(sent.err());
        }
        let fail = |errno: Errno| NetNsError::Io {
            op: "send in",
            path: self.path().to_owned(),
            source: errno.into(),
        };
        failed.map_or(Ok(()), |errno| Err(fail(errno)))
    }
}

/// The link of a request in the thread's namespace, and that namespace's cookie.
fn look(request: impl FnOnce(&mut Vec<u8>)) -> Result<Option<(Option<u64>, LinkNow)>, Errno> {
    let mut socket = Socket::route().map_err(|err| err.errno)?;
    let answer = match socket.get(rtnl::GETLINK, request) {
        Err(err) if err.errno == Errno::ENODEV => return Ok(None),
        answer => answer.map_err(|err| err.errno)?,
    };
    Ok(seen(&answer.body).map(|link| (netns::cookie_of(&socket).ok(), link)))
}

/// Reads `RTM_NEWLINK`.
fn seen(body: &[u8]) -> Option<LinkNow> {
    let (head, attributes) = body.split_at_checked(INFO_LEN)?;
    let index = u32::from_ne_bytes(*head[4..].first_chunk()?);
    let flags = u32::from_ne_bytes(*head[8..].first_chunk()?);
    let mac = |kind| {
        find(kind, attributes)
            .and_then(|value| <[u8; 6]>::try_from(value).ok())
            .map(Mac)
    };
    let kind = find(IFLA_LINKINFO, attributes)
        .and_then(|info| find(IFLA_INFO_KIND, info))
        .map(rtnl::text_of);
    let fixed = Fixed {
        kind: kind.unwrap_or_default(),
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

/// Random numbers of the kernel.
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
