//! Limits of a netkit, which braid adds to the node's end, as for a veth.

use super::{
    BURST, BURST_F, GOODPUT, RATE, RATE_F, host_link, ifb, is_best, limits, queues, seen, shaped,
};
use crate::conf;
use braid_tests::{Ns, Sandbox, Value, json, needs};

/// Returns configurations of netkits: each plugin type that can create one, and each mode.
fn mains() -> [Value; 4] {
    let of = |mut conf: Value, mode: &str| {
        conf["device"] = json!("netkit");
        conf["mode"] = json!(mode);
        conf
    };
    [
        of(conf::netkit(), "l3"),
        of(conf::netkit(), "l2"),
        of(conf::ptp(), "l3"),
        of(conf::bridge(), "l2"),
    ]
}

fn end(result: &Value, key: &str) -> String {
    result["ips"][0][key]
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn a_netkit_container_is_held_to_its_rate_in_both_directions() {
    needs!(Netkit);
    for main in mains() {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = shaped(&host, &pod, &main, &limits());
        let result = call.add().result();
        let (queue, out, inside) = seen(host.host(), &host_link(&result));
        assert!(
            is_best(&queue) && (out, inside) == (1, 0),
            "{queue} {out} {inside}: {main}"
        );
        assert_eq!(
            seen(host.host(), &ifb(&result)),
            ("tbf".to_owned(), 1, 0),
            "{main}"
        );
        assert_eq!(
            queues(&pod, "eth0"),
            [json!("noqueue")],
            "the container's own is free: {main}"
        );
        let (address, gateway) = (end(&result, "address"), end(&result, "gateway"));
        let [node, inside]: [(&Ns, &str); 2] = [(host.host(), &gateway), (&pod, &address)];
        for ((from, _), (there, to)) in [(node, inside), (inside, node)] {
            from.assert_sends(there, to, 0.7 * GOODPUT, (1.01 * RATE_F, BURST_F));
        }
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_netkit_of_an_earlier_call_is_limited_by_a_separate_plugin() {
    needs!(Netkit);
    for main in mains() {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let attached = host.call(main["type"].as_str().unwrap(), &pod, main.clone());
        let mut prev = attached.add().result();
        let port = host_link(&prev);
        // Results before CNI 0.3.0 do not name interfaces.
        for is_named in [true, false] {
            if !is_named {
                prev.as_object_mut().unwrap().remove("interfaces");
            }
            let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
            let limited = host
                .call("bandwidth", &pod, conf)
                .with("runtimeConfig", json!({"bandwidth": limits()}));
            let result = limited.clone().prev(&prev).add().result();
            assert!(is_best(&seen(host.host(), &port).0), "{main}");
            limited.check(&result).ok();
            limited.prev(&result).del().ok();
            assert_eq!(queues(host.host(), &port), [json!("noqueue")], "{main}");
        }
        attached.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_netkit_container_cannot_remove_its_limit() {
    needs!(Netkit);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let slow = json!({"egressRate": RATE / 2, "egressBurst": BURST});
    let result = shaped(&host, &pod, &conf::netkit(), &slow).add().result();
    // These commands change everything that the container can change on its end.
    pod.run("tc qdisc replace dev eth0 root pfifo limit 1000");
    pod.run("tc qdisc add dev eth0 clsact");
    pod.run("ip link set eth0 gso_max_size 65536");
    let gateway = end(&result, "gateway");
    pod.assert_sends(
        host.host(),
        &gateway,
        0.3 * GOODPUT,
        (0.51 * RATE_F, BURST_F),
    );
}
