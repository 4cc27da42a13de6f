//! Malformed and hostile input. braid refuses it with an error code and an error that names it, and
//! changes nothing.

use crate::conf;
use braid_tests::{Sandbox, State, Value, json};
use std::path::Path;

/// A guard that fails on drop if anything has changed since its creation, including folders and
/// files of an IPAM.
struct Watched<'a> {
    host: &'a Sandbox,
    before: State,
}

impl<'a> Watched<'a> {
    fn new(host: &'a Sandbox) -> Self {
        Self {
            host,
            before: host.state(),
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.before.assert_same(&self.host.state());
        }
    }
}

#[test]
fn input_that_is_not_a_json_object_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    let text = conf::bridge().to_string();
    let call = host.call("bridge", &pod, conf::bridge());
    for cut in [1, text.len() / 2, text.len() - 1] {
        call.clone()
            .stdin(&text[..cut])
            .add()
            .refused(6, &["network config"]);
    }
    for bad in [
        " ",
        "[]",
        "\"text\"",
        "5",
        "\u{feff}{}",
        "{\"name\": \"n\"} trailing",
        "{'name': 'n'}",
    ] {
        call.clone()
            .stdin(bad)
            .add()
            .refused(6, &["network config"]);
    }
    call.clone()
        .stdin(b"{\"name\": \"\xff\xfe\"}".to_vec())
        .add()
        .refused(6, &["network config"]);
}

#[test]
fn input_that_is_too_deep_or_too_large_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    let call = host.call("bridge", &pod, conf::bridge());
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let inner = if close == "}" { "1" } else { "" };
        let deep = format!("{}{inner}{}", open.repeat(10_000), close.repeat(10_000));
        let text = format!(
            "{{\"cniVersion\":\"1.1.0\",\"name\":\"net\",\"type\":\"bridge\",\"x\":{deep}}}"
        );
        call.clone()
            .stdin(text)
            .add()
            .refused(6, &["network config"]);
    }
    let huge = "x".repeat(5 << 20);
    let refusal = call.clone().with("bridge", huge.as_str()).add().error();
    assert!(refusal.code == 6 || refusal.code == 7, "{}", refusal.code);
    assert!(
        refusal.msg.len() < 500,
        "the sentence repeats {} bytes",
        refusal.msg.len()
    );
    let refusal = call.clone().with("name", huge.as_str()).add().error();
    assert!(refusal.code == 6 || refusal.code == 7, "{}", refusal.code);
    assert!(
        refusal.msg.len() + refusal.details.len() < 500,
        "the sentence repeats too much"
    );
}

