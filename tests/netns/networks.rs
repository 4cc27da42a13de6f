//! One container on several networks, attached by one call.

use braid_tests::{Sandbox, Value, binary, json, needs};
use std::fs;
use std::process::Command;

/// Names of the networks, which are their files in `/run` as well.
const NETWORKS: [&str; 3] = ["blue", "green", "red"];

/// Two bridges and a ptp, with all that goes with a limited pod which has ports.
fn write_networks(types: [&str; 3]) {
    for (at, (network, plugin)) in NETWORKS.into_iter().zip(types).enumerate() {
        let conf = json!({"cniVersion": "1.1.0", "name": network, "plugins": [
            {"type": plugin, "bridge": format!("br{at}"), "isGateway": true, "ipMasq": true, "master": "lan",
             "ipam": {"type": "host-local", "subnet": format!("10.{}.0.0/24", at + 1)}},
            {"type": "firewall"}, {"type": "tuning", "mtu": 1300}]});
        fs::write(format!("/run/{network}"), conf.to_string()).unwrap();
    }
}

/// Runs `command` and returns what it printed; it must succeed.
#[track_caller]
fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Attaches a sandbox to all of them; returns its container id.
fn attach() -> String {
    let shown = run(&format!("{} try --keep /run/blue /run/green /run/red", binary::braid().display()));
    shown.split_whitespace().last().unwrap().to_owned()
}

/// Numbers of requests that take links away, as strace sees them while `command` runs.
fn deletions(command: &str) -> usize {
    run(&format!("strace -f -qq -e trace=sendto -o /run/strace {command}"));
    let sent = fs::read_to_string("/run/strace").unwrap();
    fs::remove_file("/run/strace").unwrap();
    // By number where strace has not seen of what family a socket is.
    ["nlmsg_type=RTM_DELLINK,", "nlmsg_type=0x11 "].map(|kind| sent.matches(kind).count()).iter().sum()
}

#[test]
fn three_networks_are_one_record_and_go_in_one_deletion_of_links() {
    let host = Sandbox::new();
    write_networks(["bridge", "ptp", "bridge"]);
    let id = attach();
    let addresses = run(&format!("nsenter --net=/run/netns/{id} ip -j -4 addr show scope global"));
    let addresses: Vec<Value> = serde_json::from_str(&addresses).unwrap();
    let of = |link: &Value| (link["ifname"].clone(), link["addr_info"][0]["local"].clone(), link["mtu"].clone());
    let expected = [("eth0", "10.1.0.2"), ("net1", "10.2.0.2"), ("net2", "10.3.0.2")];
    assert_eq!(
        addresses.iter().map(of).collect::<Vec<_>>(),
        expected.map(|(name, addr)| (json!(name), json!(addr), json!(1300)))
    );
    let records: Vec<_> = fs::read_dir(format!("/run/braid/attachments/{id}")).unwrap().collect();
    assert_eq!(records.len(), 1, "{records:?}");
    let status: Vec<Value> =
        serde_json::from_str(&run(&format!("{} status -o json", binary::braid().display()))).unwrap();
    let networks: Vec<&Value> = status.iter().map(|one| &one["network"]).collect();
    assert_eq!(networks, NETWORKS);
    // The sandbox's own is not counted: it goes with its namespace.
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 1);
    host.assert_nothing_left();
}

#[test]
fn a_network_that_fails_takes_those_before_it_along() {
    let host = Sandbox::new();
    write_networks(["bridge", "ptp", "macvlan"]);
    let output = Command::new(binary::braid()).args(["try", "/run/blue", "/run/green", "/run/red"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("lan"), "{said}");
    host.assert_nothing_left();
    host.run("ip link add lan up type veth peer name far");
    write_networks(["bridge", "ptp", "macvlan"]);
    let id = attach();
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 1);
    host.assert_nothing_left();
}

/// A bridge, a ptp, and `third`, which makes a link in the container alone; returns the container id.
fn attach_with(host: &Sandbox, third: &str) -> String {
    host.run("ip link add lan up type veth peer name far");
    write_networks(["bridge", "ptp", third]);
    attach()
}

#[test]
fn a_vlan_goes_with_the_pairs_in_one_deletion_of_links() {
    needs!(Vlan);
    let host = Sandbox::new();
    let id = attach_with(&host, "vlan");
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 1);
    host.assert_nothing_left();
}

#[test]
fn netkits_go_with_other_links_in_one_deletion_of_links() {
    needs!(Netkit);
    let host = Sandbox::new();
    host.run("ip link add lan up type veth peer name far");
    write_networks(["netkit", "ptp", "macvlan"]);
    let id = attach();
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 1);
    host.assert_nothing_left();
}

#[test]
fn pairs_whose_ends_in_the_container_have_other_names_go_in_one_deletion_of_links() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    for (link, name) in [("eth0", "was0"), ("net1", "eth0")] {
        run(&format!("ip -n {id} link set {link} down"));
        run(&format!("ip -n {id} link set {link} name {name}"));
    }
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 1);
    host.assert_nothing_left();
}

#[test]
fn a_pair_whose_end_has_left_goes_from_the_host_and_what_took_its_name_stays() {
    let host = Sandbox::new();
    let elsewhere = host.pod("elsewhere");
    let id = attach_with(&host, "macvlan");
    run(&format!("ip -n {id} link set eth0 netns elsewhere name taken"));
    // Indexes tell nothing by themselves: this one's other end is in another namespace than the host's.
    let index = elsewhere.the_link("taken")["link_index"].to_string();
    run(&format!("ip -n {id} link add eth0 type veth peer name own index {index} netns elsewhere"));
    host.run("touch /run/netns/kept");
    host.run(&format!("mount --bind /run/netns/{id} /run/netns/kept"));
    // From the host the one, by a group the others.
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 2);
    let left: Vec<Value> = serde_json::from_str(&run("ip -n kept -j link show")).unwrap();
    let left: Vec<&Value> = left.iter().map(|link| &link["ifname"]).collect();
    assert_eq!(left, ["lo", "eth0"]);
    assert_eq!((elsewhere.link("taken"), elsewhere.link("own").is_some()), (None, true));
    host.run("ip netns del kept");
    host.assert_nothing_left();
}

#[test]
fn a_container_that_puts_lo_into_the_group_gets_rid_of_no_deletion() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    run(&format!("ip -n {id} link set lo group 11641296"));
    // The group is refused; then one from the host, and one by name.
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 3);
    host.assert_nothing_left();
}

#[test]
fn pairs_go_without_the_namespace_of_their_other_ends() {
    let host = Sandbox::new();
    let id = attach_with(&host, "macvlan");
    host.run(&format!("ip netns del {id}"));
    run(&format!("{} detach {id}", binary::braid().display()));
    host.assert_nothing_left();
}
