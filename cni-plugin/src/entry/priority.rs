//! Scheduling priority of a plugin call.

#![expect(unsafe_code, reason = "the system call has no wrapper")]

/// `SCHED_FLAG_RESET_ON_FORK`: child processes have the default priority again.
const RESET_ON_FORK: u64 = 0x01;
/// `SCHED_NORMAL`. If the call kept the caller's policy instead, the kernel would ignore
/// [`RESET_ON_FORK`].
const NORMAL: u32 = 0;
const MOST_URGENT: i32 = -20;
/// `SCHED_ATTR_SIZE_VER0`, in bytes.
const SIZE: u32 = 48;

/// The first version of the kernel's `struct sched_attr`.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == SIZE as usize);

/// Gives this process priority over ordinary processes, if permitted. A plugin call takes two
/// milliseconds. Every change to any network of the node waits for locks that the call holds. If
/// the call loses the processor while it holds a lock, all these changes stop.
pub fn raise() {
    let attr = SchedAttr {
        size: SIZE,
        policy: NORMAL,
        flags: RESET_ON_FORK,
        nice: MOST_URGENT,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes. A refusal changes nothing, and the call works without
    // it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_raised_thread_starts_ordinary_programs() {
        let nice = || {
            raise();
            // SAFETY: reads the calling thread's own value.
            let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            (
                own,
                Command::new("nice").output().expect("nice runs").stdout,
            )
        };
        // Niceness belongs to a thread, so the test uses a separate one.
        let (own, child) = std::thread::spawn(nice).join().expect("no panic");
        assert_eq!((own, child), (MOST_URGENT, b"0\n".to_vec()));
    }
}
