//! braid's commands for administrators: plan, try, status, top, detach, gc, doctor and install.

use crate::conf;
use braid_tests::{Feature, Ns, Sandbox, State, Value, binary, json};
use std::fs;
use std::process::{Command, Stdio};

/// Runs braid with the arguments `words`, in which `CONF` stands for a file with `conf`. Returns
/// the exit code, standard output and standard error.
fn braid(words: &str, conf: &Value) -> (i32, String, String) {
    fs::write("/run/conf", conf.to_string()).unwrap();
    let words = words
        .split_whitespace()
        .map(|word| if word == "CONF" { "/run/conf" } else { word });
    let output = Command::new(binary::braid())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Returns the standard output of braid with the arguments `words`. Fails if braid fails or writes
/// to standard error.
#[track_caller]
fn said(words: &str) -> String {
    let (code, stdout, stderr) = braid(words, &Value::Null);
    assert_eq!((code, stderr.as_str()), (0, ""), "braid {words}: {stdout}");
    stdout
}

fn said_json(words: &str) -> Value {
    serde_json::from_str(&said(words)).unwrap()
}

/// Returns a bridge configuration that gives containers an address and a default route.
fn routed() -> Value {
    let mut conf = conf::bridge();
    conf["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    conf
}

/// Runs each command of a plan with `sh`, in the namespace that the command names.
fn carry_out(plan: &str, host: &Ns, pod: &Ns) {
    let path = pod.path().display().to_string();
    for line in plan.lines().filter(|line| !line.starts_with('#')) {
        let (ns, command) = line.split_once(' ').unwrap();
        let at = match ns {
            "host" => host,
            "pod" => pod,
            other => panic!("{other:?} is no namespace: {line}"),
        };
        fs::write(
            "/run/step",
            command
                .trim()
                .replace("netns pod", &format!("netns {path}")),
        )
        .unwrap();
        at.run("sh -e /run/step");
    }
}

#[test]
fn a_plan_changes_nothing_and_its_commands_equal_add() {
    let mut attributes = routed();
    for (key, value) in [
        ("mtu", json!(1400)),
        ("hairpinMode", json!(true)),
        ("portIsolation", json!(true)),
    ] {
        attributes[key] = value;
    }
    let mut ptp = conf::ptp();
    ptp["ipam"]["routes"] =
        json!([{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "priority": 50, "mtu": 1300}]);
    for conf in [routed(), attributes, ptp] {
        let (by_tools, plan) = planned(&conf);
        let host = Sandbox::new();
        let pod = host.pod("a");
        host.call(conf["type"].as_str().unwrap(), &pod, conf.clone())
            .add()
            .result();
        let (state, details) = look(&host, &pod);
        let differences = by_tools.0.differences(&state);
        assert!(differences.is_empty(), "{plan}\n{differences}");
        assert_eq!(by_tools.1, details, "{plan}");
    }
}

/// Returns the network state of a host and a container, and link attributes that are not part of
/// [`State`].
fn look(host: &Sandbox, pod: &Ns) -> (State, Vec<String>) {
    let mut details = vec![pod.sysctl("net/ipv4/conf/eth0/arp_notify")];
    for name in host.link_names().iter().filter(|name| *name != "lo") {
        let link = host.list(&format!("ip -d -j link show {name}")).remove(0);
        let info = &link["linkinfo"];
        let port = &info["info_slave_data"];
        let accepts = host.sysctl(&format!("net/ipv6/conf/{name}/accept_ra"));
        details.push(format!(
            "{name} {} {} {} {accepts}",
            info["info_kind"], port["hairpin"], port["isolated"]
        ));
    }
    (host.state().of_network(), details)
}

/// Prints a plan, and runs its commands on a new host. Returns the resulting state of the host, and
/// the plan.
fn planned(conf: &Value) -> ((State, Vec<String>), String) {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    let (code, plan, stderr) = braid(
        &format!("plan CONF --container a --netns {}", pod.path().display()),
        conf,
    );
    assert_eq!((code, stderr.as_str()), (0, ""));
    before.assert_same(&host.state());
    carry_out(&plan, host.host(), &pod);
    (look(&host, &pod), plan)
}

#[test]
fn a_plan_as_json_marks_existing_objects() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.call("bridge", &pod, routed()).add().result();
    let (code, plan, _) = braid("plan CONF -o json", &routed());
    assert_eq!(code, 0);
    let lines: Vec<Value> = serde_json::from_str(&plan).unwrap();
    let held = |what: &str| {
        let of = |line: &&Value| {
            line["command"]
                .as_str()
                .is_some_and(|command| command.contains(what))
        };
        lines
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("no {what} in {plan}"))["held"]
            .clone()
    };
    assert_eq!(
        (held("ip link add name br0"), held("type veth")),
        (json!(true), json!(false))
    );
}

