//! Receiver of the results of ADD.

use crate::apply::host::Host;
use crate::store::record::Owed;
use braid_core::cni::{AddResult, Error};
use braid_core::plan::Facts;

/// Receiver of the results of ADD, one for each network. A result is `None` if the foreign plugins
/// returned none.
pub trait Receiver {
    /// Receives the results as planned, before the kernel work that completes them. `ahead` has the
    /// links as they will be afterwards. Not called if the last plugin is a foreign program. ADD may
    /// still fail.
    fn plan(&mut self, _results: &[Option<AddResult>], _ahead: &Facts) {}

    /// Delivers the results. `host` is the opened node, if any. Returns the pod's network status if
    /// it could not be published. If this fails, ADD is rolled back.
    fn deliver(
        &mut self,
        results: &[Option<AddResult>],
        host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error>;
}

/// Function that delivers the results of ADD, as [`Receiver::deliver`] does.
pub type Deliver<'d> = dyn FnMut(&[Option<AddResult>], Option<&mut (dyn Host + 'static)>) -> Result<Option<Owed>, Error>
    + 'd;

/// Receiver that only delivers the results.
pub struct DeliverBy<'d>(pub &'d mut Deliver<'d>);

impl Receiver for DeliverBy<'_> {
    fn deliver(
        &mut self,
        results: &[Option<AddResult>],
        host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error> {
        (self.0)(results, host)
    }
}
