//! The program `xsk_bind`, which stands in the place of `security_socket_bind()` for the whole node (`fmod_ret`, Linux 5.7;
//! for functions of that name the kernel allows it, whatever LSMs it has).
//!
//! What is pinned of the program is its link, under a name that bears its number, so that another braid loads its own and
//! goes on with the map.

use super::{Holds, NAME};
use crate::sys::bpf::btf::Btf;
use crate::sys::bpf::object::{ARRAY, HASH, Kind, Map, NO_PREALLOC, fnv, load_as, pin, pinned, raw};
use crate::sys::bpf::pins::{ensure, folder, make_folder, named, remove, remove_folder};
use crate::sys::bpf::{call, fd_of};
use braid_ebpf_types::xsk::{HELD, Offsets};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Made by `cargo xtask ebpf`.
const INSTRUCTIONS: &[u8] = include_bytes!("../xsk_bind.insns");
/// Which program this is, of all that were ever made.
const VERSION: u64 = fnv(INSTRUCTIONS);
/// As `bpftool prog` shows it.
const PROGRAM: &str = "braid_xsk_bind";
/// How the names of the links' pins begin.
const PREFIX: &str = "xsk_bind_";
/// The function that it stands before.
const FUNCTION: &str = "security_socket_bind";
/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_MODIFY_RETURN`.
const MODIFY_RETURN: u32 = 26;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;

/// Start of `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct Open {
    /// None: the program was loaded for one function.
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// Those that are pinned; none where none are.
pub fn holds() -> Result<Option<Holds>, Errno> {
    Ok(Map::pinned(&map_pin()?)?.map(Holds))
}

/// The same, made where there are none.
pub fn ensure_holds() -> Result<Holds, Errno> {
    make_folder()?;
    ensure(&map_pin()?, NAME, HASH, HELD, NO_PREALLOC).map(Holds)
}

/// Whether the program runs, of whatever braid.
pub fn is_started() -> Result<bool, Errno> {
    Ok(!named(PREFIX)?.is_empty())
}

/// Has this braid's program run in the place of all others.
pub fn ensure_started(holds: &Holds) -> Result<(), Errno> {
    let path = folder()?.join(format!("{PREFIX}{VERSION:016x}"));
    if pinned(&path)?.is_some() {
        return Ok(());
    }
    pin(&attach(&load(holds)?)?, &path)?;
    named(PREFIX)?.iter().filter(|other| **other != path).try_for_each(|other| remove(other))
}

/// Takes the program and all pins away.
pub fn stop() -> Result<(), Errno> {
    for path in named(PREFIX)? {
        // Whoever closes a link last waits until it is gone.
        let _link = pinned(&path)?;
        remove(&path)?;
    }
    remove(&map_pin()?)?;
    remove_folder()
}

fn map_pin() -> Result<PathBuf, Errno> {
    Ok(folder()?.join("xsk_held"))
}

fn load(holds: &Holds) -> Result<OwnedFd, Errno> {
    let btf = Btf::of_kernel()?;
    let offsets = Map::create("braid_offsets", ARRAY, 1, 0)?;
    let found = Offsets {
        socket_sk: btf.offset("socket", "sk")?,
        sock_net: btf.offset("sock_common", "skc_net")?,
        net_cookie: btf.offset("net", "net_cookie")?,
    };
    offsets.set(&0u32, &found)?;
    let kind = Kind { prog_type: TRACING, attach_type: MODIFY_RETURN, function: btf.function(FUNCTION)? };
    load_as(kind, PROGRAM, INSTRUCTIONS, &[holds.as_raw_fd(), offsets.as_raw_fd()])
}

/// Has the program run as long as the link is held.
fn attach(program: &OwnedFd) -> Result<OwnedFd, Errno> {
    fd_of(call(RAW_TRACEPOINT_OPEN, &mut Open { name: 0, prog_fd: raw(program), padding: 0 })?)
}

/// Whether the kernel lets it run; holds nobody. Whatever a kernel says that does not, it will say again.
pub(in crate::sys) fn probe() -> Result<(), Errno> {
    let attached = Holds::create().and_then(|holds| attach(&load(&holds)?));
    attached.map(drop).map_err(|errno| if errno == Errno::ENOMEM { errno } else { Errno::EOPNOTSUPP })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_program_where_it_takes_any() {
        // r0 = 0; exit, as struct bpf_insn: code, registers, offset, immediate.
        const SHORTEST: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
        let function = Btf::of_kernel().and_then(|btf| btf.function(FUNCTION)).expect("a kernel with BTF");
        let kind = Kind { prog_type: TRACING, attach_type: MODIFY_RETURN, function };
        match load_as(kind, "braid_probe", &SHORTEST, &[]).and_then(|program| attach(&program)) {
            Err(errno) => eprintln!("SKIP: the kernel lets no program stand before a function: {errno}"),
            Ok(_) => assert_eq!(probe(), Ok(())),
        }
    }
}
