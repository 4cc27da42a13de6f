//! Elements of nf_tables that go away: of several things in one transaction.
//!
//! The kernel frees deleted elements after an RCU grace period. Closing a socket of nf_tables waits
//! until it has begun to free all of them. It begins at once with a first transaction; a second one
//! would make a DEL wait.

use super::of;
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::nft;
use braid_core::plan::thing::Thing;

/// Takes away what is still its owner's; what became of each.
pub(crate) fn del(kernel: &mut Kernel, things: &[&Thing]) -> Vec<Result<(), Cause>> {
    let mut all = Vec::new();
    let noted: Vec<_> = things
        .iter()
        .map(|thing| of(thing).elements(kernel, &mut all))
        .collect();
    let deleted = kernel
        .nft()
        .and_then(|socket| nft::del_all(socket, &all))
        .map_err(Cause::from);
    noted
        .into_iter()
        .map(|noted| noted.and(deleted.clone()))
        .collect()
}
