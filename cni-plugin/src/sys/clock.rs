//! The time, asked of the kernel itself.
//!
//! The C library reads it from a page that the kernel maps into every process. To find the function for that, and to
//! touch the page, takes longer than the dozen system calls by which a plugin call asks for the time.

#![expect(unsafe_code, reason = "the C library has no other way than its own")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day.
pub fn now() -> SystemTime {
    UNIX_EPOCH + read(libc::CLOCK_REALTIME)
}

/// A moment from which time is counted, whatever becomes of the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Starts counting.
    pub fn start() -> Self {
        Self(read(libc::CLOCK_MONOTONIC))
    }

    /// How long ago it was started.
    pub fn took(self) -> Duration {
        read(libc::CLOCK_MONOTONIC).saturating_sub(self.0)
    }
}

// The kernel's own layout: two words of 64 bits.
const _: () = assert!(size_of::<libc::timespec>() == 16 && usize::BITS == 64);

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, as the C library lays it out, and `time` is one. It
    // can't refuse: both clocks are always there.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_is_the_time_of_the_c_library() {
        let before = SystemTime::now();
        let time = now();
        assert!((before..=SystemTime::now()).contains(&time), "{time:?}");
    }

    #[test]
    fn a_stopwatch_counts_on() {
        let (watch, start) = (Stopwatch::start(), Instant::now());
        while start.elapsed() < Duration::from_millis(2) {}
        let inner = start.elapsed();
        let outer = watch.took();
        assert!(inner <= outer && outer < inner + Duration::from_secs(10), "{inner:?} {outer:?}");
    }
}
