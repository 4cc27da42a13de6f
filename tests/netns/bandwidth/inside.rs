//! `tc` commands that a limited container runs in its network namespace. braid has added nothing to
//! the container's link there.

use super::{BURST, BURST_F, GOODPUT, RATE_F, host_link, ifb, limits, list, queues, shaped};
use crate::conf;
use braid_tests::{Ns, Sandbox, Value, json};
use std::fs;
use std::time::Instant;

/// Asserts that the traffic in both directions reaches the rate and does not exceed it.
fn assert_whole(host: &Sandbox, pod: &Ns, result: &Value) {
    let ip = &result["ips"][0];
    let address = ip["address"].as_str().unwrap().split('/').next().unwrap();
    for (from, there, to) in [
        (pod, host.host(), ip["gateway"].as_str().unwrap()),
        (host.host(), pod, address),
    ] {
        from.assert_sends(there, to, 0.7 * GOODPUT, (1.01 * RATE_F, BURST_F));
    }
}

#[test]
fn a_container_can_change_its_qdiscs_without_affecting_the_limit() {
    for main in [conf::bridge(), conf::ptp()] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = shaped(&host, &pod, &main, &limits());
        let result = call.add().result();
        let done = |commands: &[&str]| {
            for command in commands {
                pod.run(command);
                call.check(&result).ok();
            }
        };
        // Kata Containers redirects packets to a virtual machine in this way.
        done(&[
            "ip link add tap0 type veth peer tap1",
            "tc qdisc add dev eth0 ingress",
            "tc filter add dev eth0 parent ffff: protocol all u32 match u8 0 0 action mirred egress redirect dev tap0",
            "tc qdisc del dev eth0 ingress",
            "ip link del tap0",
            "tc qdisc add dev eth0 clsact",
        ]);
        // Network fault injection tools do this, but with a kind of qdisc that some kernels lack.
        done(&["tc qdisc add dev eth0 root tbf rate 1gbit burst 100k limit 1m"]);
        assert_whole(&host, &pod, &result);
        done(&[
            "tc qdisc replace dev eth0 root handle 7: tbf rate 2gbit burst 100k limit 1m",
            "tc qdisc del dev eth0 root",
            "tc qdisc del dev eth0 clsact",
        ]);
        assert_eq!(queues(&pod, "eth0"), [json!("noqueue")]);
        assert_whole(&host, &pod, &result);
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_container_with_its_own_qdisc_is_limited_and_keeps_it() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let prev = main.add().result();
    for command in [
        "tc qdisc add dev eth0 root tbf rate 1gbit burst 100k limit 1m",
        "tc qdisc add dev eth0 ingress",
    ] {
        pod.run(command);
    }
    let before = queues(&pod, "eth0");
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let call = host
        .call("bandwidth", &pod, conf)
        .with("runtimeConfig", json!({"bandwidth": limits()}))
        .prev(&prev);
    let result = call.add().result();
    call.check(&result).ok();
    assert_whole(&host, &pod, &result);
    call.prev(&result).del().ok();
    assert_eq!(queues(&pod, "eth0"), before);
    main.del().ok();
    host.assert_nothing_left();
}

/// Python script that sends broadcast frames from a packet socket, for a second and at least
/// [`FRAMES_SENT`]. The frames bypass all qdiscs of the script's namespace.
const FRAMES: &str = r#"
import socket, sys, time
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
sender.setsockopt(263, 20, 1)  # SOL_PACKET, PACKET_QDISC_BYPASS
sender.bind(("eth0", 0))
frame = b"\xff" * 6 + sender.getsockname()[4] + bytes.fromhex(sys.argv[1]) + bytes(1400)
end, sent = time.monotonic() + 1, 0
while time.monotonic() < end or sent < int(sys.argv[2]):
    try:
        sent += sender.send(frame, socket.MSG_DONTWAIT) > 0
    except OSError:
        pass
"#;

/// Number of frames that together are a hundred times the burst.
const FRAMES_SENT: u64 = 1500;

#[test]
fn packet_sockets_are_limited_for_every_protocol_number() {
    const SLOW: u32 = 500_000;
    let host = Sandbox::new();
    let (pod, neighbour) = (host.pod("a"), host.pod("b"));
    let call = host.call(
        "braid",
        &pod,
        list(
            &conf::bridge(),
            &json!({"egressRate": SLOW, "egressBurst": BURST}),
        ),
    );
    let result = call.add().result();
    let other = host.call("bridge", &neighbour, conf::bridge());
    other.add().result();
    fs::write("/run/frames.py", FRAMES).unwrap();
    let stats =
        |at: &Ns, link: &str| at.list(&format!("ip -j -s link show {link}"))[0]["stats64"].clone();
    let arrived = || stats(&neighbour, "eth0")["rx"]["bytes"].as_u64().unwrap() * 8;
    let offered = || {
        stats(host.host(), &host_link(&result))["rx"]["bytes"]
            .as_u64()
            .unwrap()
            * 8
    };
    // The protocols are IPv4, ARP and an unknown one. The last frame has a VLAN tag.
    for protocol in ["0800", "0806", "88b5", "8100000a0800"] {
        let (begin, before) = (Instant::now(), (arrived(), offered()));
        pod.run(&format!("python3 /run/frames.py {protocol} {FRAMES_SENT}"));
        let (came, sent) = (arrived() - before.0, offered() - before.1);
        let millis = u64::try_from(begin.elapsed().as_millis()).unwrap();
        let most = u64::from(SLOW) * 11 / 10 * millis / 1000 + BURST;
        assert!(
            came < most && sent > FRAMES_SENT * 1400 * 8,
            "{protocol}: {came} bits of {sent} in {millis} ms"
        );
    }
    call.check(&result).ok();
    assert_eq!(ifb(&result).len(), 15);
    call.prev(&result).del().ok();
    other.del().ok();
    host.assert_nothing_left();
}
