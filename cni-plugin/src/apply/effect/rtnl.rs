//! Links and what is at them: requests of the route family.

use super::{Carrier, Effect, Head};
use crate::plan::thing::{Addr, Attr, Link, LinkRef, PortVlan, Route, Sysctl, Verb};
use crate::sys::netlink::{CREATE, EXCL};
use crate::sys::rtnl::{self, addr, link, route};

impl Effect for Link {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Link(self)
    }
}

impl Effect for Attr {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    /// None takes it away: it goes with its link.
    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        link::set_attrs(index, [&self.to], body);
        verb.word(Some((rtnl::NEWLINK, 0)), None)
    }
}

impl Effect for PortVlan {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        link::vlan(index, &self.vlan, body);
        Some((verb.word(rtnl::SETLINK, rtnl::DELLINK), 0))
    }
}

impl Effect for Addr {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        addr::addr(index, self, body);
        Some(verb.word((rtnl::NEWADDR, CREATE | EXCL), (rtnl::DELADDR, 0)))
    }
}

impl Effect for Route {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Request
    }

    fn link(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    /// As with the reference plugins: without `EXCL` two routes to one destination both stay, and without `APPEND` the kernel
    /// takes the newest one of IPv4. It spreads packets over those of IPv6 either way.
    fn request(&self, verb: Verb, index: u32, body: &mut Vec<u8>) -> Option<Head> {
        route::route(index, self, body);
        Some(verb.word((rtnl::NEWROUTE, CREATE), (rtnl::DELROUTE, 0)))
    }
}

impl Effect for Sysctl {
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Sysctl(self)
    }
}
