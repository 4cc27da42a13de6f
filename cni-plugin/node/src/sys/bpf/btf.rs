//! Types of the running kernel, as it describes them (BTF): the number of a function, and the
//! offset of a struct's member.
//!
//! Only for the first limited attachment that needs it; a look through all types takes a few
//! milliseconds. The file `/sys/kernel/btf/vmlinux` says the same, a page for each read: more than
//! a thousand system calls.

use super::object::{ById, by_id, get_info};
use super::{call, load_classifier};
use nix::errno::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;

const BTF_GET_FD_BY_ID: libc::c_long = 19;
const BTF_GET_NEXT_ID: libc::c_long = 23;
/// `BTF_MAGIC`.
const MAGIC: [u8; 2] = 0xeb9f_u16.to_ne_bytes();
/// Length of `struct btf_type` without what follows it by its kind.
const TYPE: usize = 12;
/// Length of `struct btf_member`.
const MEMBER: usize = 12;
/// `BTF_KIND_STRUCT`, `BTF_KIND_FUNC`.
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
/// In the word of flags: members say how many bits they have as well.
const HAS_BITFIELDS: u32 = 1 << 31;

/// The types of one kernel.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    types: Range<usize>,
    strings: Range<usize>,
}

/// One of them.
struct Type<'a> {
    /// Offset of its name in the strings.
    name: u32,
    kind: u32,
    flags: u32,
    /// Rest of the type, by its kind.
    rest: &'a [u8],
}

/// `struct bpf_btf_info`; the kernel leaves what it does not know as it is.
#[repr(C)]
#[derive(Default)]
struct Info {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    /// Flag: it is the kernel's own or a module's (Linux 5.11).
    kernel_btf: u32,
}

impl Btf {
    /// Those of the running kernel; `ENOENT` where it was built without, and before Linux 5.11.
    pub(crate) fn of_kernel() -> Result<Self, Errno> {
        Self::parse(bytes_of_kernel()?).ok_or(Errno::EPROTO)
    }

    /// `struct btf_header`, and the two parts that it tells of.
    fn parse(bytes: Vec<u8>) -> Option<Self> {
        if bytes.get(..2)? != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)?;
        let part = |at: usize| {
            let start = header.checked_add(word(&bytes, at)?)?;
            let part = start..start.checked_add(word(&bytes, at + 4)?)?;
            bytes.get(part.clone()).map(|_| part)
        };
        let (types, strings) = (part(8)?, part(16)?);
        Some(Self {
            bytes,
            types,
            strings,
        })
    }

    /// The number of a function; `ESRCH` where there is none of that name.
    pub(crate) fn function(&self, name: &str) -> Result<u32, Errno> {
        let place = self
            .types()
            .position(|one| one.kind == FUNC && self.is(one.name, name))
            .ok_or(Errno::ESRCH)?;
        // The first type is number 1; 0 is `void`.
        u32::try_from(place + 1).or(Err(Errno::EPROTO))
    }

    /// Offset of a struct's member, in bytes; `ESRCH` where it has none of that name.
    pub(crate) fn offset(&self, of: &str, member: &str) -> Result<u32, Errno> {
        let found = self
            .types()
            .filter(|one| one.kind == STRUCT && self.is(one.name, of))
            .find_map(|one| {
                let mut members = one.rest.chunks_exact(MEMBER);
                let member =
                    members.find(|at| number(at, 0).is_some_and(|name| self.is(name, member)))?;
                let bits = number(member, 8)?;
                Some(
                    if one.flags & HAS_BITFIELDS == 0 {
                        bits
                    } else {
                        bits & 0xff_ffff
                    } / 8,
                )
            });
        found.ok_or(Errno::ESRCH)
    }

    /// True if the string that begins there is this one.
    fn is(&self, start: u32, text: &str) -> bool {
        let string = usize::try_from(start)
            .ok()
            .and_then(|start| self.bytes[self.strings.clone()].get(start..));
        let rest = string.and_then(|string| string.strip_prefix(text.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// All types, in the order of their numbers.
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
            // The kernel reads its own when it checks the first program.
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

/// The first of all that the kernel itself made, which is its own, and how many bytes it has: a
/// module's is made of what is not in that one.
fn first_of_kernel() -> Result<(OwnedFd, u32), Errno> {
    let mut attr = ById::default();
    loop {
        call(BTF_GET_NEXT_ID, &mut attr)?;
        attr = ById {
            id: attr.next_id,
            ..ById::default()
        };
        let btf = match by_id(BTF_GET_FD_BY_ID, attr.id) {
            // Somebody's, and gone meanwhile.
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

/// Number of bytes that follow a type of a kind with so many members (v6.18
/// `Documentation/bpf/btf.rst`).
fn len_of(kind: u32, members: u32) -> Option<usize> {
    let members = usize::try_from(members).ok()?;
    Some(match kind {
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structs, unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumerations, arguments.
        6 | 13 => 8 * members,
        // Pointers, names without a type, qualifiers, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number(bytes, at)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_tells_where_things_are() {
        let btf = Btf::of_kernel().expect("a kernel with BTF");
        assert!(btf.function("security_socket_bind").expect("a function") > 0);
        // Nobody has moved them since Linux 3.8, on processors of 64 bits.
        assert_eq!(btf.offset("socket", "sk"), Ok(24));
        assert_eq!(btf.offset("sock_common", "skc_net"), Ok(48));
        assert_eq!(btf.offset("sock", "__sk_common"), Ok(0));
        assert!(btf.offset("net", "net_cookie").expect("a member") > 0);
        assert_eq!(btf.function("security_socket_bin"), Err(Errno::ESRCH));
        assert_eq!(btf.offset("socket", "skc_net"), Err(Errno::ESRCH));
    }

    #[test]
    fn a_damaged_text_ends_where_it_is_cut() {
        let bytes = bytes_of_kernel().expect("a kernel with BTF");
        assert!(bytes == std::fs::read("/sys/kernel/btf/vmlinux").expect("the same in a file"));
        assert!(Btf::parse(bytes[..bytes.len() - 1].to_vec()).is_none());
        assert!(Btf::parse(bytes[1..].to_vec()).is_none());
        let mut whole = Btf::parse(bytes).expect("whole");
        whole.types.end = whole.types.start + 1000;
        assert_eq!(whole.function("security_socket_bind"), Err(Errno::ESRCH));
    }
}
