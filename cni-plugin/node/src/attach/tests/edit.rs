//! Tests of edits: networks of a running container.

use super::model::Model;
use super::{
    NETNS, assert_nothing_left, attach, attachment, containers, detach, ipam, machine, netconf,
};
use crate::apply::host::{Host, Machine};
use crate::attach::chain::{BRAID, Chain};
use crate::attach::edit::{Edit, edit, recover};
use crate::attach::invocation::Wanted;
use crate::store::record::Record;
use crate::sys::netns::NetNs;
use braid_core::cni::Error;
use std::path::Path;

/// A network with this number for names.
pub(super) fn wanted(at: usize, plugins: &str) -> Wanted {
    let chain = Chain::parse(BRAID, netconf(at, plugins, ""), "", &[]).expect("a chain");
    Wanted::new(attachment(at), chain)
}

pub(super) fn record(machine: &Model) -> Record {
    let mut records = machine.records().expect("records");
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0)
}

/// Edits the container as the agent does: first detaches what an earlier edit has left.
fn change(machine: &Model, detach: &[usize], attach: Vec<Wanted>) -> Result<(), Error> {
    let edited = Edit {
        detach: detach.to_vec(),
        attach,
        adjust: Vec::new(),
    };
    change_with(machine, edited)
}

pub(super) fn change_with(machine: &Model, edited: Edit) -> Result<(), Error> {
    let netns = NetNs::open(Path::new(NETNS)).expect("a namespace");
    let mut host = machine.open(Some(netns)).expect("a machine");
    let folder = machine.folder("c1").expect("a folder");
    let record = recover(record(machine), &folder, &mut *host)?;
    let mut complete = |_: &[Wanted], _: &[_], _: &mut (dyn Host + 'static)| Ok(());
    edit(record, edited, (&folder, &mut *host), &mut complete).map(drop)
}

/// State of the container: the kernel's objects in alphabetical order, and the record. Nobody publishes
/// the edits here.
pub(super) fn seen(machine: &Model) -> (Vec<String>, Record) {
    let own = &machine.state.borrow().own;
    let mut things: Vec<String> = own.iter().map(|thing| format!("{thing:?}")).collect();
    things.sort();
    let mut record = record(machine);
    record.is_unpublished = false;
    (things, record)
}

/// Returns the plugins of containers with several networks.
fn several() -> impl Iterator<Item = Vec<String>> {
    let all = containers().into_iter();
    all.filter(|networks| networks.len() > 1)
}

/// The networks after the first one.
fn others(networks: &[String]) -> Vec<Wanted> {
    let all = networks.iter().enumerate().skip(1);
    all.map(|(at, plugins)| wanted(at, plugins)).collect()
}

#[test]
fn networks_attached_later_are_as_those_of_one_add() {
    for networks in several() {
        let (whole, machine) = (machine(), machine());
        attach(&whole, &networks).expect("attached");
        attach(&machine, &networks[..1]).expect("attached");
        let first = seen(&machine);
        change(&machine, &[], others(&networks)).expect("edited");
        assert_eq!(seen(&machine).0, seen(&whole).0, "{networks:?}");
        let results = |record: Record| {
            let all = record.attachments.into_iter();
            all.map(|attached| attached.result).collect::<Vec<_>>()
        };
        let both = [&machine, &whole].map(|machine| results(record(machine)));
        assert_eq!(both[0], both[1], "{networks:?}");
        let all: Vec<usize> = (1..networks.len()).collect();
        change(&machine, &all, Vec::new()).expect("edited");
        assert_eq!(seen(&machine), first, "{networks:?}");
        change(&machine, &[], others(&networks)).expect("edited");
        detach(&machine, &networks[..1]).expect("detached");
        assert_nothing_left(&machine, &format!("{networks:?}"));
    }
}

/// Lets each step of an edit fail, and then also all later ones, as after a kill. After the failure
/// of a single step that attaches, the container is as before.
fn fail_each_step(
    networks: &[String],
    prepared: &[String],
    mut work: impl FnMut(&Model) -> Result<(), Error>,
) {
    for is_kill in [false, true] {
        let (mut failed, mut unchanged) = (0, 0);
        loop {
            let (machine, when) = (
                machine(),
                format!("step {failed} of {networks:?}: {is_kill}"),
            );
            attach(&machine, prepared).expect("attached");
            let before = seen(&machine);
            let last = if is_kill { 1000 } else { failed };
            machine.fail_at(&(failed..=last).collect::<Vec<_>>());
            let worked = work(&machine);
            let is_past = machine.tried() <= failed;
            machine.fail_at(&[]);
            if is_past {
                worked.expect("nothing failed");
                break;
            }
            worked.expect_err("a step failed");
            let is_unsettled = record(&machine)
                .attachments
                .iter()
                .any(|one| one.is_unsettled);
            if !is_unsettled && !is_kill {
                assert_eq!(seen(&machine), before, "{when}");
                unchanged += 1;
            }
            change(&machine, &[], Vec::new()).expect("recovered");
            detach(&machine, &networks[..1]).expect("detached");
            assert_nothing_left(&machine, &when);
            failed += 1;
        }
        assert!(failed > 1 && (is_kill || unchanged > 1), "{networks:?}");
    }
}

#[test]
fn an_edit_that_fails_at_any_step_changes_nothing() {
    for networks in several() {
        fail_each_step(&networks, &networks[..1], |machine| {
            change(machine, &[], others(&networks))
        });
    }
}

#[test]
fn a_replacement_that_fails_at_any_step_restores_the_network_before() {
    for networks in several() {
        let all: Vec<usize> = (1..networks.len()).collect();
        let vlan = format!(r#"{{"type":"vlan","master":"lan","vlanId":9,{}}}"#, ipam(9));
        fail_each_step(&networks, &networks, |machine| {
            change(machine, &all, vec![wanted(1, &vlan)])
        });
    }
}

#[test]
fn a_network_without_a_rival_is_attached_before_another_is_detached() {
    let machine = machine();
    let networks = &containers()[6];
    attach(&machine, networks).expect("attached");
    let before = seen(&machine);
    machine.fail_at(&[0]);
    let vlan = format!(r#"{{"type":"vlan","master":"lan","vlanId":9,{}}}"#, ipam(9));
    change(&machine, &[1], vec![wanted(3, &vlan)]).expect_err("a step failed");
    assert_eq!(seen(&machine), before);
    machine.fail_at(&[]);
    change(&machine, &[1], vec![wanted(3, &vlan)]).expect("edited");
    let names = record(&machine).attachments;
    let names: Vec<&str> = names.iter().map(|one| one.ifname.as_str()).collect();
    assert_eq!(names, ["eth0", "net2", "net3"]);
}

#[test]
fn the_first_network_of_a_container_stays() {
    let machine = machine();
    attach(&machine, &containers()[0]).expect("attached");
    let err = change(&machine, &[0], Vec::new()).expect_err("refused");
    assert!(err.msg.contains("first network"), "{err}");
}

#[test]
fn a_failed_replacement_reserves_the_address_of_before_again() {
    let leases = tempfile::tempdir().expect("a folder");
    let data_dir = leases.path().display();
    let of_range = |id: u8| {
        format!(
            r#"{{"type":"vlan","master":"lan","vlanId":{id},"ipam":{{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"{data_dir}"}}}}"#
        )
    };
    let networks = [containers()[0][0].clone(), of_range(8)];
    let held = || {
        let files = std::fs::read_dir(leases.path().join("net1")).expect("a folder");
        let mut names: Vec<_> = files
            .map(|file| file.expect("a file").file_name())
            .collect();
        names.retain(|name| name.to_string_lossy().starts_with("10."));
        names
    };
    let mut failed = 0;
    loop {
        let machine = machine();
        attach(&machine, &networks).expect("attached");
        let before = (seen(&machine), held());
        machine.fail_at(&[failed]);
        let replaced = change(&machine, &[1], vec![wanted(1, &of_range(9))]);
        let is_past = machine.tried() <= failed;
        machine.fail_at(&[]);
        if replaced.is_err()
            && !record(&machine)
                .attachments
                .iter()
                .any(|one| one.is_unsettled)
        {
            assert_eq!((seen(&machine), held()), before, "step {failed}");
        }
        detach(&machine, &networks[..1]).expect("detached");
        assert_nothing_left(&machine, &format!("step {failed}"));
        assert!(held().is_empty(), "step {failed}");
        if is_past {
            break;
        }
        failed += 1;
    }
    assert!(failed > 2);
    let machine = machine();
    attach(&machine, &networks).expect("attached");
    std::fs::remove_dir_all(leases.path()).expect("removed");
    let err = change(&machine, &[1], Vec::new()).expect_err("no leases");
    assert!(err.to_string().contains("no leases in"), "{err}");
    assert_eq!(record(&machine).attachments.len(), 2);
}
