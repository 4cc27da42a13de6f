//! State of a sandbox and of its host side in the kernel.

use crate::cli::status::host_link;
use braid_core::cni::AddResult;
use braid_core::name::Ns;
use braid_core::plan::facts::{AddrFact, LinkFact, RouteFact};
use braid_core::plan::step::Step;
use braid_node::Cause;
use braid_node::apply::executor::Timing;
use braid_node::effect::{addr, route};
use braid_node::kernel::Kernel;
use braid_node::kernel::link;
use std::collections::BTreeSet;

/// A link and its addresses.
#[derive(Debug)]
pub(super) struct LinkView {
    pub(super) name: String,
    pub(super) link: LinkFact,
    pub(super) addrs: Vec<AddrFact>,
}

/// Both sides of an attachment.
#[derive(Debug)]
pub(super) struct Sides {
    /// All links of the sandbox.
    pub(super) pod: Vec<LinkView>,
    /// All unicast routes of the sandbox.
    pub(super) routes: Vec<RouteFact>,
    /// Host links that the attachment created or uses.
    pub(super) host: Vec<LinkView>,
}

pub(super) fn look(
    kernel: &mut Kernel,
    results: &[AddResult],
    timings: &[(Vec<Step>, Timing)],
) -> Result<Sides, Cause> {
    let steps = timings.iter().flat_map(|(steps, _)| steps);
    let mut names: BTreeSet<String> = steps
        .filter_map(host_link)
        .map(|link| link.name.to_string())
        .collect();
    let of_host = results
        .iter()
        .flat_map(|result| &result.interfaces)
        .filter(|interface| interface.sandbox.is_empty());
    names.extend(of_host.map(|interface| interface.name.clone()));
    let mut routes = Vec::new();
    for v4 in [true, false] {
        routes.extend(route::list(kernel.route(Ns::Pod)?, v4)?);
    }
    let host = links(kernel, Ns::Host)?
        .into_iter()
        .filter(|seen| names.contains(&seen.name))
        .collect();
    Ok(Sides {
        pod: links(kernel, Ns::Pod)?,
        routes,
        host,
    })
}

fn links(kernel: &mut Kernel, ns: Ns) -> Result<Vec<LinkView>, Cause> {
    let links = link::list(kernel.route(ns)?)?;
    let addrs = addr::list(kernel.route(ns)?, 0)?;
    let addrs_of = |index| {
        addrs
            .iter()
            .filter(move |(link, _)| *link == index)
            .map(|(_, addr)| addr.clone())
            .collect()
    };
    Ok(links
        .into_iter()
        .map(|(name, link)| LinkView {
            name,
            addrs: addrs_of(link.index),
            link,
        })
        .collect())
}
