//! Elements, rules and tables of nf_tables.

use super::{Carrier, Effect};
use crate::apply::elements::Claim;
use crate::apply::kernel::Kernel;
use crate::apply::{elements, firewall, hostports};
use crate::plan::thing::firewall::Gate;
use crate::plan::thing::{Firewall, HostPorts, MacCheck, Masquerade, PacketGuard, Verb};
use crate::sys::netlink::KernelError;
use crate::sys::nft::{self, Spot, mac_check, masquerade, packet_guard};
use nix::errno::Errno;

impl Effect for Masquerade {
    fn carrier(&self, verb: Verb) -> Carrier<'_> {
        verb.word(Carrier::Alone, Carrier::Elements)
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        elements::add(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<Spot>) -> Result<(), KernelError> {
        all.extend(masquerade::owned(kernel.nft()?, self)?);
        Ok(())
    }
}

impl Claim for Masquerade {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        masquerade::add(kernel.nft()?, self)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
        Ok(masquerade::owner(kernel.nft()?, self.source)?.into_iter().collect())
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        masquerade::del_source(kernel.nft()?, self.source)
    }
}

impl Effect for MacCheck {
    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        elements::add(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        mac_check::del_owned(kernel.nft()?, self)
    }
}

impl Claim for MacCheck {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        mac_check::add(kernel.nft()?, self)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
        Ok(mac_check::owner(kernel.nft()?, &self.port)?.into_iter().collect())
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        mac_check::del(kernel.nft()?, &self.port)
    }
}

impl Effect for Firewall {
    fn carrier(&self, verb: Verb) -> Carrier<'_> {
        let is_only_elements = self.isolation.is_none() && matches!(self.gate, Gate::Chains { .. });
        if is_only_elements { verb.word(Carrier::Alone, Carrier::Elements) } else { Carrier::Alone }
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        elements::add(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        firewall::del(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<Spot>) -> Result<(), KernelError> {
        all.extend(nft::firewall::owned(kernel.nft()?, self)?);
        Ok(())
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Claim for Firewall {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        firewall::add(kernel, self)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
        let socket = kernel.nft()?;
        let owners = self.addrs.iter().map(|addr| nft::firewall::owner(socket, *addr));
        Ok(owners.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        let socket = kernel.nft()?;
        self.addrs.iter().try_for_each(|addr| nft::firewall::del_addr(socket, *addr))
    }
}

impl Effect for HostPorts {
    fn carrier(&self, verb: Verb) -> Carrier<'_> {
        verb.word(Carrier::Alone, Carrier::Elements)
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        hostports::add(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<Spot>) -> Result<(), KernelError> {
        hostports::give_up(kernel, self, all)
    }

    fn is_several(&self) -> bool {
        true
    }
}

impl Effect for PacketGuard {
    fn add(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        packet_guard::add(kernel.nft_of(self.at.ns)?, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        packet_guard::del(kernel.nft_of(self.at.ns)?, &self.at.name)
    }

    /// A kernel without nf_tables has none.
    fn is_gone(&self, errno: Errno) -> bool {
        [Errno::EOPNOTSUPP, Errno::EPROTONOSUPPORT, Errno::ENOENT, Errno::ENODEV, Errno::ENXIO].contains(&errno)
    }
}
