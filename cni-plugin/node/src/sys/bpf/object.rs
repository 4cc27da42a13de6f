//! Maps and programs of any kind: creation, pinning, and opening.

use super::{LOAD, Load, SCHED_CLS, call, fd_of};
use nix::errno::Errno;
use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const MAP_GET_NEXT_KEY: libc::c_long = 4;
const OBJ_PIN: libc::c_long = 6;
const OBJ_GET: libc::c_long = 7;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO: libc::c_long = 15;
/// Map types: `BPF_MAP_TYPE_HASH` and others.
pub(crate) const HASH: u32 = 1;
pub(crate) const ARRAY: u32 = 2;
pub(crate) const PERCPU_ARRAY: u32 = 6;
pub(crate) const LRU_HASH: u32 = 9;
/// `BPF_F_NO_PREALLOC`: elements are allocated one by one.
pub(crate) const NO_PREALLOC: u32 = 1;
/// `BPF_NOEXIST`: the element must be new.
const NOEXIST: u64 = 1;
/// Length of `struct bpf_insn`.
const INSTRUCTION: usize = 8;
/// First byte of an instruction that loads 64 bits.
const LOAD_64: u8 = 0x18;
/// Value in the source register field of a 64-bit load: the constant is the descriptor of a map.
const MAP_FD: u8 = 1 << 4;

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

/// Start of `union bpf_attr` for `BPF_*_GET_FD_BY_ID` and `BPF_*_GET_NEXT_ID`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ById {
    pub(super) id: u32,
    pub(super) next_id: u32,
    pub(super) open_flags: u32,
}

/// Start of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// Start of `union bpf_attr` for `BPF_OBJ_PIN` and `BPF_OBJ_GET`.
#[repr(C)]
struct Pin {
    path: u64,
    fd: u32,
    file_flags: u32,
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

/// An eBPF map. Keys and values are plain integers, and any padding between them is initialized.
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    fd: OwnedFd,
    holds: PhantomData<(K, V)>,
}

impl<K, V> AsRawFd for Map<K, V> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl<K: Copy, V: Copy> Map<K, V> {
    /// Creates a map for `entries` elements.
    pub(crate) fn create(
        name: &str,
        map_type: u32,
        entries: usize,
        flags: u32,
    ) -> Result<Self, Errno> {
        let fd = create(
            name,
            map_type,
            [size_of::<K>(), size_of::<V>(), entries],
            flags,
        )?;
        Ok(Self {
            fd,
            holds: PhantomData,
        })
    }

    /// Opens the map pinned at `path`. `None` if there is no pin, `EPROTO` if keys or values have
    /// another length.
    pub(crate) fn pinned(path: &Path) -> Result<Option<Self>, Errno> {
        match pinned(path)? {
            Some(fd) => Ok(Some(Self::of(fd)?)),
            None => Ok(None),
        }
    }

    /// Wraps an open map; `EPROTO` if keys or values have another length.
    pub(crate) fn of(fd: OwnedFd) -> Result<Self, Errno> {
        Self::of_kind(fd, |_| true)
    }

    /// Wraps an open map; `EPROTO` if it is not an array, or if keys or values have another length.
    pub(crate) fn of_array(fd: OwnedFd) -> Result<Self, Errno> {
        Self::of_kind(fd, |map_type| map_type == ARRAY)
    }

    fn of_kind(fd: OwnedFd, is_right: impl FnOnce(u32) -> bool) -> Result<Self, Errno> {
        let mut info = MapInfo::default();
        get_info(&fd, &mut info)?;
        let has_sizes = usize::try_from(info.key_size) == Ok(size_of::<K>())
            && usize::try_from(info.value_size) == Ok(size_of::<V>());
        if !has_sizes || !is_right(info.map_type) {
            return Err(Errno::EPROTO);
        }
        Ok(Self {
            fd,
            holds: PhantomData,
        })
    }

    /// Pins the map, so that it outlives this process.
    pub(crate) fn pin(&self, path: &Path) -> Result<(), Errno> {
        pin(&self.fd, path)
    }

    pub(crate) fn get(&self, key: &K) -> Result<Option<V>, Errno> {
        let mut value = MaybeUninit::<V>::uninit();
        let mut attr = self.element(key, value.as_mut_ptr() as u64, 0);
        if found(call(MAP_LOOKUP, &mut attr))?.is_none() {
            return Ok(None);
        }
        // SAFETY: the kernel wrote the whole value. Its length was compared with the map's when the
        // map was created or opened.
        Ok(Some(unsafe { value.assume_init() }))
    }

