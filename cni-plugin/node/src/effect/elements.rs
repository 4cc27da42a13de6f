//! Deletion of nf_tables elements, for several things in one transaction.
//!
//! The kernel frees deleted elements after an RCU grace period. Closing an nf_tables socket waits
//! until the kernel has begun to free all of them. After one transaction, the kernel begins
//! immediately. After a second transaction, the close would delay a DEL. So one transaction deletes
//! all elements.

use super::of;
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::nft;
use braid_core::plan::thing::Thing;

/// Deletes the elements of `things` in one transaction, except elements that belong to another
/// owner now. Returns a result for each thing.
pub(crate) fn del(kernel: &mut Kernel, things: &[&Thing]) -> Vec<Result<(), Cause>> {
    let mut all = Vec::new();
    let mut noted = Vec::with_capacity(things.len());
    for thing in things {
        noted.push(of(thing).elements(kernel, &mut all));
    }
    let deleted = kernel
        .nft()
        .and_then(|socket| nft::del_all(socket, &all))
        .map_err(Cause::from);
    let mut results = Vec::with_capacity(things.len());
    for noted in noted {
        results.push(noted.and(deleted.clone()));
    }
    results
}
