//! BTF of the running kernel: ids of functions, and offsets of struct members.
//!
//! The BTF is read only for the first rate-limited attachment that needs it. A search through all
//! types takes a few milliseconds. The file `/sys/kernel/btf/vmlinux` has the same contents, but
//! returns one page per read: more than a thousand system calls.

use super::object::{ById, by_id, get_info};
use super::{call, load_classifier};
use nix::errno::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;

const BTF_GET_FD_BY_ID: libc::c_long = 19;
const BTF_GET_NEXT_ID: libc::c_long = 23;
/// `BTF_MAGIC`.
const MAGIC: [u8; 2] = 0xeb9f_u16.to_ne_bytes();
/// Length of `struct btf_type` without the kind-specific data after it.
const TYPE: usize = 12;
/// Length of `struct btf_member`.
const MEMBER: usize = 12;
/// `BTF_KIND_STRUCT`.
const STRUCT: u32 = 4;
/// `BTF_KIND_FUNC`.
const FUNC: u32 = 12;
/// Flag in `struct btf_type`: the offsets of members include bitfield sizes.
const HAS_BITFIELDS: u32 = 1 << 31;

/// Type information (BTF) of a kernel.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    types: Range<usize>,
    strings: Range<usize>,
}

/// A type in the BTF.
struct Type<'a> {
    /// Offset of the type's name in the section of strings.
    name: u32,
    kind: u32,
    flags: u32,
    /// Kind-specific data after the type.
    rest: &'a [u8],
}

/// `struct bpf_btf_info`. The kernel leaves unknown fields unchanged.
#[repr(C)]
#[derive(Default)]
struct Info {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    /// 1 if the BTF belongs to the kernel or to a module (Linux 5.11).
    kernel_btf: u32,
}

impl Btf {
    /// Reads the types of the running kernel. Returns `ENOENT` if the kernel was built without BTF,
    /// and before Linux 5.11.
    pub(crate) fn of_kernel() -> Result<Self, Errno> {
        Self::parse(bytes_of_kernel()?).ok_or(Errno::EPROTO)
    }

    /// Parses `struct btf_header` and locates the sections of types and strings.
    fn parse(bytes: Vec<u8>) -> Option<Self> {
        if bytes.get(..2)? != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)?;
        let part = |at: usize| {
            let start = header.checked_add(word(&bytes, at)?)?;
            let part = start..start.checked_add(word(&bytes, at + 4)?)?;
            bytes.get(part.clone())?;
            Some(part)
        };
        let (types, strings) = (part(8)?, part(16)?);
        Some(Self {
            bytes,
            types,
            strings,
        })
    }

    /// Returns the BTF id of a function; `ESRCH` if there is no such function.
    pub(crate) fn function(&self, name: &str) -> Result<u32, Errno> {
        let place = self
            .types()
            .position(|one| one.kind == FUNC && self.is(one.name, name))
            .ok_or(Errno::ESRCH)?;
        // The first type has id 1; 0 is `void`.
        u32::try_from(place + 1).or(Err(Errno::EPROTO))
    }

    /// Returns the offset of a struct's member in bytes; `ESRCH` if there is no such member.
    pub(crate) fn offset(&self, of: &str, member: &str) -> Result<u32, Errno> {
        for outer in self.types() {
            if outer.kind == STRUCT
                && self.is(outer.name, of)
                && let Some(bits) = self.offset_in(&outer, member)
            {
                return Ok(bits / 8);
            }
        }
        Err(Errno::ESRCH)
    }

    /// Returns the offset of a struct's member in bits.
    fn offset_in(&self, of: &Type<'_>, member: &str) -> Option<u32> {
        let is_it = |at: &&[u8]| number(at, 0).is_some_and(|name| self.is(name, member));
        let mut members = of.rest.chunks_exact(MEMBER);
        let bits = number(members.find(is_it)?, 8)?;
        let has_sizes = of.flags & HAS_BITFIELDS != 0;
        Some(if has_sizes { bits & 0xff_ffff } else { bits })
    }

    /// True if the string at offset `start` equals `text`.
    fn is(&self, start: u32, text: &str) -> bool {
        let strings = &self.bytes[self.strings.clone()];
        let Ok(start) = usize::try_from(start) else {
            return false;
        };
        let Some(string) = strings.get(start..) else {
            return false;
        };
        let rest = string.strip_prefix(text.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Iterates over all types in the order of their ids.
    fn types(&self) -> impl Iterator<Item = Type<'_>> {
        let mut left = &self.bytes[self.types.clone()];
        std::iter::from_fn(move || {
            let (name, flags) = (number(left, 0)?, number(left, 4)?);
            let kind = flags >> 24 & 0x1f;
            let rest = left.get(TYPE..TYPE + len_of(kind, flags & 0xffff)?)?;
            left = &left[TYPE + rest.len()..];
            Some(Type {
                name,
                kind,
                flags,
                rest,
            })
        })
    }
}

