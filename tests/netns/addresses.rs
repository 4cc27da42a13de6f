//! `host-local` and `static` as IPAM of a bridge: addresses of containers, and lease files on disk.

use crate::conf;
use braid_tests::page::blocks;
use braid_tests::{Call, Ns, Sandbox, Value, json};
use std::fs;
use std::path::Path;

/// The documentation page of these IPAMs.
const PAGE: &str = include_str!("../../docs/addresses.md");

fn attach(host: &Sandbox, pod: &Ns, ipam: Value) -> Call {
    host.call("bridge", pod, conf::bridge())
        .with("isGateway", false)
        .with("ipam", ipam)
}

fn host_local(subnet: &str) -> Value {
    json!({"type": "host-local", "subnet": subnet})
}

/// Attaches a new container and returns its only address.
fn next(host: &Sandbox, name: &str, ipam: &Value) -> String {
    let pod = host.pod(name);
    let result = attach(host, &pod, ipam.clone()).add().result();
    result["ips"][0]["address"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_freed_address_is_not_reused_immediately() {
    let host = Sandbox::new();
    let ipam = host_local("10.1.0.0/29");
    let given: Vec<String> = (0..8)
        .map(|at| {
            let pod = host.pod(&format!("p{at}"));
            let call = attach(&host, &pod, ipam.clone());
            let result = call.add().result();
            call.del().ok();
            result["ips"][0]["address"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let last_bytes = ["2", "3", "4", "5", "6", "2", "3", "4"];
    assert_eq!(given, last_bytes.map(|byte| format!("10.1.0.{byte}/29")));
}

#[test]
fn a_full_range_is_refused_by_name_and_a_freed_address_is_reused() {
    let host = Sandbox::new();
    let ipam = host_local("10.1.0.0/30");
    assert_eq!(next(&host, "a", &ipam), "10.1.0.2/30");
    let pod = host.pod("b");
    let second = attach(&host, &pod, ipam.clone());
    let before = host.state();
    second.add().refused(
        999,
        &["no IP addresses available in range set: 10.1.0.1-10.1.0.2"],
    );
    before
        .without_marks()
        .assert_same(&host.state().without_marks());
    attach(&host, &host.pod("a2"), ipam)
        .container("a")
        .del()
        .ok();
    assert_eq!(second.add().result()["ips"][0]["address"], "10.1.0.2/30");
}

#[test]
fn a_two_address_subnet_serves_two_containers() {
    let host = Sandbox::new();
    for (at, (subnet, addresses)) in [
        ("10.1.0.0/31", ["10.1.0.0", "10.1.0.1"]),
        ("fd00::2/127", ["fd00::2", "fd00::3"]),
    ]
    .into_iter()
    .enumerate()
    {
        let pods = ["a", "b", "c"].map(|name| host.pod(&format!("{name}{at}")));
        let call =
            |pod: &Ns| attach(&host, pod, host_local(subnet)).with("name", format!("net{at}"));
        for (pod, address) in pods.iter().zip(addresses) {
            let result = call(pod).add().result();
            let prefix_len = subnet.split('/').next_back().unwrap();
            assert_eq!(
                result["ips"][0]["address"],
                format!("{address}/{prefix_len}")
            );
            assert_eq!(result["ips"][0]["gateway"], Value::Null);
            call(pod).check(&result).ok();
        }
        assert!(
            pods[0].can_ping(addresses[1]) && pods[1].can_ping(addresses[0]),
            "{subnet}"
        );
        let full = format!(
            "no IP addresses available in range set: {}-{}",
            addresses[0], addresses[1]
        );
        call(&pods[2]).add().refused(999, &[&full]);
    }
}

#[test]
fn a_two_address_subnet_keeps_one_address_for_a_needed_gateway() {
    let host = Sandbox::new();
    let fixed = json!({"type": "static", "addresses": [{"address": "10.4.0.0/31"}]});
    let with = |mut conf: Value, bridge: &str, ipam: Value| {
        conf["bridge"] = json!(bridge);
        conf["ipam"] = ipam;
        conf
    };
    for (name, conf, (own, gateway)) in [
        (
            "a",
            with(conf::bridge(), "br0", host_local("10.1.0.0/31")),
            ("10.1.0.1/31", "10.1.0.0"),
        ),
        (
            "b",
            with(conf::ptp(), "", host_local("10.22.0.0/31")),
            ("10.22.0.1/31", "10.22.0.0"),
        ),
        (
            "c",
            with(conf::bridge(), "br1", fixed),
            ("10.4.0.0/31", "10.4.0.1"),
        ),
    ] {
        let pod = host.pod(name);
        let call = host.call(conf["type"].as_str().unwrap(), &pod, conf.clone());
        let result = call.add().result();
        let ip = &result["ips"][0];
        assert_eq!(
            (&ip["address"], &ip["gateway"]),
            (&json!(own), &json!(gateway)),
            "{conf}"
        );
        assert!(pod.can_ping(gateway), "{conf}");
        call.check(&result).ok();
        call.del().ok();
    }
}

#[test]
fn a_lease_is_a_file_in_the_reference_plugins_format() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]});
    let call = attach(&host, &pod, ipam);
    let result = call.add().result();
    let read = |name: &str| {
        fs::read_to_string(Path::new("/var/lib/cni/networks/net").join(name)).unwrap_or_default()
    };
    assert_eq!(read("10.1.0.2"), "a\r\neth0");
    assert_eq!(read("fd00:1::2"), "a\r\neth0");
    assert_eq!(
        (read("last_reserved_ip.0"), read("last_reserved_ip.1")),
        ("10.1.0.2".into(), "fd00:1::2".into())
    );
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn data_dir_moves_the_leases() {
    let host = Sandbox::new();
    let mut ipam = host_local("10.1.0.0/24");
    ipam["dataDir"] = json!("/run/elsewhere/leases");
    next(&host, "a", &ipam);
    assert!(Path::new("/run/elsewhere/leases/net/10.1.0.2").is_file());
    assert!(!Path::new("/var/lib/cni/networks").exists());
}

#[test]
fn addresses_can_be_requested_in_three_ways_and_a_used_one_is_refused() {
    let host = Sandbox::new();
    let pods = ["a", "b", "c", "d"].map(|name| host.pod(name));
    let call = |at: usize| attach(&host, &pods[at], host_local("10.1.0.0/24"));
    let first = |result: Value| result["ips"][0]["address"].clone();
    assert_eq!(
        first(call(0).args("IgnoreUnknown=1;IP=10.1.0.50").add().result()),
        "10.1.0.50/24"
    );
    assert_eq!(
        first(
            call(1)
                .with("args", json!({"cni": {"ips": ["10.1.0.51"]}}))
                .add()
                .result()
        ),
        "10.1.0.51/24"
    );
    let runtime = json!({"ips": ["10.1.0.52/16"]});
    assert_eq!(
        first(
            call(2)
                .with("runtimeConfig", runtime.clone())
                .add()
                .result()
        ),
        "10.1.0.52/24"
    );
    let before = host.state();
    let taken = "requested IP address 10.1.0.52 is not available in range set 10.1.0.1-10.1.0.254";
    call(3)
        .with("runtimeConfig", runtime)
        .add()
        .refused(999, &[taken]);
    call(3)
        .args("IgnoreUnknown=1;IP=10.1.0.1")
        .add()
        .refused(999, &["requested ip 10.1.0.1 is subnet's gateway"]);
    let outside = "failed to allocate all requested IPs: 10.9.0.1";
    call(3)
        .with("runtimeConfig", json!({"ips": ["10.9.0.1"]}))
        .add()
        .refused(999, &[outside]);
    before
        .without_marks()
        .assert_same(&host.state().without_marks());
}

#[test]
fn runtime_ranges_precede_configured_ranges() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let runtime = json!({"ipRanges": [[{"subnet": "10.7.0.0/24"}]]});
    let result = attach(&host, &pod, host_local("10.1.0.0/24"))
        .with("runtimeConfig", runtime)
        .add()
        .result();
    assert_eq!(
        (&result["ips"][0]["address"], &result["ips"][1]["address"]),
        (&json!("10.7.0.2/24"), &json!("10.1.0.2/24"))
    );
    assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24", "10.7.0.2/24"]);
}

#[test]
fn resolv_conf_sets_the_dns_of_the_result_and_a_missing_file_is_named() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut ipam = host_local("10.1.0.0/24");
    ipam["resolvConf"] = json!("/run/resolv.conf");
    let call = attach(&host, &pod, ipam);
    call.add().refused(999, &["/run/resolv.conf"]);
    host.assert_nothing_left();
    fs::write(
        "/run/resolv.conf",
        "# c\nnameserver 192.0.2.53\nsearch a b\noptions ndots:5\n",
    )
    .unwrap();
    let expected =
        json!({"nameservers": ["192.0.2.53"], "search": ["a", "b"], "options": ["ndots:5"]});
    assert_eq!(call.add().result()["dns"], expected);
}