#[test]
fn a_plan_shows_probes_between_the_link_and_the_addresses() {
    let host = Sandbox::new();
    let before = host.state();
    let mut conf = conf::bridge();
    conf["ipam"] = json!({"type": "whereabouts", "range": "10.1.0.0/29", "probe": true});
    let (code, plan, stderr) = braid("plan CONF", &conf);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let places = [
        "pod  ip link set eth0 up",
        "# whereabouts: 10.1.0.1/29 of network",
        "# whereabouts: asks the other hosts on the link of eth0 for them here, for 100 ms",
        "pod  ip addr add 10.1.0.1/29 dev eth0",
    ];
    let places = places.map(|line| plan.find(line).unwrap_or_else(|| panic!("{line}: {plan}")));
    assert!(places.is_sorted(), "{plan}");
    conf["ipam"]["probe"] = json!(false);
    let (_, plan, _) = braid("plan CONF", &conf);
    assert!(!plan.contains("asks the other hosts"), "{plan}");
    before.assert_same(&host.state());
}

#[test]
fn plan_and_try_refuse_a_bad_configuration_as_add_does() {
    let host = Sandbox::new();
    let before = host.state();
    let bad = conf::bridge_l2();
    for verb in ["plan", "try"] {
        let (code, stdout, stderr) =
            braid(&format!("{verb} CONF"), &json!({"bridge": 5, "base": bad}));
        assert_eq!((code, stdout.as_str()), (1, ""), "{verb}");
        assert!(stderr.contains("/run/conf"), "{verb}: {stderr}");
        let mut conf = conf::bridge();
        conf["vlan"] = json!(5000);
        let (code, _, stderr) = braid(&format!("{verb} CONF"), &conf);
        assert!(
            code == 1 && stderr.contains("5000"),
            "{verb}: {code} {stderr}"
        );
    }
    before.assert_same(&host.state());
}

