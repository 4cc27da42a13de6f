//! Sysctls of a namespace, written in one visit.

use super::kernel::Kernel;
use super::{Error, features};
use crate::plan::step::{Ns, Step, Sysctl};
use crate::sys::netlink::Socket;
use crate::sys::rtnl::{self, netconf};
use crate::sys::sysctl;
use std::io;

/// Writes the sysctls of `steps`, all of them of `ns`. What became of each: `false` where the kernel has no such sysctl.
pub(super) fn write(kernel: &mut Kernel, ns: Ns, steps: &[&Step]) -> Result<Vec<io::Result<bool>>, Error> {
    let held: Vec<bool> = steps.iter().map(|step| is_held(kernel, step)).collect();
    let one = |(step, held): (&&Step, &bool)| match step {
        _ if *held => Ok(true),
        Step::SetSysctl(sysctl) => sysctl::write(&sysctl.key, &sysctl.value),
        Step::EnsureSysctl(sysctl) => sysctl::ensure(&sysctl.key, &sysctl.value),
        _ => Ok(true),
    };
    let all = || steps.iter().zip(&held).map(one).collect();
    if held.iter().all(|held| *held) { Ok(all()) } else { kernel.run_in(ns, all) }
}

/// Whether the node forwards already, which a message tells in a third of the time that a file takes. Before Linux 6.9 the
/// message waits for the lock on all networks.
fn is_held(kernel: &mut Kernel, step: &Step) -> bool {
    let Step::EnsureSysctl(Sysctl { ns, key, value, .. }) = step else { return false };
    let Some(family) = netconf::forwarding(key).filter(|_| value == "1") else { return false };
    if !features::is_at_least(6, 9) {
        return false;
    }
    let ask = |socket: &mut Socket| socket.get(rtnl::GETNETCONF, |out| netconf::of_all(family, out));
    kernel.route(*ns).and_then(ask).is_ok_and(|message| netconf::forwards(&message.body))
}