/// Keys of each plugin to which the tests give values of a wrong type. Dots separate the parts of a
/// key's path. The endings are those of [`wrong`].
const WRONG_TYPES: &[(&str, &[&str])] = &[
    ("bridge", &["bridge", "device", "ipMasqBackend"]),
    (
        "bridge",
        &[
            "isGateway!",
            "isDefaultGateway!",
            "forceAddress!",
            "ipMasq!",
            "hairpinMode!",
            "promiscMode!",
        ],
    ),
    (
        "bridge",
        &[
            "preserveDefaultVlan!",
            "macspoofchk!",
            "disableContainerInterface!",
            "enabledad!",
            "portIsolation!",
        ],
    ),
    (
        "bridge",
        &[
            "mtu#",
            "vlan#",
            "vlanTrunk[]",
            "runtimeConfig{}",
            "args{}",
            "ipam{}",
            "dns{}",
            "prevResult{}",
        ],
    ),
    (
        "ptp",
        &[
            "ipMasq!",
            "ipMasqBackend",
            "mtu#",
            "device",
            "ipam{}",
            "dns{}",
        ],
    ),
    (
        "netkit",
        &[
            "ipMasq!",
            "ipMasqBackend",
            "mtu#",
            "mode",
            "mac",
            "runtimeConfig{}",
            "args{}",
            "ipam{}",
            "dns{}",
        ],
    ),
    (
        "macvlan",
        &[
            "master",
            "mode",
            "mac",
            "mtu#",
            "bcqueuelen#",
            "linkInContainer!",
            "runtimeConfig{}",
            "ipam{}",
        ],
    ),
    ("ipvlan", &["master", "mode", "mtu#", "linkInContainer!"]),
    ("dummy", &["ipam{}"]),
    (
        "host-device",
        &[
            "device",
            "hwaddr",
            "kernelpath",
            "pciBusID",
            "DPDKMode!",
            "runtimeConfig{}",
            "ipam{}",
        ],
    ),
    ("host-device", &["runtimeConfig.deviceID"]),
    (
        "tap",
        &[
            "mac",
            "mtu#",
            "owner#",
            "group#",
            "multiQueue!",
            "selinuxContext",
            "bridge",
            "ipam{}",
            "runtimeConfig{}",
        ],
    ),
    (
        "vlan",
        &["master", "vlanId#", "mtu#", "linkInContainer!", "ipam{}"],
    ),
    (
        "vxlan",
        &["id#", "dev", "group", "remote", "local", "ipam{}"],
    ),
    ("vxlan", &["port#", "ttl#", "learning!", "mtu#"]),
    (
        "tuning",
        &[
            "mac",
            "mtu#",
            "txQLen#",
            "promisc!",
            "allmulti!",
            "sysctl{}",
            "args{}",
        ],
    ),
    (
        "host-local",
        &[
            "ipam.subnet",
            "ipam.rangeStart",
            "ipam.rangeEnd",
            "ipam.gateway",
            "ipam.dataDir",
            "ipam.resolvConf",
        ],
    ),
    (
        "host-local",
        &[
            "ipam.ranges[]",
            "ipam.routes[]",
            "runtimeConfig.ipRanges[]",
            "runtimeConfig.ips[]",
        ],
    ),
    (
        "dhcp",
        &[
            "ipam.daemonSocketPath",
            "ipam.priority#",
            "ipam.provide[]",
            "ipam.request[]",
            "ipam.ipFamilies[]",
        ],
    ),
    (
        "static",
        &["ipam.addresses[]", "ipam.routes[]", "ipam.dns{}"],
    ),
    ("braid", &["plugins[]", "network{}", "runtimeConfig{}"]),
    ("loopback", &["cniVersion", "name", "type", "prevResult{}"]),
];

/// Returns values of types that are wrong for a key. The key's ending names the right type: `!`
/// boolean, `#` number, `[]` list, `{}` object, otherwise text.
fn wrong(key: &str) -> Vec<Value> {
    let (text, truth, number) = (json!("text"), json!(true), json!(5));
    let (list, object) = (json!([[]]), json!({"a": 1}));
    match key {
        key if key.ends_with('!') => vec![text, number, list, object],
        key if key.ends_with('#') => vec![text, truth, list, object, json!(1.5), json!(1e30)],
        key if key.ends_with("[]") => vec![text, truth, number, object],
        key if key.ends_with("{}") => vec![text, truth, number, list],
        _ => vec![truth, number, list, object],
    }
}

fn base(plugin: &str) -> Value {
    match plugin {
        "ptp" => conf::ptp(),
        "netkit" => conf::netkit(),
        "macvlan" | "ipvlan" => conf::macvlan(),
        "vlan" => conf::vlan(),
        "vxlan" => conf::vxlan(),
        "dummy" => conf::dummy(),
        "host-device" => conf::host_device(),
        "tap" => conf::tap(),
        "tuning" => conf::tuning(),
        "static" | "dhcp" => {
            json!({"cniVersion": "1.1.0", "name": "net", "type": plugin, "ipam": {"type": plugin}})
        }
        "braid" => {
            json!({"cniVersion": "1.1.0", "name": "net", "type": plugin, "plugins": [conf::bridge_l2()]})
        }
        "loopback" => json!({"cniVersion": "1.1.0", "name": "net", "type": plugin}),
        _ => conf::bridge(),
    }
}

