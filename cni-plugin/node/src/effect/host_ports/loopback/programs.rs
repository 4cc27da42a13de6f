//! Host ports at `[::1]` for sockets of the host: the map of the ports, and the programs attached
//! to the root of cgroup2 that rewrite the socket addresses.
//!
//! A program's pin holds its BPF link. The pin's name includes a hash of the programs, so another
//! version of braid loads its own programs and keeps the maps. The map of the ports is the first
//! pin to be created and the last to be deleted.

use super::super::ebpf::programs::{addr_of, address};
use crate::sys::bpf::link;
use crate::sys::bpf::made::{CONNECT6, GETPEERNAME6, RECVMSG6, SENDMSG6};
use crate::sys::bpf::object::{
    HASH, LRU_HASH, Map, NO_PREALLOC, ProgramKind, fnv, load_as, pin, pinned,
};
use crate::sys::bpf::owned::{Owned, owner_of};
use crate::sys::bpf::pins::{ensure, folder, make_folder, named, remove, remove_folder};
use crate::sys::{cgroup, netns};
use braid_core::plan::thing::host_ports::HostEndpoint;
use braid_ebpf_types::hostport::{HOST_PORTS, OWNER_LEN};
use braid_ebpf_types::loopback::{Peer, Port, SOCKETS, Target};
use nix::errno::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Hash of the programs' instructions. It identifies this version of the programs.
const VERSION: u64 = fnv(CONNECT6)
    ^ fnv(SENDMSG6).rotate_left(1)
    ^ fnv(RECVMSG6).rotate_left(2)
    ^ fnv(GETPEERNAME6).rotate_left(3);
/// Prefix of the names of the links' pins.
const PREFIX: &str = "lo_";

/// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`.
const SOCK_ADDR: u32 = 18;
/// Attach types of the programs: `BPF_CGROUP_INET6_CONNECT`, `BPF_CGROUP_UDP6_SENDMSG`,
/// `BPF_CGROUP_UDP6_RECVMSG` and `BPF_CGROUP_INET6_GETPEERNAME`.
const INET6_CONNECT: u32 = 11;
const UDP6_SENDMSG: u32 = 15;
const UDP6_RECVMSG: u32 = 20;
const INET6_GETPEERNAME: u32 = 30;

/// A program and its attach type.
struct Program {
    /// Suffix of the name that `bpftool prog` shows, and part of the pin's name.
    name: &'static str,
    attach_type: u32,
    instructions: &'static [u8],
}

/// Programs in the order of attachment and pinning. No connection is redirected before the last
/// program is attached. If the last program is pinned, all programs are attached. The last
/// program's name sorts first, so its pin is deleted first.
const PROGRAMS: [Program; 4] = [
    Program {
        name: "recvmsg6",
        attach_type: UDP6_RECVMSG,
        instructions: RECVMSG6,
    },
    Program {
        name: "getpeername6",
        attach_type: INET6_GETPEERNAME,
        instructions: GETPEERNAME6,
    },
    Program {
        name: "sendmsg6",
        attach_type: UDP6_SENDMSG,
        instructions: SENDMSG6,
    },
    Program {
        name: "connect6",
        attach_type: INET6_CONNECT,
        instructions: CONNECT6,
    },
];

fn kind(attach_type: u32) -> ProgramKind {
    ProgramKind {
        prog_type: SOCK_ADDR,
        attach_type,
        ..ProgramKind::default()
    }
}

impl Program {
    /// Loads the program with the maps of the sockets and of the ports.
    fn load(&self, maps: &Maps) -> Result<OwnedFd, Errno> {
        let all = [maps.sockets.as_raw_fd(), maps.ports.as_raw_fd()];
        load_as(
            kind(self.attach_type),
            &format!("braid_{}", self.name),
            self.instructions,
            &all,
        )
    }

    fn pin(&self) -> Result<PathBuf, Errno> {
        Ok(folder()?.join(format!("{PREFIX}{}_{VERSION:016x}", self.name)))
    }
}

