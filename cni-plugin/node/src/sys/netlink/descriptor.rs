//! System calls of a netlink socket. All messages are sent and received here, so that unit tests
//! can replace the kernel by a script.

#![expect(unsafe_code, reason = "setsockopt of SOL_NETLINK has no safe wrapper")]

#[cfg(test)]
use super::fake::Fake;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Length of the receive buffer in bytes. The kernel fills a dump datagram up to 32 KiB if the
/// reader's buffer is large enough (`net/netlink/af_netlink.c`).
const RECEIVE_LEN: usize = 32 * 1024;

/// The descriptor of a netlink socket.
#[derive(Debug)]
pub(super) struct Descriptor {
    fd: OwnedFd,
    /// Script that answers in place of the kernel.
    #[cfg(test)]
    fake: Option<Fake>,
}

impl Descriptor {
    /// Opens a socket of this netlink family in the current namespace.
    pub(super) fn open(protocol: SockProtocol) -> Result<Self, Errno> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        Ok(Self {
            fd,
            #[cfg(test)]
            fake: None,
        })
    }

    /// Replaces the kernel behind this socket by a script.
    #[cfg(test)]
    pub(super) fn answered_by(self, fake: Fake) -> Self {
        let fake = Some(fake);
        Self { fake, ..self }
    }

    /// Sets a socket option of netlink.
    pub(super) fn set(&self, option: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
        let len = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
        // SAFETY: the descriptor is open for the life of `self`, and the pointer and length
        // describe `value`, which lives until the call returns.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_NETLINK,
                option,
                (&raw const value).cast(),
                len,
            )
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Joins a multicast group to receive its notifications.
    pub(super) fn join(&self, group: u32) -> Result<(), Errno> {
        // The kernel sends no notification to its own port, 0, which an unbound socket has as well.
        bind(self.fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let group = libc::c_int::try_from(group).unwrap_or_default();
        self.set(libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Returns the index of a link in the socket's namespace; `None` if there is no link of that
    /// name.
    pub(super) fn index_of(&self, link: &str) -> Result<Option<u32>, Errno> {
        const SO_BINDTOIFINDEX: libc::c_int = 62;
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return Ok(fake.index_of(link));
        }
        let bind = |name: &str| setsockopt(&self.fd, sockopt::BindToDevice, &OsString::from(name));
        match bind(link) {
            Err(Errno::ENODEV) => return Ok(None),
            bound => bound?,
        }
        let (mut index, mut len) = (0_u32, 4);
        let place = (&raw mut index).cast();
        // SAFETY: the descriptor is open, and the kernel writes no more than the four bytes that
        // `len` says (Linux 5.0).
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_BINDTOIFINDEX,
                place,
                &raw mut len,
            )
        };
        // Unbinds the socket again. If that fails, its requests reach the kernel nevertheless.
        let _ = bind("");
        Errno::result(answer)?;
        Ok(Some(index))
    }

    /// Sends one datagram.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake.send(bytes);
        }
        send(self.fd.as_raw_fd(), bytes, MsgFlags::empty())?;
        Ok(())
    }

    /// Sets the length of the send buffer in bytes, even above the node's limit.
    pub(super) fn set_send_buffer(&self, len: usize) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake.set_send_buffer(len);
        }
        setsockopt(&self.fd, sockopt::SndBufForce, &len)
    }

    /// Waits for one datagram and puts it into `buffer`. Does not touch the unused end of the
    /// buffer: in a process that lives for a millisecond, an untouched page costs nothing.
    pub(super) fn fill(&self, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            *buffer = fake.receive()?;
            return Ok(());
        }
        buffer.clear();
        buffer.reserve(RECEIVE_LEN);
        // SAFETY: the descriptor is open for the life of `self`, and the pointer and length
        // describe memory that `buffer` owns and nothing else looks at meanwhile.
        let received = unsafe {
            libc::recv(
                self.fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.capacity(),
                0,
            )
        };
        let len = usize::try_from(Errno::result(received)?).unwrap_or(0);
        // SAFETY: the kernel has just written the first `len` bytes, and without MSG_TRUNC says no
        // more than it wrote.
        unsafe { buffer.set_len(len) };
        Ok(())
    }

    /// Discards one received datagram; `EAGAIN` if there is none.
    pub(super) fn skip(&self) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake.skip();
        }
        let mut buffer = [0u8; 512];
        recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
