//! Deletion of an existing route for the lifetime of the attachment.

use super::state::{State, Verb, found, refuse_if};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::fact::route::Route;
use crate::plan::fact::route::RouteFact;
use crate::plan::facts::{Facts, Need};
use base16ct::lower::encode_string;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An existing route that a step deletes, and its inverse restores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoute {
    /// The deleted route.
    pub route: Route,
    /// Netlink request that restores the route with all properties that the kernel reported
    /// (protocol, flags, metrics), in hexadecimal digits. Empty if the route did not exist when the
    /// facts were read. Also empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub restore: String,
}

impl NoRoute {
    /// Returns the deletion of a route that exists or is planned.
    pub fn of(route: Route, facts: &Facts) -> Self {
        let index = facts
            .link(&route.at)
            .map(|link| link.index)
            .filter(|index| *index != 0);
        let is_it =
            |fact: &&RouteFact| fact.link == index && Route::of_fact(&route.at, fact) == route;
        let there = facts
            .routes
            .get(&route.at.ns)
            .into_iter()
            .flatten()
            .filter(|_| index.is_some())
            .find(is_it);
        let restore = there
            .map(|fact| encode_string(&fact.request))
            .unwrap_or_default();
        Self { route, restore }
    }
}

impl State for NoRoute {
    fn ns(&self) -> Ns {
        self.route.ns()
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.route.print(verb.word(Verb::Del, Verb::Add), f)
    }

    fn needs(&self) -> Vec<Need> {
        self.route.needs()
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let Route { at, dst, table, .. } = &self.route;
        let index = found(at, facts)?.index;
        let routes = facts.routes.get(&at.ns).map_or(&[][..], Vec::as_slice);
        let is_back = routes.iter().any(|fact| self.route.is(fact, index));
        refuse_if(is_back, || {
            format!("route {dst} through {at} exists again in table {table}")
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.route.at]
    }

    fn predict(&self, facts: &mut Facts) {
        facts
            .planned_routes
            .retain(|planned| *planned != self.route);
        let index = facts
            .link(&self.route.at)
            .map(|link| link.index)
            .filter(|index| *index != 0);
        if let (Some(index), Some(routes)) = (index, facts.routes.get_mut(&self.route.at.ns)) {
            routes.retain(|fact| !self.route.is(fact, index));
        }
    }
}
