//! `flannel`: it generates the configuration of another plugin from flanneld's file.

use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::fs;
use std::path::Path;

const ENV: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
const DATA_FILE: &str = "/var/lib/cni/flannel/a";

/// Writes flanneld's file with the content `text`.
pub(crate) fn flanneld(text: &str) {
    fs::create_dir_all("/run/flannel").unwrap();
    fs::write(SUBNET_FILE, text).unwrap();
}

fn conf() -> Value {
    json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "flannel", "delegate": {"isDefaultGateway": true}})
}

fn attach(host: &Sandbox, pod: &Ns) -> Call {
    host.call("flannel", pod, conf())
}

fn made() -> Value {
    json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "bridge", "isDefaultGateway": true, "isGateway": true,
        "ipMasq": false, "mtu": 1472,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.17.0/24"}]], "routes": [{"dst": "10.1.0.0/16"}]}})
}

/// Returns the configuration in the state file that the reference `flannel` plugin reads; `None` if
/// the file does not exist.
fn noted() -> Option<Value> {
    Some(serde_json::from_slice(&fs::read(DATA_FILE).ok()?).unwrap())
}

fn mode(path: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_container_gets_the_nodes_subnet_and_a_flannel_state_file() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    flanneld(ENV);
    let call = attach(&host, &pod);
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.1.17.2/24"]);
    assert_eq!(pod.the_link("eth0")["mtu"], 1472);
    assert!(pod.can_ping("10.1.17.1"));
    let routes: Vec<(Value, Value)> = pod
        .routes("-4")
        .iter()
        .map(|r| (r["dst"].clone(), r["gateway"].clone()))
        .collect();
    assert!(
        routes.contains(&(json!("10.1.0.0/16"), json!("10.1.17.1"))),
        "{routes:?}"
    );
    assert_eq!(
        (noted(), mode(DATA_FILE), mode("/var/lib/cni/flannel")),
        (Some(made()), 0o600, 0o700)
    );
    call.check(&result).ok();
    call.status().ok();
    call.clone().prev(&result).del().ok();
    assert_eq!(noted(), None);
    call.del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn plugins_after_flannel_run_in_the_same_call() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    flanneld(&ENV.replace("=true", "=false"));
    let tuning = json!({"type": "tuning", "mtu": 1400});
    let mut flannel = conf();
    flannel["delegate"] = json!({"hairpinMode": true});
    flannel["capabilities"] = json!({"mac": true});
    let list = json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "braid", "plugins": [flannel, tuning],
        "runtimeConfig": {"mac": "c2:11:22:33:44:55"}});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    assert_eq!(pod.the_link("eth0")["address"], "c2:11:22:33:44:55");
    // flanneld does not masquerade here, so the bridge must.
    assert!(
        host.run("nft list map inet braid masquerade4")
            .contains("10.1.17.2")
    );
    assert_eq!(noted().unwrap()["ipMasq"], true);
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn del_and_check_ignore_a_missing_or_changed_flanneld_file() {
    for later in [None, Some(ENV.replace("10.1.17", "10.1.99"))] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        flanneld(ENV);
        let call = attach(&host, &pod);
        let result = call.add().result();
        match &later {
            Some(text) => flanneld(text),
            None => fs::remove_file(SUBNET_FILE).unwrap(),
        }
        call.check(&result).ok();
        call.gc(&[("a", "eth0")]).ok();
        assert_eq!(pod.addrs("eth0"), ["10.1.17.2/24"]);
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn del_without_a_record_uses_the_state_file_or_else_names() {
    for has_file in [true, false] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        flanneld(ENV);
        let call = attach(&host, &pod).with("delegate", json!({"type": "ptp", "ipMasq": true}));
        let result = call.add().result();
        host.run("rm -r /run/braid/attachments/a");
        fs::remove_file(SUBNET_FILE).unwrap();
        if !has_file {
            fs::remove_file(DATA_FILE).unwrap();
        }
        // The second call has only the network's name in common with the first.
        let call = if has_file {
            call.with("delegate", json!({}))
        } else {
            call
        };
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
        assert_eq!(
            (pod.link_names(), noted()),
            (Vec::<String>::new(), None),
            "file: {has_file}"
        );
    }
}

