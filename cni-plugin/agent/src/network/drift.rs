//! Changes of the kernel that are repairs: another program, or a link that went down, has deleted or
//! changed an object that the agent had set.

use super::changes::{Change, Thing, keys};
use super::routes::{Desired, Dev, Route, State, Table};
use super::vxlan::Vxlan;
use crate::repair::Kind;
use ipnet::IpNet;
use std::collections::BTreeSet;

/// Objects that the agent has set.
#[derive(Debug, Default)]
pub struct Settled {
    link: Option<Vxlan>,
    state: State,
    /// Main routes that the last comparison desired.
    desired: BTreeSet<Route>,
    /// True after the first comparison. An agent that starts does not know which program has
    /// changed an object.
    is_known: bool,
}

/// A change, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The change.
    pub change: Change,
    /// Kind of the restored object, if the change is a repair.
    pub repair: Option<Kind>,
    /// True if the repair counts as one of an object that another program breaks. The objects of a
    /// link that is restored, or that was down, do not.
    pub is_counted: bool,
}

impl Settled {
    /// Judges the changes to `desired`. `is_flapping` is true if the uplink has changed since the
    /// last comparison.
    pub fn judge(&self, changes: Vec<Change>, desired: &Desired, is_flapping: bool) -> Vec<Judged> {
        let is_created = changes
            .iter()
            .any(|change| matches!(change, Change::Create(_) | Change::SetUp));
        let moved = keys_of_deleted(&changes);
        let mut judged = Vec::new();
        for change in changes {
            let repair = self
                .is_repair(&change, desired, &moved)
                .then(|| change.kind());
            let is_counted = match &change {
                Change::Add(thing) | Change::Replace(thing) | Change::Delete(thing) => {
                    !(is_created && thing.is_on_link() || self.was_down(thing, is_flapping))
                }
                Change::Create(_)
                | Change::SetMac(_)
                | Change::SetMtu(_)
                | Change::SetUp
                | Change::DeleteLink
                | Change::HandOver(_) => true,
            };
            judged.push(Judged {
                change,
                repair,
                is_counted: repair.is_some() && is_counted,
            });
        }
        judged
    }

    /// True if the change restores a thing. `moved` are the ranges with a route that is deleted first.
    fn is_repair(
        &self,
        change: &Change,
        desired: &Desired,
        moved: &BTreeSet<(Table, IpNet)>,
    ) -> bool {
        match change {
            Change::Create(_) | Change::SetMac(_) | Change::SetMtu(_) | Change::SetUp => {
                self.link.is_some() && self.link == desired.link
            }
            // The link is created again with its settings, or is no longer needed.
            Change::DeleteLink | Change::HandOver(_) => false,
            Change::Add(thing) => {
                let is_moved =
                    matches!(thing, Thing::Route(it) if moved.contains(&(it.table, it.dst)));
                self.has(thing) || self.has_direct(thing) && !is_moved
            }
            Change::Replace(thing) => self.has(thing),
            Change::Delete(thing) => self.is_known && !self.has(thing),
        }
    }

    /// True if a route was lost with its link.
    fn was_down(&self, thing: &Thing, is_flapping: bool) -> bool {
        let Thing::Route(route) = thing else {
            return false;
        };
        let was_direct = matches!(route.dev, Dev::Index(_)) || self.has_direct(thing);
        was_direct && (is_flapping || !self.desired.contains(route) && route.table == Table::Main)
    }

    /// True for a route to a range to which the agent had set a direct one. If it is added, the
    /// kernel has lost the direct one.
    fn has_direct(&self, thing: &Thing) -> bool {
        let Thing::Route(route) = thing else {
            return false;
        };
        let mut routes = self.state.routes.iter();
        let key = (route.table, route.dst);
        routes.any(|set| (set.table, set.dst) == key && matches!(set.dev, Dev::Index(_)))
    }

    fn has(&self, thing: &Thing) -> bool {
        match thing {
            Thing::Address(it) => self.state.addresses.contains(it),
            Thing::Fdb(it) => self.state.fdb.contains(it),
            Thing::Neighbour(it) => self.state.neighbours.contains(it),
            Thing::Rule(it) => self.state.rules.contains(it),
            Thing::Route(it) => self.state.routes.contains(it),
        }
    }

