//! New TCP connections per second: opened, answered with one byte, and reset.
//!
//! A single thread is client and server, one connection after the other. The kernel delivers a
//! packet to another namespace in the sender's context, so no thread waits for a wakeup, and nearly
//! all of the time belongs to the connections. A reset leaves no `TIME_WAIT`, so the client does
//! not run out of ports.

use crate::node::in_netns;
use crate::stats::float;
use crate::traffic::{Way, socket};
use anyhow::{Context, Result};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Time before the measurement starts.
const SETTLE: Duration = Duration::from_millis(100);

/// Rate and cost of new connections.
pub(crate) struct Opened {
    pub(crate) per_s: f64,
    /// CPU time of the thread per connection, including the kernel's work in its context.
    pub(crate) cpu_us: f64,
}

pub(crate) fn measure(way: &Way<'_>, length: Duration) -> Result<Opened> {
    let (listener, to) = socket::listen(way)?;
    // Waits until the path is usable, and fails if it never is.
    socket::connect(way, &listener, to)?;
    in_netns(way.from.netns, || {
        open_for(SETTLE, &listener, to)?;
        let (start, cpu) = (Instant::now(), cpu_time()?);
        let opened = open_for(length, &listener, to)?;
        let (took, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
        Ok(Opened {
            per_s: opened / took.as_secs_f64(),
            cpu_us: cpu.as_secs_f64() * 1e6 / opened,
        })
    })
    .with_context(|| format!("open connections to {to}"))
}

/// Opens connections for `length`; returns their number.
fn open_for(length: Duration, listener: &TcpListener, to: SocketAddr) -> io::Result<f64> {
    let (start, mut opened) = (Instant::now(), 0);
    while start.elapsed() < length {
        open(listener, to)?;
        opened += 1;
    }
    Ok(float(opened))
}

fn open(listener: &TcpListener, to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    listener.accept()?.0.write_all(&[0])?;
    stream.read_exact(&mut [0])?;
    setsockopt(
        &stream,
        sockopt::Linger,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    )?;
    Ok(())
}

/// Returns the CPU time of this thread so far.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_answered_before_the_next_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        for _ in 0..3 {
            open(&listener, to).unwrap();
        }
        listener.set_nonblocking(true).unwrap();
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}
