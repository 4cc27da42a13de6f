//! Goodput of a TCP flow.
//!
//! A single thread sends and receives, one piece after the other. The kernel delivers a packet to
//! another namespace in the sender's context, so nearly all of the time belongs to the path. A
//! thread at either end would measure wakeups across processors. With two threads, measurements of
//! half a second differed by 10 %, and a path without a host port was no faster than one with it.

use crate::traffic::cpu::Moment;
use crate::traffic::{Way, bits, socket};
use anyhow::{Context, Result};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time before the measurement starts, enough to open TCP's window.
const SETTLE: Duration = Duration::from_millis(100);
/// Bytes sent and received in one call, which the kernel puts into a single packet.
const PIECE: usize = 64 << 10;
/// Longest wait for a piece after a loss.
const PATIENCE: Duration = Duration::from_secs(5);

/// Goodput and its cost.
pub(crate) struct Went {
    pub(crate) gbit_per_s: f64,
    /// Busy time of all processors per Gbit.
    pub(crate) cpu_s_per_gbit: f64,
}

pub(crate) fn measure(way: &Way<'_>, length: Duration) -> Result<Went> {
    let mut flow = Flow::over(socket::tcp(way)?)?;
    flow.go(SETTLE).context("send and receive")?;
    let (start, before) = (Instant::now(), Moment::now()?);
    let gbit = bits(flow.go(length).context("send and receive")?) / 1e9;
    let (took, busy) = (start.elapsed(), before.busy()?);
    Ok(Went {
        gbit_per_s: gbit / took.as_secs_f64(),
        cpu_s_per_gbit: busy.as_secs_f64() / gbit,
    })
}

struct Flow {
    from: TcpStream,
    to: TcpStream,
    piece: Vec<u8>,
}

impl Flow {
    fn over((from, to): (TcpStream, TcpStream)) -> io::Result<Self> {
        from.set_write_timeout(Some(PATIENCE))?;
        to.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            from,
            to,
            piece: vec![0; PIECE],
        })
    }

    /// Sends and receives for `length`; returns the number of bytes that arrived.
    fn go(&mut self, length: Duration) -> io::Result<usize> {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < length {
            self.from.write_all(&self.piece)?;
            self.to.read_exact(&mut self.piece)?;
            bytes += PIECE;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn each_piece_that_is_counted_has_arrived() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut flow = Flow::over((from, listener.accept().unwrap().0)).unwrap();
        let bytes = flow.go(Duration::from_millis(20)).unwrap();
        assert!(bytes > 0 && bytes.is_multiple_of(PIECE), "{bytes}");
        flow.to.set_nonblocking(true).unwrap();
        assert_eq!(
            flow.to.read(&mut [0]).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }
}
