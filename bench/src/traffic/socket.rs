//! Sockets at the two ends of a path.

use super::{End, Way};
use crate::node::in_netns;
use anyhow::{Context, Result};
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time in a blocking read or write, after which a thread checks if it must stop.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for a connection, and for an IPv6 address to become usable.
const PATIENCE: Duration = Duration::from_secs(15);
/// Size of the receive buffer in bytes. It is so large that no datagram is lost while the receiver
/// has no CPU time for a moment.
const UDP_BUFFER: usize = 8 << 20;

/// Opens a connection; returns the sender's socket and the receiver's.
pub(crate) fn tcp(way: &Way<'_>) -> Result<(TcpStream, TcpStream)> {
    let (listener, to) = listen(way)?;
    let (from, accepted) = connect(way, &listener, to)?;
    for stream in [&from, &accepted] {
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
    }
    Ok((from, accepted))
}

/// Sets the congestion control of `sender`.
pub(crate) fn control_congestion(sender: &TcpStream, name: &str) -> Result<()> {
    setsockopt(sender, sockopt::TcpCongestion, &name.into())
        .with_context(|| format!("have TCP find its rate by {name:?}"))
}

/// Returns the receiver's listener, and the address to which the sender connects.
pub(crate) fn listen(way: &Way<'_>) -> Result<(TcpListener, SocketAddr)> {
    let address = (way.to.address, port(way));
    let listener = in_netns(way.to.netns, || once_usable(|| TcpListener::bind(address)))
        .with_context(|| format!("listen on {}", way.to.address))?;
    let to = listener.local_addr()?;
    Ok((listener, way.entrance.map_or(to, |entrance| entrance.at)))
}

/// Connects from the sender's address to `to`, and accepts the connection at `listener`. Returns
/// the sender's socket and the receiver's.
pub(crate) fn connect(
    way: &Way<'_>,
    listener: &TcpListener,
    to: SocketAddr,
) -> Result<(TcpStream, TcpStream)> {
    let from = in_netns(way.from.netns, || {
        once_usable(|| connect_from(way.from.address, to))
    })
    .with_context(|| format!("connect {} to {to}", way.from.address))?;
    let (accepted, _) = listener.accept().context("accept a connection")?;
    Ok((from, accepted))
}

/// Connects from `address` by an explicit bind. The kernel itself would not choose this address
/// during duplicate address detection.
fn connect_from(address: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let stream = TcpStream::from(socket(
        family,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?);
    socket::bind(
        stream.as_raw_fd(),
        &SockaddrStorage::from(SocketAddr::new(address, 0)),
    )?;
    // This also limits connect().
    stream.set_write_timeout(Some(PATIENCE))?;
    socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to))?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Opens two sockets connected to each other: the sender's and the receiver's.
pub(crate) fn udp(way: &Way<'_>) -> Result<(UdpSocket, UdpSocket)> {
    let bind = |end: &End<'_>, port: u16| {
        let bound = in_netns(end.netns, || {
            once_usable(|| UdpSocket::bind((end.address, port)))
        });
        bound.with_context(|| format!("bind to {}", end.address))
    };
    let (from, to) = (bind(&way.from, 0)?, bind(&way.to, port(way))?);
    let here: SocketAddr = from.local_addr()?;
    let there = way
        .entrance
        .map_or(to.local_addr()?, |entrance| entrance.at);
    once_usable(|| from.connect(there)).with_context(|| format!("connect {here} to {there}"))?;
    once_usable(|| to.connect(here)).with_context(|| format!("connect {there} to {here}"))?;
    setsockopt(&to, sockopt::RcvBufForce, &UDP_BUFFER).context("enlarge a receive buffer")?;
    for socket in [&from, &to] {
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(LOOK))?;
    }
    Ok((from, to))
}

/// Returns the receiver's port, zero for any port.
fn port(way: &Way<'_>) -> u16 {
    way.entrance.map_or(0, |entrance| entrance.port)
}

/// True if a blocking call only timed out or was interrupted.
pub(crate) fn is_look(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Retries while an IPv6 address is in duplicate address detection.
fn once_usable<T>(open: impl Fn() -> io::Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match open() {
            Err(err) if is_not_yet(&err) && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(50));
            }
            done => return Ok(done?),
        }
    }
}

fn is_not_yet(err: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    [AddrNotAvailable, HostUnreachable, NetworkUnreachable].contains(&err.kind())
}
