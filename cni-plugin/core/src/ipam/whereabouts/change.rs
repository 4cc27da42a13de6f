//! The change of a pool that makes it the journal's, as a JSON Patch (RFC 6902).

use super::journal::Seen;
use super::last::Last;
use super::pool::{Entry, Node, Note};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the change of a pool from the `seen` state to the `wanted` entries, which belong to attachments
/// to the `network`.
pub fn patch(
    seen: &Seen,
    node: &Node,
    wanted: &BTreeMap<u128, Entry>,
    (last, network): (&Last, &str),
) -> Value {
    let key = node.key();
    let mut note = Note::new(node.clone(), seen.seq + 1, wanted, last);
    network.clone_into(&mut note.network);
    let text = note.text();
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": seen.uid}),
        // A missing value is null.
        json!({"op": "test", "path": annotation(&key), "value": seen.note}),
    ];
    if !seen.has_annotations {
        let [path, none] = ["/metadata/annotations", ""];
        patch[1] = json!({"op": "test", "path": path, "value": Value::Null});
        patch.push(json!({"op": "add", "path": path, "value": {key.as_str(): none}}));
    }
    if !seen.has_allocations {
        let path = "/spec/allocations";
        patch.push(json!({"op": "test", "path": path, "value": Value::Null}));
        patch.push(json!({"op": "add", "path": path, "value": {}}));
    }
    for (offset, entry) in &seen.own {
        if wanted.get(offset) != Some(entry) {
            let id = json!({"op": "test", "path": field(*offset, "/id"), "value": entry.id});
            patch.push(id);
            // A claim keeps its entry. The annotation no longer names it.
            if entry.claim().is_none() {
                patch.push(json!({"op": "remove", "path": field(*offset, "")}));
            }
        }
    }
    for (offset, entry) in wanted {
        if seen.claims.get(offset) == Some(entry) {
            let id = json!({"op": "test", "path": field(*offset, "/id"), "value": entry.id});
            patch.push(id);
        } else if seen.own.get(offset) != Some(entry) {
            let path = field(*offset, "");
            patch.push(json!({"op": "test", "path": path, "value": Value::Null}));
            patch.push(json!({"op": "add", "path": path, "value": entry}));
        }
    }
    patch.push(json!({"op": "add", "path": annotation(&key), "value": text}));
    // Resets the list of the fields that this manager has set, which is as long as the pool.
    patch.push(json!({"op": "add", "path": "/metadata/managedFields", "value": [{}]}));
    Value::Array(patch)
}

/// Returns the path of a node's annotation.
pub(super) fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

fn field(offset: u128, of: &str) -> String {
    format!("/spec/allocations/{offset}{of}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str) -> Entry {
        Entry {
            id: id.into(),
            podref: String::new(),
            ifname: "net1".into(),
        }
    }

    fn node() -> Node {
        Node {
            name: "node-a".into(),
            uid: "u".into(),
            boot: "b".into(),
        }
    }

    /// Returns operation and path of each operation.
    fn operations(patch: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let operations = patch.as_array().unwrap().iter();
        operations
            .map(|one| format!("{} {}", text(&one["op"]), text(&one["path"])))
            .collect()
    }

    #[test]
    fn a_change_tests_what_it_replaces_and_adds_the_difference() {
        let seen = Seen {
            uid: "p".into(),
            note: Some("before".into()),
            seq: 7,
            own: [(5, entry("gone")), (6, entry("kept"))].into(),
            has_annotations: true,
            has_allocations: true,
            claims: BTreeMap::new(),
            last: Last::default(),
            nodes: 1,
            ..Seen::default()
        };
        let wanted: BTreeMap<_, _> = [(6, entry("kept")), (9, entry("new"))].into();
        let change = patch(&seen, &node(), &wanted, (&Last::default(), "lan"));
        let key = node().key().replace('/', "~1");
        let annotation = format!("/metadata/annotations/{key}");
        assert_eq!(
            operations(&change),
            [
                "test /metadata/uid",
                &*format!("test {annotation}"),
                "test /spec/allocations/5/id",
                "remove /spec/allocations/5",
                "test /spec/allocations/9",
                "add /spec/allocations/9",
                &*format!("add {annotation}"),
                "add /metadata/managedFields",
            ]
        );
        assert_eq!(change[1]["value"], "before");
        assert_eq!(change[4]["value"], Value::Null);
        let note = Note::parse(change[6]["value"].as_str().unwrap()).unwrap();
        assert!(note.seq == 8 && note.has(9, "new") && !note.has(5, "gone"));
        assert_eq!(note.network, "lan");
    }

    #[test]
    fn the_first_change_makes_the_maps() {
        let seen = Seen {
            uid: "p".into(),
            ..Seen::default()
        };
        let last = Last::default();
        let change = patch(&seen, &node(), &[(1, entry("c"))].into(), (&last, ""));
        let operations = operations(&change);
        assert_eq!(
            operations[1..5],
            [
                "test /metadata/annotations",
                "add /metadata/annotations",
                "test /spec/allocations",
                "add /spec/allocations",
            ]
        );
    }
}
