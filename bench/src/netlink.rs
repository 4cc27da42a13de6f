//! A blocking rtnetlink socket and the messages that the bench sends.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use nix::sys::socket::{self, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

/// Flags of a request that must create an object.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// A message and its flags. `NLM_F_REQUEST` and `NLM_F_ACK` are added to each.
pub(crate) type Request = (Message, u16);

/// A socket in the network namespace of the thread that opened it.
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    pub(crate) fn open() -> io::Result<Self> {
        let fd = socket::socket(
            socket::AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        socket::connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Socket { fd, sequence: 0 })
    }

    /// Sends all requests in one system call, and waits for the answer to each. Returns the
    /// kernel's messages except acks.
    pub(crate) fn run<const N: usize>(
        &mut self,
        requests: [Request; N],
    ) -> io::Result<Vec<Message>> {
        let mut out = Vec::with_capacity(1024);
        for (message, flags) in requests {
            self.sequence += 1;
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
            header.sequence_number = self.sequence;
            let mut framed = NetlinkMessage::new(header, NetlinkPayload::from(message));
            framed.finalize();
            let (from, len) = (out.len(), framed.buffer_len());
            out.resize(from + len.next_multiple_of(4), 0);
            framed.serialize(out.split_at_mut(from).1);
        }
        socket::send(self.fd.as_raw_fd(), &out, MsgFlags::empty())?;
        self.answers(N)
    }

    fn answers(&self, mut missing: usize) -> io::Result<Vec<Message>> {
        let mut received = Vec::new();
        let mut buffer = [0; 16384];
        while missing > 0 {
            let len = socket::recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = buffer.get(..len).unwrap_or_default();
            while !rest.is_empty() {
                let message =
                    NetlinkMessage::<Message>::deserialize(rest).map_err(io::Error::other)?;
                let len = usize::try_from(message.header.length)
                    .unwrap_or(rest.len())
                    .next_multiple_of(4);
                rest = rest.get(len..).unwrap_or_default();
                match message.payload {
                    NetlinkPayload::Error(err) if err.code.is_some() => return Err(err.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => missing -= 1,
                    NetlinkPayload::InnerMessage(inner) => received.push(inner),
                    _ => {}
                }
            }
        }
        Ok(received)
    }

    /// Returns the link called `name`; `None` if it does not exist.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<Option<LinkMessage>> {
        let links = self.run([(Message::GetLink(LinkMessage::default()), NLM_F_DUMP)])?;
        Ok(links.into_iter().find_map(|message| match message {
            Message::NewLink(link)
                if link
                    .attributes
                    .contains(&LinkAttribute::IfName(name.into())) =>
            {
                Some(link)
            }
            _ => None,
        }))
    }

    /// Returns all addresses in the namespace.
    pub(crate) fn addresses(&mut self) -> io::Result<Vec<AddressMessage>> {
        let addresses = self.run([(Message::GetAddress(AddressMessage::default()), NLM_F_DUMP)])?;
        Ok(addresses
            .into_iter()
            .filter_map(|m| {
                if let Message::NewAddress(m) = m {
                    Some(m)
                } else {
                    None
                }
            })
            .collect())
    }
}

/// Returns a request that creates a veth pair and sets the end `name` up. The kernel's echo has the
/// indexes of both ends.
///
/// Each end has one queue: the kernel's default is one per CPU, which costs time and gains nothing
/// without XDP.
pub(crate) fn add_veth(
    name: &str,
    master: Option<u32>,
    peer: &str,
    peer_netns: Option<BorrowedFd<'_>>,
) -> Request {
    let mut far = named(peer);
    far.attributes
        .extend(peer_netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
    let mut near = up(named(name));
    near.attributes
        .extend(master.map(LinkAttribute::Controller));
    for end in [&mut far, &mut near] {
        end.attributes
            .extend([LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)]);
    }
    near.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
    ]));
    (Message::NewLink(near), NEW | NLM_F_ECHO)
}

/// Returns a request that creates a bridge and sets it up. The kernel's echo has the index of the
/// bridge.
pub(crate) fn add_bridge(name: &str) -> Request {
    let mut link = up(named(name));
    link.attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(
            InfoKind::Bridge,
        )]));
    (Message::NewLink(link), NEW | NLM_F_ECHO)
}

/// Returns the index of the created link from the kernel's echo, and the index of its peer (0 if
/// there is none).
pub(crate) fn made(echoes: &[Message]) -> io::Result<(u32, u32)> {
    let link = echoes.iter().find_map(|message| {
        if let Message::NewLink(link) = message {
            Some(link)
        } else {
            None
        }
    });
    let link = link.ok_or_else(|| io::Error::other("the kernel sent no echo of the new link"))?;
    let peer = link.attributes.iter().find_map(|a| {
        if let LinkAttribute::Link(peer) = a {
            Some(*peer)
        } else {
            None
        }
    });
    Ok((link.header.index, peer.unwrap_or_default()))
}

pub(crate) fn del_link(name: &str) -> Request {
    (Message::DelLink(named(name)), 0)
}

pub(crate) fn set_up(index: u32) -> Request {
    let mut link = up(LinkMessage::default());
    link.header.index = index;
    (Message::NewLink(link), 0)
}

pub(crate) fn set_mtu(index: u32, mtu: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::Mtu(mtu));
    (Message::SetLink(link), 0)
}

/// Returns a request that moves the link into another network namespace, where it is down.
pub(crate) fn move_link(index: u32, netns: BorrowedFd<'_>) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes
        .push(LinkAttribute::NetNsFd(netns.as_raw_fd()));
    (Message::SetLink(link), 0)
}

/// Returns a request that adds an address. The address is usable immediately, because the request
/// turns off duplicate address detection for IPv6.
pub(crate) fn add_address(index: u32, address: IpAddr, prefix_len: u8) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.extend([
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ]);
    (Message::NewAddress(message), NEW)
}

pub(crate) fn add_default_route(index: u32, gateway: Ipv4Addr) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes.extend([
        RouteAttribute::Gateway(RouteAddress::Inet(gateway)),
        RouteAttribute::Oif(index),
    ]);
    (Message::NewRoute(message), NEW)
}

fn named(name: &str) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(name.into()));
    link
}

fn up(mut link: LinkMessage) -> LinkMessage {
    link.header.flags |= LinkFlags::Up;
    link.header.change_mask |= LinkFlags::Up;
    link
}