fn bytes_of_kernel() -> Result<Vec<u8>, Errno> {
    let (btf, len) = match first_of_kernel() {
        Err(Errno::ENOENT) => {
            // The kernel parses its BTF when it verifies the first program.
            load_classifier()?;
            first_of_kernel()?
        }
        found => found?,
    };
    let mut bytes = vec![0; usize::try_from(len).or(Err(Errno::EOVERFLOW))?];
    get_info(
        &btf,
        &mut Info {
            btf: bytes.as_mut_ptr() as u64,
            btf_size: len,
            ..Info::default()
        },
    )?;
    Ok(bytes)
}

/// Opens the kernel's own BTF, and returns its length too. It has the lowest id of all kernel BTFs,
/// since the BTF of modules builds on it.
fn first_of_kernel() -> Result<(OwnedFd, u32), Errno> {
    let mut attr = ById::default();
    loop {
        call(BTF_GET_NEXT_ID, &mut attr)?;
        attr = ById {
            id: attr.next_id,
            ..ById::default()
        };
        let btf = match by_id(BTF_GET_FD_BY_ID, attr.id) {
            // Another process's BTF, which was unloaded meanwhile.
            Err(Errno::ENOENT) => continue,
            found => found?,
        };
        let mut info = Info::default();
        get_info(&btf, &mut info)?;
        if info.kernel_btf != 0 {
            return Ok((btf, info.btf_size));
        }
    }
}

/// Returns the number of bytes that follow `struct btf_type` for this kind and number of members
/// (v6.18 `Documentation/bpf/btf.rst`); `None` for an unknown kind.
fn len_of(kind: u32, members: u32) -> Option<usize> {
    let members = usize::try_from(members).ok()?;
    Some(match kind {
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structs, unions, sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumerations, function prototypes.
        6 | 13 => 8 * members,
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number(bytes, at)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_kernel_has_ids_and_offsets() {
        let btf = Btf::of_kernel().expect("a kernel with BTF");
        assert!(btf.function("security_socket_bind").expect("a function") > 0);
        // These offsets have not changed since Linux 3.8 on 64-bit processors.
        assert_eq!(btf.offset("socket", "sk"), Ok(24));
        assert_eq!(btf.offset("sock_common", "skc_net"), Ok(48));
        assert_eq!(btf.offset("sock", "__sk_common"), Ok(0));
        assert!(btf.offset("net", "net_cookie").expect("a member") > 0);
        assert_eq!(btf.function("security_socket_bin"), Err(Errno::ESRCH));
        assert_eq!(btf.offset("socket", "skc_net"), Err(Errno::ESRCH));
    }

    #[test]
    fn truncated_btf_is_refused_or_searched_up_to_its_end() {
        let bytes = bytes_of_kernel().expect("a kernel with BTF");
        assert!(bytes == std::fs::read("/sys/kernel/btf/vmlinux").expect("the same in a file"));
        assert!(Btf::parse(bytes[..bytes.len() - 1].to_vec()).is_none());
        assert!(Btf::parse(bytes[1..].to_vec()).is_none());
        let mut whole = Btf::parse(bytes).expect("whole");
        whole.types.end = whole.types.start + 1000;
        assert_eq!(whole.function("security_socket_bind"), Err(Errno::ESRCH));
    }
}
