//! Tests of containers with a foreign IPAM on the model. The record is written before the IPAM is
//! started, and deleted after everything is released.

use super::model::Model;
use super::{assert_nothing_left, attachment, machine};
use crate::apply::host::Machine;
use crate::attach::add::add;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::del::detach;
use crate::attach::gc;
use crate::attach::invocation::{Invocation, Wanted};
use crate::attach::receiver::DeliverBy;
use crate::store::record::foreign::{self, ROOT};
use crate::store::record::{Key, Record};
use braid_core::cni::{Command, Error, Json, NetConf, Request};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

/// An IPAM that writes a file for each interface next to itself.
const THEIRS: &str = r#"#!/bin/sh
cat >/dev/null
printf '%s says\nmore' $CNI_COMMAND >&2
held=$(dirname "$0")/held
case $CNI_COMMAND in
ADD) touch "$held/$CNI_IFNAME"; echo '{"cniVersion":"1.1.0","ips":[{"address":"10.8.0.2/24"}]}' ;;
DEL) rm -f "$held/$CNI_IFNAME" ;;
esac
"#;

/// A model of a machine, with the foreign IPAM in a folder.
struct Bed {
    machine: Model,
    folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let script = folder.path().join("theirs");
        fs::write(&script, THEIRS).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
        fs::create_dir(folder.path().join("held")).expect("a folder");
        Self {
            machine: machine(),
            folder,
        }
    }

    /// Returns a call for a native network and one with the foreign IPAM.
    fn call(&self) -> Invocation {
        let mut wanted = Vec::new();
        for (at, plugin) in [
            r#""type":"bridge","bridge":"cni0""#,
            r#""type":"bridge","bridge":"br8","ipam":{"type":"theirs"}"#,
        ]
        .iter()
        .enumerate()
        {
            let text = format!(
                r#"{{"cniVersion":"1.1.0","name":"net{at}","type":"braid","plugins":[{{{plugin}}}]}}"#
            );
            let conf = NetConf::from_json(Json::parse(text.as_bytes(), "test").expect("json"))
                .expect("a network");
            let chain = Chain::parse(BRAID, conf, "", &self.path()).expect("a chain");
            wanted.push(Wanted::new(attachment(at), chain));
        }
        let key = Key {
            owner: wanted[0].lease_owner(),
            plugin: BRAID.to_owned(),
        };
        Invocation {
            key,
            netns_override: true,
            path: self.path(),
            wanted,
        }
    }

    fn path(&self) -> Vec<PathBuf> {
        vec![self.folder.path().to_owned()]
    }

    fn attach(&self) -> Result<(), Error> {
        let mut deliver = DeliverBy(&mut |_, _| Ok(None));
        add(&self.call(), &self.machine, &mut deliver).map(drop)
    }

    fn detach(&self) -> Result<(), Error> {
        detach(&self.call().leaving(), &self.machine)
    }

    /// Runs GC of the first network with an empty list.
    fn collect(&self) -> Result<(), Error> {
        let mut conf = self.call().wanted.swap_remove(0).chain.conf;
        conf.valid_attachments = Some(Vec::new());
        let chain = Chain::parse(BRAID, conf.clone(), "", &self.path()).expect("a chain");
        let request = Request {
            command: Command::Gc,
            attachment: None,
            path: self.path(),
            netns_override: true,
            conf,
        };
        gc::gc(&request, &chain, &self.machine)
    }

    fn records(&self) -> Vec<Record> {
        foreign::all(self.machine.root()).expect("records")
    }

    fn held(&self) -> usize {
        fs::read_dir(self.folder.path().join("held"))
            .expect("a folder")
            .count()
    }

    #[track_caller]
    fn assert_nothing_left(&self, when: &str) {
        assert_nothing_left(&self.machine, when);
        assert_eq!((self.records(), self.held()), (Vec::new(), 0), "{when}");
    }
}