    /// Takes in the end of a comparison: `unset` were not added, `deleted` were deleted. Routes to
    /// the `accepted` ranges stay known while their link is down.
    pub fn settle(
        &mut self,
        desired: &Desired,
        (unset, deleted): (&[Thing], &[Thing]),
        accepted: &BTreeSet<IpNet>,
    ) {
        let mut state = desired.state.clone();
        for thing in unset {
            if !self.has(thing) {
                remove(&mut state, thing);
            }
        }
        let kept = keys(&desired.state.routes);
        for route in &self.state.routes {
            let is_lost = matches!(route.dev, Dev::Index(_))
                && accepted.contains(&route.dst)
                && !kept.contains(&(route.table, route.dst))
                && !deleted.contains(&Thing::Route(route.clone()));
            if is_lost {
                state.routes.insert(route.clone());
            }
        }
        (self.link, self.state) = (desired.link, state);
        self.desired.clone_from(&desired.state.routes);
        self.is_known = true;
    }
}

fn remove(state: &mut State, thing: &Thing) {
    match thing {
        Thing::Address(it) => state.addresses.remove(it),
        Thing::Fdb(it) => state.fdb.remove(it),
        Thing::Neighbour(it) => state.neighbours.remove(it),
        Thing::Rule(it) => state.rules.remove(it),
        Thing::Route(it) => state.routes.remove(it),
    };
}

/// Returns table and range of each route that is deleted.
fn keys_of_deleted(changes: &[Change]) -> BTreeSet<(Table, IpNet)> {
    let mut deleted = BTreeSet::new();
    for change in changes {
        if let Change::Delete(Thing::Route(route)) = change {
            deleted.insert(route.clone());
        }
    }
    keys(&deleted)
}

#[cfg(test)]
mod tests {
    use super::super::changes::changes;
    use super::super::routes::{Neighbour, Present};
    use super::super::tests::carried_out;
    use super::super::vxlan::{Name, Settings, mac};
    use super::*;
    use std::net::IpAddr;

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn route(dst: &str, dev: Dev) -> Route {
        Route {
            table: Table::Main,
            dst: dst.parse().expect("a range"),
            via: addr("192.0.2.2"),
            dev,
        }
    }

    /// Returns a link with a route and a neighbour on it, and a direct route.
    fn desired() -> Desired {
        let local = addr("192.0.2.1");
        let settings = Settings {
            id: 4626,
            port: 4789,
            local,
            underlay: None,
        };
        let link = Vxlan {
            name: Name::Braid,
            settings,
            mac: mac("a"),
            mtu: 1450,
        };
        let neighbour = Neighbour {
            dst: addr("10.2.0.0"),
            mac: mac("b"),
        };
        let routes = [
            route("10.2.0.0/24", Dev::Vxlan),
            route("10.3.0.0/24", Dev::Index(7)),
        ];
        let state = State {
            neighbours: [neighbour].into(),
            routes: routes.into(),
            ..State::default()
        };
        Desired {
            link: Some(link),
            state,
        }
    }

    fn settled(desired: &Desired) -> Settled {
        let mut settled = Settled::default();
        settle(&mut settled, desired);
        settled
    }

    fn settle(settled: &mut Settled, desired: &Desired) {
        let accepted = ["10.2.0.0/24", "10.3.0.0/24"];
        let accepted = accepted.map(|text| text.parse().expect("a range"));
        settled.settle(desired, (&[], &[]), &accepted.into());
    }

    /// Returns kind and `is_counted` of the repairs.
    fn repairs(
        settled: &Settled,
        present: &Present,
        desired: &Desired,
        is_flapping: bool,
    ) -> Vec<(Kind, bool)> {
        let judged = settled.judge(changes(present, desired), desired, is_flapping);
        let kinds = judged.iter();
        kinds
            .filter_map(|judged| Some((judged.repair?, judged.is_counted)))
            .collect()
    }

