//! Maps of the programs `hp_in` and `hp_out`, which forward host ports to containers.

/// 128 bits in network byte order; IPv4 as `::ffff:a.b.c.d`.
pub type Address = [u32; 4];

/// A hardware address: its first four bytes, then the last two.
pub type Mac = [u32; 2];

/// Maximum number of forwarded host ports.
pub const HOST_PORTS: usize = 16_384;
/// Maximum number of flows whose replies are rewritten; beyond it the least recently used is
/// evicted.
pub const FLOWS: usize = 65_536;
/// Maximum number of fragmented datagrams whose ports are remembered.
pub const FRAGMENTS: usize = 8192;
/// Maximum number of host addresses.
pub const LOCAL_ADDRS: usize = 4096;
/// Maximum length of an owner's text, in bytes.
pub const OWNER_LEN: usize = 128;

/// Flag in a filter's class id: frames on its link have an Ethernet header.
pub const ETHERNET: u32 = 1;
/// Flag in a filter's class id: its link connects a container.
pub const POD: u32 = 2;
/// Flag in a filter's class id: its link is a port of a bridge.
pub const BRIDGE_PORT: u32 = 4;
/// Flag in a filter's class id: its link is a bridge.
pub const BRIDGE: u32 = 8;
/// Flag in a filter's class id: a shaping queue for the container's packets follows, and no
/// redirect may bypass it.
pub const SHAPED: u32 = 16;

/// Key of a host port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// Host address; `::` or `::ffff:0.0.0.0` means all host addresses of the family.
    pub addr: Address,
    /// Port in network byte order.
    pub port: u16,
    /// Protocol number of the IP header.
    pub protocol: u16,
}

/// [`Target::flags`]: the container reaches its own host port, and sees the host as the client.
pub const HAIRPIN: u16 = 1;
/// [`Target::flags`]: the container and its neighbours on the bridge reach each other.
pub const NEIGHBOURS: u16 = 2;

/// Destination of a host port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the container.
    pub addr: Address,
    /// Netmask of the container's subnet.
    pub mask: Address,
    /// Port in network byte order.
    pub port: u16,
    /// [`HAIRPIN`], [`NEIGHBOURS`], both or 0.
    pub flags: u16,
    /// Index of the link's end in the host.
    pub link: u32,
    /// Index of the bridge that this end is a port of; 0 for none.
    pub bridge: u32,
    /// Hardware address of the container.
    pub mac: [u8; 6],
    /// Used bytes of `owner`.
    pub owner_len: u16,
    /// Network, container id and interface; the programs do not read it.
    pub owner: [u8; OWNER_LEN],
}

/// Key of a flow: addresses and ports of the container's replies before they are rewritten.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Address of the container.
    pub pod: Address,
    /// Address of the client, as the container sees it.
    pub peer: Address,
    /// Port of the container, in network byte order.
    pub pod_port: u16,
    /// Port of the client, in network byte order.
    pub peer_port: u16,
    /// Protocol number of the IP header.
    pub protocol: u32,
}

/// [`Origin::flags`]: the client is the container itself.
pub const ITSELF: u16 = 1;
/// [`Origin::flags`]: the client is a neighbour on the bridge, so replies pass only the container's
/// link.
pub const NEIGHBOUR: u16 = 2;

/// Address and port that the client connected to: the source of the replies as it expects them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address of the host.
    pub addr: Address,
    /// Port in network byte order.
    pub port: u16,
    /// [`ITSELF`], [`NEIGHBOUR`] or 0.
    pub flags: u16,
    /// Index of the container's link, copied from its [`Target`].
    pub link: u32,
    /// Index of the bridge, copied from the container's [`Target`].
    pub bridge: u32,
    /// Hardware address of that bridge after a packet of the flow was redirected from it straight
    /// to the container's link, else zero. Replies take the same path back.
    pub home: Mac,
}

/// A flow and its [`Origin`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Key of the flow.
    pub answer: Answer,
    /// Address and port that its client connected to.
    pub origin: Origin,
}

/// Key of a fragmented datagram, whose ports only the first fragment has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source, then destination.
    pub addrs: [Address; 2],
    /// Identification of the IP header.
    pub id: u32,
    /// Protocol number of the IP header.
    pub protocol: u32,
}

const _: () = assert!(size_of::<Datagram>() == 2 * 16 + 2 * 4);
const _: () = assert!(size_of::<Entrance>() == 16 + 2 + 2);
const _: () = assert!(size_of::<Target>() == 2 * 16 + 2 * 2 + 2 * 4 + 6 + 2 + OWNER_LEN);
const _: () = assert!(size_of::<Answer>() == 2 * 16 + 2 * 2 + 4);
const _: () = assert!(size_of::<Known>() == size_of::<Answer>() + size_of::<Origin>());
const _: () = assert!(size_of::<Origin>() == 16 + 2 * 2 + 2 * 4 + 8);
