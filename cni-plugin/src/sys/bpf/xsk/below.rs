//! The program by which an earlier version held such sockets at the link below (tcx). Nothing is pinned, and the kernel would
//! take it away with that link only.

use super::{Holds, NAME};
use crate::sys::bpf::object::{program_by_id, raw};
use crate::sys::bpf::{PROG_QUERY, Query, call};
use nix::errno::Errno;

const PROG_DETACH: libc::c_long = 9;
const TCX_EGRESS: u32 = 47;
/// As many programs as a link has room for (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// Ends what an owner has at a link of this thread's namespace, and with the last one the program.
pub fn release(link: u32, netns: u64, owner: &str) -> Result<(), Errno> {
    for id in programs(link)?.into_iter().filter(|id| *id != 0) {
        let program = match program_by_id(id) {
            // Somebody else's that went meanwhile.
            Err(Errno::ENOENT) => continue,
            other => other?,
        };
        let Some(holds) = Holds::of_program(&program, NAME)? else { continue };
        holds.release(netns, owner)?;
        if holds.are_empty()? {
            call(PROG_DETACH, &mut [link, raw(&program), TCX_EGRESS])?;
        }
    }
    Ok(())
}

/// The numbers of a link's programs, and zeros.
fn programs(link: u32) -> Result<[u32; MOST], Errno> {
    let mut ids = [0; MOST];
    let (prog_ids, prog_cnt) = (ids.as_mut_ptr() as u64, u32::try_from(MOST).unwrap_or_default());
    call(PROG_QUERY, &mut Query { target: link, attach_type: TCX_EGRESS, prog_ids, prog_cnt, ..Query::default() })?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf::object::load;
    use crate::sys::netns::NetNs;
    use std::os::fd::AsRawFd;

    /// Names a map and lets all pass: r1 = the map; r0 = -1; exit.
    const INSTRUCTIONS: [[u8; 8]; 4] =
        [[0x18, 0x11, 0, 0, 0, 0, 0, 0], [0; 8], [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    const LOOPBACK: u32 = 1;
    const PROG_ATTACH: libc::c_long = 8;

    #[test]
    fn the_last_owner_takes_the_program_along() {
        let in_namespace = NetNs::throw_away().expect("a namespace").run(|| {
            let attach = |name, holds: &Holds| {
                let program = load(name, INSTRUCTIONS.as_flattened(), &[holds.as_raw_fd()]).expect("a program");
                call(PROG_ATTACH, &mut [LOOPBACK, raw(&program), TCX_EGRESS])
            };
            let [holds, of_another] = [(); 2].map(|()| Holds::create().expect("a map"));
            holds.hold(7, "net a eth0").expect("held");
            holds.hold(8, "net b eth0").expect("held");
            if attach(NAME, &holds) == Err(Errno::EINVAL) {
                eprintln!("SKIP: needs tcx, Linux 6.6");
                return;
            }
            attach("another", &of_another).expect("attached");
            let count = || programs(LOOPBACK).expect("read").into_iter().filter(|id| *id != 0).count();
            release(LOOPBACK, 7, "net a eth0").expect("released");
            assert_eq!(count(), 2);
            release(LOOPBACK, 8, "net b eth0").expect("released");
            assert_eq!(count(), 1);
            release(LOOPBACK, 8, "net b eth0").expect("gone already");
        });
        in_namespace.expect("a namespace of its own");
    }
}
