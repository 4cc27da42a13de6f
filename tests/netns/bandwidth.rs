//! `bandwidth`: shaping by braid's own program.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};

/// Both ways, and the burst, in bits.
const RATE: u64 = 20_000_000;
const BURST: u64 = 160_000;
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

        for (from, there, to) in [(host.host(), &*pod, &address), (&*pod, host.host(), &gateway)] {
            let got = from.goodput_to(there, to);
            // What waited in a socket when the measuring began is counted too.
            assert!(got > 0.75 * GOODPUT && got < 1.1 * GOODPUT, "{} gets {got} bit/s", from.name());
        }
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
        let bulk = scope.spawn(|| node.goodput_to(there, "10.1.0.2"));
        // Until the bulk has used up the burst and waits.
        while node.list("tc -j -s qdisc show").iter().all(|queue| queue["backlog"].as_u64().unwrap_or(0) == 0) {}
        let took = round_trip(node, "10.1.0.2");
        assert!(took < 5.0, "{took} ms");
        assert!(bulk.join().unwrap() > 0.7 * GOODPUT);
    });
    call.prev(&result).del().ok();
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
