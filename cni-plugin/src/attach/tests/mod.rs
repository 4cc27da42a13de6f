//! ADD and DEL on a model of a machine, with each step of each plan failing once.

mod model;

use super::add::add;
use super::chain::{BRAID, Chain};
use super::del::del;
use crate::cni::{Attachment, Command, Error, Json, NetConf, Request};
use crate::plan::IfName;
use model::Model;

const IPAM: &str = r#""ipam":{"type":"static","addresses":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"}]}"#;

/// Lists of plugins.
fn lists() -> [String; 6] {
    let behind = r#"{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,
        "egressBurst":800000},{"type":"portmap","capabilities":{"portMappings":true}},{"type":"firewall"},
        {"type":"tuning","mtu":1400,"sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}}"#;
    let bridge =
        format!(r#"{{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"macspoofchk":true,{IPAM}}}"#);
    let ptp = format!(r#"{{"type":"ptp","ipMasq":true,{IPAM}}}"#);
    let child = |kind: &str| format!(r#"{{"type":"{kind}","master":"lan",{IPAM}}}"#);
    let shaped = |kind| format!(r#"{},{{"type":"bandwidth","egressRate":8000000,"egressBurst":800000}}"#, child(kind));
    let (bridge, ptp) = (format!("{bridge},{behind}"), format!("{ptp},{behind}"));
    [bridge, ptp, child("macvlan"), child("ipvlan"), shaped("macvlan"), shaped("ipvlan")]
}

fn request(command: Command, plugins: &str) -> Request {
    let conf = format!(
        r#"{{"cniVersion":"1.1.0","name":"net","type":"braid","plugins":[{plugins}],"runtimeConfig":{{
        "portMappings":[{{"hostPort":8080,"containerPort":80,"protocol":"tcp"}}]}}}}"#
    );
    let conf = NetConf::from_json(Json::parse(conf.as_bytes(), "the configuration").expect("json")).expect("a network");
    let attachment = Attachment {
        container_id: "c1".to_owned(),
        ifname: IfName::parse("eth0").expect("a name"),
        netns: Some("/proc/self/ns/net".into()),
        args: String::new(),
    };
    Request { command, attachment: Some(attachment), path: Vec::new(), netns_override: true, conf }
}

fn attach(machine: &Model, plugins: &str) -> Result<(), Error> {
    let request = request(Command::Add, plugins);
    let chain = Chain::parse(BRAID, &request.conf, &request).expect("a chain");
    add(&request, &chain, machine, &mut |_| Ok(())).map(drop)
}

fn detach(machine: &Model, plugins: &str) -> Result<(), Error> {
    del(&request(Command::Del, plugins), BRAID, machine)
}

/// A machine with the link that a macvlan needs.
fn machine() -> Model {
    let machine = Model::new();
    machine.lan();
    machine
}

#[track_caller]
fn assert_nothing_left(machine: &Model, when: &str) {
    let state = machine.state.borrow();
    assert!(state.own.is_empty(), "{when}: {:?}", state.own);
    drop(state);
    assert_eq!(machine.records(), 0, "{when}");
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    for plugins in lists() {
        let mut failed = 0;
        loop {
            let machine = machine();
            machine.fail_at(&[failed]);
            match attach(&machine, &plugins) {
                Ok(()) => break,
                Err(err) => {
                    assert!(err.to_string().contains("EIO"), "step {failed} of {plugins}: {err}");
                    assert_nothing_left(&machine, &format!("step {failed} of {plugins}"));
                }
            }
            failed += 1;
        }
        assert!(failed > 3, "{plugins}");
    }
}

#[test]
fn a_del_that_fails_at_any_step_is_finished_by_the_next() {
    for plugins in lists() {
        let mut failed = 0;
        loop {
            let machine = machine();
            attach(&machine, &plugins).expect("attached");
            machine.fail_at(&[failed]);
            let detached = detach(&machine, &plugins);
            if machine.tried() <= failed {
                break;
            }
            detached.expect_err("a step failed");
            assert_eq!(machine.records(), 1, "step {failed} of {plugins}");
            machine.fail_at(&[]);
            detach(&machine, &plugins).expect("detached");
            assert_nothing_left(&machine, &format!("step {failed} of {plugins}"));
            failed += 1;
        }
        assert!(failed > 0, "{plugins}");
    }
}

#[test]
fn what_a_rollback_could_not_take_back_the_next_del_does() {
    for plugins in lists() {
        let machine = machine();
        attach(&machine, &plugins).expect("attached");
        let steps = machine.tried();
        for failed in 1..steps {
            let machine = self::machine();
            // The step, and the first one of the rollback.
            machine.fail_at(&[failed, failed + 1]);
            attach(&machine, &plugins).expect_err("a step failed");
            machine.fail_at(&[]);
            detach(&machine, &plugins).expect("detached");
            assert_nothing_left(&machine, &format!("step {failed} of {plugins}"));
        }
    }
}

#[test]
fn all_links_of_the_host_go_in_one_request() {
    for plugins in &lists()[..2] {
        let machine = machine();
        attach(&machine, plugins).expect("attached");
        detach(&machine, plugins).expect("detached");
        assert_eq!(machine.state.borrow().link_deletions, 1, "{plugins}");
        assert_nothing_left(&machine, plugins);
    }
}

#[test]
fn a_del_without_a_record_changes_nothing() {
    for plugins in lists() {
        let machine = machine();
        detach(&machine, &plugins).expect("detached");
        assert_nothing_left(&machine, &plugins);
    }
}
