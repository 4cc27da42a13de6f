//! `vrf`: moves the interface with its routes into a VRF of the container.

use crate::cni::{Error, NetConf};
use crate::ipam::Lease;
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{IfName, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Event, Step};
use crate::plan::thing::{LinkRef, NoRoute, Route, Sysctl, Thing, VrfMember};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface;
use crate::plugins::{Call, Planned, Plugin};
use std::ops::RangeInclusive;

/// Tables that the kernel itself uses: default, main and local.
const KERNELS: RangeInclusive<u32> = 253..=255;

/// A `vrf` configuration.
#[derive(Debug)]
pub struct Vrf {
    /// `vrfname`.
    name: IfName,
    /// `table`; `None` (0 or absent) selects the first free one.
    table: Option<u32>,
}

impl Vrf {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let name = interface::ifname(json, "vrfname")?;
        let name = name.ok_or_else(|| {
            Error::config("configuration is expected to have a valid vrf name").at_key("vrfname")
        })?;
        Ok(Self {
            name,
            table: json.u32("table")?.filter(|table| *table > 0),
        })
    }

    fn vrf(&self) -> LinkRef {
        LinkRef::pod(self.name.clone())
    }

    /// Returns the VRF's table: the table of the existing VRF, the configured table, or the first
    /// unused one.
    fn table(&self, facts: &Facts) -> Result<u32, Error> {
        let is_free = |table: &u32| !KERNELS.contains(table) && !facts.is_table_used(*table);
        let known = facts.vrfs.get(&self.name).copied().or(self.table);
        known
            .or_else(|| (1..=u32::MAX).find(is_free))
            .ok_or_else(|| Error::internal("all routing tables are used"))
    }

    /// Returns the steps that move an existing link with its routes into the VRF. The kernel sets a
    /// link down and up again when the link joins a VRF. It then restores only the routes to the
    /// networks of the link's addresses.
    fn carry_over(&self, call: &Call<'_>, facts: &Facts, table: u32) -> Vec<Step> {
        let at = call.pod();
        let is_of_kernel = |route: &Route| {
            let is_own = |dst| facts.addrs(&at).iter().any(|addr| addr.net.trunc() == dst);
            let is_alone = route.gw.is_none() && (is_own(route.dst) || is_link_local(route));
            is_alone && (route.dst.addr().is_ipv6() || route.scope == RT_SCOPE_LINK)
        };
        let mut routes = facts.routes_through(&at);
        routes.retain(|route| route.table == RT_TABLE_MAIN && !is_of_kernel(route));
        // Gateways must be on the link before routes through them are added, also in a rollback.
        routes.sort_by_key(|route| route.gw.is_none());
        let has_ipv6 = facts
            .addrs(&at)
            .iter()
            .any(|addr| addr.net.addr().is_ipv6() && addr.scope == 0);
        let key = format!("net/ipv6/conf/{}/keep_addr_on_down", at.name);
        let keep = Sysctl {
            ns: Ns::Pod,
            key,
            value: "1".to_owned(),
            optional: true,
        };
        let mut steps = Vec::new();
        if has_ipv6 {
            steps.push(Step::add(keep));
        }
        for route in &routes {
            steps.push(Step::add(NoRoute::of(route.clone(), facts)));
        }
        steps.push(Step::add(self.member(call, table)));
        if has_ipv6 {
            steps.push(Step::Wait(Event::Dad(at)));
        }
        for route in routes.into_iter().rev() {
            steps.push(Step::add(Route { table, ..route }));
        }
        steps
    }

    fn member(&self, call: &Call<'_>, table: u32) -> VrfMember {
        VrfMember {
            at: call.pod(),
            vrf: self.name.clone(),
            table,
        }
    }

    /// Refuses an existing link with the VRF's name if the link is not a VRF or has another table.
    fn refuse_other(&self, facts: &Facts) -> Result<(), Error> {
        let Some(there) = facts.link(&self.vrf()) else {
            return Ok(());
        };
        if there.kind != "vrf" {
            return Err(Error::internal(format!(
                "Netlink {} is not a VRF",
                self.name
            )));
        }
        match (self.table, there.vrf_table) {
            (Some(asked), Some(table)) if asked != table => {
                let name = &self.name;
                Err(Error::internal(format!(
                    "VRF {name} already exist with different routing table {table}"
                )))
            }
            _ => Ok(()),
        }
    }
}

fn is_link_local(route: &Route) -> bool {
    matches!(route.dst, ipnet::IpNet::V6(net) if net.addr().is_unicast_link_local() || net.addr().is_multicast())
}

fn missing(call: &Call<'_>) -> Error {
    Error::internal(format!("could not get link by name {}", call.ifname))
}

/// True if the link already exists in the kernel, with its routes. Otherwise the same plan creates
/// the link.
fn is_there(link: &LinkFact) -> bool {
    link.index != 0
}

impl Plugin for Vrf {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let at = call.pod();
        vec![
            Need::Link(at.clone()),
            Need::Link(self.vrf()),
            Need::Vrfs,
            Need::Addrs(at),
            Need::Routes(Ns::Pod),
            Need::Rules(Ns::Pod),
        ]
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        if call.prev.is_none() {
            return Err(Error::config("missing prevResult from earlier plugin"));
        }
        if self.name == *call.ifname {
            return Err(Error::config(format!(
                "\"vrfname\": {:?} is the interface's own name",
                self.name.as_str()
            )));
        }
        self.refuse_other(facts)?;
        let link = facts.link(&call.pod()).ok_or_else(|| missing(call))?;
        match link.master {
            None => Ok(()),
            Some(index) => {
                let own = facts.link(&self.vrf()).filter(|vrf| vrf.index == index);
                let master = own.map_or_else(|| format!("link {index}"), |_| self.name.to_string());
                Err(Error::internal(format!(
                    "interface {} has already a master set: {master}",
                    call.ifname
                )))
            }
        }
    }

    /// Moves the routes that earlier plugins plan for the interface to the VRF's table.
    fn amend(&self, call: &Call<'_>, facts: &Facts, earlier: &mut [Step]) -> bool {
        let Ok(new) = self.table(facts) else {
            return false;
        };
        let mut is_changed = false;
        for step in earlier {
            if let Step::Add(Thing::Route(Route {
                at,
                table: table @ RT_TABLE_MAIN,
                ..
            })) = step
                && *at == call.pod()
            {
                *table = new;
                is_changed = true;
            }
        }
        is_changed
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let result = call
            .prev
            .cloned()
            .ok_or_else(|| Error::config("missing prevResult from earlier plugin"))?;
        let link = facts.link(&call.pod()).ok_or_else(|| missing(call))?;
        let table = self.table(facts)?;
        let steps = if is_there(link) {
            self.carry_over(call, facts, table)
        } else {
            vec![Step::add(self.member(call, table))]
        };
        Ok(Planned {
            steps,
            result,
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(self.member(call, 0))]
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Vrf]
    }
}
