//! Creation of a tap. If this process ends before the tap is complete, even by a signal, the kernel
//! deletes the tap. But a tap with a `selinuxContext` is created by the program `ip`, and is
//! persistent from the start.

use super::master::master_index;
use crate::effect::programs;
use crate::kernel::Kernel;
use crate::sys::netlink::Socket;
use crate::sys::rtnl;
use crate::sys::rtnl::link::{NewLink, by_name, complete};
use crate::sys::tap::{Options, Tap};
use crate::{Cause, Context};
use braid_core::plan::thing::Link;
use braid_core::plan::thing::link::Tap as Made;
use std::fs;

use std::process::Command;

/// File with the `SELinux` context in which this thread starts its next program.
const NEXT_CONTEXT: &str = "/proc/thread-self/attr/exec";

pub(super) fn make(kernel: &mut Kernel, link: &Link, made: &Made) -> Result<(), Cause> {
    if let Some(context) = &made.context {
        kernel.run_in(link.at.ns, || by_ip(link, made, context))??;
        return completed(kernel, link).inspect_err(|_| {
            if let Ok(socket) = kernel.route(link.at.ns) {
                let _ = socket.call(rtnl::DELLINK, 0, |out| by_name(&link.at.name, out));
            }
        });
    }
    let Made {
        owner,
        group,
        multi_queue,
        vnet_hdr,
        ..
    } = *made;
    let options = Options {
        owner,
        group,
        multi_queue,
        vnet_hdr,
    };
    let tap = kernel.run_in(link.at.ns, || Tap::make(&link.at.name, &options))?;
    let tap = tap.doing("create it through /dev/net/tun")?;
    completed(kernel, link)?;
    Ok(tap.keep().doing("make it persistent")?)
}

/// Sets the attributes of a new tap that the tap driver cannot set.
fn completed(kernel: &mut Kernel, link: &Link) -> Result<(), Cause> {
    let master = master_index(kernel, link)?;
    let set = NewLink {
        mac: link.mac,
        mtu: link.mtu,
        up: link.up,
        master,
        ..NewLink::default()
    };
    let index = kernel.index(&link.at)?;
    let result = kernel.route(link.at.ns).and_then(|socket: &mut Socket| {
        socket.call(rtnl::SETLINK, 0, |out| complete(index, &set, out))?;
        Ok(())
    });
    if result.is_err() {
        kernel.forget(&link.at);
    }
    result
}

/// Runs `ip` in this `SELinux` context to create the tap, so that programs of the context may open
/// it.
fn by_ip(link: &Link, made: &Made, context: &str) -> Result<(), Cause> {
    let path = programs::find("ip").ok_or_else(|| {
        Cause::Refused("a selinuxContext needs the program ip (iproute2)".to_owned())
    })?;
    fs::write(NEXT_CONTEXT, context).doing(format_args!(
        "write selinuxContext {context:?} to {NEXT_CONTEXT}"
    ))?;
    let mut ip = Command::new(&path);
    ip.args(["tuntap", "add", "name", link.at.name.as_str()]);
    for option in made.options() {
        ip.args(option.split(' '));
    }
    let output = ip.output();
    // Later programs must not start in this context.
    let ended = fs::write(NEXT_CONTEXT, "").doing(format_args!("clear {NEXT_CONTEXT}"));
    let output = output.doing(format_args!("run {}", path.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Cause::Refused(format!(
            "{}: {}",
            path.display(),
            said.trim().replace('\n', "; ")
        )));
    }
    Ok(ended?)
}