#[test]
fn add_and_status_fail_before_flanneld_has_written_its_file() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    let call = attach(&host, &pod);
    call.add().refused(11, &[SUBNET_FILE]);
    call.status().refused(50, &[SUBNET_FILE]);
    call.gc(&[]).ok();
    call.del().ok();
    flanneld("FLANNEL_NETWORK=10.1.0.0/16\n");
    call.add().refused(
        999,
        &[
            SUBNET_FILE,
            "is missing FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ",
        ],
    );
    call.status().refused(50, &["is missing FLANNEL_SUBNET"]);
    call.clone()
        .with("delegate", json!({"ipam": {}}))
        .add()
        .refused(7, &["must not have 'ipam' field"]);
    call.with("delegate", json!({"type": 7})).del().ok();
    before
        .without_marks()
        .assert_same(&host.state().without_marks());
}

#[test]
fn a_failed_add_leaves_no_file() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    flanneld(ENV);
    let call = attach(&host, &pod).with("cniVersion", "0.4.0");
    let chained = json!({"type": "vrf", "vrfname": "eth0"});
    let list = json!({"cniVersion": "1.1.0", "name": "cbr0", "type": "braid", "plugins": [conf(), chained]});
    host.call("braid", &pod, list)
        .add()
        .refused(7, &["vrfname"]);
    assert_eq!(noted(), None);
    host.assert_nothing_left();
    // A folder below a file cannot be created either.
    call.with("dataDir", format!("{SUBNET_FILE}/x"))
        .add()
        .refused(999, &["create folder"]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn a_foreign_delegate_gets_only_the_generated_configuration() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    flanneld(ENV);
    host.script(
        "other",
        "#!/bin/sh\ncat >/run/other.$CNI_COMMAND\n[ $CNI_COMMAND = ADD ] && echo '{\"cniVersion\": \"1.1.0\", \"ips\": \
         [{\"address\": \"10.1.17.9/24\"}]}'\nexit 0\n",
    );
    let call = attach(&host, &pod).with("delegate", json!({"type": "other", "key": [1]}));
    let told = |verb: &str| -> Value {
        serde_json::from_slice(&fs::read(format!("/run/other.{verb}")).unwrap()).unwrap()
    };
    let result = call.add().result();
    assert_eq!(result["ips"][0]["address"], "10.1.17.9/24");
    let mut expected = made();
    let own = [("type", json!("other")), ("key", json!([1]))];
    for (key, value) in own {
        expected[key] = value;
    }
    let expected = expected.as_object().unwrap().clone();
    let expected: Value = expected
        .into_iter()
        .filter(|(key, _)| !["isGateway", "isDefaultGateway"].contains(&key.as_str()))
        .collect();
    assert_eq!(
        (told("ADD"), noted().unwrap()),
        (expected.clone(), expected.clone())
    );
    fs::remove_file(SUBNET_FILE).unwrap();
    call.clone().prev(&result).del().ok();
    let mut at_del = told("DEL");
    at_del.as_object_mut().unwrap().remove("prevResult");
    assert_eq!((at_del, noted()), (expected, None));
    host.assert_nothing_left();
}

#[test]
fn gc_deletes_unlisted_flannel_attachments() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    flanneld(ENV);
    let call = attach(&host, &pod);
    call.add().result();
    fs::remove_file(SUBNET_FILE).unwrap();
    call.gc(&[]).ok();
    assert_eq!((pod.link_names(), noted()), (Vec::<String>::new(), None));
    host.assert_nothing_left();
}

#[test]
fn the_reference_flannel_and_braid_detach_each_others_attachments() {
    needs!(ReferenceFlannel);
    for is_ours_first in [true, false] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        flanneld(ENV);
        let ours = attach(&host, &pod).with("cniVersion", "0.4.0");
        let theirs = ours.clone().reference();
        let (first, second) = if is_ours_first {
            (&ours, &theirs)
        } else {
            (&theirs, &ours)
        };
        let result = first.add().result();
        assert_eq!(pod.addrs("eth0"), ["10.1.17.2/24"]);
        fs::remove_file(SUBNET_FILE).unwrap();
        if !is_ours_first {
            second.check(&result).ok();
        }
        second.clone().prev(&result).del().ok();
        assert_eq!(
            (pod.link_names(), noted()),
            (Vec::<String>::new(), None),
            "ours first: {is_ours_first}"
        );
        assert!(!Path::new("/var/lib/cni/networks/cbr0/10.1.17.2").exists());
        if is_ours_first {
            host.end(&pod);
            ours.with("cniVersion", "1.1.0").gc(&[]).ok();
        }
        host.assert_nothing_left();
    }
}
