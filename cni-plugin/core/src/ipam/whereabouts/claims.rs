//! Addresses of IPAMClaims that were deleted, and the change of a pool that frees them.

use super::pool::{Entry, Pool};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the entries of claims with uids in `deleted` that no node uses: no annotation names them.
pub fn unused(pool: &Pool, deleted: &BTreeSet<String>) -> BTreeMap<u128, Entry> {
    let is_unused = |(offset, entry): &(&u128, &Entry)| {
        let is_deleted = entry.claim().is_some_and(|uid| deleted.contains(uid));
        is_deleted && !pool.notes().any(|(_, note)| note.has(**offset, &entry.id))
    };
    let unused = pool.entries.iter().filter(is_unused);
    unused
        .map(|(offset, entry)| (*offset, entry.clone()))
        .collect()
}

/// Returns the change of a pool that removes entries of claims. It fails if a node has changed the pool
/// since, as that may be the use of a claim.
pub fn patch(pool: &Pool, entries: &BTreeMap<u128, Entry>) -> Value {
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": pool.uid}),
        json!({"op": "test", "path": "/metadata/annotations", "value": pool.annotations}),
    ];
    for (offset, entry) in entries {
        let path = format!("/spec/allocations/{offset}");
        patch.push(json!({"op": "test", "path": format!("{path}/id"), "value": entry.id}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    Value::Array(patch)
}

#[cfg(test)]
mod tests {
    use super::super::last::Last;
    use super::super::pool::{Node, Note};
    use super::*;

    #[test]
    fn a_deleted_claim_is_unused_if_no_node_names_its_entry() {
        let node = Node {
            name: "node-a".into(),
            uid: "u".into(),
            boot: "b".into(),
        };
        let [used, deleted, kept] = ["c1", "c2", "c3"].map(Entry::of_claim);
        let note = Note::new(
            node.clone(),
            1,
            &[(1, used.clone())].into(),
            &Last::default(),
        );
        let pool = Pool {
            uid: "p".into(),
            annotations: Some([(node.key(), note.text())].into()),
            entries: [(1, used), (2, deleted.clone()), (3, kept)].into(),
            has_allocations: true,
            ..Pool::default()
        };
        let uids = ["c1", "c2"].map(str::to_owned).into();
        let unused = unused(&pool, &uids);
        assert_eq!(unused, [(2, deleted)].into());
        let patch = patch(&pool, &unused);
        assert_eq!(patch[1]["value"][node.key()], note.text());
        assert_eq!(patch[2]["value"], "claim:c2");
        assert_eq!(patch[3]["path"], "/spec/allocations/2");
    }
}
