//! A container on several networks, all attached by one call.

use braid_tests::{Call, Ns, Sandbox, Value, binary, json, needs};
use std::fs;
use std::process::Command;

/// Names of the networks. Their configurations are files of the same names in `/run`.
const NETWORKS: [&str; 3] = ["blue", "green", "red"];

/// Writes a configuration for each of [`NETWORKS`], with these plugin types, and with masquerading,
/// `firewall` and `tuning`.
fn write_networks(types: [&str; 3]) {
    for (at, (network, plugin)) in NETWORKS.into_iter().zip(types).enumerate() {
        let conf = json!({"cniVersion": "1.1.0", "name": network, "plugins": [
            {"type": plugin, "bridge": format!("br{at}"), "isGateway": true, "ipMasq": true, "master": "lan",
             "ipam": {"type": "host-local", "subnet": format!("10.{}.0.0/24", at + 1)}},
            {"type": "firewall"}, {"type": "tuning", "mtu": 1300}]});
        fs::write(format!("/run/{network}"), conf.to_string()).unwrap();
    }
}

/// Runs `command` and returns its output. Fails if `command` fails.
#[track_caller]
fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Attaches a new container to all [`NETWORKS`] with `braid try`, and returns the container ID.
fn attach() -> String {
    let shown = run(&format!(
        "{} try --keep /run/blue /run/green /run/red",
        binary::braid().display()
    ));
    shown.split_whitespace().last().unwrap().to_owned()
}

/// Runs `command`, and returns the number of its netlink requests that delete links, as counted by
/// strace.
fn deletions(command: &str) -> usize {
    run(&format!(
        "strace -f -qq -e trace=sendto -o /run/strace {command}"
    ));
    let sent = fs::read_to_string("/run/strace").unwrap();
    fs::remove_file("/run/strace").unwrap();
    // strace prints the message type as a number if it does not know the socket's netlink family.
    ["nlmsg_type=RTM_DELLINK,", "nlmsg_type=0x11 "]
        .map(|kind| sent.matches(kind).count())
        .iter()
        .sum()
}

#[test]
fn three_networks_have_one_record_and_their_links_one_delete_request() {
    let host = Sandbox::new();
    write_networks(["bridge", "ptp", "bridge"]);
    let id = attach();
    let addresses = run(&format!(
        "nsenter --net=/run/netns/{id} ip -j -4 addr show scope global"
    ));
    let addresses: Vec<Value> = serde_json::from_str(&addresses).unwrap();
    let of = |link: &Value| {
        (
            link["ifname"].clone(),
            link["addr_info"][0]["local"].clone(),
            link["mtu"].clone(),
        )
    };
    let expected = [
        ("eth0", "10.1.0.2"),
        ("net1", "10.2.0.2"),
        ("net2", "10.3.0.2"),
    ];
    assert_eq!(
        addresses.iter().map(of).collect::<Vec<_>>(),
        expected.map(|(name, addr)| (json!(name), json!(addr), json!(1300)))
    );
    let records: Vec<_> = fs::read_dir(format!("/run/braid/attachments/{id}"))
        .unwrap()
        .collect();
    assert_eq!(records.len(), 1, "{records:?}");
    let status: Value = serde_json::from_str(&run(&format!(
        "{} status -o json",
        binary::braid().display()
    )))
    .unwrap();
    let attachments = status["attachments"].as_array().unwrap();
    let networks: Vec<&Value> = attachments.iter().map(|one| &one["network"]).collect();
    assert_eq!(networks, NETWORKS);
    // Links inside the container need no request, because they are deleted with its namespace.
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        1
    );
    host.assert_nothing_left();
}

#[test]
fn a_failing_network_rolls_back_the_earlier_ones() {
    let host = Sandbox::new();
    write_networks(["bridge", "ptp", "macvlan"]);
    let output = Command::new(binary::braid())
        .args(["try", "/run/blue", "/run/green", "/run/red"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("lan"), "{said}");
    host.assert_nothing_left();
    host.run("ip link add lan up type veth peer name far");
    write_networks(["bridge", "ptp", "macvlan"]);
    let id = attach();
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        1
    );
    host.assert_nothing_left();
}

/// Attaches a new container to a bridge, a ptp, and a network of type `third`, which creates a link
/// only in the container. Returns the container ID.
fn attach_with(host: &Sandbox, third: &str) -> String {
    host.run("ip link add lan up type veth peer name far");
    write_networks(["bridge", "ptp", third]);
    attach()
}

