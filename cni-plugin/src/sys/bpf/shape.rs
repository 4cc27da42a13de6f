//! The program `shape`: loaded for one or several attachments, and found again by a filter that runs it.

use super::call;
use super::object::{
    Element, MAP_LOOKUP, MAP_UPDATE, MapInfo, NO_PREALLOC, ProgInfo, create, fnv, get_info, load, map_by_id, name_of,
    program_by_id, raw,
};
use braid_ebpf_types::shape::{Conf, Count, PLACES, SLOTS, SUBNETS, Shape};
use ipnet::IpNet;
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Made by `cargo xtask ebpf`: all packets, and a part of them by subnet.
const ALL: &[u8] = include_bytes!("shape.insns");
const BY_SUBNET: &[u8] = include_bytes!("shape_subnets.insns");
/// Which program this is, of all that were ever made: the FNV-1a of its instructions.
pub const VERSION: u64 = fnv(ALL);
/// As `bpftool prog` shows it, and its map.
pub const NAME: &str = "braid_shape";

const ARRAY: u32 = 2;
const LPM_TRIE: u32 = 11;

/// A key of the map of the subnets.
#[repr(C)]
struct SubnetKey {
    prefix: u32,
    /// `ETH_P_IP` or `ETH_P_IPV6` in network byte order, as a packet bears it: no prefix of one family covers the other.
    family: u32,
    address: [u8; 16],
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
        // The subnets are one attachment's.
        let slots = if subnets.is_empty() { SLOTS as usize } else { 1 };
        let map = create(NAME, ARRAY, [size_of::<u32>(), size_of::<[Shape; PLACES]>(), slots], 0)?;
        let trie = if subnets.is_empty() { None } else { Some(trie(subnets)?) };
        let maps: Vec<i32> = [Some(&map), trie.as_ref()].into_iter().flatten().map(AsRawFd::as_raw_fd).collect();
        let program = load(NAME, if subnets.is_empty() { ALL } else { BY_SUBNET }, &maps)?;
        let mut info = ProgInfo::default();
        get_info(&program, &mut info)?;
        Ok(Self { fd: program, map, id: info.id, load_time: info.load_time })
    }

    /// The program with this id, as a filter shows it; none where it is not ours, or of another layout.
    pub fn by_id(id: u32) -> Result<Option<Self>, Errno> {
        match Self::found(id, |info| info.name == name_of(NAME))? {
            Some(program) if is_ours(&program.map)? => Ok(Some(program)),
            _ => Ok(None),
        }
    }

    /// The one that we loaded then, as nobody else at the same time; none where its id is another's by now.
    pub fn loaded_then(id: u32, load_time: u64) -> Result<Option<Self>, Errno> {
        Self::found(id, |info| info.load_time == load_time)
    }

    fn found(id: u32, is_it: impl FnOnce(&ProgInfo) -> bool) -> Result<Option<Self>, Errno> {
        let program = program_by_id(id)?;
        // That of the attachments is the first that the program uses.
        let mut map_ids = [0u32; 2];
        let mut info = ProgInfo { nr_map_ids: 2, map_ids: map_ids.as_mut_ptr() as u64, ..ProgInfo::default() };
        get_info(&program, &mut info)?;
        if !is_it(&info) || !(1..=2).contains(&info.nr_map_ids) {
            return Ok(None);
        }
        Ok(Some(Self { fd: program, map: map_by_id(map_ids[0])?, id, load_time: info.load_time }))
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
    let sizes = [info.key_size, info.value_size].map(usize::try_from);
    Ok(info.map_type == ARRAY && sizes == [size_of::<u32>(), size_of::<[Shape; PLACES]>()].map(Ok))
}

/// The map of the subnets.
fn trie(subnets: &[IpNet]) -> Result<OwnedFd, Errno> {
    let map = create(NAME, LPM_TRIE, [size_of::<SubnetKey>(), size_of::<u32>(), SUBNETS], NO_PREALLOC)?;
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

fn element(command: libc::c_long, map: &OwnedFd, index: u32, value: u64) -> Result<(), Errno> {
    let mut attr = Element { map_fd: raw(map), padding: 0, key: &raw const index as u64, value, flags: 0 };
    call(command, &mut attr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_program_and_keeps_what_each_place_is_told() {
        let conf = |rate_bps| Conf { rate_bps, burst_ns: 7, ..Conf::default() };
        let told = [1, 2, 3].map(conf);
        let subnets = ["10.0.0.0/8", "fd00::/64"].map(|net| net.parse().expect("a net"));
        for (subnets, slots) in [(&[][..], SLOTS), (&subnets, 1)] {
            let program = Program::load(subnets).expect("the verifier agrees");
            let found = Program::by_id(program.id).expect("it is there").expect("it is ours");
            assert_eq!((found.id, found.load_time), (program.id, program.load_time));
            assert_eq!(found.places(slots - 1), Ok([(Conf::default(), Count::default()); PLACES]));
            program.tell(slots - 1, told).expect("written");
            assert_eq!(found.places(slots - 1), Ok(told.map(|conf| (conf, Count::default()))));
            assert_eq!((found.tell(slots, told), found.places(slots)), (Err(Errno::E2BIG), Err(Errno::ENOENT)));
        }
    }
}
