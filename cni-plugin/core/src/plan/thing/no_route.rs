//! The absence of a route that others made: it is taken away while the attachment lasts.

use super::{LinkRef, Route, State, Verb, found, refuse_if};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A route that is taken away, and comes back with the inverse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoRoute {
    /// The route.
    pub route: Route,
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
        refuse_if(is_back, || format!("route {dst} through {at} is back in table {table}"))
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.route.at]
    }

    fn foresee(&self, facts: &mut Facts) {
        facts.planned_routes.retain(|planned| *planned != self.route);
        let index = facts.link(&self.route.at).map(|link| link.index).filter(|index| *index != 0);
        if let (Some(index), Some(routes)) = (index, facts.routes.get_mut(&self.route.at.ns)) {
            routes.retain(|fact| !self.route.is(fact, index));
        }
    }
}
