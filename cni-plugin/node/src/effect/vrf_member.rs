//! Links of the container in a VRF. The VRF is created with its first member and deleted with its
//! last one.

use super::Effect;
use super::link::make::{self, CreateOptions};
use crate::kernel::Kernel;
use crate::sys::rtnl;
use crate::sys::rtnl::link::{by_index, set_master};
use crate::{Cause, Context, Error};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::Facts;
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
        socket.call(rtnl::NEWLINK, 0, |out| set_master(index, master, out))?;
        Ok(())
    }

    /// Removes the link from its VRF, or deletes the VRF if it has no other members. The link
    /// itself may be gone already, deleted with its namespace or its peer. Deleting the VRF
    /// releases its members.
    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let at = self.vrf();
        let Some(vrf) = kernel.link(&at)?.filter(|vrf| vrf.kind == VRF) else {
            return Ok(());
        };
        let (mut own, mut has_others) = (None, false);
        for (name, fact) in kernel.links(self.at.ns)? {
            if fact.master != Some(vrf.index) {
                continue;
            }
            if name == self.at.name.as_str() {
                own = Some(fact.index);
            } else {
                has_others = true;
            }
        }
        if !has_others {
            kernel.forget(&at);
            let socket = kernel.route(self.at.ns)?;
            socket.call(rtnl::DELLINK, 0, |out| by_index(vrf.index, out))?;
        } else if let Some(own) = own {
            let socket = kernel.route(self.at.ns)?;
            socket.call(rtnl::NEWLINK, 0, |out| set_master(own, 0, out))?;
        }
        Ok(())
    }

    fn is_several(&self) -> bool {
        true
    }
}

/// Reads the routing tables of the container's VRFs.
pub(crate) fn read(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    let links = kernel.links(Ns::Pod);
    for (name, fact) in links.doing(format_args!("list links of {}", Ns::Pod))? {
        if let Some(table) = fact.vrf_table
            && let Ok(name) = IfName::parse(&name)
        {
            facts.vrfs.insert(name, table);
        }
    }
    Ok(())
}