#[test]
fn a_vlan_and_veth_pairs_are_deleted_in_one_request() {
    needs!(Vlan);
    let host = Sandbox::new();
    let id = attach_with(&host, "vlan");
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        1
    );
    host.assert_nothing_left();
}

#[test]
fn netkits_and_other_links_are_deleted_in_one_request() {
    needs!(Netkit);
    let host = Sandbox::new();
    host.run("ip link add lan up type veth peer name far");
    write_networks(["netkit", "ptp", "macvlan"]);
    let id = attach();
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        1
    );
    host.assert_nothing_left();
}

#[test]
fn pairs_renamed_in_the_container_are_deleted_in_one_request() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    for (link, name) in [("eth0", "was0"), ("net1", "eth0")] {
        run(&format!("ip -n {id} link set {link} down"));
        run(&format!("ip -n {id} link set {link} name {name}"));
    }
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        1
    );
    host.assert_nothing_left();
}

#[test]
fn a_pair_moved_elsewhere_is_deleted_and_its_namesake_is_kept() {
    let host = Sandbox::new();
    let elsewhere = host.pod("elsewhere");
    let id = attach_with(&host, "macvlan");
    run(&format!(
        "ip -n {id} link set eth0 netns elsewhere name taken"
    ));
    // Link indexes are unique only within a namespace. The peer of this veth has the same index as
    // a host link, but it is not on the host.
    let index = elsewhere.the_link("taken")["link_index"].to_string();
    run(&format!(
        "ip -n {id} link add eth0 type veth peer name own index {index} netns elsewhere"
    ));
    host.run("touch /run/netns/kept");
    host.run(&format!("mount --bind /run/netns/{id} /run/netns/kept"));
    // One request on the host is for the moved pair, and one request with a link group is for the
    // other links.
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        2
    );
    let left: Vec<Value> = serde_json::from_str(&run("ip -n kept -j link show")).unwrap();
    let left: Vec<&Value> = left.iter().map(|link| &link["ifname"]).collect();
    assert_eq!(left, ["lo", "eth0"]);
    assert_eq!(
        (elsewhere.link("taken"), elsewhere.link("own").is_some()),
        (None, true)
    );
    host.run("ip netns del kept");
    host.assert_nothing_left();
}

#[test]
fn a_container_that_adds_lo_to_the_group_cannot_prevent_deletion() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    run(&format!("ip -n {id} link set lo group 11641296"));
    // The request with the link group fails. Then one request on the host and one request by name
    // follow.
    assert_eq!(
        deletions(&format!("{} detach {id}", binary::braid().display())),
        3
    );
    host.assert_nothing_left();
}

#[test]
fn pairs_are_deleted_without_the_namespace_of_their_peers() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    host.run(&format!("ip netns del {id}"));
    run(&format!("{} detach {id}", binary::braid().display()));
    host.assert_nothing_left();
}

/// Returns a call that attaches the pod to these networks. The first is its default network.
fn call_of(host: &Sandbox, pod: &Ns, networks: &[Value]) -> Call {
    host.call(
        "braid",
        pod,
        json!({"cniVersion": "1.0.0", "name": "pods", "delegates": networks}),
    )
}

/// Returns the configuration of the network `net<number>`: `plugin` with addresses of
/// 10.`number`.0.0/24 and a default route.
fn network(number: usize, mut plugin: Value) -> Value {
    plugin["name"] = json!(format!("net{number}"));
    plugin["cniVersion"] = json!("1.0.0");
    let routes = json!([{"dst": "0.0.0.0/0"}]);
    plugin["ipam"] =
        json!({"type": "host-local", "subnet": format!("10.{number}.0.0/24"), "routes": routes});
    plugin
}

fn in_pod(master: &str) -> Value {
    json!({"type": "macvlan", "master": master, "linkInContainer": true})
}

