use super::*;
use crate::cni::Version;

const BARE: Form = Form {
    with_prefix: false,
    with_gateway: false,
};

const NONE: Attached<'_> = Attached {
    name: "ns/a",
    ifname: "net1",
    is_default: false,
    result: None,
    mtu: None,
    has_default_route: false,
    device_info: None,
    container_id: "c1",
};

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").unwrap()
}

fn result(version: Version, text: &str) -> AddResult {
    AddResult::parse(&json(text), version).unwrap()
}

/// Formats the entry without the key [`CONTAINER`].
fn shown(attached: &Attached<'_>, form: Form) -> String {
    let mut entry = entry(attached, form);
    assert_eq!(entry.str(CONTAINER), Ok(Some("c1")));
    entry.remove(CONTAINER);
    entry.to_string()
}

fn of(text: &str) -> String {
    shown(
        &Attached {
            result: Some(&result(Version::V1_1_0, text)),
            ..NONE
        },
        BARE,
    )
}

// Conformance: T3, T8, T9, T12
#[test]
fn first_interface_of_the_sandbox_is_described() {
    let text = r#"{"interfaces":[{"name":"br0","mac":"02:00:00:00:00:01","mtu":9000},{"name":"veth1"},
        {"name":"net1","mac":"02:00:00:00:00:02","mtu":1400,"sandbox":"/x"},
        {"name":"other","mac":"02:00:00:00:00:03","sandbox":"/x"}],
        "ips":[{"address":"10.0.0.5/24","interface":2},{"address":"10.9.0.5/24","interface":3},
               {"address":"::5/64","interface":2}]}"#;
    let expected = concat!(
        r#"{"name":"ns/a","interface":"net1","ips":["10.0.0.5","::5"],"#,
        r#""mac":"02:00:00:00:00:02","mtu":1400,"default":false}"#
    );
    assert_eq!(of(text), expected);
}

