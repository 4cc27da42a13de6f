//! `bandwidth`: shaping by braid's own program.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};

/// Both ways, and the burst, in bits.
const RATE: u64 = 20_000_000;
const BURST: u64 = 160_000;
/// The same as a measured number.
const RATE_F: f64 = 20_000_000.0;
const BURST_F: f64 = 160_000.0;
/// What TCP gets of it at an MTU of 1500: 1448 of 1514 bytes.
const GOODPUT: f64 = 19_128_000.0;

fn limits() -> Value {
    json!({"ingressRate": RATE, "ingressBurst": BURST, "egressRate": RATE, "egressBurst": BURST})
}

/// A bridge or a ptp with `bandwidth` behind it, in one call.
fn shaped(host: &Sandbox, pod: &Ns, main: &Value, limits: &Value) -> Call {
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [main, bandwidth],
        "runtimeConfig": {"bandwidth": limits}});
    host.call("braid", pod, list)
}

fn host_link(result: &Value) -> String {
    let interfaces = result["interfaces"].as_array().unwrap();
    let veth = interfaces.iter().map(|interface| interface["name"].as_str().unwrap());
    veth.into_iter().find(|name| name.starts_with("veth")).unwrap().to_owned()
}

/// All that `tc` shows of a link.
fn queues(ns: &Ns, link: &str) -> Vec<Value> {
    ns.list(&format!("tc -j qdisc show dev {link}")).iter().map(|queue| queue["kind"].clone()).collect()
}

/// Kind of the root queue, and the programs before it and at the entrance.
fn seen(ns: &Ns, link: &str) -> (String, usize, usize) {
    let root = ns.list(&format!("tc -j qdisc show dev {link} root"));
    let kind = root.first().map_or_else(String::new, |root| root["kind"].as_str().unwrap_or_default().to_owned());
    let programs = |side: &str| {
        let filters = ns.list(&format!("tc -j filter show dev {link} {side}"));
        filters.iter().filter(|filter| filter["options"]["bpf_name"] == "braid_shape").count()
    };
    (kind, programs("egress"), programs("ingress"))
}

/// Sends both ways and judges what arrives: at most what rate and burst allow, whatever else the machine does, and not
/// much less.
fn assert_held(one: (&Ns, &str), other: (&Ns, &str)) {
    for ((from, _), (there, to)) in [(one, other), (other, one)] {
        let (bits, seconds) = from.send_to(there, to);
        let (least, most) = (0.7 * GOODPUT * seconds, 1.01 * RATE_F * seconds + BURST_F);
        assert!(bits > least && bits < most, "{} sends {bits} bits in {seconds} s", from.name());
    }
}

/// Tells braid that the kernel lacks these of the features that the choice of a queue depends on.
fn lacking(lacks: &[&str]) {
    let asked = ["fq", "htb", "tbf", "fq_codel", "clsact", "cls_bpf", "bpf"];
    let said = |name: &&str| if lacks.contains(name) { json!("not here") } else { Value::Null };
    let features: serde_json::Map<String, Value> = asked.iter().map(|name| ((*name).to_owned(), said(name))).collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    std::fs::create_dir_all("/run/braid").unwrap();
    let known = json!({"release": release.trim(), "features": features});
    std::fs::write("/run/braid/kernel.json", known.to_string()).unwrap();
}

fn is_best(queue: &str) -> bool {
    ["fq", "htb"].contains(&queue)
}