#[test]
fn a_network_uses_the_link_of_an_earlier_one() {
    for first in ["bridge", "ptp"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        // The last network's parent is the link of the default route.
        let by_route = json!({"type": "macvlan", "linkInContainer": true, "mtu": 1300});
        let plugins = [
            json!({"type": first, "mtu": 1400}),
            in_pod("eth0"),
            in_pod("net1"),
            by_route,
        ];
        let networks: Vec<Value> = plugins
            .into_iter()
            .enumerate()
            .map(|(at, one)| network(at + 1, one))
            .collect();
        let call = call_of(&host, &pod, &networks);
        let result = call.add().result();
        for (at, (link, mtu)) in [
            ("eth0", 1400),
            ("net1", 1400),
            ("net2", 1400),
            ("net3", 1300),
        ]
        .iter()
        .enumerate()
        {
            assert_eq!(pod.the_link(link)["mtu"], json!(mtu), "{first} {link}");
            assert_eq!(
                pod.addrs(link)[0],
                format!("10.{}.0.2/24", at + 1),
                "{first}"
            );
        }
        let parents = ["net1", "net2", "net3"].map(|link| pod.the_link(link)["link"].clone());
        // The kernel makes a macvlan on a macvlan a child of the lowest parent.
        assert_eq!(
            parents,
            [json!("eth0"), json!("eth0"), json!("eth0")],
            "{first}"
        );
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_network_uses_the_bridge_that_an_earlier_one_creates() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let bridge = json!({"type": "bridge", "bridge": "new0", "isGateway": true});
    let networks = [
        network(1, bridge),
        network(2, json!({"type": "macvlan", "master": "new0"})),
    ];
    let call = call_of(&host, &pod, &networks);
    let result = call.add().result();
    assert_eq!(
        pod.the_link("net1")["link_index"],
        host.host().the_link("new0")["ifindex"]
    );
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
    host.host().run("ip link del new0");
}

#[test]
fn a_network_uses_the_link_of_a_foreign_plugin() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let script = r#"#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || { [ "$CNI_COMMAND" = DEL ] && nsenter --net="$CNI_NETNS" ip link del "$CNI_IFNAME"; exit 0; }
nsenter --net="$CNI_NETNS" ip link add "$CNI_IFNAME" type veth peer name other >&2
nsenter --net="$CNI_NETNS" ip link set "$CNI_IFNAME" up >&2
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}]}'
"#;
    host.script("theirs", script);
    let theirs = json!({"type": "theirs", "name": "theirs", "cniVersion": "1.0.0"});
    let networks = [
        network(1, json!({"type": "ptp"})),
        theirs,
        network(3, in_pod("net1")),
    ];
    let call = call_of(&host, &pod, &networks);
    call.add().result();
    assert_eq!(pod.the_link("net2")["link"], json!("net1"));
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn all_kinds_of_child_links_can_use_the_link_of_an_earlier_network() {
    let host = Sandbox::new();
    needs!(Ipvlan, Vlan);
    let pod = host.pod("a");
    let of =
        |kind: &str| json!({"type": kind, "master": "eth0", "linkInContainer": true, "vlanId": 7});
    let networks = [
        network(1, json!({"type": "ptp"})),
        network(2, of("vlan")),
        network(3, of("ipvlan")),
    ];
    let call = call_of(&host, &pod, &networks);
    let result = call.add().result();
    assert_eq!(
        ["net1", "net2"].map(|link| pod.the_link(link)["link"].clone()),
        [json!("eth0"), json!("eth0")]
    );
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_missing_master_is_refused_before_an_address_is_reserved() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let refused = |networks: &[Value], words: &[&str]| {
        call_of(&host, &pod, networks).add().refused(999, words);
        host.assert_nothing_left();
    };
    refused(
        &[
            network(1, json!({"type": "ptp"})),
            network(2, in_pod("net7")),
        ],
        &["master \"net7\"", "no such link"],
    );
    // The parent is the link of a later network, which does not exist yet.
    let ptp = || json!({"type": "ptp"});
    refused(
        &[
            network(1, ptp()),
            network(2, in_pod("net2")),
            network(3, ptp()),
        ],
        &["master \"net2\""],
    );
    assert!(
        !std::path::Path::new("/var/lib/cni/networks/net1").exists(),
        "an address was reserved"
    );
    let mut large = in_pod("eth0");
    large["mtu"] = json!(9000);
    let networks = [network(1, ptp()), network(2, large)];
    call_of(&host, &pod, &networks)
        .add()
        .refused(7, &["9000", "the MTU of master \"eth0\""]);
    host.assert_nothing_left();
}

#[test]
fn plan_and_try_know_the_links_of_earlier_networks() {
    let host = Sandbox::new();
    for (name, conf) in [
        ("first", network(1, json!({"type": "ptp"}))),
        ("second", network(2, in_pod("eth0"))),
    ] {
        fs::write(format!("/run/{name}"), conf.to_string()).unwrap();
    }
    let planned = run(&format!(
        "{} plan /run/first /run/second",
        binary::braid().display()
    ));
    assert!(planned.contains("link eth0 name net1"), "{planned}");
    run(&format!(
        "{} try /run/first /run/second",
        binary::braid().display()
    ));
    host.assert_nothing_left();
}
