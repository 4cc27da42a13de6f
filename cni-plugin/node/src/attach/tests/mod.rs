//! Tests of the CNI verbs on a model of a machine. Each step of each plan fails once.

mod adjust;
mod damaged;
mod dhcp;
mod edit;
mod foreign;
mod model;
mod pods;

use super::add::{Added, add};
use super::chain::{BRAID, Chain};
use super::invocation::{Invocation, Wanted};
use super::preview::{Line, preview};
use super::receiver::DeliverBy;
use super::{del, gc, status};
use crate::apply::host::Machine;
use crate::sys::netns::NetNs;
use braid_core::cni::{Attachment, Command, Error, Json, Kind, NetConf, Request};
use braid_core::name::{IfName, Ns};
use braid_core::plan::order::ordered;
use braid_core::plan::step::render;
use braid_core::plan::thing::Thing;
use braid_core::plan::undo::undo;
use braid_core::plan::{Feature, Step};
use model::Model;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const NETNS: &str = "/proc/self/ns/net";

fn ipam(subnet: u8) -> String {
    format!(
        r#""ipam":{{"type":"static","addresses":[{{"address":"10.{subnet}.0.2/24","gateway":"10.{subnet}.0.1"}}]}}"#
    )
}

/// Returns the plugins of the networks of several containers.
fn containers() -> Vec<Vec<String>> {
    let behind = r#"{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,
        "egressBurst":800000},{"type":"portmap","capabilities":{"portMappings":true}},{"type":"firewall"},
        {"type":"tuning","mtu":1400,"sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}}"#;
    let masquerading = |kind: &str, more: &str, subnet| {
        format!(
            r#"{{"type":"{kind}","ipMasq":true,{more}{}}},{behind}"#,
            ipam(subnet)
        )
    };
    let bridge = || {
        masquerading(
            "bridge",
            r#""bridge":"cni0","isGateway":true,"macspoofchk":true,"#,
            1,
        )
    };
    let ptp = |subnet| masquerading("ptp", "", subnet);
    let child =
        |kind: &str, subnet| format!(r#"{{"type":"{kind}","master":"lan",{}}}"#, ipam(subnet));
    let shaped = |kind, subnet| {
        child(kind, subnet) + r#",{"type":"bandwidth","egressRate":8000000,"egressBurst":800000}"#
    };
    let single = [
        bridge(),
        ptp(1),
        child("macvlan", 1),
        child("ipvlan", 1),
        shaped("macvlan", 1),
        shaped("ipvlan", 1),
    ];
    let mut all: Vec<Vec<String>> = single.map(|plugins| vec![plugins]).into();
    let second = format!(r#"{{"type":"bridge","bridge":"cni0",{}}}"#, ipam(2));
    all.push(vec![bridge(), second, shaped("macvlan", 3)]);
    all.push(vec![
        ptp(1),
        masquerading("bridge", r#""bridge":"cni1","#, 2),
        masquerading("ptp", "", 3),
    ]);
    let netkit = |kind, more: &str, subnet| {
        masquerading(kind, &format!(r#""device":"netkit",{more}"#), subnet)
    };
    all.push(vec![
        masquerading("netkit", r#""mode":"l2","#, 1),
        r#"{"type":"netkit"}"#.to_owned(),
    ]);
    all.push(vec![
        netkit("ptp", "", 1),
        netkit("bridge", r#""bridge":"cni1","macspoofchk":true,"#, 2),
    ]);
    for behind in [
        r#"{"type":"sbr"}"#,
        r#"{"type":"sbr","addSourceHints":true}"#,
        r#"{"type":"vrf","vrfname":"blue"}"#,
    ] {
        all.push(vec![format!("{},{behind}", child("macvlan", 1))]);
    }
    all.push(vec![masquerading(
        "ptp",
        r#""routed":true,"table":100,"#,
        1,
    )]);
    let device = format!(r#"{{"type":"host-device","device":"lan",{}}}"#, ipam(1));
    let changed = format!(
        r#"{device},{{"type":"tuning","mtu":1400}},{{"type":"bandwidth","egressRate":8000000,"egressBurst":800000}}"#
    );
    let more = [
        child("vlan", 1),
        format!(r#"{{"type":"vxlan","id":5,"dev":"lan",{}}}"#, ipam(1)),
        child("dummy", 1),
        child("tap", 1),
        device,
        changed,
    ];
    all.extend(more.map(|plugins| vec![plugins]));
    let children = || [child("macvlan", 2), child("vlan", 3)];
    let plain = format!(r#"{{"type":"bridge","bridge":"cni0",{}}}"#, ipam(1));
    all.push([vec![plain], children().into()].concat());
    all.push(
        [
            vec![format!(r#"{{"type":"netkit","mode":"l2",{}}}"#, ipam(1))],
            children().into(),
        ]
        .concat(),
    );
    all
}

fn netconf(at: usize, plugins: &str, more: &str) -> NetConf {
    let conf = format!(
        r#"{{"cniVersion":"1.1.0","name":"net{at}","type":"braid","plugins":[{plugins}],"runtimeConfig":{{
        "portMappings":[{{"hostPort":808{at},"containerPort":80,"protocol":"tcp"}}]}}{more}}}"#
    );
    NetConf::from_json(Json::parse(conf.as_bytes(), "the configuration").expect("json"))
        .expect("a network")
}

fn attachment(at: usize) -> Attachment {
    let ifname = if at == 0 {
        "eth0".to_owned()
    } else {
        format!("net{at}")
    };
    let ifname = IfName::parse(&ifname).expect("a name");
    Attachment {
        container_id: "c1".to_owned(),
        ifname,
        netns: Some(NETNS.into()),
        args: String::new(),
    }
}

fn request(command: Command, conf: NetConf) -> Request {
    let attachment = (!matches!(command, Command::Gc | Command::Status)).then(|| attachment(0));
    Request {
        command,
        attachment,
        path: Vec::new(),
        netns_override: true,
        conf,
    }
}

/// Returns a call for all networks of a container.
fn call(networks: &[String]) -> Invocation {
    let mut confs = networks
        .iter()
        .enumerate()
        .map(|(at, plugins)| (at, netconf(at, plugins, "")));
    let (_, first) = confs.next().expect("a network");
    let mut call = Invocation::of(request(Command::Add, first), BRAID).expect("a chain");
    for (at, conf) in confs {
        let chain = Chain::parse(BRAID, conf, "", &[]).expect("a chain");
        call.push(Wanted::new(attachment(at), chain))
            .expect("another interface");
    }
    call
}

fn attach(machine: &Model, networks: &[String]) -> Result<Added, Error> {
    add(
        &call(networks),
        machine,
        &mut DeliverBy(&mut |_, _| Ok(None)),
    )
}

/// Runs DEL as a runtime does: with the first network only.
fn detach(machine: &Model, networks: &[String]) -> Result<(), Error> {
    del::del(
        request(Command::Del, netconf(0, &networks[0], "")),
        BRAID,
        machine,
    )
}

/// Runs GC of the first network with a list of valid attachments.
fn collect(machine: &Model, networks: &[String], valid: &str) -> Result<(), Error> {
    let request = request(
        Command::Gc,
        netconf(
            0,
            &networks[0],
            &format!(r#","cni.dev/valid-attachments":[{valid}]"#),
        ),
    );
    let chain = Chain::parse(BRAID, request.conf.clone(), "", &[]).expect("a chain");
    gc::gc(&request, &chain, machine)
}

/// Creates a machine with the parent link of a macvlan.
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
    assert_eq!(machine.folders(), 0, "{when}");
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    for networks in containers() {
        let mut failed = 0;
        loop {
            let machine = machine();
            machine.fail_at(&[failed]);
            match attach(&machine, &networks) {
                Ok(_) => break,
                Err(err) => {
                    assert!(
                        err.to_string().contains("EIO"),
                        "step {failed} of {networks:?}: {err}"
                    );
                    assert_nothing_left(&machine, &format!("step {failed} of {networks:?}"));
                }
            }
            failed += 1;
        }
        assert!(failed > 3, "{networks:?}");
    }
}

#[test]
fn an_add_that_cannot_deliver_its_result_leaves_nothing() {
    for networks in containers() {
        let machine = machine();
        let mut deliver = DeliverBy(&mut |_, _| Err(Error::io("closed")));
        add(&call(&networks), &machine, &mut deliver).expect_err("not delivered");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}

/// Lets each step of `work` on an attached container fail once, and then repeats the work.
fn fail_each_step(work: impl FnMut(&Model, &[String]) -> Result<(), Error>) {
    fail_each_step_of(&containers(), work, |_| {});
}

/// [`fail_each_step`] for these containers. Calls `look` each time that nothing of a container is
/// left.
fn fail_each_step_of(
    containers: &[Vec<String>],
    mut work: impl FnMut(&Model, &[String]) -> Result<(), Error>,
    look: impl Fn(&str),
) {
    for networks in containers {
        let mut failed = 0;
        loop {
            let (machine, when) = (machine(), format!("step {failed} of {networks:?}"));
            attach(&machine, networks).expect("attached");
            machine.fail_at(&[failed]);
            let worked = work(&machine, networks);
            let is_past = machine.tried() <= failed;
            machine.fail_at(&[]);
            if is_past {
                worked.expect("nothing failed");
            } else {
                worked.expect_err("a step failed");
                assert_eq!(machine.folders(), 1, "{when}");
                work(&machine, networks).expect("done");
            }
            assert_nothing_left(&machine, &when);
            look(&when);
            if is_past {
                break;
            }
            failed += 1;
        }
        assert!(failed > 0, "{networks:?}");
    }
}

#[test]
fn a_del_that_fails_at_any_step_is_completed_by_the_next() {
    fail_each_step(detach);
}

#[test]
fn a_gc_that_fails_at_any_step_is_completed_by_the_next() {
    fail_each_step(|machine, networks| collect(machine, networks, ""));
}

#[test]
fn a_failed_rollback_is_completed_by_the_next_del() {
    for networks in containers() {
        let machine = machine();
        attach(&machine, &networks).expect("attached");
        let steps = machine.tried();
        for failed in 1..steps {
            let machine = self::machine();
            // The step, and the first one of the rollback.
            machine.fail_at(&[failed, failed + 1]);
            attach(&machine, &networks).expect_err("a step failed");
            machine.fail_at(&[]);
            detach(&machine, &networks).expect("detached");
            assert_nothing_left(&machine, &format!("step {failed} of {networks:?}"));
        }
    }
}

#[test]
fn an_add_rolls_back_an_earlier_interrupted_add() {
    for networks in containers() {
        let machine = machine();
        attach(&machine, &networks).expect("attached");
        machine.fail_at(&[0]);
        detach(&machine, &networks).expect_err("a step failed");
        machine
            .state
            .borrow_mut()
            .own
            .retain(|thing| thing.state().owner().is_some());
        machine.fail_at(&[]);
        attach(&machine, &networks).expect("attached again");
        detach(&machine, &networks).expect("detached");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}

#[test]
fn all_networks_of_a_container_are_one_plan_one_record_and_one_deletion() {
    for networks in containers()
        .into_iter()
        .filter(|networks| networks[0].contains("bandwidth"))
    {
        let machine = machine();
        let added = attach(&machine, &networks).expect("attached");
        assert_eq!(added.results.len(), networks.len());
        assert_eq!(machine.state.borrow().plans, 1, "{networks:?}");
        let records = machine.records().expect("records");
        let [record] = &records[..] else {
            panic!("one record: {records:?}")
        };
        let recorded: Vec<&str> = record
            .attachments
            .iter()
            .map(|attached| attached.network.as_str())
            .collect();
        assert_eq!(recorded, ["net0", "net1", "net2"][..networks.len()]);
        for (attached, result) in record.attachments.iter().zip(&added.results) {
            assert_eq!(attached.result().expect("recorded").as_ref(), Ok(result));
        }
        detach(&machine, &networks).expect("detached");
        let link_ns = |step: &Step| {
            if let Step::Add(Thing::Link(link)) = step {
                Some(link.at.ns)
            } else {
                None
            }
        };
        let namespaces: BTreeSet<Ns> = record.steps().filter_map(link_ns).collect();
        assert_eq!(
            machine.state.borrow().link_deletions,
            namespaces.len(),
            "{networks:?}"
        );
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}

#[test]
fn a_container_with_three_networks_has_the_golden_plan() {
    let networks = &containers()[6];
    let netns = NetNs::open(Path::new(NETNS)).expect("a namespace");
    let mut host = machine().open(Some(netns)).expect("a machine");
    let mut text = String::new();
    for line in preview(&call(networks), &mut *host).expect("a plan") {
        match line {
            Line::Step(step) => writeln!(text, "{step}").expect("memory"),
            Line::Held(step) => writeln!(text, "# {step} (exists already)").expect("memory"),
            Line::Note(note) => writeln!(text, "# {note}").expect("memory"),
        }
    }
    assert_golden("three_networks.txt", &text);
}

#[track_caller]
fn assert_golden(file: &str, text: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/attach/tests")
        .join(file);
    if std::env::var_os("BRAID_BLESS").is_some() {
        std::fs::write(&golden, text).expect("written");
    }
    assert_eq!(text, std::fs::read_to_string(&golden).unwrap_or_default());
}

#[test]
fn a_pair_and_other_links_of_the_container_are_deleted_in_one_request() {
    let containers = containers();
    let with_vlan = containers
        .iter()
        .filter(|networks| networks.len() == 3 && networks[2].contains(r#""type":"vlan""#));
    let mut goes = Vec::new();
    for networks in with_vlan {
        let machine = machine();
        attach(&machine, networks).expect("attached");
        let [record] = &machine.records().expect("records")[..] else {
            panic!("one record")
        };
        let steps = undo(&ordered(record.steps().cloned().collect()));
        goes.push(render(&steps));
        detach(&machine, networks).expect("detached");
        assert_eq!(machine.state.borrow().link_deletions, 1, "{networks:?}");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
    assert_golden("a_pair_and_others_go.txt", &goes.concat());
}

#[test]
fn a_gc_deletes_an_unlisted_container_and_keeps_a_listed_one() {
    for networks in containers() {
        let machine = machine();
        attach(&machine, &networks).expect("attached");
        let own = machine.state.borrow().own.clone();
        collect(
            &machine,
            &networks,
            r#"{"containerID":"c1","ifname":"eth0"}"#,
        )
        .expect("collected");
        assert_eq!(machine.state.borrow().own, own, "{networks:?}");
        collect(
            &machine,
            &networks,
            r#"{"containerID":"other","ifname":"eth0"}"#,
        )
        .expect("collected");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}

#[test]
fn a_gc_keeps_attachments_of_other_calls_to_its_network() {
    let networks = &containers()[7];
    let machine = machine();
    attach(&machine, networks).expect("attached");
    let own = machine.state.borrow().own.clone();
    let conf = netconf(1, &networks[1], r#","cni.dev/valid-attachments":[]"#);
    let chain = Chain::parse(BRAID, conf.clone(), "", &[]).expect("a chain");
    gc::gc(&request(Command::Gc, conf), &chain, &machine).expect("collected");
    assert_eq!(machine.state.borrow().own, own);
}

#[test]
fn a_gc_deletes_kernel_objects_without_a_record() {
    let networks = &containers()[0];
    let machine = machine();
    attach(&machine, networks).expect("attached");
    machine.lose_records();
    collect(&machine, networks, "").expect("collected");
    let left = machine
        .state
        .borrow()
        .own
        .iter()
        .filter(|thing| thing.state().owner().is_some())
        .count();
    assert_eq!(left, 0);
}

#[test]
fn status_names_the_feature_that_the_kernel_lacks() {
    let machine = machine();
    let chain = Chain::parse(BRAID, netconf(0, &containers()[0][0], ""), "", &[]).expect("a chain");
    status::status(&chain, &machine).expect("available");
    machine.state.borrow_mut().lacks = Some(Feature::Bridge);
    let err = status::status(&chain, &machine).expect_err("lacks one");
    assert_eq!(err.kind, Kind::NotAvailable);
    assert!(
        err.msg.contains("bridge") && err.msg.contains("EOPNOTSUPP"),
        "{err}"
    );
}

#[test]
fn two_networks_with_one_interface_are_refused() {
    let mut call = call(&containers()[0]);
    let chain = Chain::parse(BRAID, netconf(1, &containers()[1][0], ""), "", &[]).expect("a chain");
    let err = call
        .push(Wanted::new(attachment(0), chain))
        .expect_err("eth0 twice");
    assert!(err.msg.contains("eth0"), "{err}");
}

#[test]
fn a_del_without_a_record_changes_nothing() {
    for networks in containers() {
        let machine = machine();
        detach(&machine, &networks).expect("detached");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}
