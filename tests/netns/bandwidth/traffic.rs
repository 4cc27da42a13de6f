//! Amount and time of the traffic that arrives at a shaped container.

use super::{
    AT_ONCE, BURST, BURST_F, GOODPUT, RATE, RATE_F, host_link, ifb, is_best, lacking, limits,
    queues, seen, shaped,
};
use crate::conf;
use braid_tests::arriving::PATIENCE;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json, needs};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sends in both directions between two namespaces with these addresses. Asserts that the arriving
/// traffic never exceeds the rate and the burst, even on a busy machine, and is not much less.
fn assert_held(one: (&Ns, &str), other: (&Ns, &str)) {
    for ((from, _), (there, to)) in [(one, other), (other, one)] {
        from.assert_sends(there, to, 0.7 * GOODPUT, (1.01 * RATE_F, BURST_F));
    }
}

#[test]
fn a_container_is_held_to_its_rate_in_both_directions() {
    for main in [conf::bridge(), conf::ptp()] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = shaped(&host, &pod, &main, &limits());
        let result = call.add().result();
        let address = result["ips"][0]["address"]
            .as_str()
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let gateway = result["ips"][0]["gateway"].as_str().unwrap().to_owned();
        let (queue, out, inside) = seen(host.host(), &host_link(&result));
        assert!(
            is_best(&queue) && (out, inside) == (1, 0),
            "{queue} {out} {inside}"
        );
        // No fq: an ifb does not clear its departure time, and a socket would report that as the
        // receive time.
        assert_eq!(seen(host.host(), &ifb(&result)), ("tbf".to_owned(), 1, 0));
        assert_eq!(queues(&pod, "eth0"), [json!("noqueue")]);
        assert_held((host.host(), &gateway), (&pod, &address));
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_sender_on_the_node_is_throttled_without_loss() {
    let braid = braid_tests::binary::braid().display();
    let host = Sandbox::new();
    let pod = host.pod("a");
    // The lower the rate, the fewer of the largest packets may wait.
    let slow = json!({"ingressRate": RATE / 2, "ingressBurst": BURST});
    let call = shaped(&host, &pod, &conf::bridge(), &slow);
    let result = call.add().result();
    host.host()
        .assert_sends(&pod, "10.1.0.2", 0.4 * GOODPUT, (0.51 * RATE_F, BURST_F));
    let status = host.json(&format!("{braid} status -o json"));
    let counted = &status["attachments"][0]["bandwidth"][0];
    assert!(
        counted["delayed"].as_u64() > Some(0) && counted["dropped"] == 0,
        "{counted}"
    );
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Limits a container on a kernel that lacks the features `lacks`. Asserts that the qdisc of both
/// directions is `queue`, with `programs` BPF programs, and that the limits hold.
fn assert_fallback_queue(lacks: &[&str], queue: &str, programs: usize) {
    let host = Sandbox::new();
    let pod = host.pod("a");
    lacking(lacks);
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    let ifb = ifb(&result);
    for link in [&host_link(&result), &ifb] {
        assert_eq!(
            seen(host.host(), link),
            (queue.to_owned(), programs, 0),
            "{link}"
        );
    }
    assert_eq!(
        queues(host.host(), &ifb).contains(&json!("fq_codel")),
        lacks == ["bpf"]
    );
    call.check(&result).ok();
    assert_held((host.host(), "10.1.0.1"), (&pod, "10.1.0.2"));
    match queue {
        "tbf" => host.run(&format!(
            "tc qdisc change dev {ifb} root tbf rate 1gbit burst 100k limit 100k"
        )),
        _ => host.run(&format!(
            "tc class change dev {ifb} classid 1:1 htb rate 1gbit"
        )),
    };
    call.check(&result)
        .refused(999, &["1000000000", "20000000"]);
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn without_fq_a_token_bucket_with_bands_holds_the_rate() {
    assert_fallback_queue(&["fq"], "tbf", 1);
}

#[test]
fn without_fq_and_tbf_two_classes_of_htb_hold_the_rate() {
    assert_fallback_queue(&["fq", "tbf"], "htb", 1);
}

/// Attaches a container on a kernel without fq, sets the `txqueuelen` of its host link to
/// `packets`, and then limits the container. Returns the calls of `bandwidth` and `bridge`, and the
/// last result.
fn of_tx_queue_len(host: &Sandbox, pod: &Ns, packets: u32) -> ([Call; 2], Value) {
    lacking(&["fq"]);
    let main = host.call("bridge", pod, conf::bridge());
    let result = main.add().result();
    host.run(&format!(
        "ip link set {} txqueuelen {packets}",
        host_link(&result)
    ));
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let limit = host
        .call("bandwidth", pod, conf)
        .with("runtimeConfig", json!({"bandwidth": limits()}))
        .prev(&result);
    let result = limit.add().result();
    ([limit, main], result)
}

#[test]
fn packets_dropped_by_a_full_queue_are_counted() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let (calls, result) = of_tx_queue_len(&host, &pod, 1);
    host.enter(|| {
        let socket = UdpSocket::bind("10.1.0.1:0").unwrap();
        // This is more than the burst. A dropped packet is not an error for the sender.
        (0..200).for_each(|_| drop(socket.send_to(&[0; 1000], "10.1.0.2:9")));
    });
    let queues = host.list(&format!(
        "tc -j -s qdisc show dev {} root",
        host_link(&result)
    ));
    let dropped = queues[0]["drops"].as_u64().unwrap();
    let braid = braid_tests::binary::braid().display();
    let all = host.json(&format!("{braid} status -o json"));
    let of_limit = all["attachments"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["type"] == "bandwidth")
        .unwrap();
    let directions = of_limit["bandwidth"].as_array().unwrap();
    let shown = directions
        .iter()
        .find(|one| one["direction"] == "ingress")
        .unwrap();
    assert!(
        dropped > 0 && shown["dropped"].as_u64() >= Some(dropped),
        "{queues:?} {shown}"
    );
    for call in &calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn a_link_without_a_transmit_queue_is_limited() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let (calls, result) = of_tx_queue_len(&host, &pod, 0);
    let queues = [host_link(&result), ifb(&result)].map(|link| seen(host.host(), &link).0);
    assert_eq!(queues, ["htb", "tbf"]);
    assert_held((host.host(), "10.1.0.1"), (&pod, "10.1.0.2"));
    calls[0].check(&result).ok();
    for call in &calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn without_bpf_a_token_bucket_keeps_flows_apart() {
    needs!(FqCodel);
    assert_fallback_queue(&["bpf"], "tbf", 0);
}

#[test]
fn without_bpf_and_fq_codel_a_token_bucket_alone_holds_the_rate() {
    assert_fallback_queue(&["clsact", "fq_codel"], "tbf", 0);
}

/// Asserts that a child link, whose limit is inside the container, does not exceed its rate.
fn assert_child_is_held(main: &Value) {
    let host = Sandbox::new();
    let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    if main["type"] == "host-device" {
        host.run("ip link add dev0 link lan type macvlan mode bridge");
    }
    if main["type"] == "vlan" {
        for command in [
            // Before Linux 6.2 a link that is up cannot be renamed.
            "ip link set lan down",
            "ip link set lan name wire",
            "ip link set wire up",
            "ip link add link wire name lan type vlan id 5",
            "ip addr flush dev wire",
            "ip addr add 10.3.0.254/24 dev lan",
            "ip link set lan up",
        ] {
            far.run(command);
        }
    }
    let pod = host.pod("a");
    let call = shaped(&host, &pod, main, &limits());
    let result = call.add().result();
    let ifb = ifb(&result);
    let (sent, received) = (seen(&pod, "eth0"), seen(&pod, &ifb));
    // No fq: an ifb does not clear its departure time, and a socket would report that as the
    // receive time.
    assert!(
        is_best(&sent.0) && received.0 == "tbf" && (sent.1, received.1) == (1, 1),
        "{sent:?} {received:?}"
    );
    call.check(&result).ok();
    if main["mode"] == "l3" {
        // An ipvlan in mode `l3` does not answer ARP for the container.
        far.run("ip route add 10.3.0.2/32 via 10.3.0.253");
    }
    assert_held((&far, "10.3.0.254"), (&pod, "10.3.0.2"));
    if main["mode"] != "l3" {
        // Only ARP packets bypass the ifb.
        pod.run(&format!("ip link set {ifb} down"));
        far.run("ip neigh flush dev lan");
        assert!(far.cannot_ping("10.3.0.2"));
        let known = far.list("ip -j neigh show 10.3.0.2");
        assert!(known[0]["lladdr"].is_string(), "{known:?}");
        pod.run(&format!("ip link set {ifb} up"));
    }
    // An ifb with an IPv6 address would send packets.
    let with_ipv6 = pod.run("ls /proc/sys/net/ipv6/conf");
    assert!(
        with_ipv6.contains("eth0") && !with_ipv6.contains(&ifb),
        "{with_ipv6}"
    );
    // `ping` requests receive timestamps.
    let pinged = pod.run("ping -c 2 -i 0.2 10.3.0.254");
    assert!(!pinged.contains("time of day"), "{pinged}");
    pod.run("tc filter del dev eth0 ingress");
    call.check(&result).refused(999, &["eth0", &ifb]);
    call.prev(&result).del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_macvlan_is_held_in_both_directions() {
    assert_child_is_held(&conf::macvlan());
}

#[test]
fn a_vlan_is_held_in_both_directions() {
    needs!(Vlan);
    let mut vlan = conf::vlan();
    vlan["ipam"] = conf::macvlan()["ipam"].clone();
    assert_child_is_held(&vlan);
}

#[test]
fn a_device_of_the_host_is_held_in_both_directions() {
    let mut device = conf::host_device();
    device["ipam"] = conf::macvlan()["ipam"].clone();
    assert_child_is_held(&device);
}

#[test]
fn an_ipvlan_is_held_in_both_directions_but_not_in_mode_l3s() {
    needs!(Ipvlan);
    for mode in ["l2", "l3"] {
        let mut ipvlan = conf::macvlan();
        (ipvlan["type"], ipvlan["mode"]) = (json!("ipvlan"), json!(mode));
        assert_child_is_held(&ipvlan);
    }
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let mut ipvlan = conf::macvlan();
    (ipvlan["type"], ipvlan["mode"]) = (json!("ipvlan"), json!("l3s"));
    shaped(&host, &pod, &ipvlan, &limits())
        .add()
        .refused(7, &["ingressRate", "l3s"]);
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn shaped_and_unshaped_subnets_select_the_limited_traffic() {
    for (key, held, free) in [
        ("shapedSubnets", "10.9.0.1", "10.1.0.1"),
        ("unshapedSubnets", "10.1.0.1", "10.9.0.1"),
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let mut limits = limits();
        limits[key] = json!(["10.9.0.0/16", "::/0"]);
        let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": conf::bridge(),
            "bandwidth": limits});
        let call = host.call("braid", &pod, conf);
        let result = call.add().result();
        host.run("ip addr add 10.9.0.1/32 dev lo");
        pod.run("ip route add 10.9.0.0/16 via 10.1.0.1");
        // A token bucket as the root qdisc would limit every packet.
        assert_eq!(seen(host.host(), &ifb(&result)).0, "htb", "{key}");
        pod.assert_sends(host.host(), held, 0.7 * GOODPUT, (1.01 * RATE_F, BURST_F));
        pod.assert_sends(host.host(), free, 2.0 * RATE_F, (f64::INFINITY, 0.0));
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.run("ip addr del 10.9.0.1/32 dev lo");
        host.assert_nothing_left();
    }
}

/// Returns the number of packets that limits on the node have delayed, as counted by BPF programs
/// and by qdiscs.
fn waits(host: &Sandbox) -> u64 {
    let status = host.json(&format!(
        "{} status -o json",
        braid_tests::binary::braid().display()
    ));
    let directions = status["attachments"][0]["bandwidth"].as_array().unwrap();
    let queues = host.list("tc -j -s qdisc show");
    let of_programs = directions
        .iter()
        .map(|direction| direction["delayed"].as_u64().unwrap());
    of_programs
        .chain(
            queues
                .iter()
                .filter_map(|queue| queue["overlimits"].as_u64()),
        )
        .sum()
}

#[test]
fn a_burst_passes_immediately_and_again_after_a_pause() {
    // The rate is 500 kB/s, and the burst is 300 kB.
    let limits = json!({"ingressRate": 4_000_000, "ingressBurst": 2_400_000, "egressRate": 4_000_000,
        "egressBurst": 2_400_000});
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits);
    let result = call.add().result();
    for (from, there, to) in [
        (host.host(), &*pod, "10.1.0.2"),
        (&*pod, host.host(), "10.1.0.1"),
    ] {
        let send = || drop(from.send(there, to, 250_000));
        let (before, begin) = (waits(&host), Instant::now());
        send();
        assert_eq!(waits(&host), before, "to {to}");
        send();
        // Each transfer takes half a second at the rate. The first transfer and a part of the
        // second pass immediately, because the bucket fills while the first one arrives. Together
        // they take 400 ms.
        let took = begin.elapsed();
        assert!(took > Duration::from_millis(380), "{took:?} to {to}");
        std::thread::sleep(Duration::from_millis(700));
        let before = waits(&host);
        send();
        assert_eq!(waits(&host), before, "to {to}, after a rest");
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn between_two_containers_the_lower_rate_limits_one_direction() {
    let host = Sandbox::new();
    let (one, other) = (host.pod("a"), host.pod("b"));
    let sends = shaped(
        &host,
        &one,
        &conf::bridge(),
        &json!({"egressRate": RATE, "egressBurst": BURST}),
    );
    let receives = shaped(
        &host,
        &other,
        &conf::bridge(),
        &json!({"ingressRate": RATE / 2, "ingressBurst": BURST}),
    );
    let results = [sends.add().result(), receives.add().result()];
    // A fast start finds the receiver's bucket full. The bucket of a token bucket qdisc holds more
    // than the burst.
    let at_once = if Feature::Fq.is_here() {
        BURST_F
    } else {
        AT_ONCE
    };
    one.assert_sends(&other, "10.1.0.3", 0.35 * GOODPUT, (0.51 * RATE_F, at_once));
    other.assert_sends(&one, "10.1.0.2", 2.0 * RATE_F, (f64::INFINITY, 0.0));
    for (call, result) in [sends, receives].iter().zip(&results) {
        call.clone().prev(result).del().ok();
    }
    host.assert_nothing_left();
}

/// A guard that stops the senders of a test on drop, so that they also end if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_small_packets_from_many_ports_is_limited() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    let ifb = ifb(&result);
    let received = || {
        host.list(&format!("ip -j -s link show {ifb}"))[0]["stats64"]["tx"]["bytes"]
            .as_f64()
            .unwrap()
    };
    let sockets = |count| {
        pod.enter(|| {
            (0..count)
                .map(|_| UdpSocket::bind("0.0.0.0:0").unwrap())
                .collect::<Vec<_>>()
        })
    };
    let (small, large) = (sockets(200), sockets(1));
    let done = AtomicBool::new(false);
    let send = |sockets: &[UdpSocket], size| {
        for socket in sockets
            .iter()
            .cycle()
            .take_while(|_| !done.load(Ordering::Relaxed))
        {
            let _ = socket.send_to(&vec![0; size], "10.1.0.1:9");
        }
    };
    // Returns the time before and after reading the counter, so that the interval between two
    // samples is not underestimated.
    let look = || (Instant::now(), received(), Instant::now());
    let passes = |least: f64| {
        let rate = |(begin, before, _): (Instant, f64, Instant),
                    (_, after, end): (Instant, f64, Instant)| {
            let seconds = (end - begin).as_secs_f64();
            ((after - before) * 8.0 / seconds, seconds)
        };
        let first = look();
        let mut last = first;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let next = look();
            let ((all, seconds), (bps, _)) = (rate(first, next), rate(last, next));
            assert!(
                all < 1.01 * RATE_F + BURST_F / seconds,
                "{all} bit/s for {seconds} s"
            );
            if bps > least {
                break;
            }
            assert!(first.0.elapsed() < PATIENCE, "{all} bit/s");
            last = next;
        }
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| send(&small, 64));
        pod.while_sending(host.host(), "10.1.0.1", || passes(0.0));
        // An emulated machine cannot send enough small packets to fill the rate.
        scope.spawn(|| send(&large, 1400));
        passes(0.7 * RATE_F);
    });
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
