//! A link that leases are got through: where it is, and what is sent and heard there.

use crate::sys::netlink::{Socket, attributes_of};
use crate::sys::netns::{self, NetNs, NetNsError};
use crate::sys::packet::{PacketSocket, ServersSocket};
use crate::sys::rtnl::{self, link};
use braid_core::ipam::dhcp::{Output, v4, v6};
use braid_core::name::{IfName, Mac};
use nix::errno::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const IFLA_ADDRESS: u16 = 1;
const IFF_UP: u32 = 1;
/// Length of `struct ifinfomsg`.
const INFO_LEN: usize = 16;

/// A link in a container's namespace.
#[derive(Debug)]
pub struct Place {
    netns: NetNs,
    ifname: IfName,
    /// The number that tells its namespace from all others since boot; none before Linux 5.14.
    pub cookie: Option<u64>,
    /// Its index.
    pub index: u32,
    /// Its hardware address; all zeros where it has none of six bytes.
    pub mac: Mac,
    /// True if it is up.
    pub is_up: bool,
}

impl Place {
    /// Looks a link up; `None` where the namespace or the link is gone.
    pub fn find(path: &Path, ifname: &IfName) -> Result<Option<Self>, NetNsError> {
        let netns = match NetNs::open(path) {
            Err(NetNsError::Gone(_)) => return Ok(None),
            netns => netns?,
        };
        let Some((cookie, index, mac, flags)) = netns.run(|| look(ifname))? else { return Ok(None) };
        Ok(Some(Self { netns, ifname: ifname.clone(), cookie, index, mac, is_up: flags & IFF_UP != 0 }))
    }

    /// The path of the namespace.
    pub fn path(&self) -> &Path {
        self.netns.path()
    }

    /// Opens a socket for DHCPv4.
    pub fn open4(&self) -> Result<PacketSocket, Errno> {
        let open = || PacketSocket::open(self.index, v4::CLIENT_PORT);
        self.netns.run(open).map_err(|_gone| Errno::ENODEV)?
    }

    /// Opens a socket for DHCPv6.
    pub fn open6(&self) -> Result<ServersSocket, Errno> {
        let open = || ServersSocket::open(self.ifname.as_str(), self.index, v6::CLIENT_PORT);
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
                Output::Send6(message) => self.open6().and_then(|socket| socket.send(message, v6::SERVER_PORT)),
                Output::Bound | Output::Lost { .. } | Output::GaveUp => Ok(()),
            };
            failed = failed.or(sent.err());
        }
        let fail = |errno: Errno| NetNsError::Io { op: "send in", path: self.path().to_owned(), source: errno.into() };
        failed.map_or(Ok(()), |errno| Err(fail(errno)))
    }
}

/// The link of that name in the thread's namespace: cookie, index, hardware address, flags.
fn look(ifname: &IfName) -> Option<(Option<u64>, u32, Mac, u32)> {
    let mut socket = Socket::route().ok()?;
    let answer = socket.get(rtnl::GETLINK, |out| link::get_by_name(ifname, out)).ok()?;
    let (head, attributes) = answer.body.split_at_checked(INFO_LEN)?;
    let index = u32::from_ne_bytes(*head[4..].first_chunk()?);
    let flags = u32::from_ne_bytes(*head[8..].first_chunk()?);
    let mac = attributes_of(attributes).find(|(kind, _)| *kind == IFLA_ADDRESS);
    let mac = mac.and_then(|(_, value)| <[u8; 6]>::try_from(value).ok()).unwrap_or_default();
    Some((netns::cookie_of(&socket).ok(), index, Mac(mac), flags))
}

/// Random numbers of the kernel.
pub fn dice() -> impl FnMut() -> u64 {
    let mut source = File::open("/dev/urandom").ok();
    move || {
        let mut bytes = [0; 8];
        if let Some(source) = &mut source {
            let _ = source.read_exact(&mut bytes);
        }
        u64::from_ne_bytes(bytes)
    }
}
