//! Real packets between namespaces.

use crate::arriving::{Arrival, Arriving, PATIENCE, assert_rate, flood};
use crate::ns::Ns;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

/// Longest wait of a server, in seconds. Clients give up earlier, after [`PATIENCE`].
const SERVERS_PATIENCE: i64 = 90;

impl Ns {
    /// True if `to` answers a ping within a minute.
    pub fn can_ping(&self, to: &str) -> bool {
        self.try_run(&format!(
            "ping -q -c 1 -i 0.2 -w {} {to}",
            PATIENCE.as_secs()
        ))
        .is_ok()
    }

    /// True if `to` does not answer three pings within a second.
    pub fn cannot_ping(&self, to: &str) -> bool {
        self.try_run(&format!("ping -q -c 3 -i 0.2 -W 0.5 {to}"))
            .is_err()
    }

    /// Returns [`Ns::can_ping`] if `is_right` is true, else [`Ns::cannot_ping`].
    pub fn can_ping_only_if(&self, is_right: bool, to: &str) -> bool {
        if is_right {
            self.can_ping(to)
        } else {
            self.cannot_ping(to)
        }
    }

    /// Sends `bytes` bytes as fast as possible to the address `server` in the namespace `there`,
    /// and returns their arrivals.
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

    /// Runs `work` while this namespace sends as fast as possible to the address `server` in the
    /// namespace `there`.
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

    /// Runs [`assert_rate`] on a connection to the address `server` in the namespace `there`.
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
        // A queue that lets nothing pass must not stop the test.
        sending
            .set_write_timeout(Some(PATIENCE))
            .expect("a time limit");
        let (receiving, _) = listener.accept().expect("a connection");
        (sending, receiving)
    }

    /// Lets a single processor receive all packets of the namespace's links. By default the kernel
    /// receives a packet on the processor that sent it, so packets sent on two processors can
    /// arrive out of order.
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

    /// Connects to the address `server` in the namespace `there` and exchanges a byte. Returns the
    /// client's address as the server saw it.
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

/// Listens on a free port of the address `server`, with a time limit for the client's connection
/// and bytes.
fn listen(there: &Ns, server: &str) -> (TcpListener, SocketAddr) {
    let server: IpAddr = server.parse().expect("an address");
    let listener = there
        .enter(|| TcpListener::bind(SocketAddr::new(server, 0)))
        .expect("listen");
    // Accepted sockets inherit this timeout.
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
