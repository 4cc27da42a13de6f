//! Steps that are one request of the route family.

use super::kernel::Kernel;
use crate::plan::link::LinkRef;
use crate::plan::step::Step;
use crate::sys::netlink::{CREATE, EXCL, KernelError};
use crate::sys::rtnl::{self, addr, link, route};
use nix::errno::Errno;

/// A step as a request of the route family.
pub(super) struct Request {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The request that does all of `steps`, which [`in_one_request`](crate::plan::request::in_one_request) found to be one.
    pub(super) fn of(steps: &[Step], kernel: &mut Kernel) -> Result<Self, KernelError> {
        let mut body = Vec::with_capacity(64);
        let out = &mut body;
        let (kind, flags) = match &steps[0] {
            Step::SetLink { at, .. } | Step::EnsureAttr { at, .. } => {
                let attrs = steps.iter().filter_map(|step| match step {
                    Step::SetLink { to, .. } | Step::EnsureAttr { to, .. } => Some(to),
                    _ => None,
                });
                link::set_attrs(kernel.index(at)?, attrs, out);
                (rtnl::NEWLINK, 0)
            }
            Step::EnsureVlan { at, vlan } => {
                link::vlan(kernel.index(at)?, vlan, out);
                (rtnl::SETLINK, 0)
            }
            Step::DelVlan { at, vlan } => {
                link::vlan(kernel.index(at)?, vlan, out);
                (rtnl::DELLINK, 0)
            }
            Step::AddAddr(addr) | Step::EnsureAddr(addr) => {
                addr::addr(kernel.index(&addr.at)?, addr, out);
                (rtnl::NEWADDR, CREATE | EXCL)
            }
            Step::DelAddr(addr) => {
                addr::addr(kernel.index(&addr.at)?, addr, out);
                (rtnl::DELADDR, 0)
            }
            Step::AddRoute(route) => {
                route::route(kernel.index(&route.at)?, route, out);
                // As with the reference plugins: without EXCL two routes to one destination both stay, and without APPEND the
                // kernel takes the newest one of IPv4. It spreads packets over those of IPv6 either way.
                (rtnl::NEWROUTE, CREATE)
            }
            Step::DelRoute(route) => {
                route::route(kernel.index(&route.at)?, route, out);
                (rtnl::DELROUTE, 0)
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        Ok(Self { kind, flags, body })
    }
}

/// The link whose index the step's request carries.
pub(super) fn link_of(step: &Step) -> Option<&LinkRef> {
    match step {
        Step::SetLink { at, .. }
        | Step::EnsureAttr { at, .. }
        | Step::EnsureVlan { at, .. }
        | Step::DelVlan { at, .. } => Some(at),
        Step::AddAddr(addr) | Step::EnsureAddr(addr) | Step::DelAddr(addr) => Some(&addr.at),
        Step::AddRoute(route) | Step::DelRoute(route) => Some(&route.at),
        _ => None,
    }
}
