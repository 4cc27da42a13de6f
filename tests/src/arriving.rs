//! Bytes received on a connection, with kernel timestamps of their arrival. Kernel timestamps do
//! not depend on the scheduling of the test.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io::{IoSliceMut, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

/// Longest wait for an expected event. Only a hang takes this long.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Duration of a rate measurement, in seconds.
const MEASURED: f64 = 1.0;
/// Longest time, in seconds, until the expected rate is reached. On a busy machine the sender waits
/// for processor time.
const SLOW: f64 = 300.0;

/// Receiving side of a connection.
pub(crate) struct Arriving {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Received bytes and the kernel's timestamp of the last one.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Time of arrival, since 1970.
    pub time: Duration,
    /// Number of bytes since the previous arrival.
    pub bytes: usize,
}

impl Arriving {
    /// Enables the kernel's receive timestamps on `stream`. Call this before the peer sends.
    pub(crate) fn new(stream: TcpStream) -> Self {
        note_times(&stream);
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a time limit");
        Self {
            stream,
            buffer: vec![0; 1 << 20],
        }
    }

    /// Returns a guard that ends the connection on drop.
    pub(crate) fn end(&self) -> End {
        End(self.stream.try_clone().expect("the same socket"))
    }
}

impl Iterator for Arriving {
    type Item = Arrival;

    /// Waits for more bytes; `None` when the connection has ended.
    fn next(&mut self) -> Option<Arrival> {
        match receive(&self.stream, &mut self.buffer) {
            Err(Errno::ECONNRESET) => None,
            arrival => {
                Some(arrival.expect("bytes within a minute")).filter(|arrival| arrival.bytes > 0)
            }
        }
    }
}

/// Enables the kernel's receive timestamps on a socket.
pub fn note_times(socket: &impl AsFd) {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).expect("a clock");
}

/// Receives bytes with the time of their arrival from a socket set up by [`note_times`]. Waits for
/// data if the socket has none.
pub fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> nix::Result<Arrival> {
    let mut noted = nix::cmsg_space!(TimeSpec);
    let mut place = [IoSliceMut::new(buffer)];
    let taken = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut place,
        Some(&mut noted),
        MsgFlags::empty(),
    )?;
    let noted = taken.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    // The first packets on a machine arrive before the kernel has begun to take timestamps.
    Ok(Arrival {
        time: noted.unwrap_or_else(now),
        bytes: taken.bytes,
    })
}

/// A guard that ends a connection on drop.
pub(crate) struct End(TcpStream);

impl Drop for End {
    fn drop(&mut self) {
        let _gone = self.0.shutdown(Shutdown::Both);
    }
}

/// Returns the time since 1970 by the realtime clock, which the kernel's timestamps use.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time of day")
}

/// Sends as fast as possible until the other side ends the connection.
pub(crate) fn flood(mut sending: TcpStream) {
    let buffer = vec![0; 64 * 1024];
    while sending.write_all(&buffer).is_ok() {}
}

/// Sends as fast as possible until at least `least` bits arrive within one second. This can take
/// longer than a second on a busy machine. Fails if more bits than `most` per second plus `burst`
/// have arrived since the start.
#[track_caller]
pub fn assert_rate(
    sending: TcpStream,
    receiving: TcpStream,
    least: f64,
    (most, burst): (f64, f64),
) {
    let arriving = Arriving::new(receiving);
    let start = now();
    std::thread::scope(|scope| {
        scope.spawn(move || flood(sending));
        let (mut bits, mut best, mut seen) = (0.0, 0.0, VecDeque::from([(0.0, 0.0)]));
        for Arrival { time, bytes } in arriving {
            #[expect(clippy::cast_precision_loss, reason = "a rate to three digits")]
            let more = (bytes * 8) as f64;
            bits += more;
            let seconds = time.saturating_sub(start).as_secs_f64();
            seen.push_back((seconds, bits));
            while seen
                .get(1)
                .is_some_and(|(begin, _)| seconds - begin >= MEASURED)
            {
                seen.pop_front();
            }
            let (begin, before) = seen[0];
            if seconds - begin >= MEASURED {
                assert!(bits < most * seconds + burst, "{bits} bits in {seconds} s");
                best = f64::max(best, (bits - before) / (seconds - begin));
            }
            if best > least {
                return;
            }
            assert!(seconds < SLOW, "{best} bit/s at most, never {least}");
        }
        panic!("the connection ended");
    });
}
