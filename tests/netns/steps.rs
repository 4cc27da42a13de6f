//! Objects that the library adds and deletes for the steps of a plan, checked with `ip`.

use braid_core::name::{IfName, Mac, Ns as Place};
use braid_core::plan::thing::rule::Packets;
use braid_core::plan::thing::{Fdb, LinkRef, Neigh, Route, Rule, Thing};
use braid_core::plan::undo::undo;
use braid_core::plan::{Facts, Step};
use braid_node::apply::executor::{OnError, execute};
use braid_node::apply::observe::observe;
use braid_node::kernel::Kernel;
use braid_node::log::Log;
use braid_node::sys::netns::NetNs;
use braid_tests::{Ns, Sandbox, json};

/// Adds the thing in a container with `eth0` and 10.1.0.2/24. Asserts that its step holds and that
/// a line of the output of `command` is `shown`. Then deletes the thing twice and asserts that it
/// is gone.
#[track_caller]
fn assert_added_and_deleted(thing: impl Into<Thing>, command: &str, shown: &str) {
    assert_added_and_deleted_by(thing, |pod| {
        pod.run(command)
            .lines()
            .any(|line| line.trim_end() == shown)
    });
}

/// Like [`assert_added_and_deleted`], but `is_shown` decides if the thing exists. The container
/// also has a VXLAN `vx0`.
#[track_caller]
fn assert_added_and_deleted_by(thing: impl Into<Thing>, is_shown: impl Fn(&Ns) -> bool) {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let path = pod.path();
    pod.run("ip link add eth0 type veth peer name other");
    pod.run("ip addr add 10.1.0.2/24 dev eth0");
    pod.run("ip link set other up");
    pod.run("ip link set eth0 up");
    pod.run("ip link add vx0 type vxlan id 7 dev eth0 dstport 4789");
    let step = Step::Add(thing.into());
    let run = |steps: &[Step]| {
        host.host().enter(|| {
            let mut kernel =
                Kernel::open(Some(NetNs::open(path).unwrap()), Log::new(|_| {})).unwrap();
            let report = execute(&mut kernel, steps, &Facts::default(), OnError::Stop);
            assert!(report.errors.is_empty(), "{:?}", report.errors);
            observe(&mut kernel, &step.needs()).unwrap()
        })
    };
    step.holds(&run(&[])).unwrap_err();
    step.holds(&run(std::slice::from_ref(&step))).unwrap();
    assert!(is_shown(&pod), "{step} is not shown");
    let inverse = undo(std::slice::from_ref(&step));
    inverse[0].holds(&run(&inverse)).unwrap();
    run(&inverse);
    assert!(!is_shown(&pod), "{step} is still shown");
}

fn eth0() -> LinkRef {
    LinkRef::pod(IfName::parse("eth0").unwrap())
}

#[test]
fn a_route_is_added_and_deleted() {
    let (dst, gw) = ("192.0.2.0/24".parse().unwrap(), "10.1.0.1".parse().ok());
    let route = Route {
        at: eth0(),
        dst,
        gw,
        src: None,
        table: 100,
        scope: 0,
        priority: None,
        mtu: None,
        advmss: None,
        onlink: false,
    };
    assert_added_and_deleted(
        route,
        "ip route show table 100",
        "192.0.2.0/24 via 10.1.0.1 dev eth0",
    );
}

#[test]
fn a_rule_is_added_and_deleted() {
    let net = |text: &str| text.parse().unwrap();
    let rule = |of, priority| Rule {
        ns: Place::Pod,
        of,
        table: 100,
        iif: None,
        suppress: None,
        priority,
    };
    let shown = "1000:\tfrom all to 192.0.2.0/24 lookup 100";
    assert_added_and_deleted(
        rule(Packets::To(net("192.0.2.0/24")), Some(1000)),
        "ip rule",
        shown,
    );
    assert_added_and_deleted(
        rule(Packets::From(net("10.1.0.2/32")), None),
        "ip rule",
        "32765:\tfrom 10.1.0.2 lookup 100",
    );
    assert_added_and_deleted(
        rule(Packets::From(net("fd00::2/128")), Some(7)),
        "ip -6 rule",
        "7:\tfrom fd00::2 lookup 100",
    );
}

#[test]
fn a_neighbour_is_added_and_deleted() {
    for addr in ["169.254.1.1", "fe80::1"] {
        let neigh = Neigh {
            at: eth0(),
            addr: addr.parse().unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 7]),
        };
        assert_added_and_deleted(
            neigh,
            "ip neigh",
            &format!("{addr} dev eth0 lladdr 02:00:00:00:00:07 PERMANENT"),
        );
    }
}

#[test]
fn a_forwarding_entry_is_added_and_deleted() {
    for mac in [[2, 0, 0, 0, 0, 7], [0; 6]] {
        for (dst, port, vni, vlan) in [
            ("192.0.2.7", None, None, None),
            ("192.0.2.7", Some(8472), Some(9), None),
            // The kernel omits values that equal the link's, and a VXLAN ignores the VLAN.
            ("192.0.2.7", Some(4789), Some(7), Some(5)),
        ] {
            let entry = Fdb {
                at: LinkRef::pod(IfName::parse("vx0").unwrap()),
                mac: Mac(mac),
                dst: dst.parse().unwrap(),
                port,
                vni,
                vlan,
            };
            let mut shown = json!({"mac": entry.mac.to_string(), "dst": dst, "flags": ["self"], "state": "permanent"});
            if let (Some(8472), Some(vni)) = (port, vni) {
                shown["port"] = json!(8472);
                shown["vni"] = json!(vni);
            }
            assert_added_and_deleted_by(entry, |pod| {
                pod.list("bridge -j fdb show dev vx0").contains(&shown)
            });
        }
    }
}

#[test]
fn a_flooded_address_has_several_remote_ends() {
    let entry = |dst: &str| Fdb {
        at: LinkRef::pod(IfName::parse("vx0").unwrap()),
        mac: Mac([0; 6]),
        dst: dst.parse().unwrap(),
        port: None,
        vni: None,
        vlan: None,
    };
    let steps = ["192.0.2.7", "192.0.2.8"].map(|dst| Step::add(entry(dst)));
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add vx0 type vxlan id 7 dstport 4789");
    let path = pod.path();
    let run = |steps: &[Step]| {
        host.host().enter(|| {
            let mut kernel =
                Kernel::open(Some(NetNs::open(path).unwrap()), Log::new(|_| {})).unwrap();
            let report = execute(&mut kernel, steps, &Facts::default(), OnError::Stop);
            assert!(report.errors.is_empty(), "{:?}", report.errors);
        });
        pod.list("bridge -j fdb show dev vx0").len()
    };
    assert_eq!(run(&steps), 2);
    assert_eq!(run(&undo(&steps[..1])), 1, "the other one stays");
    assert_eq!(run(&undo(&steps)), 0);
}