#[test]
fn every_key_refuses_a_value_of_a_wrong_type() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    for (plugin, keys) in WRONG_TYPES {
        for key in *keys {
            let name = key.trim_end_matches(['!', '#', '[', ']', '{', '}']);
            for value in wrong(key) {
                let mut conf = base(plugin);
                let slot = name.split('.').fold(&mut conf, |at, part| &mut at[part]);
                *slot = value.clone();
                let refusal = host.call(plugin, &pod, conf).add().error();
                let leaf = name.rsplit('.').next().unwrap_or(name);
                assert!(
                    [1, 6, 7].contains(&refusal.code),
                    "{plugin} {name} = {value}: {refusal:?}"
                );
                assert!(
                    refusal.msg.contains(leaf),
                    "{plugin} {name} = {value}: {refusal:?}"
                );
                let shown = value.is_array()
                    || value.is_object()
                    || refusal.msg.contains(&value.to_string());
                assert!(shown, "{plugin} {name} = {value}: {refusal:?}");
            }
        }
    }
}

#[test]
fn names_that_are_invalid_or_too_long_are_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    let long = "x".repeat(300);
    let call = || host.call("bridge", &pod, conf::bridge());
    for bad in [
        "..", "../net", "/net", "a/b", "a\nb", "a b", ".net", "-net", "nät", "a\u{0}b",
    ] {
        call()
            .with("name", bad)
            .add()
            .refused(7, &["invalid characters found in network name"]);
        if !bad.contains('\0') {
            call()
                .container(bad)
                .add()
                .refused(4, &["invalid characters in containerID"]);
        }
    }
    for bad in [
        "a/b",
        "..",
        ".",
        "a:b",
        "a b",
        "a\tb",
        "a\nb",
        "a\u{a0}b",
        "sixteen-letters-",
        long.as_str(),
    ] {
        call().ifname(bad).add().refused(4, &["interface name"]);
        call()
            .with("bridge", bad)
            .add()
            .refused(7, &["bridge", "interface name"]);
        // A text that is too long for an interface name can still be an alternative name.
        let (code, word) = if bad.starts_with("sixteen") {
            (999, "no such link")
        } else {
            (7, "interface name")
        };
        host.call("macvlan", &pod, conf::macvlan())
            .with("master", bad)
            .add()
            .refused(code, &["master", word]);
    }
    for bad in ["..", "../host-local", "/bin/sh", "a/b", "a\u{0}b"] {
        call()
            .with("ipam", json!({"type": bad}))
            .add()
            .refused(7, &["invalid plugin name"]);
        call()
            .with("type", bad)
            .add()
            .refused(7, &["invalid plugin name"]);
    }
}

