//! Elements of nf_tables that belong to a container's address or link, and are taken over from
//! whoever had them before.

use crate::Cause;
use crate::kernel::Kernel;
use crate::store::holder;
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

/// Adds what belongs to a container's address or link. Who has the same is dead, since the address
/// or the link is this container's now.
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
