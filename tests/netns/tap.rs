//! `tap`: frames between a container and the program that has opened the tap.

use crate::conf;
use crate::dummy::assert_host_port_works_through_another_interface;
use braid_tests::feature::pretend;
use braid_tests::{Ns, Sandbox, Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A program that has opened a tap. Dropping the value ends it.
struct Machine(Child);

impl Machine {
    /// Starts a program that opens the tap `eth0` of the container. `flags` are added to the flags
    /// of `TUNSETIFF`.
    fn plug(pod: &Ns, flags: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/netns/tap.py");
        let mut python = Command::new("python3");
        python.args([script, "eth0", flags]).stdout(Stdio::piped());
        let mut child = pod.enter(|| python.spawn()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tun(pod: &Ns) -> Value {
    let info = pod.the_link("eth0")["linkinfo"].clone();
    assert_eq!(info["info_kind"], "tun");
    info["info_data"].clone()
}

#[test]
fn a_program_and_the_container_exchange_packets() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("tap", &pod, conf::tap());
    let result = call.add().result();
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": pod.the_link("eth0")["address"], "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.4.0.2/24", "gateway": "10.4.0.1", "interface": 0}],
    });
    assert_eq!(result, expected);
    assert_eq!(
        (&tun(&pod)["type"], &tun(&pod)["persist"]),
        (&json!("tap"), &json!(true))
    );
    call.check(&result).ok();
    for _ in 0..2 {
        // The tap still exists after the program has ended.
        let machine = Machine::plug(&pod, "0");
        assert!(pod.can_ping("10.4.0.1"));
        call.check(&result).ok();
        drop(machine);
    }
    let machine = Machine::plug(&pod, "0");
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
    drop(machine);
}

#[test]
fn user_group_and_queues_are_set() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("tap", &pod, conf::tap());
    call.clone()
        .with("owner", 0)
        .with("group", 107)
        .with("multiQueue", true)
        .add()
        .result();
    let shown = tun(&pod);
    assert_eq!(
        (&shown["user"], &shown["multi_queue"]),
        (&json!("root"), &json!(true))
    );
    assert!(!shown["group"].is_null(), "{shown}");
    // Several programs may open this tap, because it has several queues.
    let [first, second] = ["0x100", "0x100"].map(|flags| Machine::plug(&pod, flags));
    drop((first, second));
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn mtu_and_hardware_address_are_set_with_and_without_an_owner() {
    let host = Sandbox::new();
    for (name, ids) in [("a", json!({})), ("b", json!({"owner": 0, "group": 0}))] {
        let pod = host.pod(name);
        let mut conf = conf::tap();
        for (key, value) in ids.as_object().unwrap() {
            conf[key] = value.clone();
        }
        let call = host
            .call("tap", &pod, conf)
            .with("mtu", 1300)
            .with("mac", "c2:11:22:33:44:55");
        let call = call.args("IgnoreUnknown=true;MAC=c2:11:22:33:44:66");
        call.add().result();
        assert_eq!(
            (
                &pod.the_link("eth0")["mtu"],
                &pod.the_link("eth0")["address"]
            ),
            (&json!(1300), &json!("c2:11:22:33:44:66"))
        );
        call.del().ok();
        call.with("runtimeConfig", json!({"mac": "c2:11:22:33:44:77"}))
            .add()
            .result();
        assert_eq!(pod.the_link("eth0")["address"], "c2:11:22:33:44:77");
    }
}

#[test]
fn a_tap_becomes_a_port_of_a_bridge_in_the_container() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("tap", &pod, conf::tap())
        .with("bridge", "br0")
        .with("ipam", json!({}));
    let before = host.state();
    call.add().refused(999, &["failed to get bridge \"br0\""]);
    before.assert_same(&host.state());
    pod.run("ip link add br0 type bridge");
    pod.run("ip addr add 10.4.0.2/24 dev br0");
    pod.run("ip link set br0 up");
    let result = call.add().result();
    assert_eq!(pod.the_link("eth0")["master"], "br0");
    assert_eq!(result.get("ips"), None, "layer 2 alone");
    let _machine = Machine::plug(&pod, "0");
    assert!(pod.can_ping("10.4.0.1"));
    call.check(&result).ok();
    pod.run("ip link set eth0 nomaster");
    call.check(&result).refused(999, &["is not a port of br0"]);
    call.prev(&result).del().ok();
    assert_eq!(pod.link_names(), ["br0"]);
    host.assert_nothing_left();
}