#[test]
fn long_valid_names_work() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let long = "x".repeat(300);
    let call = host
        .call("bridge", &pod, conf::bridge_l2())
        .with("name", long.as_str())
        .container(&long);
    let call = call
        .with(
            "ipam",
            json!({"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}),
        )
        .with("ipMasq", true);
    let result = call.add().result();
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn invalid_addresses_and_numbers_are_refused() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    let ipam = |ipam: Value| host.call("bridge", &pod, conf::bridge()).with("ipam", ipam);
    let local = |key: &str, value: Value| {
        let mut conf = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
        conf[key] = value;
        ipam(conf)
    };
    for (key, bad) in [
        ("subnet", "10.1.0.0"),
        ("subnet", "10.1.0.0/33"),
        ("subnet", "10.01.0.0/24"),
        ("subnet", "fd00::%eth0/64"),
        ("rangeStart", "10.1.0"),
        ("rangeEnd", "::g"),
        ("gateway", "gateway"),
    ] {
        local(key, json!(bad)).add().refused(6, &[key, bad]);
    }
    for (key, bad, words) in [
        ("subnet", json!("10.1.0.0/32"), "too small to allocate from"),
        ("subnet", json!("10.1.0.7/24"), "host bits set"),
        (
            "rangeStart",
            json!("10.2.0.1"),
            "RangeStart 10.2.0.1 not in network",
        ),
        (
            "rangeEnd",
            json!("10.2.0.1"),
            "RangeEnd 10.2.0.1 not in network",
        ),
        ("ranges", json!([[]]), "empty range set"),
        ("ranges", json!([[{"subnet": "10.1.0.0/25"}]]), "overlaps"),
        (
            "ranges",
            json!([[{"subnet": "10.2.0.0/25"}, {"subnet": "fd00::/64"}]]),
            "mixed address families",
        ),
    ] {
        local(key, bad).add().refused(7, &[words]);
    }
    for (key, bad) in [
        ("mtu", json!(-5)),
        ("mtu", json!(70_000)),
        ("vlan", json!(5000)),
    ] {
        host.call("bridge", &pod, conf::bridge())
            .with(key, bad.clone())
            .add()
            .refused(7, &[key, &bad.to_string()]);
    }
    for bad in [
        "xx:11:22:33:44:55",
        "c2:11:22:33:44",
        "c2-11-22:33:44:55",
        "",
    ] {
        let call = host.call("macvlan", &pod, conf::macvlan()).with("mac", bad);
        if !bad.is_empty() {
            call.add().refused(7, &["mac", bad]);
        }
    }
}

#[test]
fn an_invalid_prev_result_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let _watched = Watched::new(&host);
    for bad in [
        json!({"cniVersion": "7.0.0"}),
        json!({"ips": [{"address": "10.0.0.1"}]}),
        json!({"ips": [{"address": "10.0.0.1/8", "interface": 0.5}]}),
        json!({"interfaces": [5]}),
        json!({"routes": [{"dst": "x"}]}),
    ] {
        let refusal = host
            .call("tuning", &pod, conf::tuning())
            .with("mtu", 1300)
            .prev(&bad)
            .add()
            .error();
        assert!([1, 6].contains(&refusal.code), "{bad}: {refusal:?}");
        assert!(refusal.msg.contains("prevResult"), "{bad}: {refusal:?}");
    }
}

#[test]
fn container_ids_of_any_length_work() {
    // The last length is the longest value that fits into an environment variable with its name.
    for len in [255, 5_000, 130_000] {
        let host = Sandbox::new();
        let (pod, other) = (host.pod("a"), host.pod("b"));
        let id = "a".repeat(len);
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("ipMasq", true)
            .with("macspoofchk", true);
        let call = call.container(&id);
        // The ID of this twin differs only at its end.
        let twin = call
            .clone()
            .netns(other.path())
            .container(&format!("{}b", &id[1..]));
        let (result, kept) = (call.add().result(), twin.add().result());
        call.add().refused(999, &["already"]);
        call.check(&result).ok();
        call.del().ok();
        twin.check(&kept).ok();
        assert!(
            !Path::new("/var/lib/cni/networks/net/10.1.0.2").exists(),
            "{len}"
        );
        call.add().result();
        twin.gc(&[(&format!("{}b", &id[1..]), "eth0")]).ok();
        twin.check(&kept).ok();
        assert!(
            !Path::new("/var/lib/cni/networks/net/10.1.0.4").exists(),
            "{len}"
        );
        twin.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_network_name_longer_than_a_file_name_is_refused_before_any_change() {
    let host = Sandbox::new();
    for len in [255, 256] {
        let pod = host.pod(&format!("a{len}"));
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("name", "n".repeat(len));
        if len <= 255 {
            let result = call.add().result();
            call.check(&result).ok();
            call.del().ok();
            call.add().result();
            call.gc(&[]).ok();
        } else {
            let before = host.state();
            call.add().refused(7, &["256", "255"]);
            before.assert_same(&host.state());
        }
        call.del().ok();
        host.assert_nothing_left();
    }
}
