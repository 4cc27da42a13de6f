//! Sockets on a link without an address: IPv4 packets and messages to the DHCPv6 servers for a DHCP
//! client, ARP and IPv6 packets for probes.

#![expect(
    unsafe_code,
    reason = "a link's address, its groups and a packet filter have no safe wrapper"
)]

use braid_core::name::Mac;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, SockaddrLike,
    bind, recv, recvfrom, sendto, setsockopt, socket, sockopt,
};
use std::ffi::OsString;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Protocol of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// IPv4.
    Ipv4,
    /// ARP.
    Arp,
    /// IPv6.
    Ipv6,
}

/// A socket for packets of one protocol on one link. It acts in the namespace in which it was opened.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: u32,
    protocol: Protocol,
}

impl PacketSocket {
    /// Opens a socket on the link with this index that receives UDP packets to `port`, over IPv4.
    pub fn open(index: u32, port: u16) -> Result<Self, Errno> {
        Self::filtered(index, Protocol::Ipv4, |fd| filter(fd, port))
    }

    /// Opens a socket on the link with this index that receives packets of a protocol.
    pub fn of_protocol(index: u32, protocol: Protocol) -> Result<Self, Errno> {
        Self::filtered(index, protocol, |_| Ok(()))
    }

    fn filtered(
        index: u32,
        protocol: Protocol,
        filter: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol the socket receives nothing until bind(2) sets one.
        let fd = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            flags,
            None::<SockProtocol>,
        )?;
        filter(&fd)?;
        bind(fd.as_raw_fd(), &address(index, protocol, None)?)?;
        Ok(Self {
            fd,
            index,
            protocol,
        })
    }

    /// Lets the link receive packets to a multicast hardware address, until the socket is closed.
    pub fn join(&self, group: Mac) -> Result<(), Errno> {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&group.0);
        let membership = libc::packet_mreq {
            mr_ifindex: i32::try_from(self.index).unwrap_or_default(),
            mr_type: u16::try_from(libc::PACKET_MR_MULTICAST).unwrap_or_default(),
            mr_alen: 6,
            mr_address: bytes,
        };
        let option = libc::PACKET_ADD_MEMBERSHIP;
        set(&self.fd, libc::SOL_PACKET, option, &membership)
    }

    /// Closes the socket on a separate thread. The kernel makes close(2) on a packet socket wait
    /// for an RCU grace period (v6.12 `net/packet/af_packet.c`, `packet_release()`).
    pub fn close(self) {
        // If no thread can be created, the socket is closed here.
        let _ = std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || drop(self));
    }

    /// Sends a packet to a host on the link, or to all hosts if `to` is `None`.
    pub fn send(&self, packet: &[u8], to: Option<Mac>) -> Result<(), Errno> {
        let to = to.unwrap_or(Mac([0xff; 6]));
        let to = address(self.index, self.protocol, Some(to))?;
        sendto(self.fd.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Receives a packet, and returns its length and source hardware address. `None` if no packet
    /// is queued.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<(usize, Mac)>, Errno> {
        match recvfrom::<LinkAddr>(self.fd.as_raw_fd(), buffer) {
            Ok((len, from)) => Ok(Some((
                len,
                Mac(from.and_then(|from| from.addr()).unwrap_or_default()),
            ))),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn address(index: u32, protocol: Protocol, mac: Option<Mac>) -> Result<LinkAddr, Errno> {
    let mut bytes = [0; 8];
    let len = mac.map_or(0, |mac| {
        bytes[..6].copy_from_slice(&mac.0);
        6
    });
    let family = libc::sa_family_t::try_from(libc::AF_PACKET).unwrap_or_default();
    let protocol = match protocol {
        Protocol::Ipv4 => libc::ETH_P_IP,
        Protocol::Arp => libc::ETH_P_ARP,
        Protocol::Ipv6 => libc::ETH_P_IPV6,
    };
    let protocol = u16::try_from(protocol).unwrap_or_default().to_be();
    let index = i32::try_from(index).unwrap_or_default();
    let raw = libc::sockaddr_ll {
        sll_family: family,
        sll_protocol: protocol,
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: len,
        sll_addr: bytes,
    };
    let size = libc::socklen_t::try_from(size_of_val(&raw)).unwrap_or_default();
    // SAFETY: pointer and length describe `raw`, which is a complete address of its family.
    unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(size)) }.ok_or(Errno::EINVAL)
}

/// Lets the kernel drop all packets except unfragmented UDP to `port`, since the link may carry
/// much other traffic.
fn filter(fd: &OwnedFd, port: u16) -> Result<(), Errno> {
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX,
        BPF_MSH, BPF_RET,
    };
    let op = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let mut program = [
        op(BPF_LD | BPF_B | BPF_ABS, 0, 0, 9),
        op(BPF_JMP | BPF_JEQ | BPF_K, 0, 6, 17),
        op(BPF_LD | BPF_H | BPF_ABS, 0, 0, 6),
        op(BPF_JMP | BPF_JSET | BPF_K, 4, 0, 0x3fff),
        op(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
        op(BPF_LD | BPF_H | BPF_IND, 0, 0, 2),
        op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, port.into()),
        op(BPF_RET | BPF_K, 0, 0, u32::MAX),
        op(BPF_RET | BPF_K, 0, 0, 0),
    ];
    let len = u16::try_from(program.len()).unwrap_or_default();
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // The instructions live until the call returns.
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Sets an option of a socket to a value, which is the C type of the option.
fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> Result<(), Errno> {
    let size = libc::socklen_t::try_from(size_of_val(value)).unwrap_or_default();
    let place = (&raw const *value).cast();
    // SAFETY: the descriptor is open. Pointer and length describe `value`, and the kernel only reads.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, place, size) };
    Errno::result(answer)?;
    Ok(())
}

/// A socket for messages to all DHCPv6 servers on one link.
#[derive(Debug)]
pub struct ServersSocket {
    fd: OwnedFd,
    index: u32,
}

impl ServersSocket {
    /// Opens a socket on a link, bound to this client port.
    pub fn open(link: &str, index: u32, port: u16) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(
            AddressFamily::Inet6,
            SockType::Datagram,
            flags,
            None::<SockProtocol>,
        )?;
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        setsockopt(&fd, sockopt::BindToDevice, &OsString::from(link))?;
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        bind(fd.as_raw_fd(), &SockaddrIn6::from(any))?;
        Ok(Self { fd, index })
    }

    /// Sends a message to all servers at this port. Returns EADDRNOTAVAIL until the link has a
    /// usable address.
    pub fn send(&self, message: &[u8], port: u16) -> Result<(), Errno> {
        // All_DHCP_Relay_Agents_and_Servers (RFC 8415 §7.1).
        let servers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
        let to = SockaddrIn6::from(SocketAddrV6::new(servers, port, 0, self.index));
        sendto(self.fd.as_raw_fd(), message, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Receives a message and returns its length; `None` if no message is queued.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => Ok(Some(len)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for ServersSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netns::NetNs;
    use std::net::UdpSocket;

    #[test]
    fn packet_socket_receives_only_its_port() {
        let netns = NetNs::throw_away().expect("a namespace (needs root)");
        netns
            .run(|| {
                let mut socket = crate::sys::netlink::Socket::route().expect("a socket");
                socket.push(crate::sys::rtnl::NEWLINK, 0, |out| {
                    out.extend([0; 4]);
                    out.extend(1_u32.to_ne_bytes());
                    out.extend([1_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat());
                });
                socket.flush().expect("lo is up");
                let heard = PacketSocket::open(1, 68).expect("a socket");
                let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
                sender.send_to(b"other", "127.0.0.1:69").expect("sent");
                sender.send_to(b"ours", "127.0.0.1:68").expect("sent");
                let mut buffer = [0; 100];
                // The loopback link has delivered the packets before `send_to` returns.
                let (len, _) = heard
                    .receive(&mut buffer)
                    .expect("an answer")
                    .expect("a packet");
                assert_eq!(&buffer[28..len], b"ours");
            })
            .expect("entered");
    }
}
