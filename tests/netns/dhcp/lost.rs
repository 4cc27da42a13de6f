//! Renewal of DHCP leases, refused renewals, and the end of the daemon.

use super::{SOCKET, Server, address, daemon, lan, macvlan, said, until};
use braid_tests::{Sandbox, needs};
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// dnsmasq option that sets the renewal time (T1) to three seconds, the shortest time that dnsmasq
/// accepts.
pub(super) const SHORT: &str = "--dhcp-option=option:T1,3";

#[test]
fn a_lease_is_renewed_by_unicast_before_it_expires() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[SHORT]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    let result = call.add().result();
    server.await_renewed();
    assert!(
        !server.log().contains("no address range available"),
        "{}",
        server.log()
    );
    assert_eq!(pod.addrs("eth0"), [format!("{}/16", address(&result))]);
    call.check(&result).ok();
    call.del().ok();
    server.await_free();
}

#[test]
fn a_lease_outlives_the_daemon_and_the_next_daemon_renews_it() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[SHORT]);
    let first = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    let result = call.add().result();
    drop(first);
    let _second = daemon(&host, &[]);
    server.await_renewed();
    let acquired = server.log().matches("DHCPDISCOVER").count();
    call.check(&result).ok();
    assert_eq!(
        server.log().matches("DHCPDISCOVER").count(),
        acquired,
        "the lease is still known"
    );
    call.del().ok();
    server.await_free();
    host.assert_nothing_left();
}

#[test]
fn without_the_daemon_del_releases_the_lease_itself() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &["--dhcp-range=fd00:3::10,fd00:3::99,64,2m"]);
    let first = daemon(&host, &[]);
    let pod = host.pod("a");
    let ipam = braid_tests::json!({"type": "dhcp", "ipFamilies": ["IPv4", "IPv6"]});
    let call = host.call("macvlan", &pod, macvlan()).with("ipam", ipam);
    call.add().result();
    drop(first);
    let start = Instant::now();
    call.del().ok();
    assert!(start.elapsed() < Duration::from_secs(3));
    server.await_free();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    std::fs::remove_file(SOCKET).expect("the socket of a killed daemon");
    host.assert_nothing_left();
}

#[test]
fn a_daemon_that_does_not_answer_does_not_block_del_forever() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let _server = Server::start(&far, "lan", &[SHORT]);
    let hung = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    call.add().result();
    hung.signal(Signal::SIGSTOP);
    call.del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    hung.signal(Signal::SIGCONT);
    until("the daemon drops the lease", || {
        (!Path::new("/run/cni/dhcp.leases")
            .read_dir()
            .ok()?
            .any(|entry| {
                entry.is_ok_and(|entry| {
                    entry
                        .path()
                        .extension()
                        .is_some_and(|extension| extension == "json")
                })
            }))
        .then_some(())
    });
}

#[test]
fn a_refused_lease_is_replaced_on_the_link_and_check_reports_it() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let router = "--dhcp-option=option:router,10.3.0.254";
    let server = Server::start(&far, "lan", &[SHORT, router]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, macvlan());
    let result = call.add().result();
    drop(server);
    // The next server does not know the lease, and assigns an address in another range.
    let server = Server::with_range(
        &far,
        "lan",
        "10.3.9.10,10.3.9.99,255.255.0.0,2m",
        &[SHORT, router],
    );
    let new = until("there is another address", || {
        pod.addrs("eth0")
            .into_iter()
            .find(|address| address.starts_with("10.3.9."))
    });
    assert!(server.log().contains("DHCPNAK"), "{}", server.log());
    assert_eq!(pod.addrs("eth0"), std::slice::from_ref(&new), "{}", said());
    assert!(
        pod.routes("-4")
            .iter()
            .any(|route| route["dst"] == "default" && route["gateway"] == "10.3.0.254")
    );
    assert!(pod.can_ping("10.3.0.254"));
    let new = new.split('/').next().expect("an address");
    call.check(&result)
        .refused(999, &["the lease of interface eth0 is now", new]);
    call.del().ok();
    server.await_free();
    host.assert_nothing_left();
}

#[test]
fn the_lease_of_a_vanished_container_is_dropped_at_renewal() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let _server = Server::start(&far, "lan", &[SHORT]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    host.call("macvlan", &pod, macvlan()).add().result();
    host.end(&pod);
    until("the daemon drops the lease", || {
        said()
            .contains("interface eth0 no longer exists")
            .then_some(())
    });
    assert_eq!(
        std::fs::read_dir("/run/cni/dhcp.leases")
            .expect("leases")
            .count(),
        1,
        "its lock alone"
    );
    host.call("macvlan", &pod, macvlan()).del().ok();
}
