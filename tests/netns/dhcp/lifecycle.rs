//! ADD, CHECK, DEL, GC and STATUS of leases.

use super::{SOCKET, Server, address, daemon, lan, macvlan, until};
use braid_tests::{Ns, Sandbox, Value, json, needs};
use std::fs;
use std::path::Path;
use std::rc::Rc;

#[test]
fn a_macvlan_acquires_and_releases_an_address_with_gateway_and_routes() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &["--dhcp-option=option:router,10.3.0.254"]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let conf = json!({"type": "dhcp", "priority": 77});
    let call = host.call("macvlan", &pod, macvlan()).with("ipam", conf);
    let result = call.add().result();
    let leased = server.await_leases(1);
    let [(_, mac, ip)] = &leased[..] else {
        panic!("{leased:?}")
    };
    assert_eq!(&pod.the_link("eth0")["address"], &json!(mac));
    assert_eq!(pod.addrs("eth0"), [format!("{ip}/16")]);
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": mac, "sandbox": "/run/netns/a"}],
        "ips": [{"address": format!("{ip}/16"), "gateway": "10.3.0.254", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.3.0.254", "priority": 77}],
    });
    assert_eq!(result, expected);
    let default = pod
        .routes("-4")
        .into_iter()
        .find(|route| route["dst"] == "default")
        .expect("a default route");
    assert_eq!(
        (&default["gateway"], &default["metric"]),
        (&json!("10.3.0.254"), &json!(77))
    );
    assert!(pod.can_ping("10.3.0.254"));
    call.check(&result).ok();
    assert_eq!(
        server.await_leases(1),
        leased,
        "CHECK requests no new lease"
    );
    call.clone().prev(&result).del().ok();
    server.await_free();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    call.del().ok();
    host.assert_nothing_left();
    assert!(server.log().contains("DHCPRELEASE"));
}

#[test]
fn a_bridge_port_releases_its_address_before_it_is_deleted() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    host.run("ip addr add 10.3.0.254/16 dev br0");
    host.run("ip link set br0 up");
    let server = Server::start(host.host(), "br0", &[]);
    let _daemon = daemon(&host, &[]);
    let pods = ["a", "b"].map(|name| host.pod(name));
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "dhcp"}});
    let calls = [0, 1].map(|at: usize| host.call("bridge", &pods[at], conf.clone()));
    let results = [0, 1].map(|at: usize| calls[at].add().result());
    assert_ne!(address(&results[0]), address(&results[1]));
    assert!(pods[0].can_ping(&address(&results[1])));
    calls[1].check(&results[1]).ok();
    calls[0].del().ok();
    until("one lease is released", || {
        (server.addresses() == [address(&results[1])]).then_some(())
    });
    // If the namespace ends before DEL, the daemon cannot release the address, and only forgets the
    // lease.
    host.end(&pods[1]);
    calls[1].del().ok();
    host.assert_nothing_left();
}

#[test]
fn ip_families_selects_the_requested_families() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let more = [
        "--dhcp-range=fd00:3::10,fd00:3::99,64,2m",
        "--enable-ra",
        "--dhcp-option=option:router,10.3.0.254",
    ];
    let server = Server::start(&far, "lan", &more);
    let _daemon = daemon(&host, &[]);
    for (name, families) in [("a", json!(["IPv4", "IPv6"])), ("b", json!(["IPv6"]))] {
        let pod = host.pod(name);
        let ipam = json!({"type": "dhcp", "ipFamilies": families});
        let call = host.call("macvlan", &pod, macvlan()).with("ipam", ipam);
        let result = call.add().result();
        let ips: Vec<&str> = result["ips"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|ip| ip["address"].as_str())
            .collect();
        let leased = server.await_leases(ips.len());
        assert_eq!(
            ips.len(),
            families.as_array().expect("a list").len(),
            "{result}"
        );
        let v6 = ips
            .iter()
            .find(|ip| ip.contains(':'))
            .expect("an IPv6 address");
        assert!(v6.starts_with("fd00:3::") && v6.ends_with("/128"), "{v6}");
        assert!(
            ips.iter().all(|ip| leased
                .iter()
                .any(|(.., leased)| ip.split('/').next() == Some(leased))),
            "{leased:?}"
        );
        assert!(
            ips.iter()
                .all(|ip| pod.addrs("eth0").contains(&(*ip).to_owned())),
            "{ips:?}"
        );
        assert!(
            pod.can_ping("fd00:3::254"),
            "the route is created by router advertisement"
        );
        call.check(&result).ok();
        call.del().ok();
        server.await_free();
        host.assert_nothing_left();
    }
}

