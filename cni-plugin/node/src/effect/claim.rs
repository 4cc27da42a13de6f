//! nf_tables elements for a container's address or link. A container takes such an element over
//! from an earlier owner.

use crate::Cause;
use crate::kernel::Kernel;
use crate::store::holder;
use nix::errno::Errno;

/// An nf_tables element for a container's address or link, which can be taken over from an earlier
/// owner.
pub(super) trait Claim {
    /// Adds the element. Fails with `EEXIST` if it has an owner already.
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause>;

    /// Returns the owner that takes the element.
    fn claimant(&self) -> &str;

    /// Lists the present owners of the element.
    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause>;

    /// Deletes the element regardless of its owner.
    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause>;
}

/// Adds an element for a container's address or link. An element of another owner is replaced: that
/// owner's container is terminated, since the address or the link now belongs to this container.
pub(super) fn claim(kernel: &mut Kernel, what: &impl Claim) -> Result<(), Cause> {
    match what.claim(kernel) {
        Err(err) if err.is(&[Errno::EEXIST]) => {
            let others = what.holders(kernel)?;
            // If the wait times out, the other call has already read which elements it will delete.
            let _quiet = holder::quiet(what.claimant(), others.iter().map(String::as_str)).ok();
            what.clear(kernel)?;
            what.claim(kernel)
        }
        other => other,
    }
}
