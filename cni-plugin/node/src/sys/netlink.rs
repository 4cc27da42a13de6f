//! Blocking netlink sockets: many requests in one send, one acknowledgement, and the kernel's
//! message on errors.

mod descriptor;
#[cfg(test)]
pub(crate) mod fake;
mod wire;

pub use super::kernel_error::KernelError;
use descriptor::Descriptor;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockProtocol;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};
use wire::{Header, each_message, pad, refusal};
pub use wire::{Message, NESTED, Outcome, attr, attributes_of, begin, end, find, nest, request};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Maximum number of tries for a dump, which is repeated if the table changed meanwhile. Eight were
/// too few for a hundred concurrent calls on two processors. `nft` and `ip` retry without limit.
pub const DUMP_TRIES: usize = 100;

/// Request flag: creates the object.
pub const CREATE: u16 = 0x400;
/// Request flag with [`CREATE`]: fails if the object exists.
pub const EXCL: u16 = 0x200;
/// Request flag: replaces an existing object.
pub const REPLACE: u16 = 0x100;
/// Request flag: returns the created object.
pub const ECHO: u16 = 0x8;

/// A netlink socket. It acts in the network namespace in which it was opened, regardless of the
/// thread that uses it.
#[derive(Debug)]
pub struct Socket {
    fd: Descriptor,
    last_seq: u32,
    queued: Vec<u8>,
    /// Sequence number of the first queued request.
    first_seq: u32,
    /// Offset of the last queued request in `queued`.
    last_start: usize,
    buffer: Vec<u8>,
    /// True if lost replies are harmless.
    is_lossy: bool,
}

impl Socket {
    /// Opens a socket of the route family in the current namespace.
    pub fn route() -> Result<Self, KernelError> {
        let socket = Self::open(SockProtocol::NetlinkRoute)?;
        // This option lets the kernel filter dumps (Linux 4.20).
        socket.fd.set(libc::NETLINK_GET_STRICT_CHK, 1)?;
        Ok(socket)
    }

    /// Opens a socket of the netfilter family in the current namespace.
    pub fn netfilter() -> Result<Self, KernelError> {
        Self::open(SockProtocol::NetlinkNetFilter)
    }

    fn open(protocol: SockProtocol) -> Result<Self, KernelError> {
        let socket = Self::on(Descriptor::open(protocol)?);
        // With these options an error contains the kernel's message, but not the whole request.
        socket.fd.set(libc::NETLINK_EXT_ACK, 1)?;
        socket.fd.set(libc::NETLINK_CAP_ACK, 1)?;
        Ok(socket)
    }

    fn on(fd: Descriptor) -> Self {
        Self {
            fd,
            last_seq: 0,
            queued: Vec::new(),
            first_seq: 1,
            last_start: 0,
            buffer: Vec::new(),
            is_lossy: false,
        }
    }

    /// Creates a socket with a script in place of the kernel.
    #[cfg(test)]
    pub(crate) fn scripted(fake: fake::Fake) -> Self {
        let fd = Descriptor::open(SockProtocol::NetlinkRoute).expect("a socket");
        Self::on(fd.answered_by(fake))
    }

    /// Joins a multicast group, for example `RTNLGRP_LINK`, to receive its notifications.
    pub fn join(&self, group: u32) -> Result<(), KernelError> {
        self.fd.join(group).map_err(KernelError::from)
    }

    /// Returns the index of a link in the socket's namespace; `None` if there is no such link.
    ///
    /// The index is read by binding to the link. Binding takes none of the locks that requests wait
    /// for, so it returns immediately. `SIOCGIFINDEX` would work as well. But for a missing link,
    /// the kernel would first load a module of that name (v6.12 `dev_load()`). A missing link is
    /// the usual case before a link is created.
    pub fn index_of(&self, link: &str) -> Result<Option<u32>, Errno> {
        self.fd.index_of(link)
    }