#[test]
fn routes_are_created_with_all_attributes_of_version_1_1() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut ipam = host_local("10.1.0.0/24");
    ipam["routes"] = json!([
        {"dst": "192.0.2.0/24", "mtu": 1300, "advmss": 1200, "priority": 77},
        {"dst": "198.51.100.0/24", "gw": "10.1.0.254", "table": 100},
        {"dst": "203.0.113.0/24", "scope": 253},
    ]);
    let call = attach(&host, &pod, ipam);
    let result = call.add().result();
    let route = |dst: &str| {
        pod.routes("-4")
            .into_iter()
            .find(|route| route["dst"] == dst)
            .unwrap_or_default()
    };
    let (one, two, three) = (
        route("192.0.2.0/24"),
        route("198.51.100.0/24"),
        route("203.0.113.0/24"),
    );
    assert_eq!(
        (&one["gateway"], &one["metric"]),
        (&json!("10.1.0.1"), &json!(77)),
        "{one}"
    );
    assert_eq!(
        one["metrics"],
        json!([{"mtu": 1300, "advmss": 1200}]),
        "{one}"
    );
    assert_eq!(
        (&two["gateway"], &two["table"]),
        (&json!("10.1.0.254"), &json!("100")),
        "{two}"
    );
    assert_eq!(
        (&three["gateway"], &three["scope"]),
        (&Value::Null, &json!("link")),
        "{three}"
    );
    assert_eq!(
        result["routes"][1],
        json!({"dst": "198.51.100.0/24", "gw": "10.1.0.254", "table": 100})
    );
    call.check(&result).ok();
    pod.run("ip route del 198.51.100.0/24 table 100");
    call.check(&result)
        .refused(999, &["198.51.100.0/24", "100"]);
}

