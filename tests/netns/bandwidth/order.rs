//! Which packets wait and are marked, which pass them, and in which order.

use super::{BURST, RATE, lacking, limits, shaped};
use crate::conf;
use braid_tests::arriving::{Arrival, PATIENCE, note_times, now, receive};
use braid_tests::{Ns, Sandbox, Value, json};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a request that takes more than a segment.
const LARGE: usize = 16 * 1024;
/// Until those have their share of the rate again that pass others, after the first packets of a
/// flood.
const SHARE: Duration = Duration::from_millis(30);
const NOT_ECT: i32 = 0;
const ECT: i32 = 2;

/// Until nothing waits in a queue of the namespace any more.
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

/// A socket that has the times noted at which something comes to it, and room for all.
fn sink(at: &Ns, addr: &str) -> UdpSocket {
    let socket = at.enter(|| UdpSocket::bind(addr)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    note_times(&socket);
    socket
}

/// Fills the queues at `host` between these two and has something small sent, which tells after
/// when that was and when it came: before most of what waited then.
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
        // A busy machine may have sent the bulk before it comes to send more.
        if waited >= 20 {
            assert!(passed > waited / 2, "{passed} of {waited} passed to {to}");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{waited} waited");
    }
}

#[test]
fn an_answer_passes_the_bulk_that_waits() {
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
fn a_small_request_passes_the_bulk_again_after_a_large_one_waited() {
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
            // More than a segment, so it waits.
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

/// What the kernel has counted for the namespace.
fn counted(at: &Ns, what: &str) -> u64 {
    at.json(&format!("nstat -jasz {what}"))["kernel"][what]
        .as_u64()
        .unwrap()
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
            for (from, there, to) in [
                (host.host(), &*pod, "10.1.0.2"),
                (&*pod, host.host(), "10.1.0.1"),
            ] {
                from.send(there, to, 2_500_000);
                // What came before one that was sent earlier. A busy machine's answers are late,
                // and TCP sends some again that have come: those are not counted. A
                // timer that is later than any should be turns a packet or two; with
                // none but the computed times, 200 are turned.
                let (turned, again) = (
                    counted(there, "TcpExtTCPOFOQueue"),
                    counted(from, "TcpRetransSegs"),
                );
                assert!(
                    turned <= 3,
                    "{turned} turned, {again} again to {to}, {lacks:?}, {segments} segments"
                );
            }
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn a_packet_that_waits_long_is_marked_if_its_sender_heeds_marks() {
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
            status[0]["bandwidth"][shown]["marked"],
            marks(there),
            "{to}"
        );
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Limits of 1 Mbit/s, at which 16 flows have to wait for longer than TCP waits for an answer at
/// first, 0.2 s.
fn slow() -> Value {
    json!({"ingressRate": RATE / 20, "ingressBurst": BURST, "egressRate": RATE / 20, "egressBurst": BURST})
}

/// 16 flows of TCP send so many bytes each at once. Returns what came of each.
fn send_16(from: &Ns, there: &Ns, to: &str, bytes: usize) -> Vec<Vec<Arrival>> {
    std::thread::scope(|scope| {
        let flows: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| from.send(there, to, bytes)))
            .collect();
        flows.into_iter().map(|flow| flow.join().unwrap()).collect()
    })
}

/// Has 16 connections send until 150 packets were sent again, so many that some would pass others.
/// Returns how many were refused since an older one came after a newer one (RFC 7323).
#[track_caller]
fn refused_of_sent_again(from: &Ns, there: &Ns, to: &str) -> u64 {
    const AGAIN: u64 = 150;
    // A program counts, which a slow machine should not be busy with.
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
        // However long that takes a slow sender, as long as it sends some again.
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
fn what_a_connection_sends_again_passes_nothing_that_it_sent_before() {
    /// Known by its hash alone, a connection has 3 to 7 refused each time. A machine that is busy
    /// all over sets a timer off late: then one may still wait that should have left, and
    /// another time none does.
    const TRIES: usize = 5;
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
fn none_of_many_flows_from_another_machine_stands_still() {
    const BYTES: usize = 60_000;
    /// What comes in 2.2 seconds.
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
    // What came of others while nothing came of a flow that had not ended, at most.
    let (mut left, mut missed, mut longest) = ([BYTES; 16], [0; 16], [0; 16]);
    for (flow, Arrival { bytes, .. }) in all {
        left[flow] -= bytes;
        longest[flow] = longest[flow].max(missed[flow]);
        missed[flow] = 0;
        (0..16)
            .filter(|other| *other != flow && left[*other] > 0)
            .for_each(|other| missed[other] += bytes);
    }
    // One flow or another asks for room when there is none, by chance: the sum tells that from no
    // room for any.
    assert!(longest.iter().sum::<usize>() < 16 * MOST, "{longest:?}");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
