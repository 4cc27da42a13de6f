//! The program `xsk_bind`, which the kernel asks before it binds any socket of the node (an LSM
//! program, Linux 5.7).
//!
//! The pin of the program is that of its link. Its name bears the program's number, so that another
//! braid loads its own and goes on with the map. A map whose own pin is gone is found by the
//! program.
//!
//! It is no program of tracing that stands before `security_socket_bind()`, though that would need
//! no LSM: such a program is passed over on a processor where another task was preempted within it.

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

/// Hash of the program's instructions, which tells it from all that were ever made.
const VERSION: u64 = fnv(XSK_BIND);
/// As `bpftool prog` shows it.
const PROGRAM: &str = "braid_xsk_bind";
/// Prefix of the names of the links' pins.
const PREFIX: &str = "xsk_bind_";
/// The function of the kernel that asks.
const FUNCTION: &str = "bpf_lsm_socket_bind";
/// `BPF_PROG_TYPE_LSM`.
const LSM: u32 = 29;
/// `BPF_LSM_MAC`.
const LSM_MAC: u32 = 27;

/// True if a call made something here, or began to.
pub(super) fn is_begun() -> Result<bool, Errno> {
    Ok(folder()?.exists())
}

/// Those that are held; none where nobody ever was.
pub(super) fn holds() -> Result<Option<Holds>, Errno> {
    if let Some(map) = Map::pinned(&map_pin()?)? {
        return Ok(Some(Holds(map)));
    }
    let of_links = named(PREFIX)?
        .iter()
        .map(|path| pinned(path)?.as_ref().map_or(Ok(None), holds_of))
        .collect();
    let of_links: Result<Vec<Option<Holds>>, Errno> = of_links;
    Ok(of_links?.into_iter().flatten().next())
}

/// The same, made where there are none.
pub(super) fn ensure_holds() -> Result<Holds, Errno> {
    let path = map_pin()?;
    if let Some(map) = Map::pinned(&path)? {
        return Ok(Holds(map));
    }
    make_folder()?;
    let Holds(map) = match holds()? {
        Some(holds) => holds,
        None => Map::create(NAME, HASH, HELD, NO_PREALLOC).map(Holds)?,
    };
    map.pin(&path)?;
    Ok(Holds(map))
}

/// Whom the program of a link holds.
fn holds_of(link: &OwnedFd) -> Result<Option<Holds>, Errno> {
    Holds::of_program(&program_by_id(link::program(link)?)?, PROGRAM)
}

/// True if the program runs, of whatever braid.
pub(super) fn is_started() -> Result<bool, Errno> {
    Ok(!named(PREFIX)?.is_empty())
}

/// Has this braid's program run in the place of all others.
pub(super) fn ensure_started(holds: &Holds) -> Result<(), Errno> {
    let path = folder()?.join(format!("{PREFIX}{VERSION:016x}"));
    if pinned(&path)?.is_some() {
        return Ok(());
    }
    pin(&lsm::attach(&load(holds)?)?, &path)?;
    named(PREFIX)?
        .iter()
        .filter(|other| **other != path)
        .try_for_each(|other| remove(other))
}

/// Takes the program and all pins away.
pub(super) fn stop() -> Result<(), Errno> {
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

/// Tries whether the program refuses a socket of this thread's namespace: a kernel takes it, too,
/// where nothing asks it.
pub(crate) fn probe() -> Result<(), Cause> {
    // Not root's fault: other kinds of programs were taken. And what has no number here is the
    // kernel's ENOTSUPP.
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
            "no LSM program is asked ({answer:?}); \"bpf\" must be one of lsm="
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_asks_the_program_where_it_asks_any() {
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
