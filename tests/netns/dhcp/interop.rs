//! braid's plugins with the reference DHCP daemon, and the reference plugins with braid's daemon.

use super::{Server, address, daemon, lan, macvlan, said, start, until};
use braid_tests::{Sandbox, binary, json, needs};

#[test]
fn reference_plugins_acquire_and_release_leases_through_our_daemon() {
    needs!(Dnsmasq, Reference, ReferenceDhcp);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &["--dhcp-option=option:router,10.3.0.254"]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let ipam = json!({"type": "dhcp", "priority": 5});
    let call = host
        .call("macvlan", &pod, macvlan())
        .with("ipam", ipam)
        .reference();
    let result = call.add().result();
    server.await_address(&address(&result));
    assert_eq!(result["ips"][0]["gateway"], "10.3.0.254");
    assert_eq!(
        result["routes"],
        json!([{"dst": "0.0.0.0/0", "gw": "10.3.0.254", "priority": 5}])
    );
    assert!(pod.can_ping("10.3.0.254"));
    call.check(&result).ok();
    call.del().ok();
    server.await_free();
    call.del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn our_plugins_acquire_and_release_leases_through_the_reference_daemon() {
    needs!(Dnsmasq, Reference, ReferenceDhcp);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &["--dhcp-option=option:router,10.3.0.254"]);
    let reference = binary::reference()
        .expect("the reference plugins")
        .join("dhcp");
    let theirs = start(&host, &reference, &[]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    let result = call.add().result();
    server.await_address(&address(&result));
    assert_eq!(pod.addrs("eth0"), [format!("{}/16", address(&result))]);
    assert!(pod.can_ping("10.3.0.254"));
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    // The reference daemon sends its release without a source address, so the server's kernel drops
    // it. Only the daemon's log shows the release.
    until("the lease is released", || {
        said().contains("a/net/eth0: releasing lease").then_some(())
    });
    call.add().result();
    drop(theirs);
    // The ended daemon has lost its leases, and no other program knows them.
    call.del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn our_daemon_returns_the_same_result_to_both_plugins() {
    needs!(Dnsmasq, Reference, ReferenceDhcp);
    let host = Sandbox::new();
    let far = lan(&host);
    let routes =
        "--dhcp-option=option:classless-static-route,10.77.0.0/16,10.3.0.9,10.78.0.0/16,0.0.0.0";
    let server = Server::start(&far, "lan", &[routes]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    pod.run("ip link add eth0 type veth peer name other");
    pod.run("ip link set other up");
    host.run(&format!(
        "ip link add link lan name m0 netns {} type macvlan mode bridge",
        pod.path().display()
    ));
    pod.run("ip link set eth0 name gone");
    pod.run("ip link set m0 name eth0");
    let ipam = json!({"type": "dhcp", "request": [{"option": "121"}]});
    let call = host.call("dhcp", &pod, macvlan()).with("ipam", ipam);
    let ours = call.add().result();
    let theirs = call.clone().reference().add().result();
    assert_eq!(ours, theirs, "the lease is one");
    assert_eq!(
        ours["routes"][1],
        json!({"dst": "10.78.0.0/16", "gw": "0.0.0.0", "scope": 253})
    );
    call.reference().del().ok();
    until("the lease is released", || {
        server.addresses().is_empty().then_some(())
    });
}
