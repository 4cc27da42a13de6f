//! Plugins that start braid again: links to braid, copies of braid, and foreign plugins that call
//! braid for the same attachment.

use crate::conf;
use braid_tests::{Answer, Call, Ns, Sandbox, Value, binary, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Script of a foreign plugin that logs each call and then starts braid with the same
/// configuration.
const BACK: &str = "#!/bin/sh\necho $CNI_COMMAND >>/run/order\nexec /run/cni-bin/braid\n";
/// Script of a foreign plugin that does nothing and prints no result, so `prevResult` stays as it
/// is.
const GOOD: &str = "#!/bin/sh\ncat >/dev/null\n";

/// Returns a list of a bridge and the plugin `other`, which braid does not implement.
fn list() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::bridge(), {"type": "other"}]})
}

/// Returns the configuration of the plugin `other`, which braid does not implement.
fn single() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "other"})
}

/// Returns a call that is killed after a minute, in case braid starts itself endlessly.
fn call(host: &Sandbox, plugin: &str, pod: &Ns, conf: Value) -> Call {
    host.call("braid", pod, conf.clone())
        .run("VERSION")
        .result();
    host.call(plugin, pod, conf).under("timeout 60")
}

/// Runs ADD, CHECK, STATUS and GC, and returns the answers. DEL is left out, because it succeeds
/// for an attachment that was never created.
fn refusals(call: &Call) -> Vec<Answer> {
    vec![
        call.add(),
        call.check(&json!({"cniVersion": "1.1.0"})),
        call.status(),
        call.gc(&[]),
    ]
}

#[test]
fn every_verb_refuses_a_type_that_is_braid_itself_and_names_its_file() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    for (plugin, conf) in [("other", single()), ("braid", single()), ("braid", list())] {
        let call = call(&host, plugin, &pod, conf);
        let _ = symlink("braid", "/run/cni-bin/other");
        for answer in refusals(&call) {
            answer.refused(999, &["\"other\"", "/run/cni-bin/other", "braid itself"]);
        }
        call.del().ok();
    }
    call(&host, "other", &pod, single())
        .run("VERSION")
        .refused(999, &["\"other\"", "braid itself"]);
    before.assert_same(&host.state());
}

#[test]
fn a_copy_of_braid_is_recognized_and_not_started() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, "braid", &pod, list());
    // The copy is not executable, so an attempt to start it would fail with EACCES.
    fs::write("/run/cni-bin/other", fs::read(binary::braid()).unwrap()).unwrap();
    for answer in refusals(&call) {
        answer.refused(999, &["\"other\"", "/run/cni-bin/other", "braid itself"]);
    }
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_script_that_starts_braid_is_recognized_and_not_started() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, "braid", &pod, list());
    for program in [
        binary::braid().display().to_string(),
        "/run/cni-bin/braid".to_owned(),
    ] {
        host.script("other", &format!("#!{program}\n"));
        for answer in refusals(&call) {
            answer.refused(999, &["\"other\"", "/run/cni-bin/other", "braid itself"]);
        }
    }
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn an_ipam_that_is_braid_itself_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, "bridge", &pod, conf::bridge()).with("ipam", json!({"type": "other"}));
    symlink("braid", "/run/cni-bin/other").unwrap();
    call.add().refused(999, &["\"other\"", "braid itself"]);
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_cycle_through_a_foreign_plugin_ends_at_the_second_call_of_braid() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.script("other", BACK);
    for conf in [single(), list()] {
        let call = call(&host, "braid", &pod, conf);
        for answer in refusals(&call) {
            answer.refused(999, &["\"other\"", "/run/cni-bin/other", "again"]);
        }
        call.del().ok();
        host.assert_nothing_left();
        let order = fs::read_to_string("/run/order").unwrap();
        let verbs: Vec<&str> = order.lines().collect();
        assert_eq!(
            verbs,
            ["ADD", "DEL", "CHECK", "STATUS", "GC", "DEL"],
            "each is called once"
        );
        fs::remove_file("/run/order").unwrap();
    }
}

#[test]
fn an_attachment_is_kept_when_its_plugins_name_becomes_a_link_to_braid() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, "braid", &pod, list());
    host.script("other", GOOD);
    call.add().result();
    fs::remove_file("/run/cni-bin/other").unwrap();
    symlink("braid", "/run/cni-bin/other").unwrap();
    call.del().refused(999, &["\"other\"", "braid itself"]);
    fs::remove_file("/run/cni-bin/other").unwrap();
    host.script("other", GOOD);
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn plan_and_try_refuse_a_type_that_is_braid_itself_as_add_does() {
    let host = Sandbox::new();
    let before = host.state();
    symlink(binary::braid(), "/run/cni-bin/other").unwrap();
    fs::write("/run/conf", list().to_string()).unwrap();
    for verb in ["plan", "try"] {
        let mut command = Command::new("timeout");
        command
            .args(["60", binary::braid().to_str().unwrap(), verb, "/run/conf"])
            .env("CNI_PATH", "/run/cni-bin");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_told = said.contains("type \"other\": /run/cni-bin/other is braid itself");
        assert!(output.status.code() == Some(1) && is_told, "{verb}: {said}");
    }
    before.assert_same(&host.state());
}