    /// Adds an element; `EEXIST` if it exists.
    pub(crate) fn add(&self, key: &K, value: &V) -> Result<(), Errno> {
        let mut attr = self.element(key, &raw const *value as u64, NOEXIST);
        call(MAP_UPDATE, &mut attr)?;
        Ok(())
    }

    /// Writes an element, replacing an existing one.
    pub(crate) fn set(&self, key: &K, value: &V) -> Result<(), Errno> {
        let mut attr = self.element(key, &raw const *value as u64, 0);
        call(MAP_UPDATE, &mut attr)?;
        Ok(())
    }

    /// Deletes an element. A missing element is a success.
    pub(crate) fn del(&self, key: &K) -> Result<(), Errno> {
        found(call(MAP_DELETE, &mut self.element(key, 0, 0)))?;
        Ok(())
    }

    /// Returns the key after `key`, or the first key if `key` is `None`. Returns `None` after the
    /// last key.
    pub(crate) fn next(&self, key: Option<&K>) -> Result<Option<K>, Errno> {
        let mut next = MaybeUninit::<K>::uninit();
        let key = key.map_or(0, |key| &raw const *key as u64);
        let mut attr = Element {
            map_fd: raw(&self.fd),
            padding: 0,
            key,
            value: next.as_mut_ptr() as u64,
            flags: 0,
        };
        if found(call(MAP_GET_NEXT_KEY, &mut attr))?.is_none() {
            return Ok(None);
        }
        // SAFETY: the kernel wrote the whole key. Its length was compared with the map's when the
        // map was created or opened.
        Ok(Some(unsafe { next.assume_init() }))
    }

    /// Lists all keys, provided that no other process changes the map meanwhile.
    pub(crate) fn keys(&self) -> Result<Vec<K>, Errno> {
        let mut keys = Vec::new();
        while let Some(key) = self.next(keys.last())? {
            keys.push(key);
        }
        Ok(keys)
    }

    fn element(&self, key: &K, value: u64, flags: u64) -> Element {
        Element {
            map_fd: raw(&self.fd),
            padding: 0,
            key: &raw const *key as u64,
            value,
            flags,
        }
    }
}

/// Loads a classifier (`BPF_PROG_TYPE_SCHED_CLS`) that uses these maps.
pub(crate) fn load(name: &str, instructions: &[u8], maps: &[RawFd]) -> Result<OwnedFd, Errno> {
    load_as(
        ProgramKind {
            prog_type: SCHED_CLS,
            ..ProgramKind::default()
        },
        name,
        instructions,
        maps,
    )
}

/// Type and attach type of a program to load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProgramKind {
    /// `BPF_PROG_TYPE_*`.
    pub(crate) prog_type: u32,
    /// `BPF_CGROUP_*` or another attach type; 0 if the program type has only one.
    pub(crate) attach_type: u32,
    /// BTF id of the kernel function to attach to; 0 for none.
    pub(crate) function: u32,
}

/// Loads a program of this kind. `maps` are in the order in which `cargo xtask ebpf` numbers them.
pub(crate) fn load_as(
    kind: ProgramKind,
    name: &str,
    instructions: &[u8],
    maps: &[RawFd],
) -> Result<OwnedFd, Errno> {
    let instructions = with_maps(instructions, maps);
    let mut attr = Load {
        prog_type: kind.prog_type,
        expected_attach_type: kind.attach_type,
        attach_btf_id: kind.function,
        insn_cnt: u32::try_from(instructions.len() / INSTRUCTION).unwrap_or_default(),
        insns: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        name: name_of(name),
        ..Load::default()
    };
    fd_of(call(LOAD, &mut attr)?)
}

/// Opens the object pinned at `path`; `None` if there is no pin.
pub(crate) fn pinned(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let path = c_string(path)?;
    let mut attr = Pin {
        path: path.as_ptr() as u64,
        fd: 0,
        file_flags: 0,
    };
    match call(OBJ_GET, &mut attr) {
        // A kernel without eBPF has no pins.
        Err(Errno::ENOENT | Errno::ENOSYS) => Ok(None),
        opened => Ok(Some(fd_of(opened?)?)),
    }
}

