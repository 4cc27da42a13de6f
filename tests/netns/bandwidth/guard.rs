//! A container that tries to bypass its bandwidth limit, and the guard that prevents it.

use super::{BURST, BURST_F, RATE_F, limits, list};
use crate::conf;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json, needs};
use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Python script that sends frames to an IPv4 destination from a packet socket, for a second and at
/// least 2000 times. `bypass` is 0 to send normally, 1 to skip qdisc and filters, and 2 to also add
/// the tag of VLAN 0.
const PACKET_SOCKET: &str = r#"
import socket, struct, sys, time
dev, to, bypass, protocol = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4], 16)
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
sender.setsockopt(263, 20, bypass > 0)  # SOL_PACKET, PACKET_QDISC_BYPASS
# The frames are IPv4. The protocol is only the label of the sender.
sender.bind((dev, protocol))
header = b"\x02\0\0\0\0\x01" + sender.getsockname()[4] + (b"\x81\0\0\0" if bypass == 2 else b"") + b"\x08\0"
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1500, 0, 0, 64, 253, 0, socket.inet_aton("10.3.0.2"), socket.inet_aton(to))
frame, end, times = header + ip.ljust(1500, b"\0"), time.monotonic() + 1, 0
while time.monotonic() < end or times < 2000:
    times += 1
    try:
        sender.send(frame, socket.MSG_DONTWAIT)
    except OSError:
        pass
"#;

/// Egress limit in bits per second, so low that even a slow machine sends much more.
pub(super) const SLOW: u32 = 500_000;

/// A container that is limited to [`SLOW`]. `far` is the machine at the other end of its parent
/// link.
pub(super) struct Held {
    pub(super) host: Sandbox,
    far: Rc<Ns>,
    pub(super) pod: Rc<Ns>,
}

impl Held {
    pub(super) fn new() -> Self {
        let host = Sandbox::new();
        let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        // The script sends frames itself, so the destination needs no neighbour entry.
        fs::write("/run/packets.py", PACKET_SOCKET).unwrap();
        Self { host, far, pod }
    }

    pub(super) fn call(&self, conf: &Value) -> Call {
        self.host.call("braid", &self.pod, conf.clone())
    }

    /// Returns a call of `bandwidth` as a separate plugin that limits the interface of `pod` in
    /// `prev`.
    pub(super) fn chained(&self, pod: &Ns, prev: &Value) -> Call {
        let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "egressRate": SLOW,
            "egressBurst": BURST});
        self.host.call("bandwidth", pod, conf).prev(prev)
    }

    /// Returns the number of packets and binds that the guards have refused, from `braid status`.
    pub(super) fn guarded(&self) -> u64 {
        let status = self.host.json(&format!(
            "{} status -o json",
            braid_tests::binary::braid().display()
        ));
        let attachment = &status["attachments"][0];
        attachment["bandwidth"][0]["guarded"].as_u64().unwrap()
    }

    /// Sends to `address` from a packet socket that bypasses the qdisc, and measures the traffic
    /// that leaves the node.
    fn escapes(&self, address: &str) -> Leaves {
        self.leaves(address, true, "0800")
    }

    /// Sends to `address` from a packet socket bound to `protocol`, a hexadecimal number. The
    /// frames bypass the qdisc if `past_the_queue` is true. Measures the traffic that leaves the
    /// node.
    fn leaves(&self, address: &str, past_the_queue: bool, protocol: &str) -> Leaves {
        self.sent(address, u8::from(past_the_queue), protocol)
    }

    /// Sends to `address` past the qdisc with the tag of VLAN 0, which receivers ignore. Measures
    /// the traffic that leaves the node.
    fn escapes_with_a_tag(&self, address: &str) -> Leaves {
        self.sent(address, 2, "88b5")
    }

    fn sent(&self, address: &str, how: u8, protocol: &str) -> Leaves {
        let arrived = || {
            self.far.list("ip -j -s link show lan")[0]["stats64"]["rx"]["bytes"]
                .as_u64()
                .unwrap()
        };
        let (begin, before) = (Instant::now(), arrived());
        self.pod.run(&format!(
            "python3 /run/packets.py eth0 {address} {how} {protocol}"
        ));
        let bits = (arrived() - before) * 8;
        Leaves {
            bits,
            time: begin.elapsed(),
        }
    }
}

/// Returns a list that limits the child link `main` to [`SLOW`] at egress. `more` holds further
/// limits.
pub(super) fn slow(main: &Value, more: &Value) -> Value {
    let mut limits = json!({"egressRate": SLOW, "egressBurst": BURST});
    limits
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    list(main, &limits)
}

/// Amount of traffic that left the node, of at least 24 million sent bits.
#[derive(Debug)]
struct Leaves {
    bits: u64,
    time: Duration,
}

impl Leaves {
    /// True if the traffic was limited: at most 110 % of the rate, plus the burst and one second at
    /// the rate.
    fn is_held(&self) -> bool {
        let millis = u64::try_from(self.time.as_millis()).unwrap() + 1000;
        self.bits < u64::from(SLOW) * 11 / 10 * millis / 1000 + BURST
    }

