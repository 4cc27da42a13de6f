//! Limits through CHECK, `braid status`, DEL and GC, also beside other users of the link, and
//! limits that are refused.

use super::{BURST, RATE, host_link, ifb, is_best, lacking, limits, queues, seen, shaped};
use crate::conf;
use braid_tests::arriving::PATIENCE;
use braid_tests::{Ns, Sandbox, Value, json, needs};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_kernel_that_cannot_shape_is_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    lacking(&["bpf", "tbf"]);
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    call.add().refused(999, &["can't shape", "tbf", "bpf"]);
    host.assert_nothing_left();
    assert_eq!((host.link("br0"), pod.link("eth0")), (None, None));
    call.status().refused(50, &["can't shape"]);
    lacking(&["fq", "htb"]);
    let mut all_but = limits();
    all_but["unshapedSubnets"] = json!(["10.9.0.0/16"]);
    let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": conf::bridge(),
        "bandwidth": all_but});
    host.call("braid", &pod, conf.clone())
        .add()
        .refused(999, &["subnets", "fq or htb", "tbf with eBPF"]);
    // Packets to a macvlan are never queued by fq.
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    lacking(&["htb"]);
    conf["network"] = conf::macvlan();
    host.call("braid", &pod, conf)
        .add()
        .refused(999, &["subnets", "ifb", "tbf with eBPF"]);
    host.assert_nothing_left();
    lacking(&["fq"]);
    let said = call.status();
    said.ok();
    assert!(
        said.stderr.contains("tbf with eBPF: the kernel lacks fq"),
        "{said:?}"
    );
}

