//! What comes over a connection, and when: by the kernel's clock as it takes a packet in, whoever
//! the machine lets run then.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io::{IoSliceMut, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

/// Longest wait for what is expected: only what hangs takes as long.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// How long a rate is measured, in seconds.
const MEASURED: f64 = 1.0;
/// Longest wait, in seconds, for a sender to get the processor that long.
const SLOW: f64 = 300.0;

/// The receiver's side of a connection.
pub(crate) struct Arriving {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Some bytes, and when the kernel took in the last of them.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Since 1970.
    pub time: Duration,
    /// How many came since the one before.
    pub bytes: usize,
}

impl Arriving {
    /// To be asked before anything is sent.
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

    /// Ends the connection when it is dropped.
    pub(crate) fn end(&self) -> End {
        End(self.stream.try_clone().expect("the same socket"))
    }
}

impl Iterator for Arriving {
    type Item = Arrival;

    /// Waits for more; `None` at the connection's end.
    fn next(&mut self) -> Option<Arrival> {
        match receive(&self.stream, &mut self.buffer) {
            Err(Errno::ECONNRESET) => None,
            arrival => {
                Some(arrival.expect("bytes within a minute")).filter(|arrival| arrival.bytes > 0)
            }
        }
    }
}

/// Has the kernel note when it takes in what comes to a socket.
pub fn note_times(socket: &impl AsFd) {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true).expect("a clock");
}

/// Takes what came to a socket of [`note_times`], or waits for it.
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
    // The first packets on a machine come before the kernel has begun to note times.
    Ok(Arrival {
        time: noted.unwrap_or_else(now),
        bytes: taken.bytes,
    })
}

/// A connection that ends when this is dropped.
pub(crate) struct End(TcpStream);

impl Drop for End {
    fn drop(&mut self) {
        let _gone = self.0.shutdown(Shutdown::Both);
    }
}

/// The time of day, by which the kernel notes when packets come.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time of day")
}

/// Sends as fast as it can until the other side ends.
pub(crate) fn flood(mut sending: TcpStream) {
    let buffer = vec![0; 64 * 1024];
    while sending.write_all(&buffer).is_ok() {}
}

/// Sends as fast as it can by a connection until at least `least` bits a second have come for a
/// second: a busy machine takes more of them to get there. Fails where more than `most` bits a
/// second come in all that time, and `burst` bits at once.
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
