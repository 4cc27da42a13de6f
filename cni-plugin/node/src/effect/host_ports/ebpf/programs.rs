//! The programs `hp_in` and `hp_out` and their maps, pinned for the whole node.
//!
//! The maps exist as long as there is a port. The names of the programs' pins include a hash, so
//! another version of braid loads its own programs and keeps the maps. The programs are pinned
//! after all links run them.

use crate::sys::bpf::made::{HP_IN, HP_OUT};
use crate::sys::bpf::object::{
    ARRAY, HASH, LRU_HASH, Map, NO_PREALLOC, PERCPU_ARRAY, fnv, load, pin, pinned, program_info,
};
use crate::sys::bpf::owned::{Owned, owner_of};
use crate::sys::bpf::pins::{ensure, folder, make_folder, named, remove, remove_folder};
use braid_core::plan::thing::host_ports::{HostEndpoint as At, MOST_BY_EBPF};
use braid_ebpf_types::hostport::{
    Address, Answer, Datagram, Entrance, FLOWS, FRAGMENTS, HAIRPIN, HOST_PORTS, Known, LOCAL_ADDRS,
    NEIGHBOURS, OWNER_LEN, Origin, Target,
};
use ipnet::IpNet;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

const _: () = assert!(MOST_BY_EBPF == HOST_PORTS, "so many fit into a map");
/// Hash of the programs' instructions. It identifies this version of the programs.
const VERSION: u64 = fnv(HP_IN) ^ fnv(HP_OUT).rotate_left(1);
/// Names of the ingress and the egress program, and of the filters that run them.
pub(crate) const NAMES: [&str; 2] = ["braid_hp_in", "braid_hp_out"];
/// Prefix of the names of the programs' pins.
const PREFIX: &str = "hp_";

/// Target and owner of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EbpfPort {
    /// Address and port in the container.
    pub(crate) to: SocketAddr,
    /// Network, container id and interface.
    pub(crate) owner: String,
    /// Index of the host's end of the container's link.
    pub(crate) link: u32,
    /// True if the host's end is a port of a bridge.
    pub(crate) is_bridged: bool,
}

/// Target and owner to write for a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortValue<'a> {
    /// Address and port in the container.
    pub(crate) to: SocketAddr,
    /// The container's address with its prefix.
    pub(crate) net: IpNet,
    /// Index of the host's end of the container's link.
    pub(crate) link: u32,
    /// Index of the bridge, if the host's end is a port of a bridge.
    pub(crate) bridge: Option<u32>,
    /// Hardware address of the container.
    pub(crate) mac: [u8; 6],
    /// True if the container may reach itself through the port.
    pub(crate) hairpin: bool,
    /// True if the container and its neighbours on the bridge may reach each other.
    pub(crate) neighbours: bool,
    /// Network, container id and interface.
    pub(crate) owner: &'a str,
}

/// The eBPF maps of host ports that braid itself reads and writes.
#[derive(Debug)]
pub(crate) struct Maps {
    ports: Map<Entrance, Target>,
    /// Map with one flag, at key 0. The flag is 1 if there ever was a port at a single host
    /// address. Without the flag, the programs do not look up ports at the packet's address.
    by_address: Map<u32, u32>,
    addrs: Map<Address, u32>,
}

/// The maps that only the programs read and write.
struct Flows {
    nat: Map<Answer, Origin>,
    datagrams: Map<Datagram, [u16; 2]>,
    /// State about the last packet, for each processor. Programs of another version do not need
    /// this state, so the map is not pinned.
    last: Map<u32, Known>,
}

/// The ingress and the egress program.
#[derive(Debug)]
pub(crate) struct Programs([OwnedFd; 2]);

impl Programs {
    /// Opens this version's pinned programs; `None` if they are not pinned.
    pub(crate) fn pinned() -> Result<Option<Self>, Errno> {
        let [inward, outward] = program_pins()?;
        let Some(inward) = pinned(&inward)? else {
            return Ok(None);
        };
        let Some(outward) = pinned(&outward)? else {
            return Ok(None);
        };
        Ok(Some(Self([inward, outward])))
    }