    #[test]
    fn an_ipv6_route_that_moves_to_vxlan_is_no_repair() {
        let mut before = desired();
        let direct = Route {
            via: addr("fd99::2"),
            ..route("fd00:3::/64", Dev::Index(7))
        };
        let mut after = before.clone();
        before.state.routes.insert(direct.clone());
        let present = carried_out(&before);
        let settled = settled(&before);
        let vxlan = Route {
            via: addr("fd00:3::"),
            dev: Dev::Vxlan,
            ..direct
        };
        after.state.routes.insert(vxlan);
        assert_eq!(changes(&present, &after).len(), 2);
        assert_eq!(repairs(&settled, &present, &after, false), []);
    }

    #[test]
    fn an_agent_that_starts_or_whose_cluster_changes_repairs_nothing() {
        let desired = desired();
        let nothing = Present::default();
        let found = repairs(&Settled::default(), &nothing, &desired, false);
        assert_eq!(found, []);
        let settled = settled(&Desired::default());
        assert_eq!(repairs(&settled, &nothing, &desired, false), []);
        // A node leaves.
        let all = self::settled(&desired);
        let mut fewer = desired.clone();
        fewer.state.routes.clear();
        assert_eq!(repairs(&all, &carried_out(&desired), &fewer, false), []);
    }

    #[test]
    fn lost_objects_are_repairs_and_those_of_a_lost_link_do_not_count() {
        let desired = desired();
        let settled = settled(&desired);
        let mut lost = carried_out(&desired);
        lost.state.routes.clear();
        let routes = [(Kind::Route, true), (Kind::Route, true)];
        assert_eq!(repairs(&settled, &lost, &desired, false), routes);
        lost.link = None;
        lost.state.neighbours.clear();
        assert_eq!(
            repairs(&settled, &lost, &desired, false),
            [
                (Kind::Link, true),
                (Kind::Neighbour, false),
                (Kind::Route, false),
                (Kind::Route, true),
            ]
        );
    }

    #[test]
    fn an_added_object_of_the_agents_form_is_deleted_as_a_repair() {
        let desired = desired();
        let settled = settled(&desired);
        let mut more = carried_out(&desired);
        let other = route("10.9.0.0/24", Dev::Vxlan);
        more.state.routes.insert(other);
        let found = repairs(&settled, &more, &desired, false);
        assert_eq!(found, [(Kind::Route, true)]);
    }

    #[test]
    fn routes_of_an_uplink_that_was_down_are_repairs_that_do_not_count() {
        let desired = desired();
        let mut settled = settled(&desired);
        let mut lost = carried_out(&desired);
        lost.state
            .routes
            .remove(&route("10.3.0.0/24", Dev::Index(7)));
        let once = [(Kind::Route, false)];
        assert_eq!(repairs(&settled, &lost, &desired, true), once);
        // A comparison while the link is down desires no route through it.
        let mut down = desired.clone();
        down.state
            .routes
            .remove(&route("10.3.0.0/24", Dev::Index(7)));
        assert_eq!(repairs(&settled, &lost, &down, true), []);
        settle(&mut settled, &down);
        assert_eq!(repairs(&settled, &lost, &desired, false), once);
    }
    #[test]
    fn a_route_through_vxlan_in_place_of_a_lost_direct_one_is_a_repair_that_does_not_count() {
        let desired = desired();
        let mut settled = settled(&desired);
        let mut indirect = desired.clone();
        let routes = &mut indirect.state.routes;
        routes.remove(&route("10.3.0.0/24", Dev::Index(7)));
        routes.insert(route("10.3.0.0/24", Dev::Vxlan));
        let present = carried_out(&desired);
        assert_eq!(repairs(&settled, &present, &indirect, false), [], "a path");
        let mut lost = present;
        lost.state
            .routes
            .remove(&route("10.3.0.0/24", Dev::Index(7)));
        for is_flapping in [true, false] {
            let found = repairs(&settled, &lost, &indirect, is_flapping);
            assert_eq!(found, [(Kind::Route, false)]);
        }
        settle(&mut settled, &indirect);
        let found = repairs(&settled, &carried_out(&indirect), &desired, true);
        assert_eq!(found, [], "the direct path passes again");
    }
}
