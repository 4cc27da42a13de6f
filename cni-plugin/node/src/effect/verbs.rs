//! The interface between the executor and a kind of thing: creation, deletion, and the way of its
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

/// How a thing reaches the kernel.
pub(crate) enum Transport<'a> {
    /// As one request of the route family, sent with its neighbours ([`Effect::request`]).
    Request,
    /// A link, with what the next step says of a new one, and others that go as well.
    Link(&'a Link),
    /// A sysctl, written in one visit to its namespace with its neighbours.
    Sysctl(&'a Sysctl),
    /// Limits, with the redirect behind them.
    Shaping(&'a Shaping),
    /// Elements of nf_tables that go in one transaction with its neighbours.
    Elements,
    /// By itself ([`Effect::add`], [`Effect::del`]).
    Alone,
}

/// Type and flags of a request.
pub(crate) type Head = (u16, u16);

/// The effect of one thing.
pub(crate) trait Effect {
    /// How it reaches the kernel.
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Alone
    }

    /// Creates it.
    fn add(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Deletes it.
    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The link whose index its request carries.
    fn link(&self) -> Option<&LinkRef> {
        None
    }

    /// Writes the body of its request for the link of this index.
    fn request(&self, _verb: Verb, _index: u32, _body: &mut Vec<u8>) -> Option<Head> {
        None
    }

    /// Notes the elements of nf_tables that are still its owner's, to go with those of others.
    fn elements(&self, _kernel: &mut Kernel, _all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        Ok(())
    }

    /// The table of nf_tables with which it is lost, `None` if a flush deletes nothing of it.
    fn table(&self) -> Option<Table> {
        None
    }

    /// True if something of it was lost with its table.
    fn is_lost(&self, _kernel: &mut Kernel) -> Result<bool, Cause> {
        Ok(self.table().is_some())
    }

    /// True if it comes by several requests, of which a failure leaves some done.
    fn is_several(&self) -> bool {
        false
    }

    /// True if a refusal means that it is gone.
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

/// `None` for what is not there. EINVAL: the root queue is built in, or there is no clsact.
pub(crate) fn found<T>(result: Result<T, impl Into<Cause>>) -> Result<Option<T>, Cause> {
    match result.map_err(Into::into) {
        Err(cause) if cause.is(&[Errno::ENOENT, Errno::ENODEV, Errno::EINVAL]) => Ok(None),
        other => other.map(Some),
    }
}
