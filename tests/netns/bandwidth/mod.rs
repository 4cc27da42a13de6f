//! `bandwidth`: rate limits by braid's own eBPF program.

mod adjust;
mod guard;
mod inside;
mod lifecycle;
mod netkit;
mod order;
mod traffic;
mod xsk_bind;

use braid_tests::feature::pretend;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json};

/// Rate limit of both directions, in bits per second.
const RATE: u64 = 20_000_000;
const BURST: u64 = 160_000;
/// [`RATE`] as a floating-point number.
const RATE_F: f64 = 20_000_000.0;
const BURST_F: f64 = 160_000.0;
/// Largest number of bits that may arrive without delay. This is more than the burst if the qdisc
/// is a token bucket. Its bucket holds the largest packet, with its headers once for each segment,
/// and the bits of a millisecond at the rate.
const AT_ONCE: f64 = 600_000.0;
/// TCP payload in bits per second at [`RATE`] and an MTU of 1500: 1448 of 1514 bytes.
const GOODPUT: f64 = 19_128_000.0;

fn limits() -> Value {
    json!({"ingressRate": RATE, "ingressBurst": BURST, "egressRate": RATE, "egressBurst": BURST})
}

/// Returns a call for a plugin list: `main`, and then `bandwidth` with `limits`.
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

/// Returns the name of the ifb in a result. An ifb on the host limits packets from the container,
/// and an ifb in the container limits packets to the container.
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

/// Returns the kinds of all qdiscs of a link.
fn queues(ns: &Ns, link: &str) -> Vec<Value> {
    ns.list(&format!("tc -j qdisc show dev {link}"))
        .iter()
        .map(|queue| queue["kind"].clone())
        .collect()
}

/// Returns the kind of a link's root qdisc, and the numbers of braid's BPF filters at egress and
/// ingress.
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

/// Makes braid believe that the kernel lacks these features, on which its choice of a qdisc
/// depends. Does nothing if `lacks` is empty.
fn lacking(lacks: &[&str]) {
    if lacks.is_empty() {
        return;
    }
    let asked = ["fq", "htb", "tbf", "fq_codel", "clsact", "cls_bpf", "bpf"];
    let (has, lacks): (Vec<_>, Vec<_>) = asked.iter().partition(|name| !lacks.contains(name));
    pretend(&has, &lacks);
}

/// True if `queue` is the best kind of qdisc that this kernel has for a limit.
fn is_best(queue: &str) -> bool {
    queue == if Feature::Fq.is_here() { "fq" } else { "tbf" }
}
