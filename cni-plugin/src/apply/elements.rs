//! Elements of nf_tables that go away: those of several steps in one transaction.
//!
//! What a transaction took away the kernel frees after an RCU grace period, and who closes a socket of nf_tables waits for
//! what it has not begun to free. It begins with a first transaction at once; a second one would have a DEL wait.

use super::hostports;
use super::kernel::Kernel;
use crate::plan::nft::Gate;
use crate::plan::step::Step;
use crate::sys::netlink::KernelError;
use crate::sys::nft::{self, Spot, firewall, masquerade};

/// Whether all that the step takes away are elements, and those of its owner alone.
pub(super) fn is_step(step: &Step) -> bool {
    match step {
        Step::DelMasquerade(_) | Step::DelHostPorts(_) => true,
        Step::DelFirewall(what) => what.isolation.is_none() && matches!(what.gate, Gate::Chains { .. }),
        _ => false,
    }
}

/// Takes away what is still its owner's; what became of each step.
pub(super) fn del(kernel: &mut Kernel, steps: &[Step]) -> Vec<Result<(), KernelError>> {
    let mut all = Vec::new();
    let noted: Vec<_> = steps.iter().map(|step| note(kernel, step, &mut all)).collect();
    let deleted = kernel.nft().and_then(|socket| nft::del_all(socket, &all));
    noted.into_iter().map(|noted| noted.and(deleted.clone())).collect()
}

fn note(kernel: &mut Kernel, step: &Step, all: &mut Vec<Spot>) -> Result<(), KernelError> {
    match step {
        Step::DelMasquerade(what) => all.extend(masquerade::owned(kernel.nft()?, what)?),
        Step::DelFirewall(what) => all.extend(firewall::owned(kernel.nft()?, what)?),
        Step::DelHostPorts(what) => hostports::give_up(kernel, what, all)?,
        _ => {}
    }
    Ok(())
}