#[test]
fn options_are_provided_and_requested() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let more = [
        "--dhcp-option=option:classless-static-route,10.77.0.0/16,10.3.0.9,10.78.0.0/16,0.0.0.0",
        "--dhcp-option=option:router,10.3.0.254",
    ];
    let server = Server::start(&far, "lan", &more);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let ipam = json!({"type": "dhcp", "request": [{"option": "121"}], "provide": [
        {"option": "host-name", "fromArg": "K8S_POD_NAME"}, {"option": "dhcp-client-identifier", "value": "the-web"}]});
    let args = "IgnoreUnknown=1;K8S_POD_NAME=web";
    let call = host
        .call("macvlan", &pod, macvlan())
        .with("ipam", ipam)
        .args(args);
    let result = call.add().result();
    let file = std::fs::read_to_string(&server.leases).expect("leases");
    let hex: Vec<String> = b"the-web"
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(file.contains(&format!(" web {}", hex.join(":"))), "{file}");
    assert_eq!(
        result["routes"],
        json!([{"dst": "10.77.0.0/16", "gw": "10.3.0.9"}, {"dst": "10.78.0.0/16", "gw": "0.0.0.0", "scope": 253}])
    );
    let routes = pod.routes("-4");
    let to = |dst: &str| {
        routes
            .iter()
            .find(|route| route["dst"] == dst)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(to("10.77.0.0/16")["gateway"], "10.3.0.9");
    assert_eq!(to("10.78.0.0/16")["scope"], "link");
    call.check(&result).ok();
    call.del().ok();
    server.await_free();
}

#[test]
fn an_add_without_a_server_leaves_nothing() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    lan(&host);
    let _daemon = daemon(&host, &["-resendtimeout", "500ms"]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    call.add()
        .refused(999, &["error calling DHCP.Allocate: no more tries"]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
    call.del().ok();
}

#[test]
fn without_a_daemon_add_and_status_fail_and_del_succeeds() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    call.add()
        .refused(999, &["error dialing DHCP daemon", SOCKET]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
    call.status()
        .refused(50, &["error dialing DHCP daemon", SOCKET]);
    call.del().ok();
    let _daemon = daemon(&host, &[]);
    call.status().ok();
}

#[test]
fn gc_releases_the_leases_of_unlisted_attachments() {
    needs!(Dnsmasq);
    gc_of_two(|host, server, pods, results| {
        host.call("macvlan", &pods[0], macvlan())
            .gc(&[("b", "eth0")])
            .ok();
        until("one lease is released", || {
            (server.addresses() == [address(&results[1])]).then_some(())
        });
        assert_eq!(pods[0].link_names(), Vec::<String>::new());
        assert_eq!(pods[1].link_names(), ["eth0"]);
    });
}

/// Attaches the containers `a` and `b` with DHCP leases through one daemon, and calls `test`.
fn gc_of_two(test: impl FnOnce(&Sandbox, &Server, &[Rc<Ns>; 2], &[Value; 2])) {
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[]);
    let _daemon = daemon(&host, &[]);
    let pods = ["a", "b"].map(|name| host.pod(name));
    let results = pods
        .each_ref()
        .map(|pod| host.call("macvlan", pod, macvlan()).add().result());
    test(&host, &server, &pods, &results);
}

