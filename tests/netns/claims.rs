//! Resource claims of a pod, attached by `braid try`, with an interface of each type that a claim may have.

use braid_tests::{Sandbox, Value, binary, json, needs};
use std::fs;
use std::process::Command;

const FILE: &str = "/run/claims.json";
const RATE: u64 = 200_000_000;

/// Writes a pod with a claim for a share of a link, or for the whole of it. `network` is the one of its
/// parameters.
fn write(class: &str, network: &Value) {
    let parameters = json!({"apiVersion": "braid.dev/v1alpha1", "kind": "Attachment",
        "interface": "data0", "ips": ["10.3.0.2/24"], "network": network});
    let exactly = json!({"deviceClassName": class,
        "capacity": {"requests": {"bandwidth": RATE.to_string()}}});
    let devices = json!({
        "requests": [{"name": "nic", "exactly": exactly}],
        "config": [{"opaque": {"driver": "braid.dev", "parameters": parameters}}],
    });
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "nic"}, "spec": {"devices": devices}});
    let claims = json!([{"name": "nic", "resourceClaimName": "nic"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"resourceClaims": claims}});
    fs::write(FILE, format!("{claim}\n---\n{pod}\n")).unwrap();
}

/// Attaches the pod with its claim on `lan`. Returns the interface as `ip` shows it, and the id of the
/// sandbox.
#[track_caller]
fn attach(host: &Sandbox) -> (Value, String) {
    let words = ["try", "--keep", "-f", FILE, "--device", "lan"];
    let tried = Command::new(binary::braid()).args(words).output().unwrap();
    let stderr = String::from_utf8_lossy(&tried.stderr);
    assert!(tried.status.success(), "{stderr}");
    let shown = String::from_utf8(tried.stdout).unwrap();
    let id = shown.trim_end().rsplit(' ').next().unwrap().to_owned();
    let within = format!("nsenter --net=/run/netns/{id}");
    let links = host.run(&format!("{within} ip -j -d addr show dev data0"));
    let links: Value = serde_json::from_str(&links).unwrap();
    (links[0].clone(), id)
}

/// Attaches and detaches a claim. Fails unless its interface has this kind, its address and its limits.
#[track_caller]
fn assert_attached(class: &str, network: &Value, kind: &str) {
    let host = Sandbox::new();
    let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    write(class, network);
    let (link, id) = attach(&host);
    assert_eq!(link["linkinfo"]["info_kind"], kind, "{link}");
    assert_eq!(link["addr_info"][0]["local"], "10.3.0.2", "{link}");
    if kind != "vlan" {
        far.run("ping -q -c 1 -W 5 10.3.0.2");
    }
    let status = Command::new(binary::braid())
        .args(["status", "-o", "json"])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let attachments = status["attachments"].as_array().unwrap();
    let claimed = attachments
        .iter()
        .find(|one| one["ifname"] == "data0")
        .unwrap();
    let directions = claimed["bandwidth"].as_array().unwrap();
    let rates: Vec<&Value> = directions.iter().map(|one| &one["rate"]).collect();
    assert_eq!(rates, [&json!(RATE), &json!(RATE)], "{status}");
    let detached = Command::new(binary::braid())
        .args(["detach", &id])
        .output()
        .unwrap();
    assert!(detached.status.success(), "{detached:?}");
    fs::remove_file(FILE).unwrap();
    host.assert_nothing_left();
}

#[test]
fn a_claim_is_a_macvlan_unless_it_says_another_type() {
    assert_attached("braid.dev", &json!({}), "macvlan");
}

#[test]
fn a_claim_can_be_an_ipvlan() {
    needs!(Ipvlan);
    assert_attached("braid.dev", &json!({"type": "ipvlan"}), "ipvlan");
}

#[test]
fn a_claim_can_be_a_vlan() {
    needs!(Vlan);
    let network = json!({"type": "vlan", "vlanId": 100});
    assert_attached("braid.dev", &network, "vlan");
}
