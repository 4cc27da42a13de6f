//! Waiting for many descriptors, for a time and for the end, in one thread.

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;
use std::os::fd::AsFd;
use std::time::Duration;

/// Word of an event that is the time.
pub const TIME: u64 = u64::MAX;
/// Word of an event that is a signal to end.
pub const END: u64 = u64::MAX - 1;

/// Descriptors that are waited for, each with a word.
#[derive(Debug)]
pub struct Events {
    epoll: Epoll,
    timer: TimerFd,
    /// SIGINT and SIGTERM.
    signals: SignalFd,
}

impl Events {
    /// Waits for signals to end from now on.
    pub fn open() -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // It goes on while the machine sleeps, as leases do.
        let timer = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGINT);
        ends.add(Signal::SIGTERM);
        ends.thread_block()?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let events = Self {
            epoll,
            timer,
            signals,
        };
        events.add(&events.timer, TIME)?;
        events.add(&events.signals, END)?;
        Ok(events)
    }

    /// Waits for what can be read from a descriptor as well, until that is closed.
    pub fn add(&self, of: &impl AsFd, word: u64) -> Result<(), Errno> {
        self.epoll
            .add(of, EpollEvent::new(EpollFlags::EPOLLIN, word))
    }

    /// Sets the time, since boot, that is waited for.
    pub fn set(&self, at: Duration) -> Result<(), Errno> {
        // A time of zero would be none, and one far away more than the kernel counts.
        let at = at.clamp(
            Duration::from_nanos(1),
            Duration::from_hours(24 * 365 * 100),
        );
        let expiration = Expiration::OneShot(TimeSpec::from_duration(at));
        self.timer
            .set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// Waits; returns the words of what has come.
    pub fn wait(&self) -> Result<Vec<u64>, Errno> {
        let mut events = [EpollEvent::empty(); 256];
        let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            count => count?,
        };
        Ok(events[..count].iter().map(EpollEvent::data).collect())
    }
}

/// Lets this process have as many descriptors as it may: by default 1024, and a lease that is asked
/// for takes two.
pub fn raise_descriptors() -> Result<(), Errno> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// The time since boot, sleep included.
pub fn now() -> Duration {
    clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map(Duration::from)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_and_the_time_wake_with_their_words() {
        let events = Events::open().expect("opened");
        let (mut near, far) = UnixStream::pair().expect("a pair");
        events.add(&far, 7).expect("added");
        near.write_all(b"x").expect("written");
        assert_eq!(events.wait(), Ok(vec![7]));
        drop(far);
        events.set(now() + Duration::from_millis(1)).expect("set");
        assert_eq!(events.wait(), Ok(vec![TIME]));
    }
}