#[test]
fn try_shows_the_attachment_and_leaves_nothing() {
    let host = Sandbox::new();
    let (code, shown, stderr) = braid("try CONF", &routed());
    assert_eq!((code, stderr.as_str()), (0, ""), "{shown}");
    for part in [
        "eth0",
        "10.1.0.2/24",
        "default",
        "10.1.0.1",
        "br0",
        "ip link add name br0",
        "detached in",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert_eq!(fs::read_dir("/run/netns").unwrap().count(), 0);
    host.assert_nothing_left();
}

#[test]
fn a_kept_sandbox_is_attached_until_it_is_detached() {
    let host = Sandbox::new();
    let (code, shown, _) = braid("try CONF --keep", &routed());
    assert_eq!(code, 0, "{shown}");
    let id = shown.trim_end().rsplit(' ').next().unwrap();
    let look = host.run(&format!(
        "nsenter --net=/run/netns/{id} ip -j addr show dev eth0"
    ));
    assert!(look.contains("10.1.0.2"), "{look}");
    let status = said_json("status -o json");
    let attachment = &status["attachments"][0];
    assert_eq!(
        (&attachment["container_id"], &attachment["addresses"][0]),
        (&json!(id), &json!("10.1.0.2/24"))
    );
    assert!(said(&format!("detach {id}")).contains("detached"));
    assert_eq!(fs::read_dir("/run/netns").unwrap().count(), 0);
    host.assert_nothing_left();
    let (code, _, stderr) = braid(&format!("detach {id}"), &Value::Null);
    assert!(code == 1 && stderr.contains("no attachment"), "{stderr}");
}

#[test]
fn status_lists_attachments_and_gc_deletes_those_of_terminated_containers() {
    let host = Sandbox::new();
    let pods = ["a", "b"].map(|name| host.pod(name));
    for pod in &pods {
        host.call("bridge", pod, conf::bridge())
            .with("ipMasq", true)
            .add()
            .result();
    }
    host.end(&pods[0]);
    let of = |status: &Value| -> Vec<[Value; 3]> {
        let rows = status["attachments"].as_array().unwrap().iter();
        rows.map(|row| ["container_id", "netns_state", "addresses"].map(|key| row[key].clone()))
            .collect()
    };
    let alive = [json!("b"), json!("alive"), json!(["10.1.0.3/24"])];
    let dead = [json!("a"), json!("gone"), json!(["10.1.0.2/24"])];
    assert_eq!(
        of(&said_json("status -o json")),
        [dead.clone(), alive.clone()]
    );
    let status = said_json("status -o json");
    let range = json!({"range": "10.1.0.1-10.1.0.254", "used": 2, "free": 251});
    assert_eq!(
        status["networks"],
        json!([{"network": "net", "attachments": 2, "ranges": [range]}])
    );
    let table = said("status");
    assert_eq!(table.lines().count(), 6, "{table}");

    assert!(said("gc --dry-run").contains("would be deleted"));
    assert_eq!(of(&said_json("status -o json")), [dead, alive.clone()]);
    let done = said("gc");
    assert!(
        done.contains("deleted") && !done.contains("would"),
        "{done}"
    );
    assert_eq!(of(&said_json("status -o json")), [alive]);
    let left = host.leftovers();
    assert!(
        left.iter()
            .all(|left| !left.contains("net a") && !left.contains("10.1.0.2")),
        "{left:?}"
    );
    assert_eq!(
        host.link_names()
            .iter()
            .filter(|name| name.starts_with("veth"))
            .count(),
        1
    );
    assert!(pods[1].can_ping("10.1.0.1"));
    assert_eq!(said("gc"), "nothing to delete\n");
}

#[test]
fn gc_skips_a_configuration_that_is_not_a_regular_file() {
    let host = Sandbox::new();
    fs::create_dir_all("/etc/cni/net.d/multus.d").unwrap();
    host.run("mkfifo /etc/cni/net.d/10-pipe.conf");
    std::os::unix::fs::symlink("/dev/zero", "/etc/cni/net.d/20-zero.conf").unwrap();
    let (code, stdout, stderr) = braid("gc", &Value::Null);
    assert_eq!((code, stdout.as_str()), (0, "nothing to delete\n"));
    let mut lines: Vec<&str> = stderr.lines().collect();
    lines.sort_unstable();
    let expected = ["10-pipe", "20-zero"].map(|name| {
        format!("/etc/cni/net.d/{name}.conf: skipped: not a regular file of at most 1048576 bytes")
    });
    assert_eq!(lines, expected);
}

#[test]
fn top_shows_the_traffic_of_a_shaped_interface() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    assert_eq!(
        said("top -n 1 -d 0.1"),
        "no attached interfaces on this node\n"
    );
    let rate = 100_000_000;
    let limits = json!({"ingressRate": rate, "ingressBurst": rate / 10, "egressRate": rate, "egressBurst": rate / 10});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": conf::bridge(),
        "bandwidth": limits});
    let call = host.call("braid", &pod, list);
    call.add().result();
    let shown = std::thread::scope(|scope| {
        let top = scope.spawn(|| said("top -n 1 -d 1"));
        while !top.is_finished() {
            pod.run("ping -q -c 5 -i 0.1 10.1.0.1");
        }
        top.join().unwrap()
    });
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 2, "{shown}");
    for row in rows {
        assert_eq!((row[0], row[1], row[4]), ("a", "eth0", "100M"), "{shown}");
        // There is a ping each tenth of a second. At the end of each run there are two at the same
        // time.
        let packets: u32 = row[6].parse().unwrap();
        assert!((1..=30).contains(&packets), "{shown}");
    }
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn top_shows_every_attached_interface_and_ends_with_its_input() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    call.add().result();
    let document = std::thread::scope(|scope| {
        let top = scope.spawn(|| said_json("top -n 1 -d 1 -o json"));
        while !top.is_finished() {
            pod.run("ping -q -c 500 -i 0.002 -s 1000 10.1.0.1");
        }
        top.join().unwrap()
    });
    let one = &document["interfaces"][0];
    assert_eq!(
        (&one["container_id"], &one["ifname"], &one["bandwidth"]),
        (&json!("a"), &json!("eth0"), &json!([])),
        "{document}"
    );
    for direction in ["rx", "tx"] {
        let number = |what: &str| one[format!("{direction}_{what}_per_second")].as_u64();
        // There are 500 pings a second, of 1042 bytes at layer 2, and on a slow machine still more
        // than the smaller packets of ARP and IPv6.
        let (packets, bits) = (number("packets").unwrap(), number("bits").unwrap());
        assert!((1..=600).contains(&packets), "{document}");
        assert!((5_000..=8_336).contains(&(bits / packets)), "{document}");
    }
    let table = said("top -n 1 -d 0.1");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert_eq!(said("top --until-eof"), "");
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn doctor_agrees_with_ip_on_this_kernel_and_changes_nothing() {
    let host = Sandbox::new();
    let before = host.state();
    let checks = said_json("doctor -o json");
    before.assert_same(&host.state());
    let state = |name: &str| {
        let mut all = checks.as_array().unwrap().iter();
        all.find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {checks}"))["state"]
            .clone()
    };
    for name in ["veth", "bridge", "macvlan"] {
        assert_eq!(state(name), "ok", "{name}");
    }
    for (name, feature) in [
        ("ipvlan", Feature::Ipvlan),
        ("bridge vlan_filtering", Feature::VlanFiltering),
    ] {
        assert_eq!(
            state(name) == "ok",
            feature.missing().is_none(),
            "{name}: {}",
            state(name)
        );
    }
    let mut shaping = checks
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["name"] == "shaping");
    let by = shaping.next().unwrap()["detail"].as_str().unwrap();
    assert!(
        by.starts_with(if Feature::Fq.is_here() {
            "by fq"
        } else {
            "by tbf with eBPF, because"
        }),
        "{by}"
    );
    assert!(said("doctor").lines().count() > 10);
}

