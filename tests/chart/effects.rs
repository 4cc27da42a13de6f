//! Effect of each value on the rendered objects.

use crate::table::{ALL_DRA, DRA, FLANNEL, IPAM, LEFT_OUT, NODE, ROWS};
use crate::{committed, lacks_helm, name, rendered};
use braid_testbed::chart::{self, CHART};
use braid_tests::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Key of a `ConfigMap` with YAML.
const YAML: &str = "config.yaml";
/// Place of the agent's pods, and the short form in the table.
const POD: (&str, &str) = ("DaemonSet/braid .spec.template.spec", "pod");

/// Fields of all objects with their values, by place.
type Fields = BTreeMap<String, String>;

/// Adds the fields below `value`. An element of a list has its name in the place, or its number if
/// it has none, or another one has the same.
fn add(fields: &mut Fields, place: &str, value: &Value) {
    match value {
        Value::Object(keys) if !keys.is_empty() => {
            for (key, value) in keys {
                if key == YAML {
                    let text = value.as_str().expect("a text");
                    let parsed = chart::objects(text).expect("YAML");
                    add(fields, &format!("{place}.{key}"), &parsed[0]);
                } else {
                    add(fields, &format!("{place}.{key}"), value);
                }
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            let names: Vec<_> = elements.iter().map(|it| it["name"].as_str()).collect();
            for (number, element) in elements.iter().enumerate() {
                let is_unique =
                    |name: &&str| names.iter().filter(|other| **other == Some(*name)).count() == 1;
                let name = names[number].filter(is_unique);
                let name = name.map_or_else(|| number.to_string(), str::to_owned);
                add(fields, &format!("{place}[{name}]"), element);
            }
        }
        leaf => {
            let place = place.replace(POD.0, POD.1).replace(" .", " ");
            fields.insert(place, leaf.to_string());
        }
    }
}

fn fields(objects: &[Value]) -> Fields {
    let mut fields = Fields::new();
    for object in objects {
        add(&mut fields, &format!("{} ", name(object)), object);
    }
    fields
}

/// Returns a line for each field that differs: `+` with the new value, or `-` if it is gone.
fn changes(before: &Fields, after: &Fields) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (place, value) in after {
        if before.get(place) != Some(value) {
            lines.insert(format!("+ {place}: {value}"));
        }
    }
    for place in before.keys().filter(|place| !after.contains_key(*place)) {
        lines.insert(format!("- {place}"));
    }
    lines
}

#[test]
fn each_value_changes_its_fields_and_no_others() {
    if lacks_helm("effects") {
        return;
    }
    let before = fields(&rendered(&[]));
    for row in ROWS {
        let values: Vec<&str> = row.values.split(' ').collect();
        let changed = changes(&before, &fields(&rendered(&values)));
        let expected: BTreeSet<String> = row.effect.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(changed, expected, "{}", row.values);
    }
}

#[test]
fn values_that_leave_out_objects_leave_out_all_of_their_kinds() {
    if lacks_helm("left-out") {
        return;
    }
    let all: BTreeSet<String> = rendered(&[]).iter().map(name).collect();
    for (value, kinds) in LEFT_OUT {
        let kept: BTreeSet<String> = rendered(&[value]).iter().map(name).collect();
        let has_kind = |name: &String| kinds.iter().any(|kind| name.starts_with(kind));
        let expected = all.iter().filter(|name| !has_kind(name)).cloned();
        assert_eq!(kept, expected.collect(), "{value}");
    }
}

#[test]
fn values_that_add_objects_add_all_of_them_and_change_their_fields_alone() {
    if lacks_helm("added") {
        return;
    }
    let before = fields(&rendered(&[]));
    for addition in [FLANNEL, IPAM, NODE, DRA, ALL_DRA] {
        let is_added = |object: &Value| addition.objects.contains(&&*name(object));
        let values: Vec<&str> = addition.value.split(' ').collect();
        let (added, others): (Vec<_>, Vec<_>) = rendered(&values).into_iter().partition(is_added);
        assert_eq!(added.len(), addition.objects.len(), "{}", addition.value);
        let changed = changes(&before, &fields(&others));
        assert!(changed.iter().eq(addition.effect), "{changed:?}");
        let manifests = [
            (FLANNEL, "deploy/flannel.yaml"),
            (IPAM, "deploy/ipam.yaml"),
            (DRA, "deploy/dra.yaml"),
        ];
        for (of, path) in manifests {
            if addition.value == of.value {
                assert_eq!(added, committed(path));
            }
        }
    }
}

#[test]
fn another_name_is_that_of_all_objects_and_of_the_account_in_the_policies() {
    if lacks_helm("name") {
        return;
    }
    let text = |values: &[&str]| Value::from(rendered(values)).to_string();
    let mut expected = text(&[FLANNEL.value, IPAM.value, NODE.value, DRA.value]);
    for (before, after) in [
        ("\"name\":\"braid", "\"name\":\"net"),
        ("\"policyName\":\"braid", "\"policyName\":\"net"),
        (
            "\"serviceAccountName\":\"braid\"",
            "\"serviceAccountName\":\"net\"",
        ),
        (
            "\"resourceNames\":[\"braid\"]",
            "\"resourceNames\":[\"net\"]",
        ),
        ("kube-system:braid'", "kube-system:net'"),
        (
            "$(HOST_IP):4628\"]",
            "$(HOST_IP):4628\",\"--config-map=kube-system/net\",\"--service-account=kube-system/net\"]",
        ),
    ] {
        assert!(expected.contains(before), "{before}");
        expected = expected.replace(before, after);
    }
    // Users name the classes.
    let expected = expected.replace("\"name\":\"net.dev\"", "\"name\":\"braid.dev\"");
    let named = [
        FLANNEL.value,
        IPAM.value,
        NODE.value,
        DRA.value,
        "--set=nameOverride=net",
    ];
    let named = text(&named);
    assert_eq!(named, expected);
}

/// Returns the places of all values in values.yaml. Maps of the user's own keys are one value.
fn places(place: &str, value: &Value, found: &mut BTreeSet<String>) {
    const MAPS: [&str; 3] = ["resources", "nodeSelector", "updateStrategy"];
    match value {
        Value::Object(keys) if !keys.is_empty() && !MAPS.contains(&place) => {
            for (key, value) in keys {
                let dot = if place.is_empty() { "" } else { "." };
                places(&format!("{place}{dot}{key}"), value, found);
            }
        }
        _ => {
            found.insert(place.to_owned());
        }
    }
}

#[test]
fn the_tables_have_each_value() {
    let mut all = BTreeSet::new();
    places("", &committed(&format!("{CHART}/values.yaml"))[0], &mut all);
    let rows = ROWS.iter().map(|row| row.values);
    let others = LEFT_OUT.iter().map(|(value, _)| *value);
    let set: Vec<&str> = rows
        .chain(others)
        .chain([FLANNEL.value, IPAM.value, NODE.value, ALL_DRA.value])
        .collect();
    let lacks = |place: &&String| {
        let is_set = |value: &&&str| {
            let mut words = value.split(' ').filter_map(|word| word.split_once('='));
            words.any(|(_, set)| {
                set.strip_prefix(&***place)
                    .is_some_and(|rest| rest.starts_with(['=', '.', '[']))
            })
        };
        !set.iter().any(|value| is_set(&value))
    };
    let missing: Vec<&String> = all.iter().filter(lacks).collect();
    assert_eq!(missing, ["nameOverride"], "it has a test of its own");
}
