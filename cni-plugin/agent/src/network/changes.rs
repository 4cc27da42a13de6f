//! Changes of the kernel, in an order that never interrupts traffic.
//!
//! ```text
//!  link ─► addresses ─► FDB, neighbours ─► probes' routes and rules ─► routes
//!                       then undesired objects are deleted, in the opposite order
//! ```

use super::routes::{Desired, Dev, Fdb, Neighbour, Present, Route, Rule, State, Table};
use super::vxlan::{Found, Name, Vxlan};
use crate::repair::Kind;
use braid_core::name::Mac;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;

/// An object in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    /// An address of the VXLAN link.
    Address(IpAddr),
    /// An FDB entry of the VXLAN link.
    Fdb(Fdb),
    /// A neighbour on the VXLAN link.
    Neighbour(Neighbour),
    /// A rule.
    Rule(Rule),
    /// A route.
    Route(Route),
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Creates the VXLAN link, up.
    Create(Vxlan),
    /// Sets the MAC of the VXLAN link.
    SetMac(Mac),
    /// Sets the MTU of the VXLAN link.
    SetMtu(u32),
    /// Sets the VXLAN link up.
    SetUp,
    /// Deletes the VXLAN link and all that is on it.
    DeleteLink,
    /// Adds an object. An equal one of another program stays.
    Add(Thing),
    /// Adds an object, or replaces the agent's own one of the same key.
    Replace(Thing),
    /// Deletes the agent's own object.
    Delete(Thing),
    /// Makes a route flanneld's, which keeps it.
    HandOver(Route),
}

/// A change with the VXLAN link that it may name. It prints as the command that an administrator
/// would type.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// The change.
    pub change: &'a Change,
    /// The VXLAN link.
    pub link: Name,
}

/// Returns the changes from `present` to `desired`.
pub fn changes(present: &Present, desired: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    let own = own_state(present, desired);
    if let Some(link) = desired.link {
        changes.extend(link_changes(present.link.as_ref(), link));
    }
    changes.extend(additions(&own, desired, &present.of_flanneld));
    let is_kept = desired.link.is_some();
    changes.extend(deletions(&own, &desired.state, is_kept));
    // Other nodes may still send through flannel's link, and flanneld leaves it too.
    let is_own = !present.name.is_flannels();
    let mut found = present.link.iter().filter(|link| !link.is_foreign());
    if !is_kept && is_own && found.next().is_some() {
        changes.push(Change::DeleteLink);
    }
    changes
}

/// Returns the changes that leave the routes of [`Present`] to flanneld.
pub fn handed_over(present: &Present) -> Vec<Change> {
    let routes = present.state.routes.iter();
    let main = routes.filter(|route| route.table == Table::Main);
    main.cloned().map(Change::HandOver).collect()
}

/// Returns the agent's own present objects. Those on a link that is created again are gone by then.
fn own_state(present: &Present, desired: &Desired) -> State {
    let mut own = present.state.clone();
    own.fdb = present.own_fdb(&desired.state);
    let is_replaced = desired
        .link
        .is_some_and(|link| !is_usable(present.link.as_ref(), link));
    if is_replaced {
        own.addresses.clear();
        own.fdb.clear();
        own.neighbours.clear();
        own.routes.retain(|route| route.dev != Dev::Vxlan);
    }
    own
}

fn is_usable(present: Option<&Found>, desired: Vxlan) -> bool {
    present.is_some_and(|found| found.settings == Some(desired.settings))
}

fn link_changes(present: Option<&Found>, desired: Vxlan) -> Vec<Change> {
    let Some(found) = present else {
        return vec![Change::Create(desired)];
    };
    if found.settings != Some(desired.settings) {
        return vec![Change::DeleteLink, Change::Create(desired)];
    }
    let mut changes = Vec::new();
    if found.mac != Some(desired.mac) {
        changes.push(Change::SetMac(desired.mac));
    }
    if found.mtu != desired.mtu {
        changes.push(Change::SetMtu(desired.mtu));
    }
    if !found.is_up {
        changes.push(Change::SetUp);
    }
    changes
}

fn additions(own: &State, desired: &Desired, of_flanneld: &BTreeSet<IpNet>) -> Vec<Change> {
    let desired = &desired.state;
    let mut changes = Vec::new();
    for address in desired.addresses.difference(&own.addresses) {
        changes.push(Change::Add(Thing::Address(*address)));
    }
    for entry in desired.fdb.difference(&own.fdb) {
        changes.push(Change::Replace(Thing::Fdb(entry.clone())));
    }
    for neighbour in desired.neighbours.difference(&own.neighbours) {
        changes.push(Change::Replace(Thing::Neighbour(neighbour.clone())));
    }
    let (probes, main): (Vec<&Route>, Vec<&Route>) = desired
        .routes
        .difference(&own.routes)
        .partition(|route| route.table == Table::Probes);
    let set = |route: &Route| set_route(route, own, of_flanneld);
    changes.extend(probes.into_iter().flat_map(set));
    for rule in desired.rules.difference(&own.rules) {
        changes.push(Change::Add(Thing::Rule(rule.clone())));
    }
    changes.extend(main.into_iter().flat_map(set));
    changes
}