/// Target and owner of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopbackPort {
    /// Address and port in the container.
    pub(crate) to: SocketAddr,
    /// Network, container id and interface.
    pub(crate) owner: String,
}

/// The map of the ports, which braid reads and writes.
#[derive(Debug)]
pub(crate) struct Ports(Map<Port, Target>);

struct Maps {
    ports: Map<Port, Target>,
    /// Map of redirected sockets, which only the programs read and write.
    sockets: Map<Peer, u32>,
}

impl Ports {
    /// Opens the pinned map; `None` if it is not pinned.
    pub(crate) fn pinned() -> Result<Option<Self>, Errno> {
        let [ports, _] = map_pins()?;
        Ok(Map::pinned(&ports)?.map(Self))
    }

    /// Returns target and owner of a port; `None` if the port is free.
    pub(crate) fn find(&self, at: &HostEndpoint) -> Result<Option<LoopbackPort>, Errno> {
        Ok(self.0.get(&port(at))?.map(|target| shown(&target)))
    }

    /// Redirects a port to `to`, replacing any owner, for sockets in the network namespace with
    /// this cookie.
    pub(crate) fn set(
        &self,
        at: &HostEndpoint,
        to: SocketAddr,
        netns: u64,
        owner: &str,
    ) -> Result<(), Errno> {
        self.0.set(&port(at), &target(to, netns, owner))
    }

    /// Deletes a port if it still belongs to `owner`.
    pub(crate) fn del(&self, at: &HostEndpoint, owner: &str) -> Result<(), Errno> {
        self.0.del_of(&port(at), owner)
    }

    /// Deletes all ports of an owner.
    pub(crate) fn del_owner(&self, owner: &str) -> Result<(), Errno> {
        self.0.del_all_of(owner)
    }

    /// Lists the owners of the ports, one entry for each port.
    pub(crate) fn owners(&self) -> Result<Vec<String>, Errno> {
        Ok(self.0.values()?.iter().map(Owned::owner_text).collect())
    }

    /// True if the map has no port.
    pub(crate) fn are_empty(&self) -> Result<bool, Errno> {
        self.0.is_empty()
    }
}

/// True if the programs of this version of braid are attached and pinned.
pub(crate) fn is_started() -> Result<bool, Errno> {
    let [.., last] = &PROGRAMS;
    Ok(pinned(&last.pin()?)?.is_some())
}

/// Creates and pins missing maps, attaches the programs, and pins their BPF links. Detaches all
/// older versions of the programs.
pub(crate) fn start() -> Result<Ports, Errno> {
    make_folder()?;
    let [ports, sockets] = map_pins()?;
    let maps = Maps {
        ports: ensure(&ports, "braid_loopback", HASH, HOST_PORTS, NO_PREALLOC)?,
        sockets: ensure(&sockets, "braid_sockets", LRU_HASH, SOCKETS, 0)?,
    };
    let cgroup = cgroup::root()?;
    let mut links = Vec::with_capacity(PROGRAMS.len());
    for program in &PROGRAMS {
        let loaded = program.load(&maps)?;
        links.push(link::create(&loaded, &cgroup, program.attach_type)?);
    }
    end_programs()?;
    for (program, link) in PROGRAMS.iter().zip(&links) {
        pin(link, &program.pin()?)?;
    }
    Ok(Ports(maps.ports))
}

/// Detaches the programs and deletes all pins.
pub(crate) fn stop() -> Result<(), Errno> {
    end_programs()?;
    let [ports, sockets] = map_pins()?;
    remove(&sockets)?;
    remove(&ports)?;
    remove_folder()
}

/// Detaches and unpins all programs, also programs of other versions of braid. Each pin is deleted
/// before its program is detached: if the call is killed in between, the kernel detaches the
/// program.
fn end_programs() -> Result<(), Errno> {
    for path in named(PREFIX)? {
        let link = pinned(&path)?;
        remove(&path)?;
        if let Some(link) = link {
            link::detach(&link)?;
        }
    }
    Ok(())
}

