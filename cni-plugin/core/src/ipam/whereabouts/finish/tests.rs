use super::*;
use crate::ipam::whereabouts::last::Last;
use crate::ipam::whereabouts::pool::{Node, Note};

const NOW: Duration = Duration::from_hours(500_000);

fn minutes(minutes: u64) -> Duration {
    NOW + Duration::from_mins(minutes)
}

/// Returns a pool with a container of braid at 1, a held address at 2, that of a claim at 3, and these
/// entries of Whereabouts.
fn pool(foreign: &[(u128, &str, &str)], annotations: &[(&str, &str)]) -> ListedPool {
    let node = Node {
        name: "n1".into(),
        uid: "u".into(),
        boot: "b".into(),
    };
    let used = Entry {
        id: "container".into(),
        ..Entry::default()
    };
    let own = BTreeMap::from([(1, used), (2, Entry::held_by(&node))]);
    let note = Note::new(node.clone(), 1, &own, &Last::default()).text();
    let mut all: Value = json!({node.key(): note});
    for (key, text) in annotations {
        all[*key] = (*text).into();
    }
    let mut allocations = json!({"3": Entry::of_claim("c1")});
    for (offset, entry) in &own {
        allocations[offset.to_string()] = json!(entry);
    }
    for (offset, id, podref) in foreign {
        allocations[offset.to_string()] = json!({"id": id, "podref": podref, "ifname": "net1"});
    }
    let list = json!([{
        "metadata": {"name": "10.0.0.0-28", "uid": "p", "resourceVersion": "7", "annotations": all},
        "spec": {"range": "10.0.0.0/28", "allocations": allocations},
    }]);
    let mut all = ListedPool::parse_all(list.to_string().as_bytes()).unwrap();
    all.remove(0)
}

fn pod(name: &str, addresses: Option<&[u8]>) -> FoundPod {
    let address = |last: &u8| [10, 0, 0, *last].into();
    FoundPod {
        name: name.into(),
        addresses: addresses.map(|all| all.iter().map(address).collect()),
    }
}

/// Returns the note of the first look at a pool.
fn first_look(pool: &ListedPool) -> Option<String> {
    let Next::Wait { left, note, .. } = next(pool, NOW) else {
        return None;
    };
    assert_eq!(left, PAUSE);
    note
}

#[test]
fn a_pool_without_entries_of_whereabouts_is_marked_once() {
    let shared = pool(&[], &[]);
    assert_eq!(next(&shared, NOW), Next::End(Foreign::new()));
    assert_eq!(exclusive(&[shared]), Err("10.0.0.0-28".into()));
    let alone = pool(&[], &[(EXCLUSIVE, TRUE)]);
    assert_eq!(next(&alone, NOW), Next::Nothing);
    assert_eq!(exclusive(&[alone]), Ok(vec!["10.0.0.0-28".into()]));
    let returned = pool(&[(9, "c", "shop/web")], &[(EXCLUSIVE, TRUE)]);
    assert!(matches!(next(&returned, NOW), Next::Wait { .. }));
    assert!(exclusive(&[returned]).is_err());
}

#[test]
fn a_pod_uses_its_entry_unless_its_status_has_other_addresses() {
    let pools = [pool(&[(9, "c9", "shop/web-0"), (10, "c10", "")], &[])];
    let users = |pods: &[FoundPod]| -> Vec<String> {
        let all = used(&pools, pods).into_iter();
        all.map(|it| format!("{} {}", it.address, it.pod.unwrap_or_default()))
            .collect()
    };
    for (pods, expected) in [
        (&[][..], &[][..]),
        (&[pod("shop/other", None)], &[]),
        (&[pod("shop/web-0", None)], &["10.0.0.9 shop/web-0"]),
        (&[pod("shop/web-0", Some(&[9]))], &["10.0.0.9 shop/web-0"]),
        // A pod of a StatefulSet that was made again with another address.
        (&[pod("shop/web-0", Some(&[1]))], &[]),
        (&[pod("shop/old", Some(&[10]))], &["10.0.0.10 shop/old"]),
    ] {
        assert_eq!(users(pods), expected, "{pods:?}");
    }
}

#[test]
fn entries_without_a_pod_are_removed_after_two_looks_ten_minutes_apart() {
    let entries = [(9, "3fa9c2d1e07b", "shop/web"), (10, "c10", "shop/db")];
    let note = first_look(&pool(&entries, &[])).unwrap();
    assert_eq!(note, "9:3fa9c2d1:1800000000,10:c10:1800000000");
    let noted = pool(&entries, &[(FINISHING, &note)]);
    for (at, expected) in [(0, Some(10)), (9, Some(1)), (10, None)] {
        match (next(&noted, minutes(at)), expected) {
            (Next::Wait { left, note, .. }, Some(expected)) => {
                assert_eq!((left, note), (Duration::from_mins(expected), None));
            }
            (Next::End(entries), None) => assert_eq!(entries.len(), 2),
            (other, _) => panic!("{at}: {other:?}"),
        }
    }
}

#[test]
fn an_entry_that_is_new_or_another_one_waits_for_its_own_time() {
    let note = "9:c9:1800000000,12:gone:1800000000,x,13:c13:x";
    let entries = [(9, "another", ""), (10, "c10", "")];
    let Next::Wait { left, note, .. } = next(&pool(&entries, &[(FINISHING, note)]), minutes(20))
    else {
        panic!("it waits");
    };
    let expected = "9:another:1800001200,10:c10:1800001200";
    assert_eq!((left, note.as_deref()), (PAUSE, Some(expected)));
    let mixed = pool(&entries[1..], &[(FINISHING, "10:c10:1800000000")]);
    let before = NOW.saturating_sub(Duration::from_secs(1));
    assert!(
        matches!(
            next(&mixed, before),
            Next::Wait {
                left: PAUSE,
                note: Some(_),
                ..
            }
        ),
        "the first look is not later than the second"
    );
}

#[test]
fn the_end_is_one_change_of_the_pool_as_it_was_read() {
    let noted = pool(&[(9, "c9", "")], &[(FINISHING, "9:c9:1")]);
    let Next::End(entries) = next(&noted, NOW) else {
        panic!("the time is over");
    };
    assert_eq!(
        end(&noted, &entries),
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "test", "path": "/metadata/uid", "value": "p"},
            {"op": "test", "path": "/spec/allocations/9/id", "value": "c9"},
            {"op": "remove", "path": "/spec/allocations/9"},
            {"op": "remove", "path": "/metadata/annotations/ipam.braid.io~1finishing"},
            {"op": "add", "path": "/metadata/annotations/ipam.braid.io~1exclusive", "value": "true"},
        ])
    );
    let mut bare = noted;
    bare.pool.annotations = None;
    assert_eq!(
        look(&bare, "note"),
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "p"},
            {"op": "test", "path": "/metadata/annotations", "value": null},
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "test", "path": "/metadata/annotations/ipam.braid.io~1finishing", "value": null},
            {"op": "add", "path": "/metadata/annotations/ipam.braid.io~1finishing", "value": "note"},
        ])
    );
}