#[test]
fn route_metrics_clamped_by_the_kernel_pass_check() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut ipam = host_local("10.1.0.0/24");
    ipam["routes"] = json!([{"dst": "192.0.2.0/24", "mtu": 70_000, "advmss": 70_000}]);
    let call = attach(&host, &pod, ipam);
    let result = call.add().result();
    let route = pod
        .routes("-4")
        .into_iter()
        .find(|route| route["dst"] == "192.0.2.0/24")
        .unwrap_or_default();
    assert_eq!(
        route["metrics"],
        json!([{"mtu": 65_520, "advmss": 65_495}]),
        "{route}"
    );
    call.check(&result).ok();
}

#[test]
fn two_routes_to_one_destination_are_both_kept() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.0.5/24"}],
        "routes": [{"dst": "192.0.2.0/24", "gw": "10.1.0.1"}, {"dst": "192.0.2.0/24", "gw": "10.1.0.2"}]});
    attach(&host, &pod, ipam).add().result();
    let gateways: Vec<Value> = pod
        .routes("-4")
        .iter()
        .filter(|r| r["dst"] == "192.0.2.0/24")
        .map(|r| r["gateway"].clone())
        .collect();
    assert_eq!(
        gateways,
        [json!("10.1.0.2"), json!("10.1.0.1")],
        "the newest is used"
    );
}

#[test]
fn second_add_for_same_ifname_is_refused_and_reserves_nothing() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = attach(&host, &pod, host_local("10.1.0.0/24"));
    let result = call.add().result();
    let before = host.state();
    call.add().refused(999, &["eth0", "already"]);
    before.assert_same(&host.state());
    call.check(&result).ok();
    let other = call.clone().ifname("net1");
    let second = other.add().result();
    assert_eq!(second["ips"][0]["address"], "10.1.0.3/24");
    call.del().ok();
    other.check(&second).ok();
    assert!(Path::new("/var/lib/cni/networks/net/10.1.0.3").is_file());
}