    /// Queues a request. [`Socket::flush`] sends all queued requests together.
    pub fn push(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Vec<u8>)) {
        if self.queued.is_empty() {
            self.first_seq = self.last_seq + 1;
        }
        self.last_seq += 1;
        let start = self.queued.len();
        self.queued
            .extend_from_slice(&request(kind, flags, self.last_seq));
        body(&mut self.queued);
        let len = u32::try_from(self.queued.len() - start).unwrap_or(u32::MAX);
        self.queued[start..start + 4].copy_from_slice(&len.to_ne_bytes());
        pad(&mut self.queued);
        self.last_start = start;
    }

    /// Discards the queued requests.
    pub fn drop_queue(&mut self) {
        self.queued.clear();
    }

    /// Returns the number of queued requests.
    pub fn queued(&self) -> usize {
        if self.queued.is_empty() {
            0
        } else {
            (self.last_seq + 1 - self.first_seq) as usize
        }
    }

    /// Sends the queued requests and returns the outcome of each, in order.
    ///
    /// The kernel continues after a refused request. Only the last request requires an
    /// acknowledgement. The kernel always reports errors, so an earlier request without a reply
    /// has succeeded.
    pub fn flush(&mut self) -> Result<Vec<Outcome>, KernelError> {
        let count = self.queued();
        if count == 0 {
            return Ok(Vec::new());
        }
        let flags = self.last_start + 6;
        self.queued[flags] |= u8::try_from(NLM_F_ACK).unwrap_or_default();
        self.send()?;
        let (first, last) = (self.first_seq, self.last_seq);
        let mut outcomes = vec![Outcome::default(); count];
        let mut answered = false;
        while !answered {
            self.receive(|header, body| {
                // A notification, or a late reply to an abandoned call.
                let Some(at) = header.seq.checked_sub(first) else {
                    return;
                };
                let Some(outcome) = outcomes.get_mut(at as usize) else {
                    return;
                };
                if header.kind == NLMSG_ERROR {
                    outcome.error = refusal(header, body);
                    answered |= header.seq == last;
                } else {
                    outcome.messages.push(Message {
                        body: body.to_vec(),
                    });
                }
            })?;
        }
        Ok(outcomes)
    }

    /// Sends one request and returns the kernel's messages.
    pub fn call(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<Message>, KernelError> {
        self.push(kind, flags, body);
        let outcome = self.flush()?.pop().unwrap_or_default();
        outcome.error.map_or(Ok(outcome.messages), Err)
    }

    /// Requests one object. The reply is the object or an error, so no acknowledgement is required.
    pub fn get(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Message, KernelError> {
        self.push(kind, 0, body);
        self.send()?;
        let seq = self.last_seq;
        let mut answer = None;
        while answer.is_none() {
            self.receive(|header, body| {
                if header.seq != seq {
                    return;
                }
                let refused = if header.kind == NLMSG_ERROR {
                    refusal(header, body)
                } else {
                    None
                };
                answer = Some(match refused {
                    Some(error) => Err(error),
                    None => Ok(Message {
                        body: body.to_vec(),
                    }),
                });
            })?;
        }
        answer.unwrap_or_else(|| Err(Errno::EIO.into()))
    }

    /// Sends an encoded nf_tables batch. The kernel commits all of it or nothing.
    ///
    /// `last_seq` is the sequence number of the request with the acknowledgement flag.
    pub fn transact(&mut self, batch: &[u8], last_seq: u32) -> Result<(), KernelError> {
        self.send_whole(batch)?;
        // If many changes are refused, errors that exceed the buffer are lost. The first one is
        // kept.
        self.is_lossy = true;
        let answer = self.answer_to_batch(last_seq);
        self.is_lossy = false;
        answer
    }

    fn answer_to_batch(&mut self, last_seq: u32) -> Result<(), KernelError> {
        let mut first_refusal = None;
        let mut answered = false;
        while !answered {
            self.receive(|header, body| {
                if header.kind == NLMSG_ERROR {
                    let refused = refusal(header, body);
                    // A refused request ends the batch. Nothing after it is acknowledged
                    // (net/netfilter/nfnetlink.c).
                    answered |= header.seq == last_seq || refused.is_some();
                    first_refusal = first_refusal.take().or(refused);
                }
            })?;
        }
        self.drain()?;
        first_refusal.map_or(Ok(()), Err)
    }

    /// Requests a dump, which lists one of the kernel's tables, and returns its messages. Starts
    /// over if the table changed meanwhile.
    pub fn dump(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Vec<u8>),
    ) -> Result<Vec<Message>, KernelError> {
        self.dump_those(kind, body, |_| true)
    }

    /// Lists a table of the kernel like [`Socket::dump`], but keeps only messages whose body
    /// `is_wanted` accepts.
    pub fn dump_those(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Vec<u8>),
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Message>, KernelError> {
        for _ in 0..DUMP_TRIES {
            self.push(kind, NLM_F_DUMP, &body);
            self.send()?;
            let seq = self.last_seq;
            let (mut messages, mut done, mut interrupted, mut error) =
                (Vec::new(), false, false, None);
            while !done {
                self.receive(|header, body| {
                    if header.seq != seq {
                        return;
                    }
                    interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                    match header.kind {
                        NLMSG_DONE => done = true,
                        NLMSG_ERROR => {
                            error = refusal(header, body);
                            done = true;
                        }
                        _ if is_wanted(body) => messages.push(Message {
                            body: body.to_vec(),
                        }),
                        _ => {}
                    }
                })?;
            }
            match error {
                Some(error) if error.errno != Errno::EINTR => return Err(error),
                None if !interrupted => return Ok(messages),
                _ => {}
            }
        }
        Err(Errno::EINTR.into())
    }

    /// Waits for a notification that `found` accepts. Returns false after `timeout`.
    pub fn wait(
        &mut self,
        timeout: Duration,
        mut found: impl FnMut(&Message) -> bool,
    ) -> Result<bool, KernelError> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, left) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let mut seen = false;
            self.receive(|_, body| {
                seen |= found(&Message {
                    body: body.to_vec(),
                });
            })?;
            if seen {
                return Ok(true);
            }
        }
    }

    fn send(&mut self) -> Result<(), KernelError> {
        let sent = self.send_whole(&self.queued);
        self.queued.clear();
        sent.map_err(KernelError::from)
    }

    /// Sends all bytes in one call, with a larger send buffer if necessary. The kernel accepts no
    /// more in one send than the socket's send buffer size (v6.12 `netlink_sendmsg()`), 208 KiB
    /// unless it is raised.
    fn send_whole(&self, bytes: &[u8]) -> Result<(), Errno> {
        match self.fd.send(bytes) {
            Err(Errno::EMSGSIZE) => {
                self.fd.set_send_buffer(bytes.len())?;
                self.fd.send(bytes)
            }
            sent => sent,
        }
    }

    /// Reads one datagram and passes each of its messages to `see`.
    fn receive(&mut self, see: impl FnMut(&Header, &[u8])) -> Result<(), KernelError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = loop {
            match self.fd.fill(&mut buffer) {
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) if self.is_lossy => {}
                other => break other,
            }
        };
        let result = received.map(|()| each_message(&buffer, see));
        self.buffer = buffer;
        if result.is_err() {
            // Unread messages must not be taken for the reply to a later request, or keep a dump
            // open.
            let _ = self.drain();
        }
        result.map_err(unanswered)
    }

    /// Discards unread messages, so that the next reply belongs to the next request.
    fn drain(&mut self) -> Result<(), KernelError> {
        loop {
            match self.fd.skip() {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(unanswered(errno)),
            }
        }
    }
}

