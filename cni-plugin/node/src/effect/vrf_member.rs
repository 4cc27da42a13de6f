//! Links of the container in a VRF. The VRF is created with its first member and deleted with its
//! last one.

use super::link::make::{self, CreateOptions};
use super::{Effect, link};
use crate::kernel::Kernel;
use crate::sys::rtnl;
use crate::sys::rtnl::link::{by_index, set_master};
use crate::{Cause, Context, Error};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::{Facts, LinkFact};
use braid_core::plan::thing::{Link, LinkKind, VrfMember};

const VRF: &str = "vrf";

impl Effect for VrfMember {
    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let at = self.vrf();
        if kernel.link(&at)?.is_none() {
            let kind = LinkKind::Vrf { table: self.table };
            let vrf = Link {
                at: at.clone(),
                mac: None,
                mtu: None,
                up: true,
                master: None,
                kind,
            };
            make::link(
                kernel,
                &vrf,
                CreateOptions {
                    shared: true,
                    tx_queue_len: None,
                },
            )?;
        }
        let (master, index) = (kernel.index(&at)?, kernel.index(&self.at)?);
        let socket = kernel.route(self.at.ns)?;
        Ok(socket
            .call(rtnl::NEWLINK, 0, |out| set_master(index, master, out))
            .map(drop)?)
    }

    /// Deletes the VRF with its last member. A VRF may have no members: they are deleted with their
    /// namespaces and peers. Deleting the VRF releases its members.
    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let at = self.vrf();
        let Some(vrf) = kernel.link(&at)?.filter(|vrf| vrf.kind == VRF) else {
            return Ok(());
        };
        let socket = kernel.route(self.at.ns)?;
        let members: Vec<(String, LinkFact)> = link::list(socket)?
            .into_iter()
            .filter(|(_, fact)| fact.master == Some(vrf.index))
            .collect();
        if members
            .iter()
            .all(|(name, _)| name == self.at.name.as_str())
        {
            kernel.forget(&at);
            let socket = kernel.route(self.at.ns)?;
            return Ok(socket
                .call(rtnl::DELLINK, 0, |out| by_index(vrf.index, out))
                .map(drop)?);
        }
        match members
            .iter()
            .find(|(name, _)| name == self.at.name.as_str())
        {
            Some((_, own)) => Ok(socket
                .call(rtnl::NEWLINK, 0, |out| set_master(own.index, 0, out))
                .map(drop)?),
            None => Ok(()),
        }
    }

    fn is_several(&self) -> bool {
        true
    }
}

/// Reads the tables of the container's VRFs.
pub(crate) fn read(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    let links = kernel
        .route(Ns::Pod)
        .and_then(|socket| Ok(link::list(socket)?));
    for (name, fact) in links.doing(format_args!("list links of {}", Ns::Pod))? {
        let vrf = fact
            .vrf_table
            .and_then(|table| Some((IfName::parse(&name).ok()?, table)));
        facts.vrfs.extend(vrf);
    }
    Ok(())
}
