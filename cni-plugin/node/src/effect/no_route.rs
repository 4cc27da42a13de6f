//! Routes that are deleted, and later restored.

use super::{Effect, Head, Transport, route};
use crate::sys::netlink::CREATE;
use crate::sys::rtnl;
use base16ct::lower::decode_vec;
use braid_core::plan::thing::{LinkRef, NoRoute, Verb};
use netlink_packet_route::route::RouteProtocol;
use nix::errno::Errno;

impl Effect for NoRoute {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.route.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        let head = verb.word((rtnl::DELROUTE, 0), (rtnl::NEWROUTE, CREATE));
        if let Ok(shown) = decode_vec(&self.restore)
            && !shown.is_empty()
        {
            body.extend(shown);
            return Some(head);
        }
        match verb {
            Verb::Add => {
                // This matches routes of any origin, including the kernel.
                route::write(index, &self.route, RouteProtocol::Unspec, body);
                Some(head)
            }
            Verb::Del => self.route.request(Verb::Add, index, body),
        }
    }

    /// True if the error means that the route need not be restored: it exists again, or its link is
    /// down, gone or without the address.
    fn is_gone(&self, errno: Errno) -> bool {
        const NOT_NEEDED: &[Errno] = &[
            Errno::ENODEV,
            Errno::ENOENT,
            Errno::ENXIO,
            Errno::EEXIST,
            Errno::EINVAL,
            Errno::ENETDOWN,
            Errno::ENETUNREACH,
            Errno::EHOSTUNREACH,
        ];
        NOT_NEEDED.contains(&errno)
    }
}
