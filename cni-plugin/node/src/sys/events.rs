//! Waiting for many descriptors, a timer and termination signals in one thread.

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

/// Token of an event from the timer.
pub const TIME: u64 = u64::MAX;
/// Token of an event from a termination signal.
pub const END: u64 = u64::MAX - 1;

/// Set of descriptors to wait for, each with a token.
#[derive(Debug)]
pub struct Events {
    epoll: Epoll,
    timer: TimerFd,
    /// SIGINT and SIGTERM.
    signals: SignalFd,
}

impl Events {
    /// Blocks termination signals and starts waiting for them.
    pub fn open() -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // The clock includes suspend, like lease times.
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

    /// Starts waiting for input on the descriptor `of`, until it is closed. `word` is its token.
    pub fn add(&self, of: &impl AsFd, word: u64) -> Result<(), Errno> {
        self.epoll
            .add(of, EpollEvent::new(EpollFlags::EPOLLIN, word))
    }

    /// Sets the timer to expire at `time`, counted from boot.
    pub fn set(&self, time: Duration) -> Result<(), Errno> {
        // Zero would disable the timer, and a distant time could overflow the kernel's.
        let time = time.clamp(
            Duration::from_nanos(1),
            Duration::from_hours(24 * 365 * 100),
        );
        let expiration = Expiration::OneShot(TimeSpec::from_duration(time));
        self.timer
            .set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// Waits for events, and returns their tokens.
    pub fn wait(&self) -> Result<Vec<u64>, Errno> {
        let mut events = [EpollEvent::empty(); 256];
        let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            count => count?,
        };
        Ok(events[..count].iter().map(EpollEvent::data).collect())
    }
}

/// Raises the limit on file descriptors to its maximum. The default is 1024, and a lease request
/// takes two.
pub fn raise_descriptors() -> Result<(), Errno> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// Returns the time since boot, including suspend.
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
    fn descriptor_and_timer_wake_with_their_tokens() {
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