#[test]
fn static_addresses_can_be_replaced_by_the_runtime() {
    let host = Sandbox::new();
    let pods = ["a", "b", "c"].map(|name| host.pod(name));
    let ipam =
        json!({"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]});
    let call = |at: usize| attach(&host, &pods[at], ipam.clone());
    let addresses = |at: usize| pods[at].addrs("eth0");
    call(0)
        .args("IgnoreUnknown=1;IP=10.1.0.6/24,fd00:1::6/64;GATEWAY=10.1.0.254")
        .add()
        .result();
    assert_eq!(addresses(0), ["10.1.0.5/24", "10.1.0.6/24", "fd00:1::6/64"]);
    call(1)
        .with("args", json!({"cni": {"ips": ["10.1.0.7/24"]}}))
        .add()
        .result();
    assert_eq!(addresses(1), ["10.1.0.7/24"]);
    call(2)
        .with("runtimeConfig", json!({"ips": ["10.1.0.8/24"]}))
        .add()
        .result();
    assert_eq!(addresses(2), ["10.1.0.8/24"]);
}

#[test]
fn a_container_with_ipv6_disabled_still_gets_its_ipv6_address() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.set_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
    pod.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    attach(&host, &pod, host_local("fd00:1::/64"))
        .add()
        .result();
    assert_eq!(pod.addrs("eth0"), ["fd00:1::2/64"]);
}

#[test]
fn addresses_of_deleted_leases_stay_reserved_for_running_containers() {
    let subnet = "10.1.0.0/24";
    let mut kept = host_local(subnet);
    kept["dataDir"] = json!("/run/leases");
    for (plugin, ipam, folder) in [
        ("bridge", host_local(subnet), "/var/lib/cni/networks"),
        ("braid", host_local(subnet), "/var/lib/cni/networks"),
        ("bridge", kept, "/run/leases"),
    ] {
        let host = Sandbox::new();
        let pods = ["a", "b", "c", "d"].map(|name| host.pod(name));
        let call = |pod: &Ns| {
            let conf = host
                .call("bridge", pod, conf::bridge())
                .with("ipam", ipam.clone());
            let mut bridge = conf::bridge();
            bridge["ipam"] = ipam.clone();
            let list =
                json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [bridge]});
            if plugin == "braid" {
                host.call("braid", pod, list)
            } else {
                conf
            }
        };
        let result = call(&pods[0]).add().result();
        call(&pods[1]).add().result();
        host.end(&pods[1]);
        fs::remove_dir_all(folder).unwrap();
        call(&pods[0])
            .check(&result)
            .refused(999, &["host-local: Failed to find"]);
        let asked = call(&pods[2]).args("IgnoreUnknown=1;IP=10.1.0.2");
        asked
            .add()
            .refused(999, &["requested IP address 10.1.0.2 is not available"]);
        assert_eq!(
            call(&pods[3]).add().result()["ips"][0]["address"],
            "10.1.0.3/24",
            "the terminated container's"
        );
        assert_eq!(
            fs::read_to_string(format!("{folder}/net/10.1.0.2")).unwrap(),
            "a\r\neth0"
        );
        call(&pods[0]).check(&result).ok();
        for pod in &pods {
            call(pod).del().ok();
        }
        host.assert_nothing_left();
    }
}

#[test]
fn a_second_interface_does_not_get_the_deleted_lease_of_the_first() {
    let host = Sandbox::new();
    let (pod, other) = (host.pod("a"), host.pod("b"));
    let first = attach(&host, &pod, host_local("10.1.0.0/24"));
    first.add().result();
    fs::remove_dir_all("/var/lib/cni/networks").unwrap();
    let second = first.clone().ifname("net1").add().result();
    assert_eq!(second["ips"][0]["address"], "10.1.0.3/24");
    assert_eq!(next(&host, "c", &host_local("10.1.0.0/24")), "10.1.0.4/24");
    assert!(
        Path::new("/var/lib/cni/networks/net/10.1.0.2").is_file(),
        "the deleted lease is restored"
    );
    first.del().ok();
    attach(&host, &other, host_local("10.1.0.0/24"))
        .args("IgnoreUnknown=1;IP=10.1.0.2")
        .add()
        .result();
}

#[test]
fn the_examples_of_the_page_work() {
    let host = Sandbox::new();
    host.run("ip link add eth1 up type veth peer name far");
    host.run("ip link set far up");
    let mut seen = Vec::new();
    for (number, example) in blocks(PAGE, "json").iter().enumerate() {
        let conf: Value = serde_json::from_str(example).expect("JSON");
        let ipam = conf["ipam"]["type"].as_str().unwrap_or_default().to_owned();
        // The API tests have those that need an API server.
        if ipam == "whereabouts" {
            continue;
        }
        let pod = host.pod(&format!("p{number}"));
        let kind = conf["type"].as_str().unwrap_or_default().to_owned();
        let call = host.call(&kind, &pod, conf);
        let result = call.add().result();
        assert_eq!(result["ips"].as_array().map(Vec::len), Some(2), "{example}");
        call.check(&result).ok();
        call.del().ok();
        seen.push(ipam);
    }
    assert_eq!(seen, ["host-local", "static"]);
}