#[test]
fn foreign_filters_are_kept_and_a_conflicting_one_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let veth = host_link(&result);
    host.run(&format!("tc qdisc add dev {veth} clsact"));
    // The filter of another program: a classic BPF program that matches nothing.
    std::fs::write("/run/stranger", "1,6 0 0 0,").unwrap();
    host.run(&format!(
        "tc filter add dev {veth} egress pref 1 bpf bytecode-file /run/stranger"
    ));
    let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let call = host
        .call("bandwidth", &pod, chained)
        .with("runtimeConfig", json!({"bandwidth": limits()}));
    let filters = || {
        host.list(&format!("tc -j filter show dev {veth} egress"))
            .len()
    };
    let before = filters();
    call.clone().prev(&result).add().result();
    assert!(filters() > before);
    call.clone().prev(&result).del().ok();
    assert_eq!(filters(), before);
    host.run(&format!("tc filter del dev {veth} egress"));
    host.run(&format!(
        "tc filter add dev {veth} egress pref 1 protocol all u32 match u32 0 0 classid 1:1"
    ));
    let state = host.state();
    call.clone()
        .prev(&result)
        .add()
        .refused(999, &["tc filter add", &veth]);
    state.assert_same(&host.state());
    host.run(&format!("tc filter del dev {veth} egress"));
    host.run(&format!(
        "tc qdisc add dev {veth} root tbf rate 1mbit burst 10k limit 10k"
    ));
    let state = host.state();
    call.clone()
        .prev(&result)
        .add()
        .refused(999, &[&veth, "tbf"]);
    state.assert_same(&host.state());
    host.run(&format!("tc qdisc del dev {veth} root"));
    host.run(&format!("tc qdisc del dev {veth} clsact"));
    host.run(&format!("tc qdisc add dev {veth} ingress"));
    let state = host.state();
    call.clone()
        .prev(&result)
        .add()
        .refused(999, &[&veth, "ingress"]);
    state.assert_same(&host.state());
    main.del().ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn check_reports_a_missing_program_and_a_missing_queue() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(&host, &pod, &conf::bridge(), &limits());
    let mut result = call.add().result();
    let (veth, ifb) = (host_link(&result), ifb(&result));
    let damages = [
        (format!("tc filter del dev {veth} egress"), "no program"),
        (
            format!("tc filter del dev {veth} ingress"),
            "are not redirected to",
        ),
        (format!("tc filter del dev {ifb} egress"), "no program"),
        (format!("tc qdisc del dev {ifb} root"), "has root qdisc"),
        (format!("ip link set {ifb} down"), &ifb),
        (format!("ip link del {ifb}"), &ifb),
    ];
    for (damage, why) in damages {
        call.check(&result).ok();
        host.run(&damage);
        call.check(&result).refused(999, &[why]);
        call.clone().prev(&result).del().ok();
        result = call.add().result();
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_separate_bandwidth_plugin_creates_and_deletes_the_shaper() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let veth = host_link(&result);
    let gso_max_size = || pod.json("ip -d -j link show eth0")[0]["gso_max_size"].clone();
    pod.run("ip link set eth0 gso_max_size 60000");
    let before = (queues(host.host(), &veth), queues(&pod, "eth0"));
    let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
    let call = host
        .call("bandwidth", &pod, chained)
        .with("runtimeConfig", json!({"bandwidth": limits()}));
    let limited = call.clone().prev(&result).add().result();
    assert!(is_best(&seen(host.host(), &veth).0) && seen(host.host(), &ifb(&limited)).0 == "tbf");
    assert_eq!(queues(&pod, "eth0"), before.1);
    let again = call.clone().with("name", "other").prev(&result).add();
    again.refused(999, &[&veth, "already"]);
    assert_eq!(gso_max_size(), 5 * RATE / 8 / 1000, "5 ms of the rate");
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    assert_eq!((queues(host.host(), &veth), queues(&pod, "eth0")), before);
    assert_eq!(gso_max_size(), 60_000);
    // GC deletes the limit as well, and keeps the limit of another network.
    let other = call.clone().with("name", "other");
    other.clone().prev(&result).add().result();
    other.gc(&[("a", "eth0")]).ok();
    other.check(&result).ok();
    other.gc(&[]).ok();
    assert_eq!((queues(host.host(), &veth), queues(&pod, "eth0")), before);
    main.del().ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_result_without_interfaces_means_the_interface_of_the_call() {
    for main in [conf::bridge(), conf::ptp(), conf::macvlan()] {
        let host = Sandbox::new();
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        let main = host.call(main["type"].as_str().unwrap(), &pod, main.clone());
        let mut prev = main.add().result();
        let veth = prev["interfaces"]
            .as_array()
            .unwrap()
            .iter()
            .any(|link| link["sandbox"].is_null());
        let veth = veth.then(|| host_link(&prev));
        for interfaces in [None, Some(json!([]))] {
            let all = prev.as_object_mut().unwrap();
            all.remove("interfaces");
            all.extend(interfaces.map(|none| ("interfaces".to_owned(), none)));
            let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "bandwidth"});
            let call = host
                .call("bandwidth", &pod, chained)
                .with("runtimeConfig", json!({"bandwidth": limits()}));
            let result = call.clone().prev(&prev).add().result();
            let to_pod = veth.as_ref().map(|veth| seen(host.host(), veth).0);
            assert!(to_pod.is_none_or(|queue| is_best(&queue)), "{veth:?}");
            call.check(&result).ok();
            call.prev(&result).del().ok();
        }
        main.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn both_links_of_a_macvlan_are_deleted_after_the_container_changed_them() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let (pod, other) = (host.pod("a"), host.pod("b"));
    let in_group = "ip link add own type bridge; ip link set own group 11641296";
    in_group
        .split("; ")
        .for_each(|command| drop(other.run(command)));
    for done in [
        // With `lo` in braid's link group the kernel refuses to delete the group, and deletes no
        // link in it.
        "ip link set lo group 11641296",
        "ip link set lo group default",
        "ip link del IFB",
        "ip link del eth0",
        "rm -r /run/braid/attachments/a",
    ] {
        let call = shaped(&host, &pod, &conf::macvlan(), &limits());
        let result = call.add().result();
        pod.run(&done.replace("IFB", &ifb(&result)));
        call.prev(&result).del().ok();
        assert_eq!(pod.link_names(), Vec::<String>::new(), "{done}");
        assert!(!pod.run("nft list tables").contains("braid"), "{done}");
    }
    host.assert_nothing_left();
    assert_eq!(
        other.link_names(),
        ["own"],
        "another container's link in the deleted group"
    );
}

