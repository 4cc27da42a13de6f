//! Configuration keys of the reference `portmap` that are for iptables and nft: what braid makes of
//! them, and which clients the conditions admit.

use super::{PINS, at_address, mapped, network, network_by, outside, reaches, tcp};
use braid_tests::{Call, Ns, Sandbox, Value, json, state};
use std::path::Path;
use std::rc::Rc;

/// A test case: the address family, `V4` or `V6`, a value of the key `conditions<family>`, and if
/// the clients outside meet the condition: first 192.0.2.2, then 198.51.100.2.
type Case = (&'static str, Value, [bool; 2]);

fn with(keys: &[(&str, Value)]) -> Value {
    let mut network = network("bridge", "net", 1);
    for (key, value) in keys {
        network["plugins"][1][key] = value.clone();
    }
    network
}

fn two_worlds(host: &Sandbox) -> [Rc<Ns>; 2] {
    let second = host.outside("second", "198.51.100.1/24", "198.51.100.2/24");
    host.run("ip addr add 2001:db8:1::1/64 dev second nodad");
    second.run("ip addr add 2001:db8:1::2/64 dev second nodad");
    [outside(host), second]
}

#[test]
fn keys_of_the_reference_are_accepted_without_a_port() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let keys = [
        ("backend", json!("iptables")),
        ("backend", json!("no such")),
        ("conditionsV4", json!(["-m", "geoip"])),
        ("conditionsV6", json!(["meta", "cpu", "1"])),
        ("externalSetMarkChain", json!("KUBE-MARK-MASQ")),
        ("markMasqBit", json!(40)),
    ];
    for (key, value) in keys.clone() {
        let call = host.call("braid", &pod, with(&[(key, value)]));
        let answer = call.add();
        let result = answer.result();
        assert_eq!(answer.stderr, "", "{key}");
        call.prev(&result).del().ok();
    }
    let call = host.call("braid", &pod, with(&keys[2..]));
    let result = call.add().result();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn with_a_port_keys_of_the_reference_select_nf_tables_or_are_refused() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    for (key, value, warning) in [
        ("backend", json!("iptables"), "nf_tables"),
        ("externalSetMarkChain", json!("KUBE-MARK-MASQ"), ""),
        ("markMasqBit", json!(14), ""),
    ] {
        let call = mapped(&host, &pod, with(&[(key, value)]), &tcp());
        let answer = call.add();
        let result = answer.result();
        assert!(
            answer.stderr.contains(warning) && answer.stderr.is_empty() == warning.is_empty(),
            "{}",
            answer.stderr
        );
        assert!(reaches(&outside, "192.0.2.1:8080", &pod), "{key}");
        call.prev(&result).del().ok();
    }
    let both = [
        ("externalSetMarkChain", json!("KUBE-MARK-MASQ")),
        ("markMasqBit", json!(14)),
    ];
    let call = mapped(&host, &pod, with(&both), &tcp());
    call.add()
        .refused(7, &["Cannot specify externalSetMarkChain and markMasqBit"]);
    let call = mapped(
        &host,
        &pod,
        with(&[("conditionsV4", json!(["-m", "geoip"]))]),
        &tcp(),
    );
    call.add().refused(7, &["conditionsV4", "\"-m\""]);
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn only_clients_that_meet_the_conditions_are_forwarded() {
    let cases: [Case; 14] = [
        ("V4", json!(["-s", "192.0.2.0/24"]), [true, false]),
        ("V4", json!(["!", "-s", "192.0.2.0/24"]), [false, true]),
        (
            "V4",
            json!(["-s", "192.0.2.2,198.51.100.2", "!", "-i", "second"]),
            [true, false],
        ),
        (
            "V4",
            json!(["-d", "192.0.2.1/255.255.255.255", "-i", "sec+"]),
            [false, true],
        ),
        ("V4", json!(["!", "-d", "192.0.2.0/24"]), [false, false]),
        ("V4", json!(["-o", "world"]), [false, false]),
        ("V4", json!(["ip", "saddr", "192.0.2.0/24"]), [true, false]),
        (
            "V4",
            json!(["ip saddr != 192.0.2.0/24 ip daddr 192.0.2.1"]),
            [false, true],
        ),
        (
            "V4",
            json!(["ip", "saddr", "{", "192.0.2.9,", "198.51.100.0/24", "}"]),
            [false, true],
        ),
        (
            "V4",
            json!(["iifname", "!=", "{ \"world\", \"lo\" }"]),
            [false, true],
        ),
        ("V4", json!(["oifname", "!=", "world"]), [true, true]),
        ("V6", json!(["-s", "2001:db8::/64"]), [true, false]),
        ("V6", json!(["!", "-s", "2001:db8::2"]), [false, true]),
        (
            "V6",
            json!(["ip6", "saddr", "2001:db8:1::/64", "meta", "iifname", "sec*"]),
            [false, true],
        ),
    ];
    let host = Sandbox::new();
    let worlds = two_worlds(&host);
    worlds[1].run("ip route replace default via 198.51.100.1");
    worlds[1].run("ip -6 route replace default via 2001:db8:1::1");
    let pod = host.pod("a");
    for (family, conditions, expected) in cases {
        let call = mapped(
            &host,
            &pod,
            with(&[(&format!("conditions{family}"), conditions.clone())]),
            &tcp(),
        );
        let result = call.add().result();
        let at = if family == "V4" {
            "192.0.2.1:8080"
        } else {
            "[2001:db8::1]:8080"
        };
        assert_eq!(
            [0, 1].map(|world| reaches(&worlds[world], at, &pod)),
            expected,
            "{conditions}"
        );
        call.check(&result).ok();
        call.prev(&result).del().ok();
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{conditions}");
    }
    host.assert_nothing_left();
}

#[test]
fn conditions_of_one_family_do_not_apply_to_the_other() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let call = mapped(
        &host,
        &pod,
        with(&[("conditionsV4", json!(["-s", "203.0.113.0/24"]))]),
        &tcp(),
    );
    let result = call.add().result();
    assert!(!reaches(&outside, "192.0.2.1:8080", &pod));
    assert!(reaches(&outside, "[2001:db8::1]:8080", &pod));
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_port_with_conditions_ranks_between_one_address_and_any_client() {
    let host = Sandbox::new();
    let [world, second] = two_worlds(&host);
    second.run("ip route replace default via 198.51.100.1");
    let (a, b, c, d) = (host.pod("a"), host.pod("b"), host.pod("c"), host.pod("d"));
    let only_second = with(&[("conditionsV4", json!(["-s", "198.51.100.0/24"]))]);
    let all_of_v4 = || at_address("0.0.0.0");
    let one_address = at_address("198.51.100.1");
    let plain = network("bridge", "net", 1);
    let mut attached: Vec<(Call, Value)> = Vec::new();
    for (pod, network, mappings) in [
        (&a, plain.clone(), all_of_v4()),
        (&b, only_second.clone(), all_of_v4()),
        (&c, plain, one_address),
    ] {
        let call = mapped(&host, pod, network, &mappings);
        let result = call.add().result();
        attached.push((call, result));
    }
    assert!(
        reaches(&world, "192.0.2.1:8080", &a),
        "a client that does not meet the conditions"
    );
    assert!(
        reaches(&second, "192.0.2.1:8080", &b),
        "a client that meets them"
    );
    assert!(
        reaches(&second, "198.51.100.1:8080", &c),
        "a port of one address"
    );
    mapped(&host, &d, only_second, &all_of_v4())
        .add()
        .refused(999, &["8080/tcp", "net b eth0"]);
    for (call, result) in attached {
        call.check(&result).ok();
        call.prev(&result).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn a_port_with_conditions_is_deleted_by_its_owner() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let network = with(&[("conditionsV4", json!(["-s", "192.0.2.0/24"]))]);
    let call = mapped(&host, &a, network.clone(), &tcp());
    for by in ["DEL", "GC", "ADD"] {
        call.add().result();
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        match by {
            "DEL" => host.call("braid", &a, network.clone()).del().ok(),
            "GC" => call.gc(&[]).ok(),
            _ => {
                let next = mapped(&host, &b, network.clone(), &tcp());
                let result = next.add().result();
                call.del().ok();
                assert!(reaches(&outside, "192.0.2.1:8080", &b));
                next.check(&result).ok();
                next.prev(&result).del().ok();
            }
        }
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{by}");
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn check_reports_and_the_next_call_restores_a_port_with_conditions() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let call = mapped(
        &host,
        &pod,
        with(&[("conditionsV4", json!(["-s", "192.0.2.0/24"]))]),
        &tcp(),
    );
    let result = call.add().result();
    for set in ["hostport4-if-any", "hostport4-to-any"] {
        host.run(&format!(
            "nft delete element inet braid {set} {{ tcp . 8080 }}"
        ));
        call.check(&result)
            .refused(999, &["0.0.0.0:8080/tcp is not forwarded"]);
        host.run("nft flush ruleset");
        call.status().ok();
        call.check(&result).ok();
    }
    for flush in [
        "nft flush table inet braid",
        "nft flush chain inet braid hostport-if",
    ] {
        host.run(flush);
        call.status().ok();
        call.check(&result).ok();
        assert!(reaches(&outside, "192.0.2.1:8080", &pod), "{flush}");
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn with_conditions_nf_tables_replaces_ebpf() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let mut network = network_by("bridge", "ebpf");
    network["plugins"][1]["conditionsV4"] = json!(["!", "-s", "192.0.2.2"]);
    network["plugins"][1]["conditionsV6"] = json!(["-s", "2001:db8::/64"]);
    let call = mapped(&host, &pod, network, &tcp());
    let answer = call.add();
    let result = answer.result();
    assert!(
        answer.stderr.contains("nf_tables forwards"),
        "{}",
        answer.stderr
    );
    assert!(!reaches(&outside, "192.0.2.1:8080", &pod));
    assert!(reaches(&outside, "[2001:db8::1]:8080", &pod));
    assert!(!Path::new(PINS).exists());
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
