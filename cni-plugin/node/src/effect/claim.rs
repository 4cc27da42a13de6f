//! Elements of nf_tables for a container's address or link. They are taken over from earlier
//! owners.

use crate::Cause;
use crate::kernel::Kernel;
use crate::store::holder;
use nix::errno::Errno;

/// An element for a container's address or link, which can be taken over.
pub(super) trait Claim {
    /// Adds the element; `EEXIST` if it has an owner already.
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause>;

    /// Returns the new owner.
    fn claimant(&self) -> &str;

    /// Lists the present owners.
    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause>;

    /// Deletes the element of any owner.
    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause>;
}

/// Adds an element for a container's address or link. A present owner's container is terminated,
/// since the address or the link is this container's now.
pub(super) fn claim(kernel: &mut Kernel, what: &impl Claim) -> Result<(), Cause> {
    match what.claim(kernel) {
        Err(err) if err.is(&[Errno::EEXIST]) => {
            let others = what.holders(kernel)?;
            // If the wait times out, the other call has long read which elements it will delete.
            let _quiet = holder::quiet(what.claimant(), others.iter().map(String::as_str)).ok();
            what.clear(kernel)?;
            what.claim(kernel)
        }
        other => other,
    }
}
