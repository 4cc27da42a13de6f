//! Whereabouts, as far as braid meets it: its requests in their order, one call at a time in the whole
//! cluster, as its lease has it.

use super::world::{Seat, parse};
use braid_core::ipam::whereabouts::PoolRange;
use braid_core::ipam::whereabouts::api::{Api, Failure};
use braid_core::ipam::whereabouts::names;
use braid_core::ipam::whereabouts::pool::Entry;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Name of the pool of all tests.
pub(super) const POOL: &str = "10.0.0.0-24";

impl Seat {
    fn raw_pool(&mut self) -> Option<Value> {
        let read = |state: &mut super::world::State| Ok(state.objects.pools.get(POOL).cloned());
        self.request(read, None).expect("an answer")
    }

    fn raw_change(&mut self, pool: &Value, operations: &[Value]) -> bool {
        let version = &pool["metadata"]["resourceVersion"];
        let path = "/metadata/resourceVersion";
        let mut patch = vec![json!({"op": "test", "path": path, "value": version})];
        patch.extend_from_slice(operations);
        self.change_pool(POOL, &Value::Array(patch)).is_ok()
    }
}

/// ADD. Returns the address, or `None` if there is none or if a reservation of it exists at the end.
pub(super) fn add(
    seat: &mut Seat,
    entry: &Entry,
    range: &PoolRange,
    has_reservations: bool,
) -> Option<IpAddr> {
    loop {
        let Some(pool) = seat.raw_pool() else {
            let _ = seat.create_pool(POOL, range.net);
            continue;
        };
        let entries = parse(&pool).entries;
        let is_taken = |address| {
            let at = names::offset(range.net, address);
            at.is_none_or(|at| entries.contains_key(&at))
        };
        let mut free = None;
        for address in range.free(is_taken).collect::<Vec<_>>() {
            let name = names::reservation("", address);
            let found = has_reservations && seat.reservation(&name).expect("an answer").is_some();
            if !found {
                free = Some(address);
                break;
            }
        }
        let address = free?;
        let at = names::offset(range.net, address)?;
        let path = format!("/spec/allocations/{at}");
        let operations = [
            json!({"op": "test", "path": path, "value": Value::Null}),
            json!({"op": "add", "path": path, "value": entry}),
        ];
        if !seat.raw_change(&pool, &operations) {
            continue;
        }
        if !has_reservations {
            return Some(address);
        }
        let (name, podref) = (names::reservation("", address), entry.podref.clone());
        let made = seat.request(
            |state| {
                if state.objects.reservations.contains_key(&name) {
                    return Err(Failure::Exists);
                }
                let uid = state.objects.uid();
                let object = json!({"uid": uid, "podref": podref});
                state.objects.reservations.insert(name.clone(), object);
                Ok(())
            },
            None,
        );
        return made.is_ok().then_some(address);
    }
}

/// DEL: removes the first entry with the container id and the interface, and its reservation by name.
pub(super) fn del(seat: &mut Seat, entry: &Entry, range: &PoolRange, has_reservations: bool) {
    loop {
        let Some(pool) = seat.raw_pool() else { return };
        let entries = parse(&pool).entries;
        let found = entries
            .iter()
            .find(|(_, found)| found.is_of(&entry.id, &entry.ifname));
        let Some((at, _)) = found else { return };
        let path = format!("/spec/allocations/{at}");
        if !seat.raw_change(&pool, &[json!({"op": "remove", "path": path})]) {
            continue;
        }
        if has_reservations && let Some(address) = names::address(range.net, *at) {
            let name = names::reservation("", address);
            let removed = seat.request(
                |state| {
                    state.objects.reservations.remove(&name);
                    Ok(())
                },
                None,
            );
            removed.expect("an answer");
        }
        return;
    }
}
