//! The tcx program on the parent link, by which an earlier version refused `AF_XDP` sockets. It has
//! no pin, and the kernel would detach it only with that link.

use super::holds::{Holds, NAME};
use crate::sys::bpf::object::program_by_id;
use crate::sys::bpf::tcx;
use nix::errno::Errno;

/// Releases an owner's binding on a link of this thread's namespace. With the last binding, it also
/// detaches the program.
pub(super) fn release(link: u32, netns: u64, owner: &str) -> Result<(), Errno> {
    for id in tcx::programs(link)? {
        let program = match program_by_id(id) {
            // Another program, which was unloaded meanwhile.
            Err(Errno::ENOENT) => continue,
            other => other?,
        };
        let Some(holds) = Holds::of_program(&program, NAME)? else {
            continue;
        };
        holds.release(netns, owner)?;
        if holds.are_empty()? {
            tcx::detach(link, &program)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf::object::load;
    use crate::sys::netns::NetNs;
    use braid_core::kernel_numbers::LOOPBACK_IFINDEX;
    use std::os::fd::AsRawFd;

    /// Loads a map and accepts all packets: r1 = the map; r0 = -1; exit.
    const INSTRUCTIONS: [[u8; 8]; 4] = [
        [0x18, 0x11, 0, 0, 0, 0, 0, 0],
        [0; 8],
        [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];

    #[test]
    fn last_release_detaches_the_program() {
        let in_namespace = NetNs::throw_away().expect("a namespace").run(|| {
            let attach = |name, holds: &Holds| {
                let program = load(name, INSTRUCTIONS.as_flattened(), &[holds.as_raw_fd()])
                    .expect("a program");
                tcx::attach(LOOPBACK_IFINDEX, &program)
            };
            let [holds, of_another] = [(); 2].map(|()| Holds::create().expect("a map"));
            holds.hold(7, "net a eth0").expect("held");
            holds.hold(8, "net b eth0").expect("held");
            if attach(NAME, &holds) == Err(Errno::EINVAL) {
                eprintln!("SKIP: needs tcx, Linux 6.6");
                return;
            }
            attach("another", &of_another).expect("attached");
            let count = || tcx::programs(LOOPBACK_IFINDEX).expect("read").len();
            release(LOOPBACK_IFINDEX, 7, "net a eth0").expect("released");
            assert_eq!(count(), 2);
            release(LOOPBACK_IFINDEX, 8, "net b eth0").expect("released");
            assert_eq!(count(), 1);
            release(LOOPBACK_IFINDEX, 8, "net b eth0").expect("gone already");
        });
        in_namespace.expect("a namespace of its own");
    }
}
