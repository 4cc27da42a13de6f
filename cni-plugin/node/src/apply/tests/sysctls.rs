//! Sysctls: missing, refused and optional ones.

use super::*;
use crate::sys::netlink::fake::send;
use crate::sys::sysctl::fake;
use braid_core::name::Ns;
use braid_core::plan::thing::Sysctl;
use nix::errno::Errno;
use std::fs;
use tempfile::TempDir;

const ENOENT: &str = "ENOENT (kernel: \"No such file or directory\")";
const REFUSED: &str = "EISDIR (kernel: \"Is a directory\")";

fn sysctl(key: &str, optional: bool) -> Step {
    Step::add(Sysctl {
        ns: Ns::Host,
        key: format!("net/{key}"),
        value: "1".to_owned(),
        optional,
    })
}

/// Creates a folder with the sysctls `net/on` and `net/off`. `net/refused` is a folder, so it
/// cannot be written.
fn sysctls() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("net/refused")).expect("a folder");
    for (key, value) in [("on", "1\n"), ("off", "0\n")] {
        fs::write(folder.path().join("net").join(key), value).expect("a file");
    }
    folder
}

/// Applies steps to the sysctls of a folder, without a send.
fn write(folder: &TempDir, sandbox: &mut Sandbox, steps: &[Step]) -> Report {
    fake::in_folder(folder.path(), || sandbox.run(steps, OnError::Stop))
}

#[test]
fn a_sysctl_is_written() {
    let folder = sysctls();
    let report = write(
        &folder,
        &mut Sandbox::new(Vec::new()),
        &[sysctl("off", false)],
    );
    assert_outcome(&report, &[0], &[]);
    let value = fs::read_to_string(folder.path().join("net/off")).expect("a file");
    assert_eq!(value.trim(), "1");
}

#[test]
fn an_optional_sysctl_that_is_missing_is_neither_applied_nor_an_error() {
    let mut sandbox = Sandbox::new(Vec::new());
    let report = write(&sysctls(), &mut sandbox, &[sysctl("missing", true)]);
    assert_outcome(&report, &[], &[]);
    assert!(sandbox.log.borrow().is_empty());
}

#[test]
fn an_optional_sysctl_that_is_refused_is_only_logged() {
    let mut sandbox = Sandbox::new(Vec::new());
    let report = write(&sysctls(), &mut sandbox, &[sysctl("refused", true)]);
    assert_outcome(&report, &[], &[]);
    let line = "host sysctl -w net/refused=1: Is a directory (os error 21)";
    assert_eq!(*sandbox.log.borrow(), [line]);
}

#[test]
fn a_required_sysctl_that_is_missing_or_refused_is_an_error() {
    for (key, cause) in [("missing", ENOENT), ("refused", REFUSED)] {
        let mut sandbox = Sandbox::new(Vec::new());
        let report = write(&sysctls(), &mut sandbox, &[sysctl(key, false)]);
        assert_outcome(&report, &[], &[(0, cause)]);
        assert!(sandbox.log.borrow().is_empty());
    }
}

#[test]
fn neighbouring_sysctls_are_one_visit_and_each_has_its_own_outcome() {
    let steps = [
        sysctl("off", false),
        sysctl("missing", true),
        sysctl("refused", false),
        sysctl("on", false),
    ];
    let mut sandbox = Sandbox::new(Vec::new());
    sandbox.kernel.time();
    let report = write(&sysctls(), &mut sandbox, &steps);
    assert_outcome(&report, &[0, 3], &[(2, REFUSED)]);
    let visits: Vec<(usize, usize)> = report.timings.iter().map(|t| (t.first, t.count)).collect();
    assert_eq!(visits, [(0, 4)]);
}

#[test]
fn the_queue_is_sent_before_a_sysctl_is_written() {
    let steps = [
        Step::add(addr(lan(), "10.1.0.2/24")),
        sysctl("off", false),
        Step::add(addr(lan(), "10.1.0.3/24")),
    ];
    let mut sandbox = Sandbox::new(vec![
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]),
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.3/24"]),
    ]);
    let report = write(&sysctls(), &mut sandbox, &steps);
    assert_outcome(&report, &[0, 1, 2], &[]);
}

#[test]
fn no_sysctl_is_written_after_a_failed_send() {
    let folder = sysctls();
    let steps = [Step::add(addr(lan(), "10.1.0.2/24")), sysctl("off", false)];
    let expected =
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EPERM);
    let report = write(&folder, &mut Sandbox::new(vec![expected]), &steps);
    assert_outcome(&report, &[], &[(0, EPERM)]);
    let value = fs::read_to_string(folder.path().join("net/off")).expect("a file");
    assert_eq!(value, "0\n");
}
