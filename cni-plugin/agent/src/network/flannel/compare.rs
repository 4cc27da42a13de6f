//! Comparison of the kernel with flannel's network, one family after the other.

use super::net_conf::NetConf;
use super::plan::{self, End, Published};
use crate::cluster::flannel::Family;
use crate::cluster::ranges::{self, Accepted};
use crate::error::Error;
use crate::network::fabric::{Fabric, Outcome, Wanted, reserved};
use crate::network::kernel::{Families, Uplink};
use crate::network::peers;
use crate::network::routes::{Desired, Present};
use crate::network::vxlan::{Name, Settings, Vxlan};
use crate::repair::Repairs;
use braid_core::name::Mac;
use braid_node::sys::sysctl;
use ipnet::IpNet;
use std::net::IpAddr;

/// The node's ends of traffic with other nodes.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Address of each family, with the MAC of the VXLAN link.
    pub(super) published: Vec<(Family, IpAddr, Option<Mac>)>,
    /// MTU of the first family's uplink, in bytes.
    pub(super) uplink_mtu: Option<u32>,
}

impl Fabric {
    /// Returns the settings of an existing link of flannel.
    pub(super) async fn flannel_link(&mut self, id: u32) -> Result<Option<Settings>, Error> {
        for name in [Name::Flannel(id), Name::FlannelV6(id)] {
            let present = self.kernel.present(name, Families::Neither).await?;
            if let Some(settings) = present.link.and_then(|found| found.settings) {
                return Ok(Some(settings));
            }
        }
        Ok(None)
    }

    /// Compares the kernel with flannel's network, and changes the kernel.
    pub(super) async fn compare_flannel(
        &mut self,
        wanted: &Wanted<'_>,
        conf: &NetConf,
        (is_flapping, repairs): (bool, &mut Repairs),
    ) -> Result<(Outcome, Ends), Error> {
        self.stop_probes();
        self.links.clear();
        let own = wanted.own;
        let ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
        let reserved = reserved(wanted, &ranges);
        let (accepted, ignored) = ranges::judge(wanted.index.nodes(), &own.name, &reserved);
        let mut outcome = Outcome {
            accepted: accepted.iter().map(|accepted| accepted.range).collect(),
            ignored,
            ..Outcome::default()
        };
        let mut ends = Ends::default();
        for family in Family::ALL {
            let published = plan::published(conf, family, &accepted, &mut outcome.unrouted);
            let end = self.compare_family(
                wanted,
                (conf, family),
                &published,
                &mut outcome,
                (is_flapping, &mut *repairs),
            );
            if let Some((uplink, link)) = end.await? {
                ends.uplink_mtu.get_or_insert(uplink.mtu);
                let mac = link.map(|link| link.mac);
                ends.published.push((family, uplink.address, mac));
            }
        }
        // The link of an earlier mode.
        let left = self.kernel.present(Name::Braid, Families::Neither).await?;
        self.make(&left, &Desired::default(), &[], &mut outcome)
            .await;
        Ok((outcome, ends))
    }

    /// Compares one family. Returns the node's end; `None` if flannel does not have the family, or
    /// the node has no address of it.
    async fn compare_family(
        &mut self,
        wanted: &Wanted<'_>,
        (conf, family): (&NetConf, Family),
        published: &[Published],
        outcome: &mut Outcome,
        drift: (bool, &mut Repairs),
    ) -> Result<Option<(Uplink, Option<Vxlan>)>, Error> {
        let families = match family {
            Family::V4 => Families::V4,
            Family::V6 => Families::V6,
        };
        let name = plan::link_name(conf, family);
        let accepted = accepted(published);
        let present = self.kernel.present(name, families).await?;
        let found = present.link.as_ref();
        let mut end = None;
        let mut desired = Desired::default();
        if conf.network(family).is_some() {
            let candidates = plan::candidates(wanted.own, family, found);
            let uplink = self.kernel.uplink(&candidates).await?.ok_or_else(|| {
                let why = format!("no link has one of its addresses {candidates:?}");
                Error::new(format_args!("set up {name}"), why)
            })?;
            refuse_foreign(&present)?;
            let link = plan::link(conf, family, wanted.own, &uplink, found);
            let lookups = self.kernel.lookups(&peers::addresses(&accepted)).await?;
            let own_end = End {
                address: uplink.address,
                link,
            };
            let (state, unrouted) =
                plan::desired(conf, family, wanted.own, own_end, &accepted, &lookups);
            desired = state;
            outcome.unrouted.extend(unrouted);
            end = Some((uplink, link));
        }
        self.repair(name, (&present, &desired), &accepted, outcome, drift)
            .await;
        if desired.link.is_some() {
            // As flanneld does. A kernel without IPv6 lacks it.
            let _ = sysctl::ensure(&format!("net/ipv6/conf/{name}/accept_ra"), "0");
        }
        Ok(end)
    }
}

fn accepted(published: &[Published]) -> Vec<Accepted<'_>> {
    let mut accepted = Vec::new();
    for (node, range) in published {
        accepted.push(Accepted {
            node,
            range: *range,
        });
    }
    accepted
}

fn refuse_foreign(present: &Present) -> Result<(), Error> {
    let Some(found) = present.link.as_ref().filter(|link| link.is_foreign()) else {
        return Ok(());
    };
    let why = format!("another program has a link of this name, a {}", found.kind);
    Err(Error::new(
        format_args!("create link {}", present.name),
        why,
    ))
}
