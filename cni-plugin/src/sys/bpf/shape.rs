//! The program `shape`: loaded for one or several attachments, and found again by a filter that runs it.

use super::{LOAD, Load, SCHED_CLS, call, fd_of};
use braid_ebpf_types::shape::{Conf, Count, PLACES, SLOTS, SUBNETS, Shape};
use ipnet::IpNet;
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Made by `cargo xtask ebpf`: all packets, and a part of them by subnet.
const ALL: &[u8] = include_bytes!("shape.insns");
const BY_SUBNET: &[u8] = include_bytes!("shape_subnets.insns");
/// Which program this is, of all that were ever made: the FNV-1a of its instructions.
pub const VERSION: u64 = fnv(ALL);
/// Length of `struct bpf_insn`.
const INSTRUCTION: usize = 8;
/// The first byte of an instruction that loads 64 bits, and the source register that makes them a map's descriptor.
const LOAD_64: u8 = 0x18;
const MAP_FD: u8 = 1 << 4;
/// As `bpftool prog` shows it, and its map.
pub const NAME: &str = "braid_shape";

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO: libc::c_long = 15;
const ARRAY: u32 = 2;
const LPM_TRIE: u32 = 11;
/// A trie is never allocated as a whole.
const NO_PREALLOC: u32 = 1;

/// Start of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    padding: u32,
}

/// Start of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM` and `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A key of the map of the subnets.
#[repr(C)]
struct SubnetKey {
    prefix: u32,
    /// `ETH_P_IP` or `ETH_P_IPV6` in network byte order, as a packet bears it: no prefix of one family covers the other.
    family: u32,
    address: [u8; 16],
}

/// Start of `union bpf_attr` for `BPF_*_GET_FD_BY_ID`.
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Start of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// Start of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    prog_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    xlated: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// Start of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    map_type: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// A loaded program; the filters that run it keep it and its map when this is gone.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    map: OwnedFd,
    /// As the kernel knows it.
    pub id: u32,
    /// When it was loaded, in nanoseconds since boot.
    pub load_time: u64,
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Program {
    /// Loads it; with subnets where [`Conf::subnets`] of its attachments speaks of some.
    pub fn load(subnets: &[IpNet]) -> Result<Self, Errno> {
        let map = create(ARRAY, size_of::<u32>(), size_of::<[Shape; PLACES]>(), SLOTS)?;
        let trie = if subnets.is_empty() { None } else { Some(trie(subnets)?) };
        let maps: Vec<i32> = [Some(&map), trie.as_ref()].into_iter().flatten().map(AsRawFd::as_raw_fd).collect();
        let instructions = with_maps(if subnets.is_empty() { ALL } else { BY_SUBNET }, &maps);
        let mut attr = Load {
            prog_type: SCHED_CLS,
            insn_cnt: u32::try_from(instructions.len() / INSTRUCTION).unwrap_or_default(),
            insns: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            name: name(),
            ..Load::default()
        };
        let program = fd_of(call(LOAD, &mut attr)?)?;
        let mut info = ProgInfo::default();
        get_info(&program, &mut info)?;
        Ok(Self { fd: program, map, id: info.id, load_time: info.load_time })
    }

    /// The program with this id, as a filter shows it; none where it is not ours, or of another layout.
    pub fn by_id(id: u32) -> Result<Option<Self>, Errno> {
        let mut attr = ById { id, next_id: 0, open_flags: 0 };
        let program = fd_of(call(PROG_GET_FD_BY_ID, &mut attr)?)?;
        // That of the attachments is the first that the program uses.
        let mut map_ids = [0u32; 2];
        let mut info = ProgInfo { nr_map_ids: 2, map_ids: map_ids.as_mut_ptr() as u64, ..ProgInfo::default() };
        get_info(&program, &mut info)?;
        if info.name != name() || !(1..=2).contains(&info.nr_map_ids) {
            return Ok(None);
        }
        let mut attr = ById { id: map_ids[0], next_id: 0, open_flags: 0 };
        let map = fd_of(call(MAP_GET_FD_BY_ID, &mut attr)?)?;
        Ok(is_ours(&map)?.then_some(Self { fd: program, map, id, load_time: info.load_time }))
    }

    /// Tells it what to do for the attachment in `slot`, at each place in the order of [`braid_ebpf_types::shape::index`].
    pub fn tell(&self, slot: u32, places: [Conf; PLACES]) -> Result<(), Errno> {
        let shapes: Vec<Shape> = places.into_iter().map(Shape::new).collect();
        element(MAP_UPDATE, &self.map, slot, shapes.as_ptr() as u64)
    }

    /// What it was told, and what became of the packets.
    pub fn places(&self, slot: u32) -> Result<[(Conf, Count); PLACES], Errno> {
        let mut shapes = vec![Shape::new(Conf::default()); PLACES];
        element(MAP_LOOKUP, &self.map, slot, shapes.as_mut_ptr() as u64)?;
        Ok(std::array::from_fn(|place| (shapes[place].conf, shapes[place].count)))
    }
}

