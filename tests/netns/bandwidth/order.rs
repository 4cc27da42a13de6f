//! Which packets wait and are marked, which pass them, and in which order.

use super::{BURST, GOODPUT, RATE, RATE_F, lacking, limits, shaped};
use crate::conf;
use braid_tests::{Ns, Sandbox, Value, json};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The shortest of some round trips, in milliseconds.
fn round_trip(from: &Ns, to: &str) -> f64 {
    let said = from.run(&format!("ping -q -c 20 -i 0.05 {to}"));
    let times = said.split(" = ").nth(1).unwrap();
    times.split('/').next().unwrap().parse().unwrap()
}

/// Until packets wait in a queue of the namespace, or none does any more.
#[track_caller]
fn until_some_wait(at: &Ns, some: bool) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let start = Instant::now();
    while at.list("tc -j -s qdisc show").iter().any(|queue| queue["backlog"].as_u64() > Some(0)) != some {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?} that some wait: {some}");
    }
}

#[test]
fn an_answer_passes_the_bulk_that_waits() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    let (node, there) = (host.host(), &*pod);
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| node.send_to(there, "10.1.0.2"));
        until_some_wait(node, true);
        let took = round_trip(node, "10.1.0.2");
        assert!(took < 5.0, "{took} ms");
        let (bits, seconds) = bulk.join().unwrap();
        assert!(bits > 0.7 * GOODPUT * seconds, "{bits} bits in {seconds} s");
    });
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// How long a request of so many bytes and its answer take.
fn trip(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> Duration {
    let (begin, mut request) = (Instant::now(), vec![0; bytes]);
    from.write_all(&request).unwrap();
    to.read_exact(&mut request).unwrap();
    to.write_all(b"x").unwrap();
    from.read_exact(&mut [0]).unwrap();
    begin.elapsed()
}

#[test]
fn a_small_request_passes_the_bulk_again_after_a_large_one_waited() {
    for lacks in [&[][..], &["fq", "tbf"]] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        lacking(lacks);
        let call = shaped(&host, &pod, &conf::bridge(), &limits());
        let result = call.add().result();
        let (node, there) = (host.host(), &*pod);
        std::thread::scope(|scope| {
            let bulk = scope.spawn(|| node.send_to(there, "10.1.0.2"));
            let listener = there.enter(|| TcpListener::bind("10.1.0.2:0")).unwrap();
            let mut from = node.enter(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap();
            let (mut to, _) = listener.accept().unwrap();
            from.set_nodelay(true).unwrap();
            until_some_wait(node, true);
            // More than a segment, so it waits.
            let large = trip(&mut from, &mut to, 16 * 1024);
            let small = (0..20).map(|_| {
                std::thread::sleep(Duration::from_millis(5));
                trip(&mut from, &mut to, 64)
            });
            let small = small.min().unwrap();
            assert!(small < Duration::from_millis(3), "{lacks:?}: {small:?} after {large:?}");
            bulk.join().unwrap();
        });
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

/// What the kernel has counted for the namespace.
fn counted(at: &Ns, what: &str) -> u64 {
    at.json(&format!("nstat -jasz {what}"))["kernel"][what].as_u64().unwrap()
}

/// How many packets marked by who held them up came to the namespace.
fn marks(at: &Ns) -> u64 {
    counted(at, "IpExtInCEPkts")
}

#[test]
fn a_flow_keeps_its_order_and_loses_nothing() {
    for lacks in [&[][..], &["fq", "tbf"]] {
        // Large packets, or each on its own.
        for segments in [64, 1] {
            let host = Sandbox::new();
            let pod = host.pod("a");
            lacking(lacks);
            let call = shaped(&host, &pod, &conf::bridge(), &limits());
            let result = call.add().result();
            host.run(&format!("ip link set br0 gso_max_segs {segments}"));
            pod.run(&format!("ip link set eth0 gso_max_segs {segments}"));
            host.host().receive_in_order();
            pod.receive_in_order();
            for (from, there, to) in [(host.host(), &*pod, "10.1.0.2"), (&*pod, host.host(), "10.1.0.1")] {
                from.send_to(there, to);
                let turned = counted(there, "TcpExtTCPOFOQueue") + counted(from, "TcpRetransSegs");
                // Of 3300 packets: a busy machine's answers are late, and TCP sends some again that have come.
                assert!(turned < 33, "{turned} to {to}, {lacks:?}, {segments} segments");
            }
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

/// Sends far more at once than the burst, in packets with these bits of ECN.
fn flood(from: &Ns, to: &str, ecn: i32) {
    from.enter(|| {
        for _ in 0..4 {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            setsockopt(&socket, sockopt::Ipv4Tos, &ecn).unwrap();
            socket.set_nonblocking(true).unwrap();
            // As many as its send buffer takes.
            while socket.send_to(&[0; 1400], to).is_ok() {}
        }
    });
}

#[test]
fn a_packet_that_waits_long_is_marked_if_its_sender_heeds_marks() {
    const NOT_ECT: i32 = 0;
    const ECT: i32 = 2;
    let braid = braid_tests::binary::braid().display();
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    for (from, to, there, shown) in [(host.host(), "10.1.0.2:9", &*pod, 0), (&*pod, "10.1.0.1:9", host.host(), 1)] {
        flood(from, to, NOT_ECT);
        until_some_wait(host.host(), false);
        assert_eq!(marks(there), 0, "{to}");
        flood(from, to, ECT);
        until_some_wait(host.host(), false);
        let status = host.json(&format!("{braid} status -o json"));
        assert!(marks(there) > 0, "{to}");
        assert_eq!(status[0]["bandwidth"][shown]["marked"], marks(there), "{to}");
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Limits of 1 Mbit/s, at which 16 flows have to wait for longer than TCP waits for an answer at first, 0.2 s.
fn slow() -> Value {
    json!({"ingressRate": RATE / 20, "ingressBurst": BURST, "egressRate": RATE / 20, "egressBurst": BURST})
}

/// 16 flows of TCP send at once for so long, and of each something comes every 5 seconds at least. Returns how many bits came.
fn send_16(seconds: u64, from: &Ns, there: &Ns, to: &str) -> f64 {
    let time = Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let flows: Vec<_> = (0..16).map(|_| scope.spawn(|| from.send_for(time, there, to).0)).collect();
        flows.into_iter().map(|flow| flow.join().unwrap()).sum()
    })
}

#[test]
fn what_a_connection_sends_again_passes_nothing_that_it_sent_before() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &slow());
    let result = call.add().result();
    for (from, there, to) in [(host.host(), &*pod, "10.1.0.2"), (&*pod, host.host(), "10.1.0.1")] {
        let bits = send_16(2, from, there, to);
        // RFC 7323: an older packet after a newer one is dropped.
        let refused = counted(there, "TcpExtPAWSEstab");
        assert!(refused == 0 && bits > 1.4 * RATE_F / 20.0, "{refused} packets refused, {bits} bits to {to}");
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn none_of_many_flows_from_another_machine_stands_still() {
    let host = Sandbox::new();
    let world = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    world.run("ip route add default via 192.0.2.1");
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &slow());
    let result = call.add().result();
    pod.run("ip route replace default via 10.1.0.1");
    let bits = send_16(9, &world, &pod, "10.1.0.2");
    assert!(bits > 6.3 * RATE_F / 20.0, "{bits} bits");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