fn unanswered(errno: Errno) -> KernelError {
    KernelError {
        unanswered: true,
        ..errno.into()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_the_kernels_errno() {
        let mut socket = Socket::route().expect("a socket");
        // RTM_GETLINK of an index that does not exist: struct ifinfomsg with ifi_index = i32::MAX.
        let err = socket.call(18, 0, |out| {
            out.extend([0; 4]);
            out.extend(i32::MAX.to_ne_bytes());
            out.extend([0; 8]);
        });
        assert_eq!(err.expect_err("no such link").errno, Errno::ENODEV);
    }

    #[test]
    fn one_send_may_exceed_the_sockets_send_buffer() {
        let mut socket = Socket::route().expect("a socket");
        for _ in 0..20_000 {
            // RTM_SETLINK of lo that changes nothing: struct ifinfomsg with ifi_index = 1.
            socket.push(19, 0, |out| {
                out.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            });
        }
        let outcomes = socket.flush().expect("sent and answered");
        assert!(outcomes.len() == 20_000 && outcomes.iter().all(|outcome| outcome.error.is_none()));
    }

    #[test]
    fn index_of_finds_existing_links_and_leaves_the_socket_usable() {
        let mut socket = Socket::route().expect("a socket");
        for missing in ["nobody-has-it", "lo0"] {
            assert_eq!(socket.index_of(missing), Ok(None), "{missing:?}");
            assert_eq!(socket.index_of("lo"), Ok(Some(1)));
        }
        // RTM_GETLINK of lo: struct ifinfomsg with ifi_index = 1.
        let lo = socket.get(18, |out| {
            out.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        });
        assert!(lo.is_ok(), "{lo:?}");
    }
}