    /// Creates and pins missing maps, and loads the programs.
    pub(crate) fn make() -> Result<(Maps, Self), Errno> {
        make_folder()?;
        let [ports, by_address, addrs, nat, datagrams] = map_pins()?;
        let maps = Maps {
            ports: ensure(&ports, "braid_hostports", HASH, HOST_PORTS, NO_PREALLOC)?,
            by_address: ensure(&by_address, "braid_by_addr", ARRAY, 1, 0)?,
            addrs: ensure(&addrs, "braid_addrs", HASH, LOCAL_ADDRS, NO_PREALLOC)?,
        };
        let flows = Flows {
            nat: ensure(&nat, "braid_nat", LRU_HASH, FLOWS, 0)?,
            datagrams: ensure(&datagrams, "braid_datagrams", LRU_HASH, FRAGMENTS, 0)?,
            last: Map::create("braid_last", PERCPU_ARRAY, 1, 0)?,
        };
        let programs = Self::load(&maps, &flows)?;
        Ok((maps, programs))
    }

    fn load(maps: &Maps, flows: &Flows) -> Result<Self, Errno> {
        let both = [
            flows.nat.as_raw_fd(),
            flows.datagrams.as_raw_fd(),
            flows.last.as_raw_fd(),
        ];
        let all = [
            &both[..],
            &[
                maps.ports.as_raw_fd(),
                maps.by_address.as_raw_fd(),
                maps.addrs.as_raw_fd(),
            ],
        ]
        .concat();
        Ok(Self([
            load(NAMES[0], HP_IN, &all)?,
            load(NAMES[1], HP_OUT, &both)?,
        ]))
    }

    /// Pins these programs, and unpins all other versions.
    pub(crate) fn pin(&self) -> Result<(), Errno> {
        unpin_programs()?;
        let [inward, outward] = &self.0;
        let [inward_pin, outward_pin] = program_pins()?;
        pin(inward, &inward_pin)?;
        pin(outward, &outward_pin)
    }

    /// Returns the file descriptors of the ingress and the egress program.
    pub(crate) fn fds(&self) -> [RawFd; 2] {
        [self.0[0].as_raw_fd(), self.0[1].as_raw_fd()]
    }

    /// Returns the ids of the ingress and the egress program. The kernel reports these ids for
    /// filters.
    pub(crate) fn ids(&self) -> Result<[u32; 2], Errno> {
        let [inward, outward] = &self.0;
        Ok([program_info(inward)?.id, program_info(outward)?.id])
    }
}

impl Maps {
    /// Opens the pinned maps; `None` if one is missing.
    pub(crate) fn pinned() -> Result<Option<Self>, Errno> {
        let [ports, by_address, addrs, ..] = map_pins()?;
        let (Some(ports), Some(by_address)) = (Map::pinned(&ports)?, Map::pinned(&by_address)?)
        else {
            return Ok(None);
        };
        let Some(addrs) = Map::pinned(&addrs)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            ports,
            by_address,
            addrs,
        }))
    }

    /// Returns target and owner of a port; `None` if the port is free.
    pub(crate) fn find(&self, at: &At) -> Result<Option<EbpfPort>, Errno> {
        Ok(self.ports.get(&entrance(at))?.as_ref().map(shown))
    }

    /// Redirects a port; `EEXIST` if it has an owner already.
    pub(crate) fn add(&self, at: &At, value: &PortValue<'_>) -> Result<(), Errno> {
        if !at.addr.is_unspecified() {
            self.by_address.set(&0, &1)?;
        }
        self.ports.add(&entrance(at), &target(value))
    }

    /// Redirects a port, replacing any owner.
    pub(crate) fn set(&self, at: &At, value: &PortValue<'_>) -> Result<(), Errno> {
        self.ports.set(&entrance(at), &target(value))
    }

    /// Deletes a port if it still belongs to `owner`.
    pub(crate) fn del(&self, at: &At, owner: &str) -> Result<(), Errno> {
        self.ports.del_of(&entrance(at), owner)
    }

    /// Deletes all ports of an owner.
    pub(crate) fn del_owner(&self, owner: &str) -> Result<(), Errno> {
        self.ports.del_all_of(owner)
    }

    /// Stops an owner's container and its neighbours on the bridge from reaching each other.
    pub(crate) fn keep_apart(&self, owner: &str) -> Result<(), Errno> {
        for at in self.ports.keys()? {
            let Some(target) = self.ports.get(&at)? else {
                continue;
            };
            if target.owner_text() != owner {
                continue;
            }
            let flags = target.flags & !NEIGHBOURS;
            self.ports.set(&at, &Target { flags, ..target })?;
        }
        Ok(())
    }

    /// Lists all ports.
    pub(crate) fn list(&self) -> Result<Vec<EbpfPort>, Errno> {
        Ok(self.ports.values()?.iter().map(shown).collect())
    }

    /// True if the map has no port.
    pub(crate) fn are_empty(&self) -> Result<bool, Errno> {
        self.ports.is_empty()
    }

    /// Replaces the host's addresses in the map by `addrs`.
    pub(crate) fn note_addrs(&self, addrs: Vec<IpAddr>) -> Result<(), Errno> {
        // Time at which the kernel last confirmed the address: long ago. The programs update it.
        const NOTED: u32 = 0;
        let mut gone = self.addrs.keys()?;
        // Point-to-point links often share one address.
        let addrs = BTreeSet::from_iter(addrs);
        for addr in addrs {
            if !is_of_host(addr) {
                continue;
            }
            let addr = address(addr);
            match gone.iter().position(|known| *known == addr) {
                Some(at) => drop(gone.swap_remove(at)),
                None => self.addrs.set(&addr, &NOTED)?,
            }
        }
        gone.iter().try_for_each(|addr| self.addrs.del(addr))
    }
}

