//! Things that plans make, done and undone by the library, judged by `ip`.

use braid::apply::executor::{OnError, execute};
use braid::apply::kernel::Kernel;
use braid::apply::observe::observe;
use braid::plan::IfName;
use braid::plan::thing::{LinkRef, Route, Thing};
use braid::plan::undo::undo;
use braid::plan::{Facts, Step};
use braid::sys::netns::NetNs;
use braid_tests::{Ns, Sandbox};

/// Adds the thing in a container with `eth0` and 10.1.0.2/24, sees that it holds and that `command` shows `shown`; takes it
/// away, twice, and sees that it is gone.
#[track_caller]
fn comes_and_goes(thing: impl Into<Thing>, command: &str, shown: &str) {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add eth0 type veth peer name other");
    pod.run("ip addr add 10.1.0.2/24 dev eth0");
    pod.run("ip link set eth0 up");
    let step = Step::Add(thing.into());
    let run = |steps: &[Step]| {
        host.host().enter(|| {
            let mut kernel = Kernel::open(Some(NetNs::open(pod.path()).unwrap())).unwrap();
            let report = execute(&mut kernel, steps, &Facts::default(), OnError::Stop);
            assert!(report.errors.is_empty(), "{:?}", report.errors);
            observe(&mut kernel, &step.needs()).unwrap()
        })
    };
    let is_shown = |pod: &Ns| pod.run(command).lines().any(|line| line.trim_end() == shown);
    step.holds(&run(&[])).unwrap_err();
    step.holds(&run(std::slice::from_ref(&step))).unwrap();
    assert!(is_shown(&pod), "{}", pod.run(command));
    let inverse = undo(std::slice::from_ref(&step));
    inverse[0].holds(&run(&inverse)).unwrap();
    run(&inverse);
    assert!(!is_shown(&pod), "{}", pod.run(command));
}

fn eth0() -> LinkRef {
    LinkRef::pod(IfName::parse("eth0").unwrap())
}

#[test]
fn a_route_comes_and_goes() {
    let (dst, gw) = ("192.0.2.0/24".parse().unwrap(), "10.1.0.1".parse().ok());
    let route = Route { at: eth0(), dst, gw, src: None, table: 100, scope: 0, priority: None, mtu: None, advmss: None };
    comes_and_goes(route, "ip route show table 100", "192.0.2.0/24 via 10.1.0.1 dev eth0");
}
