//! One container on several networks, attached by one call.

use braid_tests::{Sandbox, Value, binary, json};
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
    // One of the host and one of the container.
    assert_eq!(deletions(&format!("{} detach {id}", binary::braid().display())), 2);
    host.assert_nothing_left();
}