#[test]
fn an_invalid_tap_is_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add taken type veth peer name other");
    let before = host.state();
    let call = host.call("tap", &pod, conf::tap());
    call.clone()
        .with("mtu", 65_522)
        .add()
        .refused(7, &["\"mtu\": 65522 is outside 68-65521"]);
    call.clone()
        .with("bridge", "taken")
        .add()
        .refused(999, &["\"taken\" in the container is not a bridge"]);
    call.clone()
        .with("mac", "nonsense")
        .add()
        .refused(7, &["\"mac\": \"nonsense\""]);
    call.clone().with("owner", -1).add().error();
    call.clone()
        .with("selinuxContext", "a b")
        .add()
        .refused(7, &["\"selinuxContext\": \"a b\""]);
    call.ifname("taken")
        .add()
        .refused(999, &["interface \"taken\" already exists"]);
    before.assert_same(&host.state());
}

/// On a node with `SELinux`, a process with the configured context creates the tap, as with the
/// reference plugin.
#[test]
fn an_unknown_selinux_context_is_reported_and_nothing_is_left() {
    if fs::exists("/sys/fs/selinux/enforce").unwrap_or(false) {
        return;
    }
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state().without_marks();
    let context = "system_u:system_r:container_t:s0";
    host.call("tap", &pod, conf::tap())
        .with("selinuxContext", context)
        .add()
        .refused(999, &[context, "attr/exec"]);
    before.assert_same(&host.state().without_marks());
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn check_reports_another_link_in_place_of_a_tap() {
    for (commands, word) in [
        (
            &["ip link del eth0", "ip tuntap add name eth0 mode tun"][..],
            "mode",
        ),
        (
            &[
                "ip link del eth0",
                "ip link add eth0 type veth peer name other",
            ],
            "veth",
        ),
        (&["ip link del eth0"], "eth0"),
        (&["ip link set eth0 down"], "eth0"),
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host.call("tap", &pod, conf::tap()).with("ipam", json!({}));
        let result = call.add().result();
        call.check(&result).ok();
        for command in commands {
            pod.run(command);
        }
        call.check(&result).refused(999, &[word]);
        fs::remove_dir_all("/run/braid").unwrap();
        call.check(&result).refused(999, &[word]);
    }
}

#[test]
fn status_of_a_kernel_without_taps_is_50() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("tap", &pod, conf::tap());
    call.status().ok();
    pretend(&[], &["tun"]);
    call.status().refused(50, &["tap needs tun", "not here"]);
}

#[test]
fn limits_of_a_tap_apply_in_both_directions() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::tap(), {"type": "bandwidth", "capabilities": {"bandwidth": true}}],
        "runtimeConfig": {"bandwidth": limits}});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    call.check(&result).ok();
    let _machine = Machine::plug(&pod, "0");
    assert!(pod.can_ping("10.4.0.1"));
    // 200 echoes of 1 KB in each direction are 1.7 Mbit. A part of them is the burst, so at 8
    // Mbit/s they take at least 0.1 s.
    let start = std::time::Instant::now();
    pod.run("ping -f -q -l 100 -c 200 -s 1000 10.4.0.1");
    let took = start.elapsed();
    assert!(took.as_secs_f64() > 0.15, "{took:?}");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_host_port_reaches_a_tap_address_through_another_interface() {
    assert_host_port_works_through_another_interface(&conf::tap());
}
