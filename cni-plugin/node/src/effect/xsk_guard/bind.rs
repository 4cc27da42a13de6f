//! The LSM program `xsk_bind` (since Linux 5.7). The kernel calls it before it binds any socket of
//! the node.
//!
//! The program's pin holds its BPF link. The pin's name includes a hash of the program, so another
//! version of braid loads its own program and keeps the map. A map that has lost its pin is found
//! through the program.
//!
//! A tracing program on `security_socket_bind()` would need no LSM. But the kernel skips it on a
//! processor where another task was preempted within the program.

use super::holds::{Holds, NAME};
use crate::Cause;
use crate::sys::bpf::btf::Btf;
use crate::sys::bpf::made::XSK_BIND;
use crate::sys::bpf::object::{
    ARRAY, HASH, Map, NO_PREALLOC, ProgramKind, fnv, load_as, pin, pinned, program_by_id,
};
use crate::sys::bpf::pins::{folder, make_folder, named, remove, remove_folder};
use crate::sys::bpf::{link, lsm};
use crate::sys::netns;
use braid_ebpf_types::xsk::{HELD, Offsets};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Hash of the program's instructions. It identifies this version of the program.
const VERSION: u64 = fnv(XSK_BIND);
/// Name of the program in the output of `bpftool prog`.
const PROGRAM: &str = "braid_xsk_bind";
/// Prefix of the names of the pins, which hold the program's BPF links.
const PREFIX: &str = "xsk_bind_";
/// Kernel function to which the program is attached.
const FUNCTION: &str = "bpf_lsm_socket_bind";
/// `BPF_PROG_TYPE_LSM`.
const LSM: u32 = 29;
/// `BPF_LSM_MAC`.
const LSM_MAC: u32 = 27;

/// True if a call has at least begun to create the map or the program: the folder for their pins
/// exists.
pub(super) fn is_begun() -> Result<bool, Errno> {
    Ok(folder()?.exists())
}

/// Opens the map of guarded attachments; `None` if it does not exist.
pub(super) fn holds() -> Result<Option<Holds>, Errno> {
    if let Some(map) = Map::pinned(&map_pin()?)? {
        return Ok(Some(Holds(map)));
    }
    for path in named(PREFIX)? {
        let Some(link) = pinned(&path)? else {
            continue;
        };
        if let Some(holds) = holds_of(&link)? {
            return Ok(Some(holds));
        }
    }
    Ok(None)
}

/// Opens the map of guarded attachments, and creates it if missing.
pub(super) fn ensure_holds() -> Result<Holds, Errno> {
    let path = map_pin()?;
    if let Some(map) = Map::pinned(&path)? {
        return Ok(Holds(map));
    }
    make_folder()?;
    let Holds(map) = match holds()? {
        Some(holds) => holds,
        None => Holds(Map::create(NAME, HASH, HELD, NO_PREALLOC)?),
    };
    map.pin(&path)?;
    Ok(Holds(map))
}

/// Opens the map of guarded attachments, found through the program of a BPF link.
fn holds_of(link: &OwnedFd) -> Result<Option<Holds>, Errno> {
    Holds::of_program(&program_by_id(link::program(link)?)?, PROGRAM)
}

/// True if the program of any version of braid is attached.
pub(super) fn is_started() -> Result<bool, Errno> {
    Ok(!named(PREFIX)?.is_empty())
}

/// Attaches this version's program, and detaches all other versions.
pub(super) fn ensure_started(holds: &Holds) -> Result<(), Errno> {
    let path = folder()?.join(format!("{PREFIX}{VERSION:016x}"));
    if pinned(&path)?.is_some() {
        return Ok(());
    }
    pin(&lsm::attach(&load(holds)?)?, &path)?;
    for other in named(PREFIX)? {
        if other != path {
            remove(&other)?;
        }
    }
    Ok(())
}

/// Detaches the program and deletes all pins.
pub(super) fn stop() -> Result<(), Errno> {
    for path in named(PREFIX)? {
        // Closing the last descriptor of a link waits until the link is gone.
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
    let kind = ProgramKind {
        prog_type: LSM,
        attach_type: LSM_MAC,
        function: btf.function(FUNCTION)?,
    };
    load_as(
        kind,
        PROGRAM,
        XSK_BIND,
        &[holds.as_raw_fd(), offsets.as_raw_fd()],
    )
}

/// Tests whether the program refuses a socket of this thread's namespace. A kernel may load the
/// program and still never call it.
pub(crate) fn probe() -> Result<(), Cause> {
    // These are not missing privileges, since other program types were loaded. Errno `UnknownErrno`
    // is the kernel's ENOTSUPP, which has no number here.
    const LACKING: &[Errno] = &[
        Errno::ENOENT,
        Errno::ESRCH,
        Errno::EINVAL,
        Errno::EPERM,
        Errno::UnknownErrno,
    ];
    let holds = Holds::create()?;
    holds.hold(netns::cookie()?, "")?;
    let _link = match load(&holds).and_then(|program| lsm::attach(&program)) {
        Err(errno) if LACKING.contains(&errno) => {
            return Err(Cause::Lacking(format!("{errno:?} for an LSM program")));
        }
        link => link?,
    };
    match lsm::bind_as_xdp() {
        Err(Errno::EPERM) => Ok(()),
        answer => Err(Cause::Lacking(format!(
            "no LSM program is called ({answer:?}); \"bpf\" must be one of lsm="
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_calls_the_program_if_bpf_lsm_is_on() {
        match probe() {
            Err(Cause::Lacking(said)) => eprintln!("SKIP: {said}"),
            known => known.expect("an answer"),
        }
        assert_ne!(
            lsm::bind_as_xdp(),
            Err(Errno::EPERM),
            "nobody is refused any more"
        );
    }
}
