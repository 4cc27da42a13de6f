//! `bandwidth`: shaping by braid's own program.

mod guard;
mod inside;
mod lifecycle;
mod netkit;
mod order;
mod traffic;
mod xsk_bind;

use braid_tests::feature::pretend;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json};

/// Both ways, and the burst, in bits.
const RATE: u64 = 20_000_000;
const BURST: u64 = 160_000;
/// The same as a measured number.
const RATE_F: f64 = 20_000_000.0;
const BURST_F: f64 = 160_000.0;
/// Bits that may come at once: a token bucket holds the largest packet, with its headers once for
/// each segment, and what gathers in a millisecond, where that is more than the burst.
const AT_ONCE: f64 = 600_000.0;
/// What TCP gets of it at an MTU of 1500: 1448 of 1514 bytes.
const GOODPUT: f64 = 19_128_000.0;

fn limits() -> Value {
    json!({"ingressRate": RATE, "ingressBurst": BURST, "egressRate": RATE, "egressBurst": BURST})
}

/// A bridge or a ptp with `bandwidth` behind it, in one call.
fn shaped(host: &Sandbox, pod: &Ns, main: &Value, limits: &Value) -> Call {
    host.call("braid", pod, list(main, limits))
}

fn list(main: &Value, limits: &Value) -> Value {
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [main, bandwidth],
        "runtimeConfig": {"bandwidth": limits}})
}

fn host_link(result: &Value) -> String {
    let interfaces = result["interfaces"].as_array().unwrap();
    let veth = interfaces
        .iter()
        .map(|interface| interface["name"].as_str().unwrap());
    veth.into_iter()
        .find(|name| name.starts_with("veth") || name.starts_with("nk"))
        .unwrap()
        .to_owned()
}

/// The ifb of the host that has what the container sends, or of the container that has what it
/// receives.
fn ifb(result: &Value) -> String {
    let interfaces = result["interfaces"].as_array().unwrap();
    let mut names = interfaces
        .iter()
        .map(|interface| interface["name"].as_str().unwrap());
    names
        .find(|name| name.starts_with("ifb"))
        .unwrap()
        .to_owned()
}

/// All that `tc` shows of a link.
fn queues(ns: &Ns, link: &str) -> Vec<Value> {
    ns.list(&format!("tc -j qdisc show dev {link}"))
        .iter()
        .map(|queue| queue["kind"].clone())
        .collect()
}

/// Kind of the root queue, and the programs before it and at the endpoint.
fn seen(ns: &Ns, link: &str) -> (String, usize, usize) {
    let root = ns.list(&format!("tc -j qdisc show dev {link} root"));
    let kind = root.first().map_or_else(String::new, |root| {
        root["kind"].as_str().unwrap_or_default().to_owned()
    });
    let programs = |side: &str| {
        let filters = ns.list(&format!("tc -j filter show dev {link} {side}"));
        filters
            .iter()
            .filter(|filter| filter["options"]["bpf_name"] == "braid_shape")
            .count()
    };
    (kind, programs("egress"), programs("ingress"))
}

/// Tells braid that the kernel lacks these of the features that the choice of a queue depends on;
/// nothing where there are none.
fn lacking(lacks: &[&str]) {
    if lacks.is_empty() {
        return;
    }
    let asked = ["fq", "htb", "tbf", "fq_codel", "clsact", "cls_bpf", "bpf"];
    let (has, lacks): (Vec<_>, Vec<_>) = asked.iter().partition(|name| !lacks.contains(name));
    pretend(&has, &lacks);
}

/// Whether it is the first rung of the ladder that this kernel has.
fn is_best(queue: &str) -> bool {
    queue == if Feature::Fq.is_here() { "fq" } else { "tbf" }
}
