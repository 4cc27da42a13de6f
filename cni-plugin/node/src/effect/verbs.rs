//! Interface between the executor and the things of a plan: creation, deletion, and the transport
//! of their requests.

use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::nft::ElementKey;
use braid_core::plan::thing::{Link, LinkRef, Shaping, Sysctl, Verb};
use nix::errno::Errno;

/// A table of nf_tables that braid creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// `inet braid`.
    Inet,
    /// `bridge braid`.
    Bridge,
}

/// Transport of a thing's requests to the kernel.
pub(crate) enum Transport<'a> {
    /// One request of the route family, sent together with the requests of neighbouring steps
    /// ([`Effect::request`]).
    Request,
    /// A link, created with the attributes from the next step, and deleted together with other
    /// links.
    Link(&'a Link),
    /// A sysctl, written together with the sysctls of neighbouring steps. The namespace is entered
    /// once for all of them.
    Sysctl(&'a Sysctl),
    /// Rate limits, attached together with the redirect of the next step.
    Shaping(&'a Shaping),
    /// Elements of nf_tables, deleted in one transaction with the elements of neighbouring steps.
    Elements,
    /// Separate requests of the thing itself ([`Effect::add`], [`Effect::del`]).
    Alone,
}

/// Type and flags of a request of the route family.
pub(crate) type Head = (u16, u16);

/// Effect of a thing on the kernel.
pub(crate) trait Effect {
    /// Returns the transport of the thing's requests.
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Alone
    }

    /// Creates the thing.
    fn add(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Deletes the thing.
    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Returns the link that the request names by index; `None` if the thing is not on a link.
    fn link(&self) -> Option<&LinkRef> {
        None
    }

    /// Writes the body of the request for the link with this index. Returns the request's type and
    /// flags, or `None` if there is no such request.
    fn request(&self, _verb: Verb, _index: u32, _body: &mut Vec<u8>) -> Option<Head> {
        None
    }

    /// Adds to `all` the thing's nf_tables elements that still belong to the thing's owner. They
    /// are deleted in one transaction with the elements of other things.
    fn elements(&self, _kernel: &mut Kernel, _all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        Ok(())
    }

    /// Returns the nf_tables table that contains the thing. Returns `None` if a flush of nf_tables
    /// deletes nothing of the thing.
    fn table(&self) -> Option<Table> {
        None
    }

    /// True if some part of the thing was lost with its table.
    fn is_lost(&self, _kernel: &mut Kernel) -> Result<bool, Cause> {
        Ok(self.table().is_some())
    }

    /// True if the thing takes several requests, so a failure can leave it half done.
    fn is_several(&self) -> bool {
        false
    }

    /// True if this error means that the thing no longer exists.
    fn is_gone(&self, errno: Errno) -> bool {
        [
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::EADDRNOTAVAIL,
            Errno::ESRCH,
            Errno::ENXIO,
        ]
        .contains(&errno)
    }
}

/// Converts a "not found" error to `None`. EINVAL is also such an error: it means that the root
/// queue is built in, or that there is no clsact.
pub(crate) fn found<T>(result: Result<T, impl Into<Cause>>) -> Result<Option<T>, Cause> {
    match result.map_err(Into::into) {
        Err(cause) if cause.is(&[Errno::ENOENT, Errno::ENODEV, Errno::EINVAL]) => Ok(None),
        other => other.map(Some),
    }
}