#[test]
fn a_container_is_held_to_its_rate_in_both_directions() {
    for main in [conf::bridge(), conf::ptp()] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = shaped(&host, &pod, &main, &limits());
        let result = call.add().result();
        let address = result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let gateway = result["ips"][0]["gateway"].as_str().unwrap().to_owned();
        let (veth, guarded) = (host_link(&result), 1);
        let (queue, out, inside) = seen(host.host(), &veth);
        assert!(is_best(&queue) && (out, inside) == (1, guarded), "{queue} {out} {inside}");
        assert_eq!(seen(&pod, "eth0"), (queue, 1, 0));

        assert_held((host.host(), &gateway), (&pod, &address));
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

/// The shortest of some round trips, in milliseconds.
fn round_trip(from: &Ns, to: &str) -> f64 {
    let said = from.run(&format!("ping -q -c 20 -i 0.05 {to}"));
    let times = said.split(" = ").nth(1).unwrap();
    times.split('/').next().unwrap().parse().unwrap()
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
        // Until the bulk has used up the burst and waits.
        while node.list("tc -j -s qdisc show").iter().all(|queue| queue["backlog"].as_u64().unwrap_or(0) == 0) {}
        let took = round_trip(node, "10.1.0.2");
        assert!(took < 5.0, "{took} ms");
        let (bits, seconds) = bulk.join().unwrap();
        assert!(bits > 0.7 * GOODPUT * seconds, "{bits} bits in {seconds} s");
    });
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// On a kernel that lacks these features both ends are queued by `queue`, with or without a program.
fn assert_rung(lacks: &[&str], queue: &str, programs: usize) {
    let host = Sandbox::new();
    let pod = host.pod("a");
    lacking(lacks);
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    assert_eq!(seen(host.host(), &host_link(&result)), (queue.to_owned(), programs, programs));
    assert_eq!(seen(&pod, "eth0"), (queue.to_owned(), programs, 0));
    assert_eq!(queues(&pod, "eth0").contains(&json!("fq_codel")), lacks == ["bpf"]);
    call.check(&result).ok();
    assert_held((host.host(), "10.1.0.1"), (&pod, "10.1.0.2"));
    match queue {
        "tbf" => pod.run("tc qdisc change dev eth0 root tbf rate 1gbit burst 100k limit 100k"),
        _ => pod.run("tc class change dev eth0 classid 1:1 htb rate 1gbit"),
    };
    call.check(&result).refused(999, &["1000000000", "20000000"]);
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn without_fq_two_classes_of_htb_hold_the_rate() {
    assert_rung(&["fq"], "htb", 1);
}

#[test]
fn without_bpf_a_token_bucket_keeps_flows_apart() {
    needs!(FqCodel);
    assert_rung(&["bpf"], "tbf", 0);
}

#[test]
fn without_bpf_and_fq_codel_a_token_bucket_alone_holds_the_rate() {
    assert_rung(&["clsact", "fq_codel"], "tbf", 0);
}

#[test]
fn a_kernel_that_shapes_by_nothing_is_told_so_before_anything_changes() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    lacking(&["bpf", "tbf"]);
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    call.add().refused(999, &["can't shape", "tbf", "bpf"]);
    host.assert_nothing_left();
    assert_eq!((host.link("br0"), pod.link("eth0")), (None, None));
    call.status().refused(50, &["can't shape"]);
    lacking(&["fq"]);
    let said = call.status();
    said.ok();
    assert!(said.stderr.contains("htb with eBPF: the kernel lacks fq"), "{said:?}");
}

