//! Tests of changed requests to a running container's networks.

use super::edit::{change_with, record, seen};
use super::model::Model;
use super::{assert_nothing_left, attachment, containers, detach, ipam, machine};
use crate::attach::add;
use crate::attach::adjust::{Adjust, is_possible};
use crate::attach::chain::{BRAID, Chain};
use crate::attach::edit::Edit;
use crate::attach::invocation::{Invocation, Wanted};
use crate::attach::receiver::DeliverBy;
use braid_core::cni::{Error, Json, NetConf};
use braid_core::plan::thing::shaping::{Rate, Shaper};
use braid_core::plan::thing::{HostPorts, Shaping, Thing};

/// Requests of a pod: limits in bits per second, to and from the container, and host ports.
#[derive(Debug, Clone, Copy)]
struct Requests(u64, u64, &'static [u16]);

const ALL: [Requests; 5] = [
    Requests(0, 0, &[]),
    Requests(8_000_000, 0, &[8080]),
    Requests(0, 8_000_000, &[8082, 8080]),
    Requests(8_000_000, 9_000_000, &[8080, 8081]),
    Requests(1_000_000_000, 2_000_000_000, &[8081, 8082]),
];

/// A second network of a kind, with these requests.
fn wanted(kind: &str, Requests(to, from, ports): Requests) -> Wanted {
    let mut limits = Vec::new();
    for (key, rate) in [("ingress", to), ("egress", from)] {
        if rate > 0 {
            limits.push(format!(r#""{key}Rate":{rate},"{key}Burst":800000"#));
        }
    }
    let port = |port: &u16| format!(r#"{{"hostPort":{port},"containerPort":80,"protocol":"tcp"}}"#);
    let ports: Vec<String> = ports.iter().map(port).collect();
    let text = format!(
        r#"{{"cniVersion":"1.1.0","name":"net1","type":"braid","plugins":[{kind},
        {{"type":"bandwidth","capabilities":{{"bandwidth":true}}}},
        {{"type":"portmap","capabilities":{{"portMappings":true}}}}],
        "runtimeConfig":{{"bandwidth":{{{}}},"portMappings":[{}]}}}}"#,
        limits.join(","),
        ports.join(",")
    );
    let json = Json::parse(text.as_bytes(), "the configuration").expect("json");
    let conf = NetConf::from_json(json).expect("a network");
    let chain = Chain::parse(BRAID, conf, "", &[]).expect("a chain");
    Wanted::new(attachment(1), chain)
}

fn kinds() -> [String; 2] {
    [
        format!(r#"{{"type":"bridge","bridge":"cni1",{}}}"#, ipam(2)),
        format!(r#"{{"type":"macvlan","master":"lan",{}}}"#, ipam(3)),
    ]
}

/// Attaches a container whose second network is of a kind, with these requests.
fn attach(machine: &Model, kind: &str, requests: Requests) {
    let first = &containers()[0][0];
    let first = super::edit::wanted(0, first);
    let mut call = Invocation {
        key: first.chain.key(&first.attachment),
        netns_override: false,
        path: Vec::new(),
        wanted: vec![first],
    };
    call.push(wanted(kind, requests))
        .expect("another interface");
    let mut nobody = |_: &[_], _: Option<&mut _>| Ok(None);
    add::add(&call, machine, &mut DeliverBy(&mut nobody)).expect("attached");
}

fn adjust(machine: &Model, kind: &str, requests: Requests) -> Result<(), Error> {
    let adjust = Adjust {
        at: 1,
        wanted: wanted(kind, requests),
    };
    assert!(is_possible(&record(machine), &adjust), "{requests:?}");
    let edit = Edit {
        adjust: vec![adjust],
        ..Edit::default()
    };
    change_with(machine, edit)
}

/// Returns what the kernel has, in one order, without directions that are no longer limited.
fn effects(machine: &Model) -> Vec<String> {
    let mut things = Vec::new();
    for thing in &machine.state.borrow().own {
        if let Thing::HostPorts(HostPorts { ports, targets, .. }) = thing {
            things.extend(ports.iter().map(|port| format!("{port:?}")));
            things.extend(targets.iter().map(|target| format!("{target:?}")));
        } else if let Thing::Shaping(Shaping { shapers, .. }) = thing {
            // A token bucket that changes gets a larger burst.
            let limits = shapers.iter().filter(|one| one.rate != Rate::UNREACHED);
            let plain = |one: &Shaper| (one.at.clone(), one.queue, one.rate.bps);
            things.extend(limits.map(|shaper| format!("{:?}", plain(shaper))));
        } else if !matches!(
            thing,
            Thing::Link(_) | Thing::Redirect(_) | Thing::XskGuard(_)
        ) {
            things.push(format!("{thing:?}"));
        }
    }
    things.sort();
    things
}

#[test]
fn changed_requests_have_the_effect_that_add_would_have() {
    for kind in kinds() {
        for before in ALL {
            for after in ALL {
                let when = format!("{before:?} to {after:?} with {kind}");
                let (machine, fresh) = (machine(), machine());
                attach(&machine, &kind, before);
                attach(&fresh, &kind, after);
                adjust(&machine, &kind, after).expect("adjusted");
                assert_eq!(effects(&machine), effects(&fresh), "{when}");
                adjust(&machine, &kind, before).expect("adjusted");
                adjust(&machine, &kind, after).expect("adjusted");
                assert_eq!(effects(&machine), effects(&fresh), "again: {when}");
                detach(&machine, &containers()[0]).expect("detached");
                assert_nothing_left(&machine, &when);
            }
        }
    }
}

#[test]
fn a_network_that_another_program_has_changed_is_attached_again() {
    for kind in kinds() {
        let [machine, fresh] = [machine(), machine()];
        attach(&machine, &kind, ALL[1]);
        attach(&fresh, &kind, ALL[4]);
        machine.state.borrow_mut().is_broken = true;
        let deleted = machine.state.borrow().link_deletions;
        adjust(&machine, &kind, ALL[4]).expect("attached again");
        assert!(machine.state.borrow().link_deletions > deleted);
        assert_eq!(effects(&machine), effects(&fresh));
    }
}

#[test]
fn a_change_that_fails_at_any_step_is_rolled_back() {
    for kind in kinds() {
        for (before, after) in [(1, 4), (3, 0), (0, 3), (3, 2)] {
            let (before, after) = (ALL[before], ALL[after]);
            for is_kill in [false, true] {
                let mut failed = 0;
                loop {
                    let when = format!("step {failed} of {before:?} to {after:?}: {is_kill}");
                    let machine = machine();
                    attach(&machine, &kind, before);
                    let was = (effects(&machine), seen(&machine).1);
                    let last = if is_kill { 1000 } else { failed };
                    machine.fail_at(&(failed..=last).collect::<Vec<_>>());
                    let adjusted = adjust(&machine, &kind, after);
                    let is_past = machine.tried() <= failed;
                    machine.fail_at(&[]);
                    if is_past {
                        adjusted.expect("nothing failed");
                        break;
                    }
                    adjusted.expect_err("a step failed");
                    if !is_kill {
                        assert_eq!((effects(&machine), seen(&machine).1), was, "{when}");
                    }
                    detach(&machine, &containers()[0]).expect("detached");
                    assert_nothing_left(&machine, &when);
                    failed += 1;
                }
                assert!(failed > 0);
            }
        }
    }
}

#[test]
fn a_change_of_anything_else_needs_a_new_interface() {
    let [bridge, macvlan] = kinds();
    let machine = machine();
    attach(&machine, &bridge, ALL[1]);
    let other = Adjust {
        at: 1,
        wanted: wanted(&macvlan, ALL[1]),
    };
    assert!(!is_possible(&record(&machine), &other));
}
