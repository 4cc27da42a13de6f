//! A service in a container, and clients that report whether they reached it and which client
//! address it saw.

use crate::arriving::PATIENCE;
use crate::ns::Ns;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind,
    connect, listen, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for an answer that must not arrive.
const IN_VAIN: Duration = Duration::from_millis(500);
/// Interval at which a service checks if it should end.
const TURN: Duration = Duration::from_millis(20);

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names")]
pub enum Transport {
    Tcp,
    Udp,
    Sctp,
}

/// A service that answers each IPv4 or IPv6 client with the client's address. Dropping the value
/// ends the service.
#[derive(Debug)]
pub struct Service {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a service in `ns` that listens on `port`.
    #[track_caller]
    pub fn start(ns: &Ns, transport: Transport, port: u16) -> Self {
        let any = SocketAddr::new("::".parse().expect("an address"), port);
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = match transport {
            Transport::Tcp | Transport::Sctp => {
                let listen = || {
                    if transport == Transport::Tcp {
                        TcpListener::bind(any)
                    } else {
                        listen_sctp(any)
                    }
                };
                let listener = ns.enter(|| again_while_in_use(listen)).expect("listen");
                setsockopt(&listener, sockopt::ReceiveTimeout, &time_val(TURN)).expect("a socket");
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok((mut stream, from)) = listener.accept() else {
                            continue;
                        };
                        if transport == Transport::Sctp {
                            // A client that is scheduled only after the association has ended waits
                            // for its start until the timeout (v6.12 net/sctp/socket.c,
                            // `sctp_wait_for_connect()`).
                            std::thread::sleep(TURN);
                        }
                        let _gone = stream.write_all(said(from).as_bytes());
                    }
                })
            }
            Transport::Udp => {
                let socket = ns
                    .enter(|| again_while_in_use(|| UdpSocket::bind(any)))
                    .expect("bind");
                socket.set_read_timeout(Some(TURN)).expect("a socket");
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok((_, from)) = socket.recv_from(&mut [0; 64]) else {
                            continue;
                        };
                        let _gone = socket.send_to(said(from).as_bytes(), from);
                    }
                })
            }
        };
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

/// Calls `open` again while it returns `EADDRINUSE`. After a service has ended, a child process can
/// still hold its port. Another test's thread has then forked this process, which holds the port
/// until it calls exec.
fn again_while_in_use<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match open() {
            Err(err) if err.kind() == io::ErrorKind::AddrInUse && start.elapsed() < PATIENCE => {
                std::thread::sleep(TURN);
            }
            opened => return opened,
        }
    }
}

fn time_val(time: Duration) -> TimeVal {
    TimeVal::milliseconds(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn said(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

impl Ns {
    /// Requests an answer from the service at `to`. Returns the client's address as the service saw
    /// it, or the error.
    pub fn ask(&self, transport: Transport, to: &str) -> Result<IpAddr, String> {
        self.ask_for(PATIENCE, transport, to)
    }

    /// True if no answer comes from `to` within 500 ms. On a busy machine an answer may only be
    /// late, so tests also check that an allowed answer arrives.
    pub fn asks_in_vain(&self, transport: Transport, to: &str) -> bool {
        self.ask_for(IN_VAIN, transport, to).is_err()
    }

    fn ask_for(
        &self,
        patience: Duration,
        transport: Transport,
        to: &str,
    ) -> Result<IpAddr, String> {
        let to: SocketAddr = to.parse().expect("an address and a port");
        let answer = self.enter(|| match transport {
            Transport::Tcp => ask_stream(TcpStream::connect_timeout(&to, patience)?, patience),
            Transport::Sctp => ask_stream(connect_sctp(to, patience)?, patience),
            Transport::Udp => ask_udp(to, patience),
        });
        let said = answer.map_err(|err| err.to_string())?;
        said.parse().map_err(|err| format!("{said:?}: {err}"))
    }
}

fn sctp(to: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    socket(
        family,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Sctp,
    )
}

/// Returns a listening SCTP socket. It has the standard library's TCP type, which works for any
/// socket that accepts connections.
fn listen_sctp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = sctp(at)?;
    match at {
        SocketAddr::V4(at) => bind(socket.as_raw_fd(), &SockaddrIn::from(at))?,
        SocketAddr::V6(at) => bind(socket.as_raw_fd(), &SockaddrIn6::from(at))?,
    }
    listen(&socket, Backlog::new(8)?)?;
    Ok(socket.into())
}

fn connect_sctp(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = sctp(to)?;
    // This timeout also limits the kernel's wait for an association.
    setsockopt(&socket, sockopt::SendTimeout, &time_val(patience))?;
    match to {
        SocketAddr::V4(to) => connect(socket.as_raw_fd(), &SockaddrIn::from(to))?,
        SocketAddr::V6(to) => connect(socket.as_raw_fd(), &SockaddrIn6::from(to))?,
    }
    Ok(socket.into())
}

fn ask_stream(mut stream: TcpStream, patience: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(patience))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn ask_udp(to: SocketAddr, patience: Duration) -> io::Result<String> {
    let any: IpAddr = if to.is_ipv4() {
        [0, 0, 0, 0].into()
    } else {
        [0; 16].into()
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    // The kernel delivers to a connected socket only packets from its peer.
    socket.connect(to)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(b"?")?;
    let mut text = [0; 64];
    let len = socket.recv(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..len]).into_owned())
}