/// Deletes the pins of the programs. Without these pins, no link counts as running the programs.
pub(crate) fn unpin_programs() -> Result<(), Errno> {
    named(PREFIX)?.iter().try_for_each(|path| remove(path))
}

/// Deletes the pins of the maps, and their folder.
pub(crate) fn unpin_maps() -> Result<(), Errno> {
    map_pins()?.iter().try_for_each(|path| remove(path))?;
    remove_folder()
}

fn map_pins() -> Result<[PathBuf; 5], Errno> {
    let folder = folder()?;
    Ok([
        "host_ports",
        "by_address",
        "local_addrs",
        "nat",
        "datagrams",
    ]
    .map(|name| folder.join(name)))
}

fn program_pins() -> Result<[PathBuf; 2], Errno> {
    let folder = folder()?;
    Ok(["in", "out"].map(|name| folder.join(format!("{PREFIX}{name}_{VERSION:016x}"))))
}

/// True if the host can be reached from outside at this address.
fn is_of_host(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => !addr.is_loopback() && !addr.is_unspecified(),
        IpAddr::V6(addr) => {
            !addr.is_loopback() && !addr.is_unspecified() && !addr.is_unicast_link_local()
        }
    }
}

/// Converts an address to the form in the maps, where an IPv4 address is mapped to IPv6.
pub(in super::super) fn address(addr: IpAddr) -> Address {
    let addr = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    words(addr.octets())
}

fn words(octets: [u8; 16]) -> Address {
    let (words, _) = octets.as_chunks::<4>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u32::from_ne_bytes(*word)))
}