#[test]
fn install_replaces_plugin_names_and_remove_restores_them() {
    let _host = Sandbox::new();
    fs::create_dir("/run/bin").unwrap();
    fs::write("/run/bin/bridge", "#!/bin/sh\necho reference\n").unwrap();
    said("install --bin-dir /run/bin --names bridge,ptp");
    for name in ["bridge", "ptp"] {
        let version = Command::new(format!("/run/bin/{name}"))
            .env("CNI_COMMAND", "VERSION")
            .output()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&version.stdout).contains("1.1.0"),
            "{name}: {version:?}"
        );
    }
    assert!(!fs::exists("/run/bin/macvlan").unwrap());
    said("install --bin-dir /run/bin --remove");
    assert!(
        fs::read_to_string("/run/bin/bridge")
            .unwrap()
            .contains("echo reference")
    );
    assert!(!fs::exists("/run/bin/ptp").unwrap());
    said("install --bin-dir /run/bin");
    let has = |name: &str| fs::exists(format!("/run/bin/{name}")).unwrap();
    assert_eq!(
        ["sbr", "vrf", "flannel"].map(has),
        [true, true, false],
        "flannel's own DaemonSet writes to that name"
    );
    said("install --bin-dir /run/bin --names flannel");
    assert!(has("flannel"));
    said("install --bin-dir /run/bin --remove");
    assert!(!has("flannel") && !has("braid"));
}