/// Returns the changes that set a route, in place of the present one of its range.
fn set_route(route: &Route, own: &State, of_flanneld: &BTreeSet<IpNet>) -> Vec<Change> {
    let is_present = |other: &&Route| (other.table, other.dst) == (route.table, route.dst);
    let present = own.routes.iter().find(is_present);
    let add = Thing::Route(route.clone());
    // The gateway of VXLAN is in the range itself. IPv6 refuses it while the range has a route over
    // another link.
    let moves_to_vxlan = |present: &&Route| {
        let is_v6 = matches!(route.dst, IpNet::V6(_));
        is_v6 && route.dev == Dev::Vxlan && present.dev != Dev::Vxlan
    };
    if let Some(present) = present.filter(moves_to_vxlan) {
        let delete = Thing::Route(present.clone());
        return vec![Change::Delete(delete), Change::Add(add)];
    }
    let is_flannels = route.table == Table::Main && of_flanneld.contains(&route.dst);
    vec![if is_flannels || present.is_some() {
        Change::Replace(add)
    } else {
        Change::Add(add)
    }]
}

fn deletions(own: &State, desired: &State, is_link_kept: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for rule in own.rules.difference(&desired.rules) {
        changes.push(Change::Delete(Thing::Rule(rule.clone())));
    }
    let kept = keys(&desired.routes);
    for route in own.routes.difference(&desired.routes) {
        // The kernel replaces the route of an equal range.
        if !kept.contains(&(route.table, route.dst)) {
            changes.push(Change::Delete(Thing::Route(route.clone())));
        }
    }
    if !is_link_kept {
        return changes;
    }
    // The neighbour marks the FDB entry as the agent's, so it goes later.
    for entry in superseded(own, desired) {
        changes.push(Change::Delete(Thing::Fdb(entry.clone())));
    }
    let kept: BTreeSet<IpAddr> = desired.neighbours.iter().map(|it| it.dst).collect();
    for neighbour in own.neighbours.difference(&desired.neighbours) {
        if !kept.contains(&neighbour.dst) {
            changes.push(Change::Delete(Thing::Neighbour(neighbour.clone())));
        }
    }
    for address in own.addresses.difference(&desired.addresses) {
        changes.push(Change::Delete(Thing::Address(*address)));
    }
    changes
}

/// Returns the FDB entries to delete. A replaced entry is not one of them, but a second entry
/// beside the right one is.
fn superseded<'a>(own: &'a State, desired: &'a State) -> Vec<&'a Fdb> {
    let added: BTreeSet<Mac> = desired
        .fdb
        .difference(&own.fdb)
        .map(|entry| entry.mac)
        .collect();
    let others = own.fdb.difference(&desired.fdb);
    others.filter(|entry| !added.contains(&entry.mac)).collect()
}

/// Returns table and range of each route. The kernel has one route of the agent for both.
pub(super) fn keys(routes: &BTreeSet<Route>) -> BTreeSet<(Table, IpNet)> {
    routes
        .iter()
        .map(|route| (route.table, route.dst))
        .collect()
}

impl Thing {
    /// True if the object goes with the VXLAN link.
    pub fn is_on_link(&self) -> bool {
        match self {
            Self::Address(_) | Self::Fdb(_) | Self::Neighbour(_) => true,
            Self::Rule(_) => false,
            Self::Route(route) => route.dev == Dev::Vxlan,
        }
    }
}

impl Change {
    /// True for a change of the VXLAN link itself.
    pub fn is_of_link(&self) -> bool {
        self.thing().is_none()
    }

    /// Returns the object; `None` for a change of the VXLAN link itself.
    pub fn thing(&self) -> Option<&Thing> {
        match self {
            Self::Create(_)
            | Self::SetMac(_)
            | Self::SetMtu(_)
            | Self::SetUp
            | Self::DeleteLink
            | Self::HandOver(_) => None,
            Self::Add(thing) | Self::Replace(thing) | Self::Delete(thing) => Some(thing),
        }
    }

    /// Returns the kind of the changed object.
    pub fn kind(&self) -> Kind {
        match self.thing() {
            None if matches!(self, Self::HandOver(_)) => Kind::Route,
            None => Kind::Link,
            Some(Thing::Address(_)) => Kind::Address,
            Some(Thing::Fdb(_)) => Kind::Fdb,
            Some(Thing::Neighbour(_)) => Kind::Neighbour,
            Some(Thing::Rule(_)) => Kind::Rule,
            Some(Thing::Route(_)) => Kind::Route,
        }
    }

    /// Returns the noun of the log line.
    pub fn noun(&self) -> &'static str {
        self.kind().noun()
    }
}

impl Display for Command<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let link = self.link;
        let (verb, thing) = match self.change {
            Change::Create(link) => return write!(f, "ip link add {link}"),
            Change::SetMac(mac) => return write!(f, "ip link set {link} address {mac}"),
            Change::SetMtu(mtu) => return write!(f, "ip link set {link} mtu {mtu}"),
            Change::SetUp => return write!(f, "ip link set {link} up"),
            Change::DeleteLink => return write!(f, "ip link del {link}"),
            Change::HandOver(route) => {
                let (dst, via) = (route.dst, route.via);
                return write!(f, "ip route change {dst} via {via} proto boot");
            }
            Change::Add(thing) => ("add", thing),
            Change::Replace(thing) => ("replace", thing),
            Change::Delete(thing) => ("del", thing),
        };
        match thing {
            Thing::Address(address) => {
                write!(f, "ip address {verb} {} dev {link}", IpNet::from(*address))
            }
            Thing::Fdb(entry) => entry.print(verb, link, f),
            Thing::Neighbour(neighbour) => neighbour.print(verb, link, f),
            Thing::Rule(rule) => rule.print(verb, f),
            Thing::Route(route) => route.print(verb, link, f),
        }
    }
}
