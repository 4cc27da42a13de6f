//! Devices that are neither in the container nor on the host.

use crate::Cause;
use crate::effect::link::parse;
use crate::kernel::Kernel;
use crate::sys::rtnl::{self, link, nsid};
use braid_core::name::{IfName, Ns};
use braid_core::plan::thing::moved::Was;

/// Fails if the container has moved the device to a third network namespace. When that namespace
/// ends, the kernel returns the device to the host, and a later DEL restores its name. A device
/// that is not found is only logged: it may have been unplugged or deleted, and DEL must not fail
/// forever.
#[cold]
pub(super) fn judge(kernel: &mut Kernel, from: &IfName, was: &Was) -> Result<(), Cause> {
    // The kernel has deleted a virtual link with its namespace, and returned hardware to the host.
    if !kernel.has_pod() {
        return Ok(());
    }
    let name = from.as_str();
    if is_behind_pod(kernel, from, was)? {
        let what =
            "the container moved it to another network namespace, which must return it or end";
        return Err(Cause::Busy(format!("link {name:?} of the host: {what}")));
    }
    kernel.log().line(format_args!(
        "link {name:?} is neither in the container nor on the host: it is gone, or in a namespace that braid can't see"
    ));
    Ok(())
}

/// True if the device is in a namespace that has an id in the container's namespace. The kernel
/// assigns the id when a link moves from the container's namespace to the other namespace (v6.12
/// net/core/dev.c, `__dev_change_net_namespace()`).
fn is_behind_pod(kernel: &mut Kernel, from: &IfName, was: &Was) -> Result<bool, Cause> {
    let host = kernel.host_seen_from_pod()?;
    let socket = kernel.route(Ns::Pod)?;
    for message in socket.dump(rtnl::GETNSID, nsid::dump)? {
        let Some(number) = nsid::parse(&message.body) else {
            continue;
        };
        if Some(number) == host {
            continue;
        }
        // The namespace may have ended meanwhile.
        let Ok(links) = socket.dump(rtnl::GETLINK, |out| link::link_dump_of(number, out)) else {
            continue;
        };
        for message in links {
            if let Some((_, fact)) = parse(&message.body)
                && was.is_it(from, &fact)
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
