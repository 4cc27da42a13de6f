//! Real packets between namespaces.

use crate::arriving::{Arrival, Arriving, PATIENCE, assert_rate, flood};
use crate::ns::Ns;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

/// In seconds. Longest wait of a server for somebody whose own patience ends before.
const SERVERS_PATIENCE: i64 = 90;

impl Ns {
    /// Whether `to` answers a ping, asked for a minute at most.
    pub fn can_ping(&self, to: &str) -> bool {
        self.try_run(&format!(
            "ping -q -c 1 -i 0.2 -w {} {to}",
            PATIENCE.as_secs()
        ))
        .is_ok()
    }

    /// Whether `to` stays silent: three pings within a second.
    pub fn cannot_ping(&self, to: &str) -> bool {
        self.try_run(&format!("ping -q -c 3 -i 0.2 -W 0.5 {to}"))
            .is_err()
    }

    /// [`Ns::can_ping`] where that is right, [`Ns::cannot_ping`] where it is not.
    pub fn can_ping_only_if(&self, is_right: bool, to: &str) -> bool {
        if is_right {
            self.can_ping(to)
        } else {
            self.cannot_ping(to)
        }
    }

    /// Sends so many bytes to `server` in `there`, as fast as it can. Returns what came when.
    #[track_caller]
    pub fn send(&self, there: &Ns, server: &str, bytes: usize) -> Vec<Arrival> {
        let (mut sending, receiving) = self.connection_to(there, server);
        let arriving = Arriving::new(receiving);
        let all: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(move || sending.write_all(&vec![0; bytes]).expect("bytes are taken"));
            arriving.collect()
        });
        assert_eq!(
            all.iter().map(|arrival| arrival.bytes).sum::<usize>(),
            bytes,
            "{} to {server}",
            self.name()
        );
        all
    }

    /// Runs `work` while it sends as fast as it can to `server` in `there`.
    #[track_caller]
    pub fn while_sending<T>(&self, there: &Ns, server: &str, work: impl FnOnce() -> T) -> T {
        let (sending, receiving) = self.connection_to(there, server);
        let arriving = Arriving::new(receiving);
        let end = arriving.end();
        std::thread::scope(|scope| {
            let _end = end;
            scope.spawn(move || flood(sending));
            scope.spawn(move || arriving.count());
            work()
        })
    }

    /// [`assert_rate`] of what it sends to `server` in `there`.
    #[track_caller]
    pub fn assert_sends(&self, there: &Ns, server: &str, least: f64, limit: (f64, f64)) {
        let (sending, receiving) = self.connection_to(there, server);
        assert_rate(sending, receiving, least, limit);
    }

    fn connection_to(&self, there: &Ns, server: &str) -> (TcpStream, TcpStream) {
        let (listener, to) = listen(there, server);
        let sending = self
            .enter(|| TcpStream::connect_timeout(&to, PATIENCE))
            .expect("connect");
        let (receiving, _) = listener.accept().expect("a connection");
        (sending, receiving)
    }

    /// Has one processor take in what comes to the namespace's links. Left to itself the kernel
    /// takes a packet in where it was sent, and two that leave one after the other on two
    /// processors come in the order in which those get to it.
    #[track_caller]
    pub fn receive_in_order(&self) {
        let script = "mount -t sysfs sys /mnt && for queue in /mnt/class/net/*/queues/rx-*; do echo 1 > $queue/rps_cpus || exit; done";
        let done = self
            .enter(|| {
                Command::new("unshare")
                    .args(["-m", "sh", "-c", script])
                    .output()
            })
            .expect("unshare");
        assert!(
            done.status.success(),
            "{}: {}",
            self.name(),
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// Connects to `server` in `there`, sends a byte and has it echoed. Returns the address that
    /// the server saw.
    #[track_caller]
    pub fn seen_by(&self, there: &Ns, server: &str) -> IpAddr {
        let (listener, to) = listen(there, server);
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| echo(&listener));
            let mut stream = self
                .enter(|| TcpStream::connect_timeout(&to, PATIENCE))
                .unwrap_or_else(|err| panic!("{} to {to}: {err}", self.name()));
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a time limit");
            let mut byte = [0];
            stream
                .write_all(b"x")
                .and_then(|()| stream.read_exact(&mut byte))
                .expect("an echo");
            answer.join().expect("the server's thread")
        })
    }
}

/// A server at a free port of `server`, which waits neither for a client nor for its bytes for
/// ever.
fn listen(there: &Ns, server: &str) -> (TcpListener, SocketAddr) {
    let server: IpAddr = server.parse().expect("an address");
    let listener = there
        .enter(|| TcpListener::bind(SocketAddr::new(server, 0)))
        .expect("listen");
    // Those that it accepts have it too.
    setsockopt(
        &listener,
        sockopt::ReceiveTimeout,
        &TimeVal::seconds(SERVERS_PATIENCE),
    )
    .expect("a time limit");
    let to = listener.local_addr().expect("own address");
    (listener, to)
}

fn echo(listener: &TcpListener) -> IpAddr {
    let (mut stream, from) = listener.accept().expect("a connection");
    let mut byte = [0];
    if stream.read_exact(&mut byte).is_ok() {
        stream.write_all(&byte).expect("an answer");
    }
    from.ip()
}