#[test]
fn an_add_that_fails_at_any_step_leaves_no_foreign_record() {
    let mut failed = 0;
    loop {
        let bed = Bed::new();
        bed.machine.fail_at(&[failed]);
        if bed.attach().is_ok() {
            let [record] = &bed.records()[..] else {
                panic!("one record")
            };
            assert!(record.is_second() && record.steps().next().is_none());
            assert_eq!(bed.held(), 1);
            break;
        }
        bed.assert_nothing_left(&format!("step {failed}"));
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn standard_error_of_a_foreign_program_goes_to_the_callers_log() {
    let bed = Bed::new();
    bed.attach().expect("attached");
    bed.detach().expect("detached");
    assert_eq!(
        bed.machine.state.borrow().warnings,
        ["ADD says", "more", "DEL says", "more"]
    );
}

#[test]
fn an_add_that_cannot_write_its_foreign_record_starts_no_foreign_program() {
    let bed = Bed::new();
    let folder = bed.machine.root().at(ROOT);
    fs::create_dir_all(folder.parent().expect("a folder above")).expect("a folder");
    fs::write(&folder, "in the way").expect("a file");
    let err = bed.attach().expect_err("not written");
    assert!(
        err.msg.contains("write") && err.msg.contains("/var/lib/braid/foreign/c1/"),
        "{err}"
    );
    fs::remove_file(folder).expect("removed");
    bed.assert_nothing_left("");
}

/// Lets each step of `work` on an attached container fail once, deletes the main record if
/// `is_lost`, and repeats the work.
fn fail_each_step(is_lost: bool, work: fn(&Bed) -> Result<(), Error>) {
    let mut failed = 0;
    loop {
        let bed = Bed::new();
        bed.attach().expect("attached");
        bed.machine.fail_at(&[failed]);
        let worked = work(&bed);
        let is_past = bed.machine.tried() <= failed;
        bed.machine.fail_at(&[]);
        let when = format!("step {failed}, lost: {is_lost}");
        assert_eq!(worked.is_ok(), is_past, "{when}");
        assert_eq!(bed.records().len(), usize::from(!is_past), "{when}");
        if is_lost && !is_past {
            bed.machine.lose_records();
        }
        work(&bed).expect("done");
        bed.assert_nothing_left(&when);
        if is_past {
            break;
        }
        failed += 1;
    }
    assert!(failed > 0);
}

#[test]
fn a_del_that_fails_at_any_step_is_completed_by_the_next_from_either_record() {
    fail_each_step(false, Bed::detach);
    fail_each_step(true, Bed::detach);
}

#[test]
fn a_gc_that_fails_at_any_step_is_completed_by_the_next_from_either_record() {
    fail_each_step(false, Bed::collect);
    fail_each_step(true, Bed::collect);
}

#[test]
fn a_del_that_cannot_delete_its_foreign_record_is_completed_by_the_next() {
    let bed = Bed::new();
    bed.attach().expect("attached");
    let folder = bed.machine.root().at(ROOT).join("c1");
    let record = fs::read_dir(&folder)
        .expect("records")
        .next()
        .expect("a record")
        .expect("its entry")
        .path();
    fs::remove_file(&record).expect("removed");
    fs::create_dir(&record).expect("a folder in its place");
    let err = bed.detach().expect_err("not removed");
    assert!(
        err.msg.contains("remove") && err.msg.contains("/var/lib/braid/foreign/c1/"),
        "{err}"
    );
    assert_eq!(
        bed.machine.records().expect("records").len(),
        1,
        "the record proper goes last"
    );
    fs::remove_dir(&record).expect("removed");
    bed.detach().expect("detached");
    bed.assert_nothing_left("");
}

#[test]
fn either_record_alone_suffices_for_a_complete_teardown() {
    for is_gc in [false, true] {
        for (run, var) in [(true, false), (false, true)] {
            let bed = Bed::new();
            bed.attach().expect("attached");
            if run {
                bed.machine.lose_records();
            }
            if var {
                fs::remove_dir_all(bed.machine.root().at(ROOT)).expect("removed");
            }
            if is_gc { bed.collect() } else { bed.detach() }.expect("taken back");
            bed.assert_nothing_left(&format!("GC: {is_gc}, lost: {run} {var}"));
        }
    }
}