    /// True if most of the sent traffic left.
    fn is_free(&self) -> bool {
        self.bits > 12_000_000
    }
}

/// Returns configurations of child links: a macvlan and, if the kernel has ipvlan, an ipvlan in the
/// modes `l2` and `l3`.
pub(super) fn children() -> Vec<Value> {
    let mut all = vec![conf::macvlan()];
    if Feature::Ipvlan.is_here() {
        all.extend(["l2", "l3"].map(|mode| {
            let mut ipvlan = conf::macvlan();
            (ipvlan["type"], ipvlan["mode"]) = (json!("ipvlan"), json!(mode));
            ipvlan
        }));
    }
    all
}

#[test]
fn packet_sockets_of_a_child_link_are_limited_past_the_queue() {
    for main in children() {
        let held = Held::new();
        let call = held.call(&slow(&main, &json!({})));
        let result = call.add().result();
        let guarded = || held.guarded();
        if main["mode"] == "l3" {
            held.far.run("ip route add 10.3.0.2/32 via 10.3.0.253");
        }
        held.pod.send(&held.far, "10.3.0.254", 100_000);
        assert_eq!(
            guarded(),
            0,
            "{main}: packets of the IP stack pass only the queue"
        );
        call.check(&result).ok();
        let leaves = held.escapes("10.3.0.254");
        assert!(
            leaves.is_held() && guarded() > 0,
            "{main}: {leaves:?}, {} packets held",
            guarded()
        );
        held.pod.run("nft delete table netdev braid-eth0");
        call.check(&result)
            .refused(999, &["packet sockets", "eth0"]);
        let leaves = held.escapes("10.3.0.254");
        // Some kernels do not set the network header of such a frame (`packet_parse_headers()`),
        // and then ipvlan drops all of these frames.
        let is_dropped = main["mode"] == "l3" && leaves.bits < u64::from(SLOW) / 10;
        assert!(
            leaves.is_free() || is_dropped,
            "{main}: {leaves:?} without the guard"
        );
        call.prev(&result).del().ok();
        held.host.assert_nothing_left();
    }
}

#[test]
fn packet_sockets_are_limited_by_the_configured_subnets() {
    for (key, held_at, free_at) in [
        ("shapedSubnets", "10.9.0.1", "10.3.0.254"),
        ("unshapedSubnets", "10.3.0.254", "10.9.0.1"),
    ] {
        let held = Held::new();
        let call = held.call(&slow(
            &conf::macvlan(),
            &json!({key: ["10.9.0.0/16", "fd00::/8"]}),
        ));
        let result = call.add().result();
        for (past_the_queue, protocol) in [(true, "88b5"), (true, "0800"), (false, "0800")] {
            let leaves = |address| held.leaves(address, past_the_queue, protocol);
            let (slow, fast) = (leaves(held_at), leaves(free_at));
            assert!(
                slow.is_held(),
                "{key} {past_the_queue} {protocol}: {slow:?}"
            );
            // Some kernels do not mark a packet that bypasses the qdisc. Such a packet is limited
            // whatever its destination is.
            if !past_the_queue || key == "shapedSubnets" {
                assert!(
                    fast.is_free(),
                    "{key} {past_the_queue} {protocol}: {fast:?}"
                );
            }
        }
        let leaves = held.escapes_with_a_tag(held_at);
        assert!(leaves.is_held(), "{key}: {leaves:?} with a tag");
        call.check(&result).ok();
        call.prev(&result).del().ok();
        held.host.assert_nothing_left();
    }
}

/// Python script that sends at least 2000 packets within a second. All packets have the same
/// departure time, which is 1.5 s after the start.
const AT_ONE_TIME: &str = r#"
import socket, struct, sys, time
SO_TXTIME, MONOTONIC = 61, 1
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
for sender in senders:
    sender.setsockopt(socket.SOL_SOCKET, SO_TXTIME, struct.pack("iI", MONOTONIC, 0))
begin = time.monotonic()
leaves = [(socket.SOL_SOCKET, SO_TXTIME, struct.pack("Q", int((begin + 1.5) * 1e9)))]
times = 0
while time.monotonic() < begin + 1 or times < 2000:
    for sender in senders:
        times += 1
        try:
            sender.sendmsg([bytes(1400)], leaves, socket.MSG_DONTWAIT, (sys.argv[1], 9))
        except OSError:
            pass
time.sleep(1)
"#;