#[test]
fn attachments_share_a_program_and_have_separate_rates() {
    let host = Sandbox::new();
    let rates = |bps: u64| json!({"ingressRate": bps, "ingressBurst": BURST, "egressRate": 2 * bps, "egressBurst": BURST});
    let attach = |name: &str, bps: u64| {
        let pod = host.pod(name);
        let call = shaped(&host, &pod, &conf::bridge(), &rates(bps));
        let result = call.add().result();
        (call, result)
    };
    let program = |result: &Value| {
        let filters = filters(host.host(), &ifb(result));
        filters
            .iter()
            .map(|options| (options["prog"]["id"].clone(), options["flowid"].clone()))
            .collect::<Vec<_>>()
    };
    let (a, result_a) = attach("a", RATE);
    let (b, result_b) = attach("b", 3 * RATE);
    let (of_a, of_b) = (program(&result_a), program(&result_b));
    assert_eq!((of_a.len(), of_b.len()), (1, 1));
    assert_eq!(of_a[0].0, of_b[0].0, "one program");
    assert_ne!(of_a[0].1, of_b[0].1, "two slots");
    a.check(&result_a).ok();
    b.check(&result_b).ok();
    a.prev(&result_a).del().ok();
    b.check(&result_b).ok();
    let (c, mut result_c) = attach("c", 5 * RATE);
    // braid allocates slots that were never used first.
    for _ in 0..32 {
        assert_eq!(program(&result_c)[0].0, of_a[0].0, "one program");
        if program(&result_c) == of_a {
            break;
        }
        c.clone().prev(&result_c).del().ok();
        result_c = c.add().result();
    }
    assert_eq!(program(&result_c), of_a, "the freed slot");
    b.check(&result_b).ok();
    c.check(&result_c).ok();
    b.prev(&result_b).del().ok();
    c.prev(&result_c).del().ok();
    host.assert_nothing_left();
}

/// Returns the ID of the BPF program that limits the packets leaving through a link.
fn program_of(at: &Ns, link: &str) -> u64 {
    filters(at, link)[0]["prog"]["id"].as_u64().unwrap()
}

