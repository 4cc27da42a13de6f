//! Queues, programs and redirects.

use super::{Carrier, Effect};
use crate::apply::kernel::Kernel;
use crate::apply::{shape, xsk};
use crate::plan::thing::{Redirect, Shaping, Verb, XskGuard, XskLink};
use crate::sys::netlink::KernelError;

impl Effect for Shaping {
    fn carrier(&self, verb: Verb) -> Carrier<'_> {
        verb.word(Carrier::Shaping(self), Carrier::Alone)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        shape::del(kernel, self)
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Effect for Redirect {
    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        shape::redirect(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        shape::end_redirect(kernel, &self.from)
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Effect for XskGuard {
    fn add(&self, _kernel: &mut Kernel) -> Result<(), KernelError> {
        xsk::add(self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        xsk::del(kernel, self)
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Effect for XskLink {
    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        xsk::narrow(kernel, &self.guard, &self.at, self.was_there)
    }

    /// Goes with the guard.
    fn del(&self, _kernel: &mut Kernel) -> Result<(), KernelError> {
        Ok(())
    }
}
