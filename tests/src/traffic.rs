//! Real packets between namespaces.

use crate::ns::Ns;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for an answer that is expected.
const PATIENCE: Duration = Duration::from_secs(5);
/// In seconds. Longest wait of a server for somebody whose own patience ends before.
const SERVERS_PATIENCE: i64 = 10;

impl Ns {
    /// Whether `to` answers a ping, asked for 5 seconds at most.
    pub fn can_ping(&self, to: &str) -> bool {
        self.try_run(&format!("ping -q -c 1 -i 0.2 -w 5 {to}")).is_ok()
    }

    /// Whether `to` stays silent: three pings within a second.
    pub fn cannot_ping(&self, to: &str) -> bool {
        self.try_run(&format!("ping -q -c 3 -i 0.2 -W 1 {to}")).is_err()
    }

    /// Sends as fast as it can to `server` in `there` for two seconds; returns how many bits arrived, and in how many
    /// seconds from the first connect.
    #[track_caller]
    pub fn send_to(&self, there: &Ns, server: &str) -> (f64, f64) {
        self.send_for(Duration::from_secs(2), there, server)
    }

    /// Sends like [`Ns::send_to`] and judges what arrives, in bits a second: never more than `most`, and `burst` bits at once, and
    /// at least `least` in one of three attempts. A machine that stands still for a second lets less arrive, but no more.
    #[track_caller]
    pub fn assert_sends(&self, there: &Ns, server: &str, least: f64, (most, burst): (f64, f64)) {
        let mut seen = Vec::new();
        while seen.len() < 3 && seen.last().is_none_or(|rate| *rate <= least) {
            let (bits, seconds) = self.send_to(there, server);
            assert!(bits < most * seconds + burst, "{} sends {bits} bits in {seconds} s to {server}", self.name());
            seen.push(bits / seconds);
        }
        let enough = seen.last().is_some_and(|rate| *rate > least);
        assert!(enough, "{} sends {seen:?} bit/s to {server}, never {least}", self.name());
    }

    /// Like [`Ns::send_to`], for so long. Bytes must come at least every 5 seconds.
    #[track_caller]
    pub fn send_for(&self, measured: Duration, there: &Ns, server: &str) -> (f64, f64) {
        let (listener, to) = listen(there, server);
        let start = Instant::now();
        let mut sending = self.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).expect("connect");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        std::thread::scope(|scope| {
            // Ends when the other side does.
            let sender = scope.spawn(move || while sending.write_all(&vec![0; 64 * 1024]).is_ok() {});
            let mut buffer = vec![0; 1 << 20];
            let mut bytes = 0;
            while start.elapsed() < measured {
                bytes += stream.read(&mut buffer).expect("bytes");
            }
            let time = start.elapsed();
            drop((stream, listener));
            sender.join().expect("the sender's thread");
            #[expect(clippy::cast_precision_loss, reason = "a rate to three digits")]
            let bits = (bytes * 8) as f64;
            (bits, time.as_secs_f64())
        })
    }

    /// Has one processor take in what comes to the namespace's links. Left to itself the kernel takes a packet in where it was sent,
    /// and two that leave one after the other on two processors come in the order in which those get to it.
    #[track_caller]
    pub fn receive_in_order(&self) {
        let script = "mount -t sysfs sys /mnt && for queue in /mnt/class/net/*/queues/rx-*; do echo 1 > $queue/rps_cpus || exit; done";
        let done = self.enter(|| Command::new("unshare").args(["-m", "sh", "-c", script]).output()).expect("unshare");
        assert!(done.status.success(), "{}: {}", self.name(), String::from_utf8_lossy(&done.stderr));
    }

    /// Connects to `server` in `there`, sends a byte and has it echoed. Returns the address that the server saw.
    #[track_caller]
    pub fn seen_by(&self, there: &Ns, server: &str) -> IpAddr {
        let (listener, to) = listen(there, server);
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| echo(&listener));
            let mut stream = self
                .enter(|| TcpStream::connect_timeout(&to, PATIENCE))
                .unwrap_or_else(|err| panic!("{} to {to}: {err}", self.name()));
            stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
            let mut byte = [0];
            stream.write_all(b"x").and_then(|()| stream.read_exact(&mut byte)).expect("an echo");
            answer.join().expect("the server's thread")
        })
    }
}

/// A server at a free port of `server`, which waits neither for a client nor for its bytes for ever.
fn listen(there: &Ns, server: &str) -> (TcpListener, SocketAddr) {
    let server: IpAddr = server.parse().expect("an address");
    let listener = there.enter(|| TcpListener::bind(SocketAddr::new(server, 0))).expect("listen");
    // Those that it accepts have it too.
    setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::seconds(SERVERS_PATIENCE)).expect("a time limit");
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
