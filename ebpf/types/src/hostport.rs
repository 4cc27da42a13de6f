//! Maps of the programs `hp_in` and `hp_out`, which forward host ports to containers.

/// IP address of 128 bits in network byte order; IPv4 as `::ffff:a.b.c.d`.
pub type Address = [u32; 4];

/// Hardware address: the first four bytes, then the last two.
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
/// Maximum length in bytes of the text that names the owner of a map entry.
pub const OWNER_LEN: usize = 128;

/// Flag in a filter's class id: frames on the filter's link have an Ethernet header.
pub const ETHERNET: u32 = 1;
/// Flag in a filter's class id: the filter's link connects a container.
pub const POD: u32 = 2;
/// Flag in a filter's class id: the filter's link is a port of a bridge.
pub const BRIDGE_PORT: u32 = 4;
/// Flag in a filter's class id: the filter's link is a bridge.
pub const BRIDGE: u32 = 8;
/// Flag in a filter's class id: a shaping queue for the container's packets follows, and no
/// redirect may bypass it.
pub const SHAPED: u32 = 16;

/// Map key of a host port.
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

/// Flag in [`Target::flags`]: the container can reach its own host port, and sees the host as the
/// client.
pub const HAIRPIN: u16 = 1;
/// Flag in [`Target::flags`]: the container and other containers on its bridge can reach each
/// other.
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
    /// Index of the container's link on the host.
    pub link: u32,
    /// Index of the bridge that `link` is a port of; 0 for none.
    pub bridge: u32,
    /// Hardware address of the container.
    pub mac: [u8; 6],
    /// Used bytes of `owner`.
    pub owner_len: u16,
    /// Network, container id and interface; the programs do not read it.
    pub owner: [u8; OWNER_LEN],
}

/// Map key of a flow: addresses and ports of the container's replies before they are rewritten.
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

/// Flag in [`Origin::flags`]: the client is the container itself.
pub const ITSELF: u16 = 1;
/// Flag in [`Origin::flags`]: the client is another container on the bridge, so replies pass only
/// the container's link.
pub const NEIGHBOUR: u16 = 2;

/// Address and port that the client of a flow connected to, which it expects as the source of
/// replies.
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
    /// Hardware address of the bridge, once a packet of the flow was redirected from the bridge
    /// straight to the container's link; zero before. Replies then take the same path back.
    pub home: Mac,
}

/// A flow and its [`Origin`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Key of the flow.
    pub answer: Answer,
    /// Address and port that the flow's client connected to.
    pub origin: Origin,
}

/// Map key of a fragmented datagram, whose ports are only in the first fragment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address, then destination address.
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
