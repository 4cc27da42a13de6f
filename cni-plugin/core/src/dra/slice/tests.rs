//! Tests of slices and their changes.

use super::*;
use crate::dra::nic::{Device, Nic, offers};
use crate::dra::settings::Settings;
use crate::name::{IfName, Mac};
use crate::plan::facts::LinkFact;

fn nic(name: &str) -> Nic {
    let fact = LinkFact::planned("", Some(Mac([2, 0, 0, 0, 0, 1])), 1500, true);
    Nic {
        name: IfName::parse(name).expect("a name"),
        fact,
        device: Some(Device::of(
            "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0",
            "1\n",
            "",
        )),
        speed_mbit: Some(10_000),
        is_uplink: false,
    }
}

fn nics(count: usize) -> Vec<Nic> {
    (0..count)
        .map(|number| nic(&format!("eth{number:03}")))
        .collect()
}

fn owner(uid: &str) -> Owner {
    Owner {
        name: "n1".to_owned(),
        uid: uid.to_owned(),
    }
}

fn of(nics: &[Nic]) -> Vec<Value> {
    let (offers, _) = offers(nics, &Settings::default());
    contents("n1", &offers)
}

/// An API server: carries out changes.
fn apply(present: &mut Vec<Slice>, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Create(object) => {
                let mut object = object.clone();
                let prefix = object["metadata"]["generateName"].as_str();
                let name = format!("{}x", prefix.expect("a prefix"));
                object["metadata"]["name"] = name.into();
                present.extend(Slice::of(&object));
            }
            Change::Update(name, object) => {
                let slice = present.iter_mut().find(|slice| slice.name == *name);
                *slice.expect("a slice") = Slice::of(object).expect("a slice");
            }
            Change::Delete(name) => present.retain(|slice| slice.name != *name),
        }
    }
}

/// Gives the pool these contents.
fn settle(present: &mut Vec<Slice>, contents: &[Value]) {
    let changes = changes(present, contents, &owner("u1"));
    apply(present, &changes);
}

fn generations(present: &[Slice]) -> Vec<u64> {
    present.iter().map(Slice::generation).collect()
}