/// A child of a link is shaped inside the container.
fn assert_child_is_held(main: &Value) {
    let host = Sandbox::new();
    let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let call = shaped(&host, &pod, main, &limits());
    let result = call.add().result();
    let ifb = result["interfaces"][1]["name"].as_str().unwrap().to_owned();
    for link in ["eth0", &ifb] {
        let (queue, programs, _) = seen(&pod, link);
        assert!(is_best(&queue) && programs == 1, "{link} {queue} {programs}");
    }
    call.check(&result).ok();
    if main["mode"] == "l3" {
        // Nobody answers for the container at layer 2.
        far.run("ip route add 10.3.0.2/32 via 10.3.0.253");
    }
    assert_held((&far, "10.3.0.254"), (&pod, "10.3.0.2"));
    // It asks when each answer came in.
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
    shaped(&host, &pod, &ipvlan, &limits()).add().refused(7, &["ingressRate", "l3s"]);
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_strangers_filter_stays_and_a_taken_place_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let veth = host_link(&result);
    host.run(&format!("tc qdisc add dev {veth} clsact"));
    // A classic program that matches nothing.
    std::fs::write("/run/stranger", "1,6 0 0 0,").unwrap();
    host.run(&format!("tc filter add dev {veth} egress pref 1 bpf bytecode-file /run/stranger"));
    let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let call = host.call("bandwidth", &pod, chained).with("runtimeConfig", json!({"bandwidth": limits()}));
    let filters = || host.list(&format!("tc -j filter show dev {veth} egress")).len();
    let before = filters();
    call.clone().prev(&result).add().result();
    assert!(filters() > before);
    call.clone().prev(&result).del().ok();
    assert_eq!(filters(), before);
    host.run(&format!("tc filter del dev {veth} egress"));
    host.run(&format!("tc filter add dev {veth} egress pref 1 protocol all u32 match u32 0 0 classid 1:1"));
    let state = host.state();
    call.clone().prev(&result).add().refused(999, &["tc filter add", &veth]);
    state.assert_same(&host.state());
    host.run(&format!("tc filter del dev {veth} egress"));
    host.run(&format!("tc qdisc add dev {veth} root tbf rate 1mbit burst 10k limit 10k"));
    let state = host.state();
    call.clone().prev(&result).add().refused(999, &[&veth, "tbf"]);
    state.assert_same(&host.state());
    main.del().ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn check_misses_a_program_and_a_queue() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let mut result = call.add().result();
    let veth = host_link(&result);
    let damages = [
        (host.host(), format!("tc filter del dev {veth} egress"), "no program"),
        (host.host(), format!("tc filter del dev {veth} ingress"), "no program"),
        (&*pod, "tc filter del dev eth0 egress".to_owned(), "no program"),
        (&*pod, "tc qdisc del dev eth0 root".to_owned(), "queued by"),
    ];
    for (at, damage, why) in damages {
        call.check(&result).ok();
        at.run(&damage);
        call.check(&result).refused(999, &[why]);
        call.clone().prev(&result).del().ok();
        result = call.add().result();
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_plugin_of_its_own_shapes_and_ends_it_before_the_link_goes() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let veth = host_link(&result);
    let before = (queues(host.host(), &veth), queues(&pod, "eth0"));
    let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let call = host.call("bandwidth", &pod, chained).with("runtimeConfig", json!({"bandwidth": limits()}));
    assert_eq!(call.clone().prev(&result).add().result(), result);
    assert!(is_best(&seen(host.host(), &veth).0) && is_best(&seen(&pod, "eth0").0));
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    assert_eq!((queues(host.host(), &veth), queues(&pod, "eth0")), before);
    main.del().ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn one_direction_leaves_the_other_alone() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &json!({"ingressRate": RATE, "ingressBurst": BURST}));
    let result = call.add().result();
    let (queue, out, inside) = seen(host.host(), &host_link(&result));
    assert!(is_best(&queue) && (out, inside) == (1, 0));
    assert_eq!(seen(&pod, "eth0"), ("noqueue".to_owned(), 0, 0));
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_networks_own_limits_and_the_runtimes_need_no_plugin_of_that_type() {
    let own = |limits: Value| json!({"bandwidth": limits});
    let runtime = |limits: Value| json!({"runtimeConfig": {"bandwidth": limits}});
    for keys in [own(limits()), runtime(limits())] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": conf::bridge()});
        conf.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let call = host.call("braid", &pod, conf);
        let result = call.add().result();
        assert!(is_best(&seen(host.host(), &host_link(&result)).0) && is_best(&seen(&pod, "eth0").0));
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn only_the_named_subnets_are_held_or_all_but_those() {
    for (key, held, free) in [("shapedSubnets", "10.9.0.1", "10.1.0.1"), ("unshapedSubnets", "10.1.0.1", "10.9.0.1")] {
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
        let sent = |from: &Ns, there: &Ns, to: &str| {
            let (bits, seconds) = from.send_to(there, to);
            bits / seconds
        };
        let (slow, fast) = (sent(&pod, host.host(), held), sent(&pod, host.host(), free));
        assert!(slow < 1.1 * RATE_F && fast > 1.5 * RATE_F, "{key}: {slow} and {fast} bit/s");
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.run("ip addr del 10.9.0.1/32 dev lo");
        host.assert_nothing_left();
    }
}

#[test]
fn a_container_that_takes_its_shaper_away_is_held_by_the_host() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let result = call.add().result();
    pod.run("tc qdisc del dev eth0 root");
    pod.run("tc qdisc del dev eth0 clsact");
    let (bits, seconds) = pod.send_to(host.host(), "10.1.0.1");
    // A tenth above the rate, and a tenth of a second's worth at once.
    let most = 1.1 * RATE_F * seconds + BURST_F + 0.11 * RATE_F;
    assert!(bits < most, "{bits} bits in {seconds} s");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn status_and_top_show_what_the_device_counted() {
    let braid = braid_tests::binary::braid().display();
    for lacks in [&[][..], &["fq"], &["clsact", "fq_codel"]] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        if !lacks.is_empty() {
            lacking(lacks);
        }
        let call = shaped(&host, &pod, &conf::bridge(), &limits());
        let result = call.add().result();
        pod.send_to(host.host(), "10.1.0.1");
        let status = host.json(&format!("{braid} status -o json"));
        let directions = status[0]["bandwidth"].as_array().unwrap();
        let counted = |link: &Value| link["stats64"]["tx"]["bytes"].as_f64().unwrap();
        let sent = counted(&pod.list("ip -j -s link show eth0")[0]);
        let received = counted(&host.list(&format!("ip -j -s link show {}", host_link(&result)))[0]);
        for (direction, (toward, device)) in directions.iter().zip([("ingress", received), ("egress", sent)]) {
            assert_eq!((&direction["direction"], &direction["rate"]), (&json!(toward), &json!(RATE)));
            let share = direction["bytes"].as_f64().unwrap() / device;
            assert!((0.9..1.1).contains(&share), "{lacks:?}: {direction} of {device} bytes");
        }
        assert!(directions[1]["delayed"].as_u64() > Some(0), "{directions:?}");
        let table = host.run(&format!("{braid} status"));
        assert!(table.contains("20M") && table.contains("egress"), "{table}");
        let top = host.run(&format!("{braid} top -n 1 -d 0.2"));
        assert!(top.lines().count() == 3 && top.contains("ingress"), "{top}");
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn limits_that_make_no_sense_are_refused_before_anything_changes() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    for (limits, words) in [
        (json!({"ingressRate": 1000}), ["ingressRate", "1000"]),
        (json!({"egressBurst": 1000}), ["egressBurst", "1000"]),
        (json!({"egressRate": 5, "egressBurst": 1000}), ["egressRate", "5"]),
        (json!({"egressRate": 5000, "egressBurst": u64::MAX}), ["egressBurst", "4GB"]),
        (json!({"egressRate": -1, "egressBurst": 5}), ["egressRate", "-1"]),
    ] {
        let refused = shaped(&host, &pod, &conf::bridge(), &limits).add().error();
        assert!(words.iter().all(|word| refused.msg.contains(word)), "{limits}: {refused:?}");
    }
    before.assert_same(&host.state());
}