/// Waits until the kernel has freed a BPF program and its maps, which it does after a grace period.
fn until_freed(host: &Sandbox, program: u64, maps: &[Value]) {
    let is_there = |what: &str, id: &str| {
        host.try_run(&format!("bpftool {what} show id {id}"))
            .is_ok()
    };
    let start = Instant::now();
    while is_there("prog", &program.to_string())
        || maps.iter().any(|map| is_there("map", &map.to_string()))
    {
        assert!(
            start.elapsed() < PATIENCE,
            "program {program}, maps {maps:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn program_and_maps_are_freed_with_the_last_device() {
    needs!(Bpftool);
    for ends_with in ["DEL", "GC", "its namespace"] {
        for main in [conf::bridge(), conf::macvlan()] {
            let host = Sandbox::new();
            host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
            let pod = host.pod("a");
            let call = shaped(&host, &pod, &main, &limits());
            let result = call.add().result();
            let program = match main["type"].as_str() {
                Some("macvlan") => program_of(&pod, "eth0"),
                _ => program_of(host.host(), &ifb(&result)),
            };
            let maps = host.json(&format!("bpftool -j prog show id {program}"))["map_ids"]
                .as_array()
                .unwrap()
                .clone();
            assert!(!maps.is_empty());
            match ends_with {
                "DEL" => call.clone().prev(&result).del().ok(),
                "GC" => call.gc(&[]).ok(),
                _ => {
                    host.end(&pod);
                    std::fs::remove_file(pod.path()).unwrap();
                    // The host's ifb is not deleted with the veth.
                    if main["type"] == "bridge" {
                        call.del().ok();
                    }
                }
            }
            until_freed(&host, program, &maps);
            call.del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn a_namespace_kept_open_after_del_does_not_share_its_limit() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let left = host.pod("a");
    let first = shaped(&host, &left, &conf::macvlan(), &limits());
    first.add().result();
    let program = program_of(&left, "eth0");
    let _held = std::fs::File::open(left.path()).unwrap();
    host.end(&left);
    std::fs::remove_file(left.path()).unwrap();
    first.del().ok();
    let pod = host.pod("b");
    let second = shaped(&host, &pod, &conf::macvlan(), &limits());
    second.add().result();
    assert_ne!(program_of(&pod, "eth0"), program);
    second.del().ok();
    host.assert_nothing_left();
}

/// Returns the options of all BPF egress filters of a link, as `tc` prints them.
fn filters(ns: &Ns, link: &str) -> Vec<Value> {
    let filters = ns.list(&format!("tc -j filter show dev {link} egress"));
    filters
        .into_iter()
        .map(|filter| filter["options"].clone())
        .filter(|options| options["bpf_name"].is_string())
        .collect()
}

#[test]
fn a_limit_for_one_direction_leaves_the_other_unlimited() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = shaped(
        &host,
        &pod,
        &conf::bridge(),
        &json!({"ingressRate": RATE, "ingressBurst": BURST}),
    );
    let result = call.add().result();
    let (queue, out, inside) = seen(host.host(), &host_link(&result));
    assert!(is_best(&queue) && (out, inside) == (1, 0));
    assert!(!host.link_names().iter().any(|name| name.starts_with("ifb")));
    call.prev(&result).del().ok();
    let call = shaped(
        &host,
        &pod,
        &conf::bridge(),
        &json!({"egressRate": RATE, "egressBurst": BURST}),
    );
    let result = call.add().result();
    assert_eq!(seen(host.host(), &ifb(&result)), ("tbf".to_owned(), 1, 0));
    assert_eq!(
        seen(host.host(), &host_link(&result)),
        ("noqueue".to_owned(), 0, 0)
    );
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn limits_of_a_network_need_no_bandwidth_plugin() {
    let own = |limits: Value| json!({"bandwidth": limits});
    let runtime = |limits: Value| json!({"runtimeConfig": {"bandwidth": limits}});
    for keys in [own(limits()), runtime(limits())] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": conf::bridge()});
        conf.as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        let call = host.call("braid", &pod, conf);
        let result = call.add().result();
        let [to_pod, from_pod] =
            [host_link(&result), ifb(&result)].map(|link| seen(host.host(), &link).0);
        assert!(is_best(&to_pod) && from_pod == "tbf", "{to_pod} {from_pod}");
        call.check(&result).ok();
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn status_and_top_match_the_counters_of_the_device() {
    let braid = braid_tests::binary::braid().display();
    for lacks in [&[][..], &["fq"], &["clsact", "fq_codel"]] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        lacking(lacks);
        let call = shaped(&host, &pod, &conf::bridge(), &limits());
        let result = call.add().result();
        pod.send(host.host(), "10.1.0.1", 2_000_000);
        let status = host.json(&format!("{braid} status -o json"));
        let directions = status["attachments"][0]["bandwidth"].as_array().unwrap();
        let counted = |link: &Value| link["stats64"]["tx"]["bytes"].as_f64().unwrap();
        // These links count packets after their qdiscs. A token bucket alone drops packets that the
        // container's end of the veth has counted.
        let [received, sent] = [host_link(&result), ifb(&result)]
            .map(|link| counted(&host.list(&format!("ip -j -s link show {link}"))[0]));
        for (direction, (toward, device)) in directions
            .iter()
            .zip([("ingress", received), ("egress", sent)])
        {
            assert_eq!(
                (&direction["direction"], &direction["rate"]),
                (&json!(toward), &json!(RATE))
            );
            let share = direction["bytes"].as_f64().unwrap() / device;
            assert!(
                (0.9..1.1).contains(&share),
                "{lacks:?}: {direction} of {device} bytes"
            );
        }
        assert!(
            directions[1]["delayed"].as_u64() > Some(0) && directions[1]["guarded"] == 0,
            "{directions:?}"
        );
        let table = host.run(&format!("{braid} status"));
        assert!(table.contains("20M") && table.contains("egress"), "{table}");
        let top = host.run(&format!("{braid} top -n 1 -d 0.2"));
        assert!(top.lines().count() == 3 && top.contains("ingress"), "{top}");
        let to_its_end = format!("timeout 60 {braid} top -d 0.1 | head -n 1");
        let ended = host
            .enter(|| {
                Command::new("bash")
                    .args(["-o", "pipefail", "-c", &to_its_end])
                    .output()
            })
            .unwrap();
        assert!(
            ended.status.success() && !ended.stdout.is_empty(),
            "{ended:?}"
        );
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn invalid_limits_are_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    for (limits, words) in [
        (json!({"ingressRate": 1000}), ["ingressRate", "1000"]),
        (json!({"egressBurst": 1000}), ["egressBurst", "1000"]),
        (
            json!({"egressRate": 5, "egressBurst": 1000}),
            ["egressRate", "5"],
        ),
        (
            json!({"egressRate": 5000, "egressBurst": u64::MAX}),
            ["egressBurst", "4GB"],
        ),
        (
            json!({"egressRate": -1, "egressBurst": 5}),
            ["egressRate", "-1"],
        ),
    ] {
        let refused = shaped(&host, &pod, &conf::bridge(), &limits).add().error();
        assert!(
            words.iter().all(|word| refused.msg.contains(word)),
            "{limits}: {refused:?}"
        );
    }
    before.assert_same(&host.state());
}
