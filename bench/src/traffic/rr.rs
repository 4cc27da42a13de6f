//! Requests and responses, one at a time, and their round-trip times.

use super::socket::{self, is_look};
use super::{Protocol, Way};
use anyhow::{Context, Result, anyhow};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Payload in each direction, in bytes.
const SIZE: usize = 64;
/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket that sends or answers requests.
trait Messages {
    fn send(&mut self, message: &[u8; SIZE]) -> io::Result<()>;
    fn receive(&mut self, message: &mut [u8; SIZE]) -> io::Result<()>;
    /// True if an unanswered message is sent again after some time.
    const MAY_BE_LOST: bool;
}

impl Messages for TcpStream {
    const MAY_BE_LOST: bool = false;

    fn send(&mut self, message: &[u8; SIZE]) -> io::Result<()> {
        self.write_all(message)
    }

    /// Reads a message, which arrives whole because it was one segment.
    fn receive(&mut self, message: &mut [u8; SIZE]) -> io::Result<()> {
        self.read_exact(message)
    }
}

impl Messages for UdpSocket {
    const MAY_BE_LOST: bool = true;

    fn send(&mut self, message: &[u8; SIZE]) -> io::Result<()> {
        UdpSocket::send(self, message).map(|_| ())
    }

    fn receive(&mut self, message: &mut [u8; SIZE]) -> io::Result<()> {
        UdpSocket::recv(self, message).map(|_| ())
    }
}

/// Returns the round trips during `length` between the ends of the path, with a pause after each.
pub(crate) fn measure(
    way: &Way<'_>,
    protocol: Protocol,
    pause: Duration,
    length: Duration,
) -> Result<Vec<Duration>> {
    match protocol {
        Protocol::Tcp => {
            let (from, to) = socket::tcp(way)?;
            from.set_nodelay(true)?;
            to.set_nodelay(true)?;
            between(from, to, pause, length)
        }
        Protocol::Udp => {
            let (from, to) = socket::udp(way)?;
            between(from, to, pause, length)
        }
    }
}

fn between<M: Messages + Send>(
    from: M,
    to: M,
    pause: Duration,
    length: Duration,
) -> Result<Vec<Duration>> {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(move || answer(to, stop));
        let trips = ask(from, pause, length);
        stop.store(true, Ordering::Relaxed);
        let answered = server
            .join()
            .map_err(|_panic| anyhow!("the server's thread panicked"))?;
        let trips = trips.context("ask")?;
        answered.context("answer")?;
        Ok(trips)
    })
}

fn ask<M: Messages>(mut socket: M, pause: Duration, length: Duration) -> io::Result<Vec<Duration>> {
    let (begin, mut trips) = (Instant::now(), Vec::new());
    let mut number = 0_u64;
    while begin.elapsed() < length {
        number += 1;
        let start = Instant::now();
        socket.send(&message(number))?;
        let mut response = [0; SIZE];
        while response != message(number) {
            match socket.receive(&mut response) {
                Err(err) if is_look(&err) && start.elapsed() < PATIENCE => {
                    if M::MAY_BE_LOST {
                        socket.send(&message(number))?;
                    }
                }
                done => done?,
            }
        }
        trips.push(start.elapsed());
        thread::sleep(pause);
    }
    Ok(trips)
}

fn answer<M: Messages>(mut socket: M, stop: &AtomicBool) -> io::Result<()> {
    let mut request = [0; SIZE];
    while !stop.load(Ordering::Relaxed) {
        match socket.receive(&mut request) {
            Err(err) if is_look(&err) => {}
            // The client has ended.
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(err) if err.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            done => {
                done?;
                socket.send(&request)?;
            }
        }
    }
    Ok(())
}

/// Returns a message that starts with its number, so that answers to earlier messages are
/// recognised.
fn message(number: u64) -> [u8; SIZE] {
    let mut message = [0; SIZE];
    for (to, byte) in message.iter_mut().zip(number.to_be_bytes()) {
        *to = byte;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_differs_from_the_previous_one() {
        assert_ne!(message(1), message(2));
        assert_eq!(message(258)[..9], [0, 0, 0, 0, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn round_trips_over_loopback_are_measured() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.connect(from.local_addr().unwrap()).unwrap();
        let timeout = Some(Duration::from_millis(100));
        from.set_read_timeout(timeout).unwrap();
        to.set_read_timeout(timeout).unwrap();
        let trips = between(
            from,
            to,
            Duration::from_millis(1),
            Duration::from_millis(20),
        )
        .unwrap();
        assert!(!trips.is_empty() && trips.iter().all(|trip| *trip < Duration::from_secs(1)));
    }
}