/// Converts an address from the form in the maps, where an IPv4 address is mapped to IPv6.
pub(in super::super) fn addr_of(address: Address) -> IpAddr {
    let mut octets = [0; 16];
    for (at, word) in octets.chunks_exact_mut(4).zip(address) {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    let addr = Ipv6Addr::from(octets);
    addr.to_ipv4_mapped().map_or(IpAddr::V6(addr), IpAddr::V4)
}

/// Converts a netmask to the form in the maps. An IPv4 mask also covers the prefix of mapped
/// addresses.
fn mask(net: IpNet) -> Address {
    match net {
        IpNet::V4(net) => {
            let [_, _, _, own] = address(IpAddr::V4(net.netmask()));
            [u32::MAX, u32::MAX, u32::MAX, own]
        }
        IpNet::V6(net) => words(net.netmask().octets()),
    }
}

fn entrance(at: &At) -> Entrance {
    Entrance {
        addr: address(at.addr),
        port: at.port.to_be(),
        protocol: at.protocol.number().into(),
    }
}

fn target(value: &PortValue<'_>) -> Target {
    let (owner, owner_len) = owner_of(value.owner);
    Target {
        addr: address(value.to.ip()),
        mask: mask(value.net),
        port: value.to.port().to_be(),
        flags: if value.hairpin { HAIRPIN } else { 0 }
            | if value.neighbours { NEIGHBOURS } else { 0 },
        link: value.link,
        bridge: value.bridge.unwrap_or_default(),
        mac: value.mac,
        owner_len,
        owner,
    }
}

impl Owned for Target {
    fn owner(&self) -> (&[u8; OWNER_LEN], u16) {
        (&self.owner, self.owner_len)
    }
}

fn shown(target: &Target) -> EbpfPort {
    EbpfPort {
        to: SocketAddr::new(addr_of(target.addr), u16::from_be(target.port)),
        owner: target.owner_text(),
        link: target.link,
        is_bridged: target.bridge != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::thing::host_ports::Protocol;
    use std::net::Ipv4Addr;

    fn value(to: &str) -> PortValue<'_> {
        PortValue {
            to: to.parse().expect("an address and a port"),
            net: IpNet::from(
                to.parse::<SocketAddr>()
                    .expect("an address and a port")
                    .ip(),
            ),
            link: 7,
            bridge: Some(3),
            mac: [2, 0, 0, 0, 0, 1],
            hairpin: true,
            neighbours: false,
            owner: "net 4f1c eth0",
        }
    }

    #[test]
    fn written_target_is_read_back() {
        for to in ["10.1.0.5:80", "[fd00::5]:8080"] {
            let target = target(&value(to));
            let EbpfPort {
                to: read,
                owner,
                link,
                is_bridged,
            } = shown(&target);
            assert_eq!(
                (read.to_string().as_str(), owner.as_str(), link, is_bridged),
                (to, "net 4f1c eth0", 7, true)
            );
        }
    }

    #[test]
    fn kernel_loads_the_programs() {
        let maps = Maps {
            ports: Map::create("braid_test", HASH, 8, NO_PREALLOC).expect("a map"),
            by_address: Map::create("braid_test", ARRAY, 1, 0).expect("a map"),
            addrs: Map::create("braid_test", HASH, 8, NO_PREALLOC).expect("a map"),
        };
        let flows = Flows {
            nat: Map::create("braid_test", LRU_HASH, 8, 0).expect("a map"),
            datagrams: Map::create("braid_test", LRU_HASH, 8, 0).expect("a map"),
            last: Map::create("braid_test", PERCPU_ARRAY, 1, 0).expect("a map"),
        };
        Programs::load(&maps, &flows).expect("the verifier agrees");
        let at = At {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            protocol: Protocol::Tcp,
            port: 80,
            conditional: false,
        };
        maps.add(&at, &value("10.1.0.5:80")).expect("added");
        assert_eq!(maps.add(&at, &value("10.1.0.6:80")), Err(Errno::EEXIST));
        maps.set(
            &at,
            &PortValue {
                neighbours: true,
                ..value("10.1.0.5:80")
            },
        )
        .expect("changed");
        let flags = || {
            maps.ports
                .get(&entrance(&at))
                .expect("read")
                .expect("there")
                .flags
        };
        maps.keep_apart("net other eth0").expect("left alone");
        assert_eq!(flags(), HAIRPIN | NEIGHBOURS);
        maps.keep_apart("net 4f1c eth0").expect("changed");
        assert_eq!(flags(), HAIRPIN);
        maps.del(&at, "net other eth0").expect("left alone");
        assert_eq!(maps.list().expect("a list").len(), 1);
        maps.del_owner("net 4f1c eth0").expect("gone");
        assert!(maps.are_empty().expect("known"));
    }

    #[test]
    fn only_addresses_reachable_from_outside_count_as_the_hosts() {
        let counts = |addr: &str| is_of_host(addr.parse().expect("an address"));
        assert!(counts("192.0.2.1") && counts("fd00::1") && counts("169.254.1.1"));
        assert!(!counts("127.0.0.1") && !counts("::1") && !counts("fe80::1"));
    }

    #[test]
    fn ipv4_mask_covers_the_mapped_prefix() {
        assert_eq!(
            mask("10.1.0.5/24".parse().expect("a net"))[3],
            0xffff_ff00_u32.to_be()
        );
        assert_eq!(
            mask("fd00::5/64".parse().expect("a net")),
            [u32::MAX, u32::MAX, 0, 0]
        );
    }
}