/// Whether the map's values are those that [`Program::places`] has room for: a container can give a program our name.
fn is_ours(map: &OwnedFd) -> Result<bool, Errno> {
    let mut info = MapInfo::default();
    get_info(map, &mut info)?;
    let MapInfo { map_type, key_size, value_size, max_entries, .. } = info;
    let numbers = [key_size, value_size, max_entries].map(usize::try_from);
    Ok(map_type == ARRAY && numbers == [size_of::<u32>(), size_of::<[Shape; PLACES]>(), SLOTS].map(Ok))
}

/// Asks what the kernel says of a program or a map; `T` is the start of the struct for that.
fn get_info<T>(of: &OwnedFd, info: &mut T) -> Result<(), Errno> {
    let info_len = u32::try_from(size_of::<T>()).unwrap_or_default();
    let mut attr = GetInfo { fd: raw(of), info_len, info: &raw mut *info as u64 };
    call(OBJ_GET_INFO, &mut attr).map(drop)
}

/// The instructions with the maps' descriptors in the places that bear their numbers.
fn with_maps(instructions: &[u8], maps: &[RawFd]) -> Vec<u8> {
    let mut instructions = instructions.to_vec();
    for instruction in instructions.chunks_exact_mut(INSTRUCTION) {
        if instruction[0] == LOAD_64 && instruction[1] & MAP_FD != 0 {
            let place = instruction[4..].first_chunk().map_or(0, |place| u32::from_ne_bytes(*place));
            let map = usize::try_from(place).ok().and_then(|place| maps.get(place)).copied().unwrap_or(-1);
            instruction[4..].copy_from_slice(&map.to_ne_bytes());
        }
    }
    instructions
}

/// The map of the subnets.
fn trie(subnets: &[IpNet]) -> Result<OwnedFd, Errno> {
    let map = create(LPM_TRIE, size_of::<SubnetKey>(), size_of::<u32>(), SUBNETS)?;
    let listed = 1u32;
    for net in subnets {
        let mut address = [0; 16];
        let family: u16 = match net {
            IpNet::V4(net) => {
                address[..4].copy_from_slice(&net.network().octets());
                0x0800
            }
            IpNet::V6(net) => {
                address = net.network().octets();
                0x86dd
            }
        };
        let prefix = u32::BITS + u32::from(net.prefix_len());
        let key = SubnetKey { prefix, family: family.to_be().into(), address };
        let (key, value) = (&raw const key as u64, &raw const listed as u64);
        let mut attr = Element { map_fd: raw(&map), padding: 0, key, value, flags: 0 };
        call(MAP_UPDATE, &mut attr)?;
    }
    Ok(map)
}

fn create(map_type: u32, key: usize, value: usize, entries: usize) -> Result<OwnedFd, Errno> {
    let mut attr = Create {
        map_type,
        key_size: u32::try_from(key).unwrap_or_default(),
        value_size: u32::try_from(value).unwrap_or_default(),
        max_entries: u32::try_from(entries).unwrap_or_default(),
        map_flags: if map_type == LPM_TRIE { NO_PREALLOC } else { 0 },
        inner_map_fd: 0,
        numa_node: 0,
        name: name(),
        padding: 0,
    };
    fd_of(call(MAP_CREATE, &mut attr)?)
}

fn element(command: libc::c_long, map: &OwnedFd, index: u32, value: u64) -> Result<(), Errno> {
    let mut attr = Element { map_fd: raw(map), padding: 0, key: &raw const index as u64, value, flags: 0 };
    call(command, &mut attr).map(drop)
}

const fn fnv(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

fn raw(fd: &OwnedFd) -> u32 {
    u32::try_from(fd.as_raw_fd()).unwrap_or_default()
}

fn name() -> [u8; 16] {
    let mut name = [0; 16];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_program_and_keeps_what_each_place_is_told() {
        let conf = |rate_bps| Conf { rate_bps, burst_ns: 7, ..Conf::default() };
        let told = [1, 2, 3].map(conf);
        let subnets = ["10.0.0.0/8", "fd00::/64"].map(|net| net.parse().expect("a net"));
        for subnets in [&[][..], &subnets] {
            let program = Program::load(subnets).expect("the verifier agrees");
            program.tell(1, told).expect("written");
            let found = Program::by_id(program.id).expect("it is there").expect("it is ours");
            assert_eq!((found.id, found.load_time), (program.id, program.load_time));
            assert_eq!(found.places(0), Ok([(Conf::default(), Count::default()); PLACES]));
            assert_eq!(found.places(1), Ok(told.map(|conf| (conf, Count::default()))));
            let beyond = u32::try_from(SLOTS).expect("a few");
            assert_eq!(found.tell(beyond, told), Err(Errno::E2BIG));
        }
    }
}
