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
    let names = host_names(results, timings);
    let mut routes = Vec::new();
    for v4 in [true, false] {
        routes.extend(route::list(kernel.route(Ns::Pod)?, v4)?);
    }
    let mut host = links(kernel, Ns::Host)?;
    host.retain(|seen| names.contains(&seen.name));
    Ok(Sides {
        pod: links(kernel, Ns::Pod)?,
        routes,
        host,
    })
}

/// Returns the names of the host links that the steps create or use, or that the results name.
fn host_names(results: &[AddResult], timings: &[(Vec<Step>, Timing)]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (steps, _) in timings {
        for link in steps.iter().filter_map(host_link) {
            names.insert(link.name.to_string());
        }
    }
    for result in results {
        for interface in &result.interfaces {
            if interface.sandbox.is_empty() {
                names.insert(interface.name.clone());
            }
        }
    }
    names
}

fn links(kernel: &mut Kernel, ns: Ns) -> Result<Vec<LinkView>, Cause> {
    let links = link::list(kernel.route(ns)?)?;
    let addrs = addr::list(kernel.route(ns)?, 0)?;
    let mut views = Vec::new();
    for (name, link) in links {
        let mut own = Vec::new();
        for (index, addr) in &addrs {
            if *index == link.index {
                own.push(addr.clone());
            }
        }
        views.push(LinkView {
            name,
            link,
            addrs: own,
        });
    }
    Ok(views)
}
