//! Waiting for kernel notifications, with a timeout.

use crate::Cause;
use crate::effect::{addr, link};
use crate::kernel::Kernel;
use crate::sys::netlink::Message;
use crate::sys::{carrier, rtnl};
use braid_core::plan::thing::LinkRef;
use braid_core::plan::thing::link::LinkFact;
use std::time::{Duration, Instant};

/// Timeout for a link to come up. The reference plugin waits 2.55 s in all, which a busy node can
/// exceed.
const UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of duplicate address detection, as in the reference plugins.
const DAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until a link is operationally up. Usually the first query is enough, otherwise the
/// kernel's notification ends the wait. Fails after [`UP_TIMEOUT`].
pub(crate) fn up(kernel: &mut Kernel, at: &LinkRef) -> Result<(), Cause> {
    if carrier::is_up(kernel.route(at.ns)?, &at.name)? {
        return Ok(());
    }
    let mut events = kernel.listen(at.ns, rtnl::GROUP_LINK)?;
    let index = kernel.index(at)?;
    if kernel.link(at)?.is_some_and(|fact| forwards(&fact)) {
        return Ok(());
    }
    let is_up = |message: &Message| {
        let Some((_, fact)) = link::parse(&message.body) else {
            return false;
        };
        fact.index == index && forwards(&fact)
    };
    let came_up = events.wait(UP_TIMEOUT, is_up)?;
    let timed_out = || Cause::TimedOut {
        what: format!("{at} is not operationally up"),
        after: UP_TIMEOUT,
    };
    if came_up { Ok(()) } else { Err(timed_out()) }
}

/// True if the link forwards packets. For a bridge, a carrier is enough, since Linux 6.1 may never
/// report the bridge as up. This happens if the bridge has had a carrier since it was set up: the
/// kernel sees no change (`net/core/link_watch.c`).
fn forwards(link: &LinkFact) -> bool {
    link.oper_up || link.kind == "bridge" && link.running && link.carrier
}

/// Waits until no address of the link is tentative. Reads the addresses again at each notification.
/// Fails if an address is a duplicate, or after [`DAD_TIMEOUT`].
pub(crate) fn dad(kernel: &mut Kernel, at: &LinkRef) -> Result<(), Cause> {
    let index = kernel.index(at)?;
    let mut events = kernel.listen(at.ns, rtnl::GROUP_IPV6_IFADDR)?;
    let end = Instant::now() + DAD_TIMEOUT;
    loop {
        let mut is_tentative = false;
        for (_, fact) in addr::list(kernel.route(at.ns)?, index)? {
            if fact.dad_failed {
                return Err(Cause::Refused(format!(
                    "address {} of {at} is used by another host",
                    fact.net
                )));
            }
            is_tentative |= fact.tentative;
        }
        if !is_tentative {
            return Ok(());
        }
        let left = end.saturating_duration_since(Instant::now());
        if !events.wait(left, |message| {
            addr::parse(&message.body).is_some_and(|(of, _)| of == index)
        })? {
            // Without a carrier, detection cannot run. As in the reference plugins, this is not a
            // failure.
            if kernel.link(at)?.is_some_and(|fact| !fact.oper_up) {
                return Ok(());
            }
            let what = format!("an address of {at} is still tentative");
            return Err(Cause::TimedOut {
                what,
                after: DAD_TIMEOUT,
            });
        }
    }
}
