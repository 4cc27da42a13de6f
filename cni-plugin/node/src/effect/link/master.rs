//! Master of a new link, such as its bridge.

use crate::Cause;
use crate::kernel::Kernel;
use braid_core::plan::thing::{Link, LinkRef};

/// Looks up the index of the link's master, which is in the same namespace; `None` if the link has
/// no master.
pub(super) fn master_index(kernel: &mut Kernel, link: &Link) -> Result<Option<u32>, Cause> {
    let Some(name) = &link.master else {
        return Ok(None);
    };
    let master = LinkRef {
        ns: link.at.ns,
        name: name.clone(),
    };
    Ok(Some(kernel.index(&master)?))
}
