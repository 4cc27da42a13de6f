//! Interface between the executor and a kind of thing: creation, deletion, and the transport of its
//! requests.

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
    /// One request of the route family, sent with its neighbours ([`Effect::request`]).
    Request,
    /// A link, created with the attributes from the next step, and deleted together with other
    /// links.
    Link(&'a Link),
    /// A sysctl, written in one visit to its namespace with its neighbours.
    Sysctl(&'a Sysctl),
    /// Rate limits, attached together with the redirect that follows them.
    Shaping(&'a Shaping),
    /// Elements of nf_tables, deleted in one transaction with their neighbours.
    Elements,
    /// The thing's own calls ([`Effect::add`], [`Effect::del`]).
    Alone,
}

/// Type and flags of a request.
pub(crate) type Head = (u16, u16);

/// Effect of one thing.
pub(crate) trait Effect {
    /// Selects the transport.
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

    /// Returns the link for the request's index.
    fn link(&self) -> Option<&LinkRef> {
        None
    }

    /// Writes the body of the request for the link with this index.
    fn request(&self, _verb: Verb, _index: u32, _body: &mut Vec<u8>) -> Option<Head> {
        None
    }

    /// Collects the nf_tables elements that still belong to the owner, to be deleted with others.
    fn elements(&self, _kernel: &mut Kernel, _all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        Ok(())
    }

    /// Returns the table of nf_tables with which the thing is lost, `None` if a flush deletes
    /// nothing of it.
    fn table(&self) -> Option<Table> {
        None
    }

    /// True if something of the thing was lost with its table.
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

/// Converts "not found" to `None`. EINVAL: the root queue is built in, or there is no clsact.
pub(crate) fn found<T>(result: Result<T, impl Into<Cause>>) -> Result<Option<T>, Cause> {
    match result.map_err(Into::into) {
        Err(cause) if cause.is(&[Errno::ENOENT, Errno::ENODEV, Errno::EINVAL]) => Ok(None),
        other => other.map(Some),
    }
}
