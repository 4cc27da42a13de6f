//! Bulk traffic from one end to another, and the part of it that arrived.
//!
//! Each flow has a thread that sends and one that receives. They block in the kernel while they
//! wait.

pub(crate) mod cpu;
pub(crate) mod rr;
pub(crate) mod socket;

use crate::stats::float;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use socket::is_look;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Payload of one UDP datagram, in bytes.
pub(crate) const DATAGRAM: u16 = 1400;
/// Time between two batches of datagrams.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum delay that a late sender makes up for.
const CATCH_UP: Duration = Duration::from_millis(10);
const TCP_WRITE: usize = 64 << 10;
const TCP_READ: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// One end of the traffic.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) netns: &'a File,
    pub(crate) address: IpAddr,
}

/// Path from the sender to the receiver.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) from: End<'a>,
    pub(crate) to: End<'a>,
    /// Forwarded address to which the sender sends; `None` if it sends to the receiver's own
    /// address.
    pub(crate) entrance: Option<Entrance>,
}

/// Address and port that are forwarded to the receiver.
#[derive(Clone, Copy)]
pub(crate) struct Entrance {
    pub(crate) at: SocketAddr,
    /// Port on which the receiver gets the forwarded traffic.
    pub(crate) port: u16,
}

/// Bulk traffic on a path.
pub(crate) struct Load<'a> {
    pub(crate) way: Way<'a>,
    pub(crate) protocol: Protocol,
    pub(crate) flows: u16,
    /// Payload rate of all flows together, in bits per second; TCP sends as fast as it can.
    pub(crate) offered_bps: f64,
    /// Time before the measurement starts.
    pub(crate) settle: Duration,
    /// Congestion control of TCP; `None` for the node's default.
    pub(crate) congestion: Option<&'a str>,
}

/// Time and bytes of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) bytes: usize,
}

/// Start and end of the measurement.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

enum Flow {
    Tcp {
        from: TcpStream,
        to: TcpStream,
    },
    Udp {
        from: UdpSocket,
        to: UdpSocket,
        every: Duration,
    },
}

/// Runs `work` during the traffic, after the settling time. Also returns the arrivals from start to
/// end.
pub(crate) fn during<T>(
    load: &Load<'_>,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Arrival>)> {
    let flows = (0..load.flows)
        .map(|_| Flow::open(load))
        .collect::<Result<Vec<_>>>()?;
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let receivers: Vec<_> = flows
            .iter()
            .map(|flow| scope.spawn(move || flow.receive(stop)))
            .collect();
        let senders: Vec<_> = flows
            .iter()
            .map(|flow| scope.spawn(move || flow.send(stop)))
            .collect();
        thread::sleep(load.settle);
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let mut arrivals = Vec::new();
        for receiver in receivers {
            arrivals.extend(join(receiver).context("receive")?);
        }
        for sender in senders {
            join(sender).context("send")?;
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        Ok((done?, arrivals))
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> Result<T> {
    Ok(thread
        .join()
        .map_err(|_panic| anyhow!("the flow's thread panicked"))??)
}

impl Window {
    /// Sleeps for `length` and returns this window.
    pub(crate) fn pass(length: Duration) -> Self {
        let start = Instant::now();
        thread::sleep(length);
        Window {
            start,
            end: Instant::now(),
        }
    }

    /// Returns the payload in bits per second, from the first to the last read in the window. The
    /// bytes of the first read do not count, because they arrived earlier.
    pub(crate) fn goodput_bps(&self, arrivals: &[Arrival]) -> Option<f64> {
        let inside: Vec<_> = arrivals
            .iter()
            .filter(|read| read.at >= self.start && read.at <= self.end)
            .collect();
        let (first, last) = (inside.first()?, inside.last()?);
        let bytes: usize = inside.iter().skip(1).map(|read| read.bytes).sum();
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        (seconds > 0.0).then(|| bits(bytes) / seconds)
    }
}

pub(crate) fn bits(bytes: usize) -> f64 {
    float(bytes) * 8.0
}

impl Flow {
    fn open(load: &Load<'_>) -> Result<Self> {
        match load.protocol {
            Protocol::Tcp => {
                let (from, to) = socket::tcp(&load.way)?;
                load.congestion
                    .map_or(Ok(()), |name| socket::control_congestion(&from, name))?;
                Ok(Flow::Tcp { from, to })
            }
            Protocol::Udp => {
                let (from, to) = socket::udp(&load.way)?;
                let bps = load.offered_bps / f64::from(load.flows);
                Ok(Flow::Udp {
                    from,
                    to,
                    every: Duration::from_secs_f64(f64::from(DATAGRAM) * 8.0 / bps),
                })
            }
        }
    }

    fn send(&self, stop: &AtomicBool) -> io::Result<()> {
        match self {
            Flow::Tcp { from, .. } => {
                let buffer = vec![0; TCP_WRITE];
                let mut from = from;
                until(stop, || from.write(&buffer).map(|_| ()))
            }
            Flow::Udp { from, every, .. } => send_paced(from, *every, stop),
        }
    }

    fn receive(&self, stop: &AtomicBool) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let mut note = |bytes| {
            arrivals.push(Arrival {
                at: Instant::now(),
                bytes,
            });
            Ok(())
        };
        match self {
            Flow::Tcp { to, .. } => {
                let (mut to, mut buffer) = (to, vec![0; TCP_READ]);
                until(stop, || match to.read(&mut buffer)? {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => note(bytes),
                })?;
            }
            Flow::Udp { to, .. } => {
                let mut buffer = [0; DATAGRAM as usize];
                until(stop, || note(to.recv(&mut buffer)?))?;
            }
        }
        Ok(arrivals)
    }
}

/// Sends a datagram per `every`, in small batches with pauses.
fn send_paced(socket: &UdpSocket, every: Duration, stop: &AtomicBool) -> io::Result<()> {
    let datagram = [0; DATAGRAM as usize];
    let mut due = Instant::now();
    until(stop, || {
        let now = Instant::now();
        due = due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
        while due <= now {
            socket.send(&datagram)?;
            due += every;
        }
        thread::sleep(PAUSE);
        Ok(())
    })
}

/// Repeats `step` until `stop` is set; a step that times out is not a failure.
fn until(stop: &AtomicBool, mut step: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match step() {
            Err(err) if !is_look(&err) => return Err(err),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_counts_bytes_after_the_first_read_of_the_window() {
        let start = Instant::now();
        let read = |ms, bytes| Arrival {
            at: start + Duration::from_millis(ms),
            bytes,
        };
        let arrivals = [
            read(10, 999),
            read(100, 500),
            read(200, 1000),
            read(1100, 250),
            read(1300, 999),
        ];
        let window = Window {
            start: start + Duration::from_millis(50),
            end: start + Duration::from_millis(1200),
        };
        let goodput = window.goodput_bps(&arrivals).unwrap();
        assert!((goodput - 1250.0 * 8.0).abs() < 1e-6, "{goodput}");
    }

    #[test]
    fn a_single_read_gives_no_goodput() {
        let at = Instant::now();
        let window = Window { start: at, end: at };
        assert_eq!(window.goodput_bps(&[Arrival { at, bytes: 1 }]), None);
        assert_eq!(window.goodput_bps(&[]), None);
    }
}
