//! The program `shape`: loading it for one or more attachments, and opening it by the id in a
//! filter.

use crate::sys::bpf::made::{SHAPE, SHAPE_SUBNETS};
use crate::sys::bpf::object::{
    ARRAY, Info, Map, NO_PREALLOC, fnv, load, map_by_id, name_of, program_by_id, program_info,
};
use braid_ebpf_types::shape::{Conf, Count, PLACES, SLOTS, SUBNETS, Shape};
use ipnet::IpNet;
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Hash of the program's instructions (FNV-1a). It identifies this version of the program.
pub(crate) const VERSION: u64 = fnv(SHAPE);
/// Name of the program and its map in the output of `bpftool`.
pub(crate) const NAME: &str = "braid_shape";

const LPM_TRIE: u32 = 11;

/// Key of the map of subnets.
#[repr(C)]
#[derive(Clone, Copy)]
struct SubnetKey {
    prefix: u32,
    /// `ETH_P_IP` or `ETH_P_IPV6` in network byte order, like in a packet. It keeps the prefixes of
    /// the two families apart.
    family: u32,
    address: [u8; 16],
}

/// A loaded program. When this value is dropped, filters that run the program keep it and its map
/// alive.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    map: Map<u32, [Shape; PLACES]>,
    /// Program id.
    pub(crate) id: u32,
    /// Time of loading, in nanoseconds since boot.
    pub(crate) load_time: u64,
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Program {
    /// Loads the program. With `subnets`, the configuration of the attachment ([`Conf::subnets`])
    /// decides if the subnets or all other addresses are shaped.
    pub(crate) fn load(subnets: &[IpNet]) -> Result<Self, Errno> {
        // The subnets belong to one attachment, so the program has one slot.
        let slots = if subnets.is_empty() {
            SLOTS as usize
        } else {
            1
        };
        let map = Map::create(NAME, ARRAY, slots, 0)?;
        let program = if subnets.is_empty() {
            load(NAME, SHAPE, &[map.as_raw_fd()])?
        } else {
            load(
                NAME,
                SHAPE_SUBNETS,
                &[map.as_raw_fd(), trie(subnets)?.as_raw_fd()],
            )?
        };
        let Info { id, load_time, .. } = program_info(&program)?;
        Ok(Self {
            fd: program,
            map,
            id,
            load_time,
        })
    }

    /// Opens the program with this id, as read from a filter. Returns `None` if the program is not
    /// braid's, or has another layout.
    pub(crate) fn by_id(id: u32) -> Result<Option<Self>, Errno> {
        Self::found(id, |info| info.name == name_of(NAME))
    }

    /// Opens the program with this id if it was loaded at `load_time`. Returns `None` if the id now
    /// belongs to another program.
    pub(crate) fn loaded_then(id: u32, load_time: u64) -> Result<Option<Self>, Errno> {
        Self::found(id, |info| info.load_time == load_time)
    }

    fn found(id: u32, is_it: impl FnOnce(&Info) -> bool) -> Result<Option<Self>, Errno> {
        let program = program_by_id(id)?;
        let info = program_info(&program)?;
        if !is_it(&info) || !(1..=2).contains(&info.map_count) {
            return Ok(None);
        }
        // The first map is the map of attachments. A container can use braid's name for its
        // program, so a map with a value size unknown to [`Program::places`] is not braid's.
        match Map::of_array(map_by_id(info.map_ids[0])?) {
            Err(Errno::EPROTO) => Ok(None),
            map => Ok(Some(Self {
                fd: program,
                map: map?,
                id,
                load_time: info.load_time,
            })),
        }
    }

    /// Writes the configuration of the attachment in `slot`, for each place in the order of
    /// [`braid_ebpf_types::shape::index`].
    pub(crate) fn tell(&self, slot: u32, places: &[Conf; PLACES]) -> Result<(), Errno> {
        self.map.set(&slot, &places.map(Shape::new))
    }

    /// Changes the configuration of one place of a slot in use. Packets that pass any place of the slot
    /// at the same moment may count neither in its numbers nor in its rate.
    pub(crate) fn retune(&self, slot: u32, place: usize, conf: Conf) -> Result<(), Errno> {
        let mut shapes = self.map.get(&slot)?.ok_or(Errno::ENOENT)?;
        shapes[place].conf = conf;
        self.map.set(&slot, &shapes)
    }

    /// Reads configuration and counts of a slot for each place.
    pub(crate) fn places(&self, slot: u32) -> Result<[(Conf, Count); PLACES], Errno> {
        let shapes = self.map.get(&slot)?.ok_or(Errno::ENOENT)?;
        Ok(shapes.map(|shape| (shape.conf, shape.count)))
    }
}

/// Creates the map of the subnets.
fn trie(subnets: &[IpNet]) -> Result<Map<SubnetKey, u32>, Errno> {
    const LISTED: u32 = 1;
    let map = Map::create(NAME, LPM_TRIE, SUBNETS, NO_PREALLOC)?;
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
        map.set(
            &SubnetKey {
                prefix,
                family: family.to_be().into(),
                address,
            },
            &LISTED,
        )?;
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_loads_the_program_and_keeps_each_configuration() {
        let conf = |rate_bps| Conf {
            rate_bps,
            burst_ns: 7,
            ..Conf::default()
        };
        let told = [1, 2, 3].map(conf);
        let subnets = ["10.0.0.0/8", "fd00::/64"].map(|net| net.parse().expect("a net"));
        for (subnets, slots) in [(&[][..], SLOTS), (&subnets, 1)] {
            let program = Program::load(subnets).expect("the verifier agrees");
            let found = Program::by_id(program.id)
                .expect("it is there")
                .expect("it is ours");
            assert_eq!((found.id, found.load_time), (program.id, program.load_time));
            assert_eq!(
                found.places(slots - 1),
                Ok([(Conf::default(), Count::default()); PLACES])
            );
            program.tell(slots - 1, &told).expect("written");
            assert_eq!(
                found.places(slots - 1),
                Ok(told.map(|conf| (conf, Count::default())))
            );
            assert_eq!(
                (found.tell(slots, &told), found.places(slots)),
                (Err(Errno::E2BIG), Err(Errno::ENOENT))
            );
        }
    }
}
