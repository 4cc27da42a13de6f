//! The maps of the programs `hp_in` and `hp_out`, which lead ports of the host to containers.

/// 128 bits in network byte order; IPv4 stands behind `::ffff`.
pub type Address = [u32; 4];

/// A hardware address: the first four bytes, and the other two.
pub type Mac = [u32; 2];

/// Most ports of the host that lead somewhere.
pub const HOST_PORTS: usize = 16_384;
/// Most flows whose answers are rewritten; beyond that the one used longest ago is forgotten.
pub const FLOWS: usize = 65_536;
/// Most datagrams whose fragments are told apart.
pub const FRAGMENTS: usize = 8192;
/// Most addresses of the host.
pub const LOCAL_ADDRS: usize = 4096;
/// Longest text of an owner, in bytes.
pub const OWNER_LEN: usize = 128;

/// Class id of a filter: frames of its link have an Ethernet header.
pub const ETHERNET: u32 = 1;
/// Class id of a filter: its link leads to a container.
pub const POD: u32 = 2;
/// Class id of a filter: its link is a port of a bridge.
pub const BRIDGE_PORT: u32 = 4;
/// Class id of a filter: its link is a bridge.
pub const BRIDGE: u32 = 8;
/// Class id of a filter: what the container sends waits behind it, and nothing may go past that
/// queue.
pub const SHAPED: u32 = 16;

/// Key of a port of the host.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// Of the host; `::` or `::ffff:0.0.0.0` for all its addresses of the family.
    pub addr: Address,
    /// In network byte order.
    pub port: u16,
    /// As in the IP header.
    pub protocol: u16,
}

/// [`Target::flags`]: what the container sends to itself comes back, seen as from the host.
pub const HAIRPIN: u16 = 1;
/// [`Target::flags`]: the container and its neighbours on the bridge reach each other.
pub const NEIGHBOURS: u16 = 2;

/// Where a port of the host leads.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The container's.
    pub addr: Address,
    /// Which bits of its address are those of its subnet.
    pub mask: Address,
    /// In network byte order.
    pub port: u16,
    /// What holds for it.
    pub flags: u16,
    /// Index of the host's end of its link.
    pub link: u32,
    /// Index of the bridge that this end is a port of; 0 for none.
    pub bridge: u32,
    /// Hardware address of the container.
    pub mac: [u8; 6],
    /// How many bytes of `owner` there are.
    pub owner_len: u16,
    /// Network, container id and interface; the programs do not look at it.
    pub owner: [u8; OWNER_LEN],
}

/// Key of a flow: the addresses and ports of the container's answers, before they are rewritten.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The container's address.
    pub pod: Address,
    /// The client's, as the container sees it.
    pub peer: Address,
    /// The container's port, in network byte order.
    pub pod_port: u16,
    /// The client's, in network byte order.
    pub peer_port: u16,
    /// As in the IP header.
    pub protocol: u32,
}

/// [`Origin::flags`]: the client is the container itself.
pub const ITSELF: u16 = 1;
/// [`Origin::flags`]: the client is a neighbour on the bridge, so the answer passes nothing but the container's own link.
pub const NEIGHBOUR: u16 = 2;

/// What the client takes for the source of its answers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Of the host.
    pub addr: Address,
    /// In network byte order.
    pub port: u16,
    /// Who the client is.
    pub flags: u16,
    /// As in the [`Target`] that led it.
    pub link: u32,
    /// As in the [`Target`] that led it.
    pub bridge: u32,
    /// Hardware address of that bridge, once a packet of the flow went from it straight into the
    /// container's link; before, nothing. The answers go the same way back.
    pub home: Mac,
}

/// A flow and its [`Origin`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The flow.
    pub answer: Answer,
    /// What its client knows.
    pub origin: Origin,
}

/// Key of a datagram in fragments, of which only the first has ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source first.
    pub addrs: [Address; 2],
    /// As the IP header has it.
    pub id: u32,
    /// As in the IP header.
    pub protocol: u32,
}

const _: () = assert!(size_of::<Datagram>() == 2 * 16 + 2 * 4);
const _: () = assert!(size_of::<Entrance>() == 16 + 2 + 2);
const _: () = assert!(size_of::<Target>() == 2 * 16 + 2 * 2 + 2 * 4 + 6 + 2 + OWNER_LEN);
const _: () = assert!(size_of::<Answer>() == 2 * 16 + 2 * 2 + 4);
const _: () = assert!(size_of::<Known>() == size_of::<Answer>() + size_of::<Origin>());
const _: () = assert!(size_of::<Origin>() == 16 + 2 * 2 + 2 * 4 + 8);