/// True if all programs, of any version of braid, are loaded and attached to the right hooks.
pub(crate) fn are_attached() -> Result<bool, Errno> {
    let mut places = Vec::new();
    for path in named(PREFIX)? {
        if let Some(link) = pinned(&path)? {
            places.push(link::attached_to(&link)?);
        }
    }
    Ok(PROGRAMS
        .iter()
        .all(|program| places.contains(&Some(program.attach_type))))
}

/// Tests the kernel: loads the shortest program, and checks that the root of cgroup2 allows further
/// programs.
pub(crate) fn probe() -> Result<(), Errno> {
    // r0 = 1; exit, as struct bpf_insn: code, registers, offset, immediate.
    const PROGRAM: [u8; 16] = [0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    netns::cookie()?;
    let cgroup = cgroup::root()?;
    for Program { attach_type, .. } in PROGRAMS {
        load_as(kind(attach_type), "braid_probe", &PROGRAM, &[])?;
        link::is_open_to_all(&cgroup, attach_type)?;
    }
    Ok(())
}

fn map_pins() -> Result<[PathBuf; 2], Errno> {
    let folder = folder()?;
    Ok(["loopback_ports", "loopback_sockets"].map(|name| folder.join(name)))
}

fn port(at: &HostEndpoint) -> Port {
    Port {
        number: at.port.to_be(),
        protocol: at.protocol.number(),
        is_any: at.addr.is_unspecified().into(),
    }
}

fn target(to: SocketAddr, netns: u64, owner: &str) -> Target {
    let (owner, owner_len) = owner_of(owner);
    Target {
        netns,
        addr: address(to.ip()),
        port: to.port().to_be(),
        owner_len,
        padding: 0,
        owner,
    }
}

impl Owned for Target {
    fn owner(&self) -> (&[u8; OWNER_LEN], u16) {
        (&self.owner, self.owner_len)
    }
}

fn shown(target: &Target) -> LoopbackPort {
    LoopbackPort {
        to: SocketAddr::new(addr_of(target.addr), u16::from_be(target.port)),
        owner: target.owner_text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::thing::host_ports::Protocol;

    fn endpoint(addr: &str) -> HostEndpoint {
        HostEndpoint {
            addr: addr.parse().expect("an address"),
            protocol: Protocol::Udp,
            port: 0x1234,
            conditional: false,
        }
    }

    #[test]
    fn written_target_is_read_back() {
        let to = "[fd00::5]:8080".parse().expect("an address and a port");
        let target = target(to, 7, "net 4f1c eth0");
        assert_eq!(
            (target.netns, shown(&target)),
            (
                7,
                LoopbackPort {
                    to,
                    owner: "net 4f1c eth0".to_owned()
                }
            )
        );
    }

    #[test]
    fn port_of_loopback_address_differs_from_port_of_any_address() {
        assert_eq!(
            port(&endpoint("::")),
            Port {
                number: 0x1234_u16.to_be(),
                protocol: 17,
                is_any: 1
            }
        );
        assert_eq!(port(&endpoint("::1")).is_any, 0);
    }

    #[test]
    fn kernel_loads_the_programs() {
        assert_eq!(probe(), Ok(()));
        let maps = Maps {
            ports: Map::create("braid_test", HASH, 8, NO_PREALLOC).expect("a map"),
            sockets: Map::create("braid_test", LRU_HASH, 8, 0).expect("a map"),
        };
        for program in PROGRAMS {
            program
                .load(&maps)
                .unwrap_or_else(|errno| panic!("{}: {errno}", program.name));
        }
        let ports = Ports(maps.ports);
        let to = "[fd00::5]:80".parse().expect("an address and a port");
        ports
            .set(&endpoint("::"), to, 7, "net 4f1c eth0")
            .expect("set");
        ports
            .set(&endpoint("::1"), to, 7, "net other eth0")
            .expect("set");
        ports
            .del(&endpoint("::"), "net other eth0")
            .expect("left alone");
        assert_eq!(ports.owners().expect("a list").len(), 2);
        ports.del(&endpoint("::"), "net 4f1c eth0").expect("gone");
        ports.del_owner("net other eth0").expect("gone");
        assert!(ports.are_empty().expect("known"));
    }
}