#[test]
fn a_link_is_a_share_and_a_whole_with_one_counter() {
    let link = nic("eth1");
    let [counters, devices] = &of(std::slice::from_ref(&link))[..] else {
        panic!("two slices");
    };
    let pool = json!({"name": "n1"});
    assert_eq!(
        *counters,
        json!({
            "driver": "braid.dev",
            "nodeName": "n1",
            "pool": pool,
            "sharedCounters": [{"name": "eth1", "counters": {"use": {"value": "1"}}}],
        })
    );
    let attributes = json!({
        "ifName": {"string": "eth1"},
        "mac": {"string": "02:00:00:00:00:01"},
        "mtu": {"int": 1500},
        "speed": {"int": 10_000},
        "state": {"string": "up"},
        "type": {"string": "physical"},
        "virtual": {"bool": false},
        "numaNode": {"int": 1},
        "resource.kubernetes.io/pciBusID": {"string": "0000:03:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    });
    let counters = json!([{"counterSet": "eth1", "counters": {"use": {"value": "1"}}}]);
    let policy = json!({"default": "100M", "validRange": {"min": "1M", "max": "10G"}});
    assert_eq!(
        devices["devices"],
        json!([
            {
                "name": "eth1",
                "allowMultipleAllocations": true,
                "attributes": attributes,
                "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}},
                "consumesCounters": counters,
            },
            {
                "name": "eth1-whole",
                "attributes": attributes,
                "capacity": {"bandwidth": {"value": "10G"}},
                "consumesCounters": counters,
            },
        ])
    );
}

#[test]
fn attributes_of_the_place_come_from_recorded_paths() {
    for (path, numa, physfn, expected) in [
        (
            "/sys/devices/pci0000:80/0000:80:02.0/0000:81:02.1",
            "0\n",
            "../0000:81:00.0",
            json!([0, "0000:81:02.1", "pci0000:80"]),
        ),
        (
            "/sys/devices/pci0000:00/0000:00:03.0/virtio0",
            "-1\n",
            "",
            json!([null, "0000:00:03.0", "pci0000:00"]),
        ),
        (
            "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0",
            "",
            "",
            json!([null, null, null]),
        ),
    ] {
        let mut link = nic("eth1");
        link.device = Some(Device::of(path, numa, physfn));
        let settings: Settings =
            serde_json::from_str(r#"{"include": ["eth1"]}"#).expect("settings");
        let nics = [link];
        let (offers, _) = offers(&nics, &settings);
        let attributes = &contents("n1", &offers)[1]["devices"][0]["attributes"];
        let place = json!([
            attributes["numaNode"]["int"],
            attributes["resource.kubernetes.io/pciBusID"]["string"],
            attributes["resource.kubernetes.io/pcieRoot"]["string"],
        ]);
        assert_eq!(place, expected, "{path}");
        assert_eq!(attributes["virtual"]["bool"], false, "{path}");
    }
}

#[test]
fn a_link_without_a_carrier_has_a_taint_and_an_uplink_is_not_offered_as_a_whole() {
    let mut link = nic("eth1");
    link.fact.carrier = false;
    link.is_uplink = true;
    link.device = None;
    let settings: Settings =
        serde_json::from_str(r#"{"include": ["*"], "reserve": "9950M"}"#).expect("settings");
    let nics = [link];
    let (offers, _) = offers(&nics, &settings);
    let contents = contents("n1", &offers);
    let [content] = &contents[..] else {
        panic!("one slice");
    };
    let devices = content["devices"].as_array().expect("devices");
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    let taint = json!([{"key": "braid.dev/link-down", "effect": "NoSchedule"}]);
    assert_eq!(device["taints"], taint);
    assert_eq!(device["attributes"]["state"]["string"], "down");
    assert_eq!(device["attributes"]["virtual"]["bool"], true);
    assert_eq!(device["consumesCounters"], Value::Null);
    let policy = &device["capacity"]["bandwidth"]["requestPolicy"];
    assert_eq!(policy["default"], "50M", "no more than there is");
}

#[test]
fn slices_keep_the_limits_of_the_api() {
    assert_eq!(of(&[]), [content("n1")]);
    let nics = nics(70);
    let contents = of(&nics);
    let lengths: Vec<(usize, usize)> = contents
        .iter()
        .map(|content| {
            let length = |key: &str| content[key].as_array().map_or(0, Vec::len);
            (length("sharedCounters"), length("devices"))
        })
        .collect();
    let mut expected = vec![(8, 0); 8];
    expected.extend([(6, 0), (0, 64), (0, 64), (0, 12)]);
    assert_eq!(lengths, expected);
}

#[test]
fn slices_that_are_right_do_not_change() {
    let mut present = Vec::new();
    let nics = nics(3);
    let first = changes(&present, &of(&nics), &owner("u1"));
    apply(&mut present, &first);
    assert_eq!(generations(&present), [1, 1]);
    assert_eq!(present[1].spec["pool"]["resourceSliceCount"], 2);
    assert!(present[1].name.starts_with("00001-braid.dev-n1-"));
    assert_eq!(changes(&present, &of(&nics), &owner("u1")), []);
    assert_eq!(present[1].speed_mbit("eth001-whole"), Some(10_000));
    assert_eq!(removal(&present).len(), 2);
}

#[test]
fn one_slice_changes_in_place_and_several_get_a_new_generation() {
    let mut present = Vec::new();
    let mut links = nics(2);
    settle(&mut present, &of(&links));
    links[0].fact.mtu = 9000;
    let in_place = changes(&present, &of(&links), &owner("u1"));
    assert!(matches!(&in_place[..], [Change::Update(name, _)] if *name == present[1].name));
    apply(&mut present, &in_place);
    assert_eq!(generations(&present), [1, 1]);
    // Counters and devices.
    links.pop();
    let both = changes(&present, &of(&links), &owner("u1"));
    assert_eq!(both.len(), 2);
    apply(&mut present, &both);
    assert_eq!(generations(&present), [2, 2]);
    // Another number of slices.
    let more = nics(40);
    settle(&mut present, &of(&more));
    assert_eq!(generations(&present), [3; 7]);
    assert_eq!(changes(&present, &of(&more), &owner("u1")), []);
    settle(&mut present, &of(&[]));
    assert_eq!(generations(&present), [4]);
    assert_eq!(present[0].spec["pool"]["resourceSliceCount"], 1);
}

#[test]
fn a_lost_slice_is_created_again_with_the_generation_of_the_others() {
    let mut present = Vec::new();
    let links = nics(1);
    settle(&mut present, &of(&links));
    let whole = present.clone();
    present.pop();
    let again = changes(&present, &of(&links), &owner("u1"));
    assert!(matches!(&again[..], [Change::Create(_)]));
    apply(&mut present, &again);
    assert_eq!(present, whole);
}

#[test]
fn a_node_that_is_registered_again_becomes_the_owner() {
    let mut present = Vec::new();
    let links = nics(1);
    settle(&mut present, &of(&links));
    let moved = changes(&present, &of(&links), &owner("u2"));
    assert_eq!(moved.len(), 2);
    apply(&mut present, &moved);
    assert_eq!(generations(&present), [1, 1]);
    assert_eq!(present[0].owners[0]["uid"], "u2");
    assert_eq!(changes(&present, &of(&links), &owner("u2")), []);
}

#[test]
fn times_of_taints_are_the_api_servers() {
    let mut links = nics(2);
    links[0].fact.carrier = false;
    let mut present = Vec::new();
    settle(&mut present, &of(&links));
    let time = "2026-11-30T12:00:00Z";
    present[1].spec["devices"][0]["taints"][0]["timeAdded"] = time.into();
    assert_eq!(changes(&present, &of(&links), &owner("u1")), []);
    links[1].fact.carrier = false;
    settle(&mut present, &of(&links));
    let taint = |device: usize| present[1].spec["devices"][device]["taints"][0].clone();
    assert_eq!(taint(0)["timeAdded"], time);
    assert_eq!(taint(2)["timeAdded"], Value::Null);
    links[0].fact.carrier = true;
    settle(&mut present, &of(&links));
    assert_eq!(present[1].spec["devices"][0]["taints"], Value::Null);
}

#[test]
fn fields_that_the_api_server_leaves_out_are_noticed() {
    let creation = changes(&[], &of(&nics(1)), &owner("u1")).pop();
    let creation = creation.expect("a slice");
    let Change::Create(mut stored) = creation.clone() else {
        panic!("a creation");
    };
    assert!(!is_cut(&creation, &stored));
    stored["spec"]["devices"][0]["allowMultipleAllocations"] = Value::Null;
    assert!(is_cut(&creation, &stored));
    assert!(!is_cut(&Change::Delete("a".to_owned()), &Value::Null));
}
