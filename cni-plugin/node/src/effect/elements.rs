//! Elements of nf_tables that come, whoever had the same before, and those that go away: of several things in one
//! transaction.
//!
//! The kernel frees deleted elements after an RCU grace period. Closing a socket of nf_tables waits until it has begun to
//! free all of them. It begins at once with a first transaction; a second one would make a DEL wait.

use super::of;
use crate::Cause;
use crate::apply::kernel::Kernel;
use crate::store::holder;
use crate::sys::nft;
use braid_core::plan::thing::Thing;
use nix::errno::Errno;

/// An element that belongs to a container's address or link, and can be taken over.
pub(super) trait Claim {
    /// Adds it; `EEXIST` where somebody has the same.
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause>;

    /// Owner that it is to have.
    fn claimant(&self) -> &str;

    /// Owners that have it.
    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause>;

    /// Takes it from whoever has it.
    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause>;
}

/// Adds what belongs to a container's address or link. Who has the same is dead, since the address or the link is this
/// container's now.
pub(super) fn claim(kernel: &mut Kernel, what: &impl Claim) -> Result<(), Cause> {
    match what.claim(kernel) {
        Err(err) if err.is(&[Errno::EEXIST]) => {
            let others = what.holders(kernel)?;
            // A call that takes longer than that has read long ago what it is to take away.
            let _quiet = holder::quiet(what.claimant(), others.iter().map(String::as_str)).ok();
            what.clear(kernel)?;
            what.claim(kernel)
        }
        other => other,
    }
}

/// Takes away what is still its owner's; what became of each.
pub(crate) fn del(kernel: &mut Kernel, things: &[&Thing]) -> Vec<Result<(), Cause>> {
    let mut all = Vec::new();
    let noted: Vec<_> = things.iter().map(|thing| of(thing).elements(kernel, &mut all)).collect();
    let deleted = kernel.nft().and_then(|socket| nft::del_all(socket, &all)).map_err(Cause::from);
    noted.into_iter().map(|noted| noted.and(deleted.clone())).collect()
}
