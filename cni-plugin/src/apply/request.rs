//! Steps that are one request of the route family.

use super::kernel::Kernel;
use crate::plan::step::Step;
use crate::plan::thing::{LinkRef, PortVlan, Thing};
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
            step if let Some((at, _)) = step.attr() => {
                link::set_attrs(kernel.index(at)?, steps.iter().filter_map(Step::attr).map(|(_, to)| to), out);
                (rtnl::NEWLINK, 0)
            }
            Step::Add(thing) | Step::Ensure(thing) => match thing {
                Thing::Vlan(PortVlan { at, vlan }) => {
                    link::vlan(kernel.index(at)?, vlan, out);
                    (rtnl::SETLINK, 0)
                }
                Thing::Addr(addr) => {
                    addr::addr(kernel.index(&addr.at)?, addr, out);
                    (rtnl::NEWADDR, CREATE | EXCL)
                }
                Thing::Route(route) => {
                    route::route(kernel.index(&route.at)?, route, out);
                    // As with the reference plugins: without EXCL two routes to one destination both stay, and without APPEND
                    // the kernel takes the newest one of IPv4. It spreads packets over those of IPv6 either way.
                    (rtnl::NEWROUTE, CREATE)
                }
                _ => return Err(Errno::EOPNOTSUPP.into()),
            },
            Step::Del(Thing::Vlan(PortVlan { at, vlan })) => {
                link::vlan(kernel.index(at)?, vlan, out);
                (rtnl::DELLINK, 0)
            }
            Step::Del(Thing::Addr(addr)) => {
                addr::addr(kernel.index(&addr.at)?, addr, out);
                (rtnl::DELADDR, 0)
            }
            Step::Del(Thing::Route(route)) => {
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
        Step::Set { at, .. } => Some(at),
        Step::Add(thing) | Step::Ensure(thing) | Step::Del(thing) => match thing {
            Thing::Attr(attr) => Some(&attr.at),
            Thing::Vlan(vlan) => Some(&vlan.at),
            Thing::Addr(addr) => Some(&addr.at),
            Thing::Route(route) => Some(&route.at),
            _ => None,
        },
        _ => None,
    }
}
