//! Order of packets under a limit: waiting, overtaking and ECN marks.

use super::{BURST, RATE, lacking, limits, shaped};
use crate::conf;
use braid_tests::arriving::{Arrival, PATIENCE, note_times, now, receive};
use braid_tests::{Ns, Sandbox, Value, json};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size in bytes of a request that needs several TCP segments.
const LARGE: usize = 16 * 1024;
/// Time after the start of a flood until small packets may use their part of the rate again to
/// overtake others.
const SHARE: Duration = Duration::from_millis(30);
/// Number of tries, of which one must succeed. A busy machine can fire a timer late, so that a
/// packet still waits that should have left, but not in every try.
const TRIES: usize = 5;
const NOT_ECT: i32 = 0;
const ECT: i32 = 2;

/// Waits until every qdisc of the namespace is empty.
#[track_caller]
fn until_none_waits(at: &Ns) {
    let start = Instant::now();
    while at
        .list("tc -j -s qdisc show")
        .iter()
        .any(|queue| queue["backlog"].as_u64() > Some(0))
    {
        assert!(start.elapsed() < PATIENCE, "some wait for a minute");
    }
}

/// Sends UDP packets with the ECN bits `ecn` to `to`, without pause and far more than the burst.
fn flood(from: &Ns, to: &str, ecn: i32) {
    from.enter(|| {
        for _ in 0..4 {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            setsockopt(&socket, sockopt::Ipv4Tos, &ecn).unwrap();
            socket.set_nonblocking(true).unwrap();
            // Sends as many packets as fit into the socket's send buffer.
            while socket.send_to(&[0; 1400], to).is_ok() {}
        }
    });
}

