//! Connection tracking table of a node.

use crate::node::Node;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType,
};
use std::os::fd::AsRawFd as _;

/// `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK`.
const DELETE: u16 = 1 << 8 | 2;
const REQUEST_AND_ACK: u16 = 1 | 4;
/// Length of `nlmsghdr` and `nfgenmsg`, in bytes.
const LEN: u16 = 16 + 4;

/// Deletes all entries of the node. Fails if the table was full, so that entries may be missing.
pub(crate) fn forget(node: &Node) -> Result<()> {
    node.run(|| {
        let (count, most) = (number("count")?, number("max")?);
        if count > 0 && count >= most {
            bail!("nf_conntrack_max was reached, so that the kernel dropped packets: choose a shorter --window");
        }
        flush().context("forget the node's connections")
    })
}

/// Reads the sysctl `nf_conntrack_<name>`; zero if the kernel has no connection tracking.
fn number(name: &str) -> Result<u32> {
    let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
    match std::fs::read_to_string(&file) {
        Ok(text) => text
            .trim()
            .parse()
            .with_context(|| format!("{file}: \"{}\"", text.trim())),
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(err) => Err(err).with_context(|| format!("read {file}")),
    }
}

/// Deletes all entries with a request that names no tuple.
fn flush() -> Result<()> {
    let fd = socket::socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    socket::connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let (len, kind, flags) = (
        u32::from(LEN).to_ne_bytes(),
        DELETE.to_ne_bytes(),
        REQUEST_AND_ACK.to_ne_bytes(),
    );
    let mut request = [len.as_slice(), &kind, &flags].concat();
    request.resize(LEN.into(), 0);
    socket::send(fd.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let len = socket::recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let code = answer
        .get(16..20)
        .filter(|_| len >= 20)
        .and_then(|code| code.first_chunk::<4>());
    match i32::from_ne_bytes(*code.context("the kernel's answer is too short")?) {
        0 => Ok(()),
        code => Err(Errno::from_raw(-code).into()),
    }
}