/// Pins a map, a program or a link.
pub(crate) fn pin(fd: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let path = c_string(path)?;
    let mut attr = Pin {
        path: path.as_ptr() as u64,
        fd: raw(fd),
        file_flags: 0,
    };
    call(OBJ_PIN, &mut attr)?;
    Ok(())
}

fn c_string(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).or(Err(Errno::EINVAL))
}

/// Converts `ENOENT` to `None`.
fn found<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens the object with this id, of the kind given by a command `BPF_*_GET_FD_BY_ID`. Returns
/// `ENOENT` if it no longer exists.
pub(super) fn by_id(command: libc::c_long, id: u32) -> Result<OwnedFd, Errno> {
    fd_of(call(
        command,
        &mut ById {
            id,
            ..ById::default()
        },
    )?)
}

/// Opens the program with this id.
pub(crate) fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    by_id(PROG_GET_FD_BY_ID, id)
}

/// Opens the map with this id.
pub(crate) fn map_by_id(id: u32) -> Result<OwnedFd, Errno> {
    by_id(MAP_GET_FD_BY_ID, id)
}

/// Reads the kernel's description of an object. `T` is the start of the kernel's struct for that
/// kind of object.
pub(super) fn get_info<T>(of: &OwnedFd, info: &mut T) -> Result<(), Errno> {
    let info_len = u32::try_from(size_of::<T>()).unwrap_or_default();
    let mut attr = GetInfo {
        fd: raw(of),
        info_len,
        info: &raw mut *info as u64,
    };
    call(OBJ_GET_INFO, &mut attr)?;
    Ok(())
}

/// The kernel's description of a program.
pub(crate) struct Info {
    /// Program id.
    pub(crate) id: u32,
    /// Name in the form of [`name_of`].
    pub(crate) name: [u8; 16],
    /// Time of loading, in nanoseconds since boot.
    pub(crate) load_time: u64,
    /// Number of maps that the program uses.
    pub(crate) map_count: u32,
    /// Ids of the first two maps; 0 for none.
    pub(crate) map_ids: [u32; 2],
}

/// Reads the kernel's description of a program.
pub(crate) fn program_info(program: &OwnedFd) -> Result<Info, Errno> {
    let mut map_ids = [0; 2];
    let mut info = ProgInfo {
        nr_map_ids: 2,
        map_ids: map_ids.as_mut_ptr() as u64,
        ..ProgInfo::default()
    };
    get_info(program, &mut info)?;
    let ProgInfo {
        id,
        name,
        load_time,
        nr_map_ids,
        ..
    } = info;
    Ok(Info {
        id,
        name,
        load_time,
        map_count: nr_map_ids,
        map_ids,
    })
}

/// Replaces the maps' numbers in the instructions with their file descriptors.
fn with_maps(instructions: &[u8], maps: &[RawFd]) -> Vec<u8> {
    let mut instructions = instructions.to_vec();
    for instruction in instructions.chunks_exact_mut(INSTRUCTION) {
        if instruction[0] == LOAD_64 && instruction[1] & MAP_FD != 0 {
            let place = instruction[4..]
                .first_chunk()
                .map_or(0, |place| u32::from_ne_bytes(*place));
            let map = maps.get(place as usize).copied().unwrap_or(-1);
            instruction[4..].copy_from_slice(&map.to_ne_bytes());
        }
    }
    instructions
}

/// Creates a map. `sizes` are the lengths of a key and a value in bytes, and the maximum number of
/// elements.
fn create(name: &str, map_type: u32, sizes: [usize; 3], map_flags: u32) -> Result<OwnedFd, Errno> {
    let [key_size, value_size, max_entries] =
        sizes.map(|size| u32::try_from(size).unwrap_or_default());
    let mut attr = Create {
        map_type,
        key_size,
        value_size,
        max_entries,
        map_flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: name_of(name),
        padding: 0,
    };
    fd_of(call(MAP_CREATE, &mut attr)?)
}

pub(crate) const fn fnv(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

pub(super) fn raw(fd: &OwnedFd) -> u32 {
    u32::try_from(fd.as_raw_fd()).unwrap_or_default()
}

/// Converts a name to the kernel's form: its first 15 bytes, as `bpftool` shows it.
pub(crate) fn name_of(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let len = text.len().min(name.len() - 1);
    name[..len].copy_from_slice(&text.as_bytes()[..len]);
    name
}