// Conformance: T4, T6, T13
#[test]
fn entry_without_a_result_has_name_and_default() {
    assert_eq!(shown(&NONE, BARE), r#"{"name":"ns/a","default":false}"#);
    assert_eq!(of("{}"), r#"{"name":"ns/a","default":false}"#);
    let default = Attached {
        name: "cbr0",
        is_default: true,
        ..NONE
    };
    assert_eq!(shown(&default, BARE), r#"{"name":"cbr0","default":true}"#);
}

// Conformance: T5
#[test]
fn old_result_has_addresses_and_interface() {
    let result = result(
        Version::V0_2_0,
        r#"{"ip4":{"ip":"10.0.0.5/24"},"ip6":{"ip":"::5/64"}}"#,
    );
    let attached = Attached {
        result: Some(&result),
        ..NONE
    };
    assert_eq!(
        shown(&attached, BARE),
        r#"{"name":"ns/a","interface":"net1","ips":["10.0.0.5","::5"],"default":false}"#
    );
}

// Conformance: T10
#[test]
fn only_addresses_of_the_interface_are_listed() {
    let sandbox = r#"{"name":"net1","sandbox":"/x"}"#;
    for (interfaces, ips, expected) in [
        (
            sandbox,
            r#"{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.2/24"}"#,
            r#","ips":["10.0.0.1"]"#,
        ),
        (sandbox, r#"{"address":"10.0.0.2/24"}"#, ""),
        (sandbox, r#"{"address":"10.0.0.1/24","interface":7}"#, ""),
        (
            r#"{"name":"cali1"}"#,
            r#"{"address":"10.0.0.2/32"},{"address":"10.0.0.3/32","interface":0}"#,
            r#","ips":["10.0.0.2"]"#,
        ),
        (
            "",
            r#"{"address":"10.0.0.2/32"},{"address":"::2/128"}"#,
            r#","ips":["10.0.0.2","::2"]"#,
        ),
    ] {
        let text = format!(r#"{{"interfaces":[{interfaces}],"ips":[{ips}]}}"#);
        assert_eq!(
            of(&text),
            format!(r#"{{"name":"ns/a","interface":"net1"{expected},"default":false}}"#),
            "{text}"
        );
    }
}

// Conformance: T11
#[test]
fn addresses_include_their_prefix_if_configured() {
    let result = result(
        Version::V1_0_0,
        r#"{"ips":[{"address":"10.0.0.5/24"},{"address":"::5/64"}]}"#,
    );
    let attached = Attached {
        result: Some(&result),
        ..NONE
    };
    assert!(
        shown(
            &attached,
            Form {
                with_prefix: true,
                ..BARE
            }
        )
        .contains(r#""ips":["10.0.0.5/24","::5/64"]"#)
    );
}

// Conformance: T14
#[test]
fn dns_is_listed_only_if_set() {
    let dns = r#""nameservers":["10.0.0.1"],"domain":"d","search":["s"]"#;
    let both = of(&format!(r#"{{"dns":{{{dns},"options":["ndots:1"]}}}}"#));
    assert_eq!(
        both,
        format!(r#"{{"name":"ns/a","interface":"net1","dns":{{{dns}}},"default":false}}"#)
    );
    assert!(!of(r#"{"dns":{"options":["x"]}}"#).contains("dns"));
    assert!(!of(r#"{"dns":{},"ips":[{"address":"10.0.0.1/8"}]}"#).contains("dns"));
}

// Conformance: T7, T15
#[test]
fn default_route_is_listed_if_the_pod_requested_it() {
    let routed = result(
        Version::V1_0_0,
        r#"{"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.2","priority":2},{"dst":"0.0.0.0/0","gw":"10.0.0.1","priority":1}]}"#,
    );
    let gateways = r#"["10.0.0.1","10.0.0.2"]"#;
    let of_multus = Form {
        with_gateway: true,
        ..BARE
    };
    let asked = Attached {
        result: Some(&routed),
        has_default_route: true,
        ..NONE
    };
    let not_asked = Attached {
        has_default_route: false,
        ..asked
    };
    for (attached, form, keys) in [
        (asked, BARE, format!(r#","default-route":{gateways}"#)),
        (
            asked,
            of_multus,
            format!(r#","default-route":{gateways},"gateway":{gateways}"#),
        ),
        (not_asked, BARE, String::new()),
        (not_asked, of_multus, format!(r#","gateway":{gateways}"#)),
    ] {
        let expected = format!(r#"{{"name":"ns/a","interface":"net1"{keys},"default":false}}"#);
        assert_eq!(shown(&attached, form), expected);
    }
    let unrouted = result(
        Version::V1_0_0,
        r#"{"routes":[{"dst":"0.0.0.0/0"}],"ips":[{"address":"10.0.0.5/24"}]}"#,
    );
    let none = shown(
        &Attached {
            result: Some(&unrouted),
            ..asked
        },
        of_multus,
    );
    assert!(
        none.contains(r#""default-route":[]"#) && !none.contains("gateway"),
        "{none}"
    );
}

// Conformance: T12, T16
#[test]
fn mtu_of_the_kernel_and_device_information_are_added() {
    let info =
        json(r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","x":1}}"#);
    let result = result(
        Version::V1_0_0,
        r#"{"interfaces":[{"name":"net1","sandbox":"/x"}]}"#,
    );
    let attached = Attached {
        result: Some(&result),
        mtu: Some(1500),
        device_info: Some(&info),
        ..NONE
    };
    let expected = format!(
        r#"{{"name":"ns/a","interface":"net1","mtu":1500,"default":false,"device-info":{info}}}"#
    );
    assert_eq!(shown(&attached, BARE), expected);
}

fn rewritten(now: &str, seen: Option<&str>, entries: &[&str]) -> Json {
    json(&rewrite(
        Some(now),
        seen,
        entries.iter().map(|text| json(text)).collect(),
    ))
}

/// Entries of two networks of the container `c2`.
const NEW: [&str; 2] = [
    r#"{"name":"d","interface":"eth0","default":true,"io.braid/container":"c2"}"#,
    r#"{"name":"ns/a","interface":"net1","default":false,"io.braid/container":"c2"}"#,
];

fn all(more: &str) -> Json {
    json(&format!("[{},{}{more}]", NEW[0], NEW[1]))
}

// Conformance: T1
#[test]
fn the_value_is_a_list_of_objects() {
    let entries = vec![entry(&NONE, BARE)];
    assert_eq!(
        json(&rewrite(None, None, entries.clone())),
        Json::Array(entries)
    );
    assert_eq!(rewrite(None, None, Vec::new()), "[]");
    for broken in ["", "{", "{}", "null", "[", "\u{0}", "5", "[5]"] {
        assert_eq!(rewritten(broken, None, &NEW), all(""), "{broken}");
    }
}

// Conformance: T2
#[test]
fn additions_of_others_stay_and_entries_that_add_read_are_deleted() {
    let hot = r#"{"name":"ns/hot","interface":"net9","ips":["10.0.0.9"],"default":false,"odd":18446744073709551616}"#;
    let changed = hot.replace("10.0.0.9", "10.0.0.8");
    let sorted = r#"{"default":false,"interface":"net9","ips":["10.0.0.9"],"name":"ns/hot","odd":18446744073709551616}"#;
    let more = |entry: &str| all(&format!(",{entry}"));
    let value = |entry: &str| format!("[{entry}]");
    assert_eq!(rewritten(&value(hot), None, &NEW), more(hot));
    assert_eq!(rewritten(&value(hot), Some("[]"), &NEW), more(hot));
    assert_eq!(rewritten(&value(hot), Some(&value(hot)), &NEW), all(""));
    assert_eq!(
        rewritten(&value(sorted), Some(&value(hot)), &NEW),
        all(""),
        "another order of keys is no change"
    );
    assert_eq!(
        rewritten(&value(&changed), Some(&value(hot)), &NEW),
        more(&changed)
    );
    assert_eq!(
        rewritten(&format!("[{hot},{changed}]"), Some(&value(hot)), &NEW),
        more(&changed)
    );
    for replaced in [
        r#"{"name":"ns/b","interface":"net2","default":false,"io.braid/container":"c1"}"#,
        r#"{"name":"ns/b","interface":"net2","default":true}"#,
        r#"{"name":"ns/b","interface":"net1","default":false}"#,
        r#"{"name":"ns/a","interface":"net1","ips":["10.0.0.1"],"io.braid/container":"c1"}"#,
    ] {
        assert_eq!(
            rewritten(&value(replaced), None, &NEW),
            all(""),
            "{replaced}"
        );
    }
}

// Conformance: T2
#[test]
fn dotted_key_stays_if_added_later_and_is_deleted_if_add_read_it() {
    let annotation = |keys: &str| {
        format!(r#"[{{"name":"ns/a","interface":"net1"{keys},"io.braid/container":"c1"}}]"#)
    };
    let seen = annotation(r#","org.foo/old":1,"org.foo/x":1"#);
    let now = annotation(r#","org.foo/old":1,"org.foo/x":2,"org.foo/new":{"k":[1]}"#);
    let kept = rewritten(&now, Some(&seen), &NEW).to_string();
    assert!(
        kept.contains(r#""io.braid/container":"c2","org.foo/x":2,"org.foo/new":{"k":[1]}}"#),
        "{kept}"
    );
    // A retry, after the response to the first attempt was lost, changes nothing.
    let value = rewrite(Some(&now), Some(&seen), NEW.map(json).to_vec());
    assert_eq!(
        rewrite(Some(&value), Some(&seen), NEW.map(json).to_vec()),
        value
    );
}

// Conformance: T2
#[test]
fn failed_add_restores_replaced_entries_and_keeps_additions_of_others() {
    let hot = r#"{"name":"ns/hot","interface":"net9"}"#;
    let old = r#"{"name":"ns/old","interface":"net1","io.braid/container":"c1"}"#;
    let seen = format!("[{old}]");
    let now = format!("[{},{hot}]", NEW[0]);
    let value = withdrawn(Some(&now), Some(&seen), "c2").unwrap();
    assert_eq!(json(&value), json(&format!("[{old},{hot}]")));
    assert_eq!(withdrawn(Some(NEW[0]), None, "c2"), None, "not a list");
    assert_eq!(
        withdrawn(Some(&format!("[{}]", NEW[0])), None, "c2").as_deref(),
        Some("[]")
    );
    for now in [None, Some("[]"), Some(&*seen)] {
        assert_eq!(withdrawn(now, Some(&seen), "c2"), None, "{now:?}");
    }
}

// Conformance: T2
#[test]
fn entries_of_terminated_containers_are_dropped_and_those_of_other_writers_stay() {
    let value = format!("[{},{}]", NEW[0], r#"{"name":"ns/hot","interface":"net9"}"#);
    let kept = |gone: &str| json(&without(&value, &|id| id == gone));
    assert_eq!(kept("c1"), json(&value));
    assert_eq!(
        kept("c2"),
        json(r#"[{"name":"ns/hot","interface":"net9"}]"#)
    );
    assert_eq!(without("{", &|_| true), "[]");
}

// Conformance: T6
#[test]
fn at_most_one_entry_is_the_default_network() {
    let old = r#"[{"name":"old","interface":"eth0","default":true},{"name":"x","interface":"eth5","default":true}]"#;
    let now = rewritten(
        old,
        None,
        &[r#"{"name":"d","interface":"eth0","default":true}"#],
    )
    .to_string();
    assert_eq!(now.matches(r#""default":true"#).count(), 1, "{now}");
}

/// Returns a value with an entry for each network and container; no container for an entry of another
/// program.
fn value_of(entries: &[(&str, &str)]) -> String {
    let mut list = Vec::new();
    for (name, container) in entries {
        let mut entry = Json::object_of([("name", (*name).into())]);
        if !container.is_empty() {
            entry.set(CONTAINER, *container);
        }
        list.push(entry);
    }
    Json::Array(list).pretty()
}

#[test]
fn a_status_is_stale_if_it_is_of_other_networks_or_of_a_container_that_is_gone() {
    let is_gone = |id: &str| id == "gone";
    for (entries, is_stale_now) in [
        (&[("pods", "c1"), ("ns/a", "c1")][..], false),
        (&[("ns/a", "c1"), ("pods", "c1"), ("x", "")], false),
        (&[("pods", "c1")], true),
        (&[("pods", "c1"), ("ns/b", "c1")], true),
        (&[("pods", "c1"), ("ns/a", "c1"), ("ns/b", "c1")], true),
        (&[("pods", "gone"), ("ns/a", "gone")], true),
        (&[("pods", "c1"), ("ns/a", "c1"), ("ns/b", "gone")], true),
        (&[("pods", "newer"), ("ns/a", "newer")], false),
        (&[("pods", "newer"), ("ns/a", "gone")], false),
        (&[("pods", ""), ("ns/a", "")], false),
        (&[], true),
    ] {
        let value = value_of(entries);
        let names = ["pods", "ns/a"].map(str::to_owned);
        assert_eq!(
            is_stale(Some(&value), "c1", &names, &is_gone),
            is_stale_now,
            "{value}"
        );
    }
    for value in [None, Some("[]"), Some("{broken")] {
        assert!(
            !is_stale(value, "c1", &["pods".to_owned()], &is_gone),
            "{value:?}"
        );
    }
}

#[test]
fn containers_are_those_of_own_entries() {
    let value = value_of(&[("pods", "c1"), ("x", ""), ("ns/a", "c2")]);
    assert_eq!(containers(Some(&value)), ["c1", "c2"]);
    assert_eq!(containers(None), [""; 0]);
}