/// Returns a UDP socket with receive timestamps, and a buffer with space for all packets of a test.
fn sink(at: &Ns, addr: &str) -> UdpSocket {
    let socket = at.enter(|| UdpSocket::bind(addr)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    note_times(&socket);
    socket
}

/// Floods the address `to` in the namespace `there` from the namespace `from`, which fills the
/// qdiscs of `host`. Then calls `send`, which sends a small packet and returns the times of its
/// sending and its arrival. Asserts that this packet overtook most of the waiting packets.
#[track_caller]
fn assert_passes(
    host: &Ns,
    (from, there, to): (&Ns, &Ns, &str),
    mut send: impl FnMut() -> [Duration; 2],
) {
    let bulk = sink(there, &format!("{to}:9"));
    bulk.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        flood(from, &format!("{to}:9"), NOT_ECT);
        std::thread::sleep(SHARE);
        let [sent, came] = send();
        until_none_waits(host);
        let times: Vec<_> = std::iter::from_fn(|| receive(&bulk, &mut [0; 1500]).ok())
            .map(|bulk| bulk.time)
            .collect();
        let after = |time| times.iter().filter(|bulk| **bulk > time).count();
        let (waited, passed) = (after(sent), after(came));
        // On a busy machine the bulk may have left before the small packet is sent.
        if waited >= 20 {
            assert!(passed > waited / 2, "{passed} of {waited} passed to {to}");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{waited} waited");
    }
}

#[test]
fn a_small_packet_overtakes_waiting_bulk() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    for (from, there, to) in [
        (host.host(), &*pod, "10.1.0.2"),
        (&*pod, host.host(), "10.1.0.1"),
    ] {
        let answers = sink(there, &format!("{to}:10"));
        let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        assert_passes(&host, (from, there, to), || {
            socket.send_to(&[0; 64], (to, 10)).unwrap();
            [now(), receive(&answers, &mut [0; 64]).unwrap().time]
        });
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_small_request_overtakes_bulk_after_a_large_one_waited() {
    for lacks in [&[][..], &["fq", "tbf"]] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        lacking(lacks);
        let call = shaped(&host, &pod, &conf::bridge(), &limits());
        let result = call.add().result();
        let way = (host.host(), &*pod, "10.1.0.2");
        let listener = pod.enter(|| TcpListener::bind("10.1.0.2:0")).unwrap();
        let mut sending = host
            .enter(|| TcpStream::connect(listener.local_addr().unwrap()))
            .unwrap();
        let (mut receiving, _) = listener.accept().unwrap();
        sending.set_nodelay(true).unwrap();
        note_times(&receiving);
        assert_passes(&host, way, || {
            // This is larger than a segment, so it waits.
            sending.write_all(&[0; LARGE]).unwrap();
            receiving.read_exact(&mut [0; LARGE]).unwrap();
            flood(way.0, "10.1.0.2:9", NOT_ECT);
            std::thread::sleep(SHARE);
            sending.write_all(&[0; 64]).unwrap();
            [now(), receive(&receiving, &mut [0; 64]).unwrap().time]
        });
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

/// Returns the kernel counter `what` of the namespace.
fn counted(at: &Ns, what: &str) -> u64 {
    at.json(&format!("nstat -jasz {what}"))["kernel"][what]
        .as_u64()
        .unwrap()
}

/// Returns the number of CE-marked packets that the namespace received.
fn marks(at: &Ns) -> u64 {
    counted(at, "IpExtInCEPkts")
}

#[test]
fn a_flow_keeps_its_order_and_loses_nothing() {
    for lacks in [&[][..], &["fq", "tbf"]] {
        // With 64 segments, packets are large. With 1, each segment is a packet.
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
            for (from, there, to) in [
                (host.host(), &*pod, "10.1.0.2"),
                (&*pod, host.host(), "10.1.0.1"),
            ] {
                // This counter is the number of packets that arrived before an earlier packet. It
                // leaves out packets that TCP sends again although they arrived, since a busy
                // machine acknowledges late. If braid used only the computed departure times, each
                // try would see 200 of them.
                let turned = || counted(there, "TcpExtTCPOFOQueue");
                let mut seen = Vec::new();
                let kept = (0..TRIES).any(|_| {
                    let before = turned();
                    from.send(there, to, 2_500_000);
                    seen.push(turned() - before);
                    seen.last() <= Some(&3)
                });
                assert!(
                    kept,
                    "{seen:?} turned to {to}, {lacks:?}, {segments} segments"
                );
            }
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn a_packet_that_waits_long_is_marked_if_its_sender_supports_ecn() {
    let braid = braid_tests::binary::braid().display();
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    for (from, to, there, shown) in [
        (host.host(), "10.1.0.2:9", &*pod, 0),
        (&*pod, "10.1.0.1:9", host.host(), 1),
    ] {
        flood(from, to, NOT_ECT);
        until_none_waits(host.host());
        assert_eq!(marks(there), 0, "{to}");
        flood(from, to, ECT);
        until_none_waits(host.host());
        let status = host.json(&format!("{braid} status -o json"));
        assert!(marks(there) > 0, "{to}");
        assert_eq!(
            status["attachments"][0]["bandwidth"][shown]["marked"],
            marks(there),
            "{to}"
        );
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Returns limits of 1 Mbit/s. At this rate, packets of 16 flows wait for longer than TCP's minimum
/// retransmission timeout of 0.2 s.
fn slow() -> Value {
    json!({"ingressRate": RATE / 20, "ingressBurst": BURST, "egressRate": RATE / 20, "egressBurst": BURST})
}

/// Sends `bytes` bytes in each of 16 parallel TCP flows. Returns the arrivals of each flow.
fn send_16(from: &Ns, there: &Ns, to: &str, bytes: usize) -> Vec<Vec<Arrival>> {
    std::thread::scope(|scope| {
        let flows: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| from.send(there, to, bytes)))
            .collect();
        flows.into_iter().map(|flow| flow.join().unwrap()).collect()
    })
}

/// Sends on 16 connections until TCP has retransmitted 150 packets, so that some could overtake
/// others. Returns the number of packets that PAWS (RFC 7323) has rejected, because a newer packet
/// of the same connection had arrived before.
#[track_caller]
fn refused_of_sent_again(from: &Ns, there: &Ns, to: &str) -> u64 {
    const AGAIN: u64 = 150;
    // This is long, because frequent calls of `nstat` would keep a slow machine busy.
    let pause = || std::thread::sleep(Duration::from_millis(200));
    let again = || counted(from, "TcpRetransSegs");
    let refused = || counted(there, "TcpExtPAWSEstab");
    let (before, refused_before) = (again(), refused());
    let mut seen = before;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                from.while_sending(there, to, || {
                    while !done.load(Ordering::Relaxed) {
                        pause();
                    }
                });
            });
        }
        // Waits as long as a slow sender needs, but only while TCP still retransmits.
        let mut last = Instant::now();
        while seen - before < AGAIN && last.elapsed() < PATIENCE {
            pause();
            let now = again();
            if now > seen {
                (last, seen) = (Instant::now(), now);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(
        seen - before >= AGAIN,
        "{} sent again to {to}",
        seen - before
    );
    refused() - refused_before
}

#[test]
fn tcp_retransmissions_do_not_overtake_earlier_packets() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &slow());
    let result = call.add().result();
    host.host().receive_in_order();
    pod.receive_in_order();
    for (from, there, to) in [
        (host.host(), &*pod, "10.1.0.2"),
        (&*pod, host.host(), "10.1.0.1"),
    ] {
        // If only the hash of a connection decided, each try would see 3 to 7 rejected packets.
        let mut tries = (0..TRIES).map(|_| refused_of_sent_again(from, there, to));
        assert!(
            tries.any(|refused| refused <= 1),
            "{TRIES} times more than one refused to {to}"
        );
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn no_flow_from_another_machine_is_starved() {
    const BYTES: usize = 60_000;
    /// Number of bytes that arrive in 2.2 seconds.
    const MOST: usize = 275_000;
    let host = Sandbox::new();
    let world = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    world.run("ip route add default via 192.0.2.1");
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &slow());
    let result = call.add().result();
    pod.run("ip route replace default via 10.1.0.1");
    let flows = send_16(&world, &pod, "10.1.0.2", BYTES);
    let mut all: Vec<_> = flows
        .iter()
        .enumerate()
        .flat_map(|(flow, came)| came.iter().map(move |arrival| (flow, *arrival)))
        .collect();
    all.sort_by_key(|(_, arrival)| arrival.time);
    // `longest` is the most that other flows received while an unfinished flow received nothing.
    let (mut left, mut missed, mut longest) = ([BYTES; 16], [0; 16], [0; 16]);
    for (flow, Arrival { bytes, .. }) in all {
        left[flow] -= bytes;
        longest[flow] = longest[flow].max(missed[flow]);
        missed[flow] = 0;
        (0..16)
            .filter(|other| *other != flow && left[*other] > 0)
            .for_each(|other| missed[other] += bytes);
    }
    // A flow may find the qdisc full by chance, so only the sum over all flows is bounded.
    assert!(longest.iter().sum::<usize>() < 16 * MOST, "{longest:?}");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