#[test]
fn packets_with_the_same_txtime_do_not_accumulate() {
    needs!(Fq);
    let held = Held::new();
    let call = held
        .host
        .call("braid", &held.pod, list(&conf::macvlan(), &limits()));
    let result = call.add().result();
    fs::write("/run/at_one_time.py", AT_ONE_TIME).unwrap();
    let arrived = || {
        held.far.list("ip -j -s link show lan")[0]["stats64"]["rx"]["bytes"]
            .as_f64()
            .unwrap()
            * 8.0
    };
    let done = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let pod: &Ns = &held.pod;
        scope.spawn(|| {
            pod.run("python3 /run/at_one_time.py 10.3.0.254");
            done.store(true, Ordering::Relaxed);
        });
        let mut looks = Vec::new();
        while !done.load(Ordering::Relaxed) {
            let begin = Instant::now();
            looks.push((begin, arrived(), Instant::now()));
            std::thread::sleep(Duration::from_millis(20));
        }
        looks
    });
    let all = looks.last().unwrap().1 - looks[0].1;
    assert!(all > 0.5 * RATE_F, "{all} bits");
    // Between any two samples at most this many bits may arrive: the rate, the burst and the
    // packets that may wait in the qdisc.
    for (at, (begin, before, _)) in looks.iter().enumerate() {
        for (_, after, end) in &looks[at + 1..] {
            let (bits, seconds) = (after - before, (*end - *begin).as_secs_f64());
            let most = RATE_F * (seconds + 0.2) + BURST_F;
            assert!(bits < most, "{bits} bits in {seconds} s, of {all}");
        }
    }
    call.prev(&result).del().ok();
    held.host.assert_nothing_left();
}

/// Function that ends an attachment. Its arguments are the attachment's call and result.
pub(super) type End = fn(&Call, &Value);

/// Ways to end an attachment, by name.
pub(super) const ENDS: [(&str, End); 4] = [
    ("DEL", |call, result| call.clone().prev(result).del().ok()),
    ("DEL without a record", |call, _| {
        fs::remove_dir_all("/run/braid").unwrap();
        call.del().ok();
    }),
    ("GC", |call, _| call.gc(&[]).ok()),
    ("ADD that fails", |call, _| {
        call.del().ok();
        let mut conf = slow(&conf::macvlan(), &json!({}));
        conf["plugins"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "tuning", "sysctl": {"net.no.such": "1"}}));
        call.clone().conf(conf).add().error();
    }),
];

/// Returns the ways to end an attachment whose guard is on the host: [`ENDS`], and GC without a
/// record.
pub(super) fn ends_on_the_host() -> impl Iterator<Item = (&'static str, End)> {
    let by_gc: (&str, End) = ("GC without a record", |call, _| {
        fs::remove_dir_all("/run/braid").unwrap();
        call.gc(&[]).ok();
    });
    ENDS.into_iter().chain([by_gc])
}

/// Asserts for each of `ends` that the guard of a child link is deleted with its attachment.
/// `is_there` returns true while the guard exists.
pub(super) fn assert_ends(
    ends: impl IntoIterator<Item = (&'static str, End)>,
    is_there: impl Fn(&Held) -> bool,
) {
    for (verb, end) in ends {
        let held = Held::new();
        let call = held.call(&slow(&conf::macvlan(), &json!({})));
        let result = call.add().result();
        assert!(is_there(&held), "{verb}");
        end(&call, &result);
        assert!(!is_there(&held), "{verb}");
        call.del().ok();
        held.host.assert_nothing_left();
    }
}

#[test]
fn the_packet_socket_guard_is_deleted_with_its_attachment() {
    let is_there = |held: &Held| {
        let rules = held.pod.run("nft list ruleset");
        assert!(rules.is_empty() || rules.contains("hook egress"), "{rules}");
        !rules.is_empty()
    };
    assert_ends(ENDS, is_there);
}

#[test]
fn a_separate_bandwidth_plugin_creates_and_deletes_the_guard() {
    let held = Held::new();
    let main = held.host.call("macvlan", &held.pod, conf::macvlan());
    let result = main.add().result();
    let before = held.host.state();
    let call = held.chained(&held.pod, &result);
    call.add().result();
    assert!(held.escapes("10.3.0.254").is_held());
    call.del().ok();
    before.assert_same(&held.host.state());
    main.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn the_planned_guard_command_is_accepted_by_nft() {
    let braid = braid_tests::binary::braid().display();
    for key in ["shapedSubnets", "unshapedSubnets", "none"] {
        let held = Held::new();
        let conf = slow(
            &conf::macvlan(),
            &json!({key: ["10.128.0.0/9", "fd00::/8", "0.0.0.0/0"]}),
        );
        fs::write("/run/conf", conf.to_string()).unwrap();
        let plan = held.host.run(&format!(
            "{braid} plan /run/conf --container a --netns {}",
            held.pod.path().display()
        ));
        let line = plan
            .lines()
            .find(|line| line.contains("hook egress"))
            .unwrap();
        let command = line.strip_prefix("pod").unwrap().trim();
        let call = held.call(&conf);
        call.add().result();
        let made = held.pod.run("nft -s list ruleset");
        held.pod.run("nft delete table netdev braid-eth0");
        fs::write("/run/step", command).unwrap();
        held.pod.run("sh -e /run/step");
        assert_eq!(held.pod.run("nft -s list ruleset"), made, "{command}");
        call.del().ok();
        held.host.assert_nothing_left();
    }
}