#[test]
fn gc_without_list_and_records_keeps_leases_of_running_containers() {
    needs!(Dnsmasq);
    gc_of_two(|host, server, pods, _| {
        let call = host.call("macvlan", &pods[1], macvlan());
        fs::remove_dir_all("/run/braid/attachments").unwrap();
        // The count leaves out the lock file.
        let kept = || {
            fs::read_dir("/run/cni/dhcp.leases")
                .expect("the daemon's leases")
                .count()
                - 1
        };
        call.run("GC").ok();
        assert_eq!((kept(), server.await_leases(2).len()), (2, 2));
        host.end(&pods[0]);
        call.run("GC").ok();
        assert_eq!((kept(), pods[1].link_names()), (1, vec!["eth0".to_owned()]));
        call.del().ok();
    });
}

#[test]
fn later_plugins_of_the_list_see_the_addresses() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let plugins = json!([{"type": "macvlan", "master": "lan", "ipam": {"type": "dhcp"}},
        {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}]);
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins});
    let call = host.call("braid", &pod, conf);
    let result = call.add().result();
    server.await_address(&address(&result));
    assert_eq!(pod.sysctl("net/ipv4/conf/eth0/arp_filter"), "1");
    call.check(&result).ok();
    call.del().ok();
    server.await_free();
    host.assert_nothing_left();
}

#[test]
fn the_daemon_follows_its_flags_and_cleans_up_at_its_end() {
    let host = Sandbox::new();
    drop(host.call("braid", host.host(), macvlan()).run("VERSION"));
    let flags = [
        "dhcp",
        "daemon",
        "-pidfile",
        "/run/dhcp.pid",
        "-hostprefix",
        "/run",
        "-socketpath=/of/dhcp.sock",
    ];
    let (few, log) = (
        ["--nofile=64:4000", "/run/cni-bin/braid"],
        Path::new("/run/dhcp.log"),
    );
    let args = [&few[..], &flags].concat();
    let mut program = super::Program::start(host.host(), Path::new("/usr/bin/prlimit"), &args, log);
    until("the daemon serves", || {
        std::os::unix::net::UnixStream::connect("/run/of/dhcp.sock").ok()
    });
    let pid = std::fs::read_to_string("/run/dhcp.pid").expect("a file");
    assert_eq!(pid, program.0.id().to_string());
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a line");
    assert_eq!(
        files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(),
        ["4000", "4000"],
        "sockets of many leases"
    );
    program.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(program.0.wait().expect("an end").success());
    for file in ["/run/dhcp.pid", "/run/of/dhcp.sock"] {
        assert!(!Path::new(file).exists(), "{file}");
    }
}

/// Python script that passes a listening socket to the daemon, as systemd would, and executes the
/// daemon.
const HAND_OVER: &str = "import os, socket
listener = socket.socket(socket.AF_UNIX)
os.makedirs('/run/cni', exist_ok=True)
listener.bind('/run/cni/dhcp.sock')
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv('/run/cni-bin/dhcp', ['dhcp', 'daemon'])";

#[test]
fn a_passed_socket_is_served_and_kept() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[]);
    drop(host.call("dhcp", host.host(), json!({})).run("VERSION"));
    let (python, log) = (Path::new("/usr/bin/python3"), Path::new("/run/dhcp.log"));
    let mut program = super::Program::start(host.host(), python, &["-c", HAND_OVER], log);
    until("the daemon serves", || {
        std::os::unix::net::UnixStream::connect(super::SOCKET).ok()
    });
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    call.add().result();
    call.del().ok();
    server.await_free();
    program.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(program.0.wait().expect("an end").success());
    assert!(
        Path::new(super::SOCKET).exists(),
        "the program that passed the socket deletes it"
    );
    std::fs::remove_file(super::SOCKET).expect("the socket");
}
