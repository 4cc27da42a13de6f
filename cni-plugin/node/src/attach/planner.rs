//! Planning of consecutive native plugins, across all networks of a call. Used by ADD and by the
//! dry run.

use super::chain::{AddressSource, Item, Runner};
use super::invocation::{PluginIndex, Wanted, call, of_network};
use super::last_mac;
use super::lease_request::LeaseRequest;
use super::routes;
use crate::apply::host::Host;
use crate::apply::transaction::Part;
use braid_core::cni::{AddResult, Error};
use braid_core::ipam::Lease;
use braid_core::k8s::default_route::DefaultRoutes;
use braid_core::name::Mac;
use braid_core::plan::thing::{Attr, LinkAttr, LinkRef};
use braid_core::plan::{Facts, Need, Step};
use braid_core::plugins::{Call, Linked, Planned, Plugin, ipv6};

/// State of planning a call.
#[derive(Debug)]
pub struct Planner<'a> {
    /// The attachments, in order.
    pub wanted: &'a [Wanted],
    /// The result of each attachment so far.
    pub results: Vec<Option<AddResult>>,
    /// Warnings for the operator. They are not failures.
    pub warnings: Vec<String>,
    sandbox: String,
}

/// Plan for several consecutive native plugins.
#[derive(Debug, Default)]
pub struct Native {
    /// The steps of each plugin, in order.
    pub parts: Vec<Part>,
    /// Facts that were read from the node before planning.
    pub observed: Facts,
    /// The facts as they will be after the steps in `parts`.
    pub ahead: Facts,
    /// The last plugin, if only its link is planned so far ([`Native::is_unaddressed`]).
    unaddressed: Option<Unaddressed>,
}

/// A plugin that gets its addresses through its link (DHCP), or probes them there. So far only the
/// link is planned.
#[derive(Debug)]
struct Unaddressed {
    linked: Linked,
    /// The attachment's result before this plugin.
    prev: Option<AddResult>,
}

impl Native {
    /// True if the last plugin lacks its addresses, as they are requested when its link exists:
    /// [`Planner::addresses`].
    pub fn is_unaddressed(&self) -> bool {
        self.unaddressed.is_some()
    }

    /// Adds facts that were read from the node, and updates `ahead`.
    fn read(&mut self, facts: Facts) {
        self.observed.merge(facts);
        let mut ahead = self.observed.clone();
        for part in &self.parts {
            ahead = ahead.after(&part.steps);
        }
        self.ahead = ahead;
    }

    /// Lets a plugin change the steps of the earlier plugins in its network.
    fn amend(&mut self, attachment: usize, amend: impl Fn(&Facts, &mut [Step]) -> bool) {
        let mut is_changed = false;
        for part in &mut self.parts {
            if part.attachment == attachment {
                is_changed |= amend(&self.ahead, &mut part.steps);
            }
        }
        if is_changed {
            self.read(Facts::default());
        }
    }

    /// Adds a plugin's steps, except for shared steps that another network has already added.
    fn push(&mut self, mut part: Part) {
        let attachment = part.attachment;
        let has = |other: &Part, step: &Step| {
            other.attachment != attachment && other.steps.contains(step)
        };
        let is_shared = |step: &Step| {
            matches!(step, Step::Ensure(_)) && self.parts.iter().any(|other| has(other, step))
        };
        part.steps.retain(|step| !is_shared(step));
        self.ahead = std::mem::take(&mut self.ahead).after(&part.steps);
        self.parts.push(part);
    }
}

/// Function that reserves the addresses of a plugin.
pub type Leases<'l> =
    dyn FnMut(&LeaseRequest<'_>, &mut dyn Host) -> Result<Option<Lease>, Error> + 'l;

impl<'a> Planner<'a> {
    /// Creates a planner. The result of each attachment starts as the `prevResult` of its
    /// configuration, if present.
    pub fn new(wanted: &'a [Wanted]) -> Self {
        let results = wanted
            .iter()
            .map(|wanted| wanted.chain.conf.prev_result.clone())
            .collect();
        let sandbox = wanted.first().map(Wanted::sandbox).unwrap_or_default();
        Self {
            wanted,
            results,
            warnings: Vec::new(),
            sandbox,
        }
    }

    /// Decides the default routes of all networks ([`routes::decided`]). The first `kept` networks are
    /// those of a running container. One of them that has the default routes keeps them.
    pub(super) fn default_routes(&mut self, kept: usize) -> Option<Vec<DefaultRoutes>> {
        let mut decided = routes::decided(self.wanted, &mut self.results)?;
        for (decided, wanted) in decided.iter_mut().zip(&self.wanted[..kept]) {
            if wanted.default_route.is_some() {
                *decided = DefaultRoutes::Keep;
            }
        }
        Some(decided)
    }

    /// Plans consecutive native plugins. Each plugin is planned on the facts that the earlier
    /// plugins will leave.
    ///
    /// The first plugin of each network can refuse the call before any address is reserved. If such
    /// a plugin lacks a link that an earlier network may create, it is asked again after that
    /// network is planned. For a plugin that gets its addresses through its link (DHCP), or probes
    /// them there, only the link is planned.
    pub fn native(
        &mut self,
        places: &[PluginIndex],
        host: &mut dyn Host,
        leases: &mut Leases<'_>,
    ) -> Result<Native, Error> {
        let mut native = Native::default();
        let waiting = self.refuse_first(places, host, &mut native)?;
        for place in places {
            if place.item > 0 || waiting.contains(place) {
                self.refuse(*place, host, &mut native)?;
            }
            let planned = if self.has_link_first(*place, &native.ahead) {
                self.plan_link(*place, &mut native)
            } else {
                self.plan(*place, host, &mut native, leases)
            };
            let planned = planned.map_err(of_network(self.wanted, place.wanted))?;
            self.push(*place, planned, &mut native);
        }
        Ok(native)
    }

    /// True if the link of the plugin at `place` is planned without addresses.
    fn has_link_first(&self, place: PluginIndex, facts: &Facts) -> bool {
        let item = &self.wanted[place.wanted].chain.items[place.item];
        if !item.needs_link() || item.is_through_link() {
            return item.needs_link();
        }
        let plugin = self.plugin(place);
        plugin.is_ok_and(|(_, plugin)| plugin.through_link().is_ok_and(|it| it.has_link(facts)))
    }

    /// Lets the first plugin of each network refuse the call. Returns the positions of plugins to
    /// ask again, because an earlier network may create the link that they lack.
    fn refuse_first(
        &self,
        places: &[PluginIndex],
        host: &mut dyn Host,
        native: &mut Native,
    ) -> Result<Vec<PluginIndex>, Error> {
        let (mut earlier, mut waiting) = (Vec::new(), Vec::new());
        for place in places {
            if place.item > 0 {
                continue;
            }
            let judged = self.refuse(*place, host, native);
            if self.wanted.len() == 1 {
                judged?;
                continue;
            }
            let (wanted, plugin) = self.plugin(*place)?;
            let needs = plugin.needs(&call(
                wanted,
                &self.sandbox,
                self.results[place.wanted].as_ref(),
            ));
            if judged.is_err()
                && needs
                    .iter()
                    .any(|need| native.observed.is_awaited(need, &earlier))
            {
                waiting.push(*place);
            } else {
                judged?;
            }
            earlier.extend(needs);
        }
        Ok(waiting)
    }

    /// Plans the link of a plugin that gets its addresses through this link (DHCP), or probes them
    /// there.
    fn plan_link(&self, place: PluginIndex, native: &mut Native) -> Result<Planned, Error> {
        let (wanted, plugin) = self.plugin(place)?;
        let prev = self.results[place.wanted].clone();
        let call = call(wanted, &self.sandbox, prev.as_ref());
        let plugin = plugin.through_link().map_err(Error::config)?;
        let mut linked = plugin.plan_link(&call, &native.ahead)?;
        if let Some(mac) = last_mac::behind(wanted, place.item) {
            linked.set_mac(mac, &call, &native.ahead);
        }
        let planned = plugin.complete(&call, &native.ahead, linked.clone(), None)?;
        native.unaddressed = Some(Unaddressed { linked, prev });
        Ok(planned)
    }

    /// Completes the plan of the plugin at `place`, the last one in `native`, with its addresses.
    /// They are requested through the plugin's link, which exists now. The returned plan has only
    /// the remaining steps of this plugin.
    pub fn addresses(
        &mut self,
        place: PluginIndex,
        host: &mut dyn Host,
        mut native: Native,
        leases: &mut Leases<'_>,
    ) -> Result<Native, Error> {
        native.parts.pop();
        // Restores the facts on which the link was planned.
        native.read(Facts::default());
        let can_announce = native.unaddressed.as_mut().is_some_and(|unaddressed| {
            self.results[place.wanted] = unaddressed.prev.take();
            unaddressed.linked.can_announce()
        });
        let planned = self.plan(place, host, &mut native, leases);
        let mut planned = planned.map_err(of_network(self.wanted, place.wanted))?;
        if can_announce {
            planned.steps.extend(self.announce(place, &planned));
        }
        self.push(place, planned, &mut native);
        native.parts.drain(..native.parts.len() - 1);
        for part in &mut native.parts {
            part.goes_on = true;
        }
        Ok(native)
    }

    /// Returns a step that announces the container's addresses to the other hosts on its link,
    /// because the link came up before it had addresses. `None` if the plan has such a step
    /// already.
    fn announce(&self, place: PluginIndex, planned: &Planned) -> Option<Step> {
        let at = LinkRef::pod(self.wanted[place.wanted].attachment.ifname.clone());
        let is_announcement = |step: &Step| {
            step.attr()
                .is_some_and(|(_, to)| matches!(to, LinkAttr::Announce(_)))
        };
        if planned.steps.iter().any(is_announcement) {
            return None;
        }
        let mut interfaces = planned.result.interfaces.iter();
        let own = interfaces.find(|own| !own.sandbox.is_empty() && own.name == at.name.as_str())?;
        let to = LinkAttr::Announce(Mac::parse(&own.mac)?);
        Some(Step::add(Attr { at, to }))
    }

    /// Adds a plugin's plan.
    fn push(&mut self, place: PluginIndex, planned: Planned, native: &mut Native) {
        let network = self.wanted[place.wanted].chain.network();
        for warning in &planned.warnings {
            self.warnings
                .push(format!("network {network:?}: {warning}"));
        }
        native.push(Part::new(place.wanted, planned.steps));
        self.results[place.wanted] = Some(planned.result);
    }

    /// Reads the facts that the plugin at `place` needs, and lets the plugin refuse the call.
    fn refuse(
        &self,
        place: PluginIndex,
        host: &mut dyn Host,
        before: &mut Native,
    ) -> Result<(), Error> {
        let (wanted, plugin) = self.plugin(place)?;
        let call = call(wanted, &self.sandbox, self.results[place.wanted].as_ref());
        read_more(host, plugin.needs(&call), before)?;
        let judged = plugin.refuse(&call, &before.ahead);
        judged.map_err(of_network(self.wanted, place.wanted))
    }

    fn plan(
        &self,
        place: PluginIndex,
        host: &mut dyn Host,
        before: &mut Native,
        leases: &mut Leases<'_>,
    ) -> Result<Planned, Error> {
        let (wanted, plugin) = self.plugin(place)?;
        let (item, prev) = (
            &wanted.chain.items[place.item],
            self.results[place.wanted].as_ref(),
        );
        let call = call(wanted, &self.sandbox, prev);
        let ask = LeaseRequest {
            place,
            prev,
            no_ipv6: no_ipv6(host, item, &call, before)?,
            has_link: before.is_unaddressed(),
        };
        let (mut lease, mut warning) = (leases(&ask, host)?, None);
        if let Some(given) = lease {
            let (given, less) = ask.left_of(&item.addresses, given)?;
            let needs = plugin.needs_of(&given);
            if !needs.is_empty() {
                read_more(host, needs, before)?;
            }
            (lease, warning) = (Some(given), less);
        }
        let mut planned = match before.unaddressed.take() {
            None => plugin.plan(&call, &before.ahead, lease)?,
            Some(Unaddressed { linked, .. }) => plugin
                .through_link()
                .map_err(Error::config)?
                .complete(&call, &before.ahead, linked.applied(), lease)?,
        };
        // Changed steps do not change the facts, so the plugin is not planned again.
        before.amend(place.wanted, |facts, steps| {
            plugin.amend(&call, facts, steps)
        });
        planned.warnings.extend(warning);
        planned.result.convertible(wanted.chain.conf.version)?;
        Ok(planned)
    }

    fn plugin(&self, place: PluginIndex) -> Result<(&'a Wanted, &'a dyn Plugin), Error> {
        let wanted = &self.wanted[place.wanted];
        let item = &wanted.chain.items[place.item];
        match &item.work {
            Runner::Native(plugin) => Ok((wanted, &**plugin)),
            Runner::Ipam | Runner::Foreign => Err(Error::config(format!(
                "{:?} can't be part of a list: it is an IPAM",
                item.conf.plugin
            ))),
        }
    }
}

/// Returns the reason why the item's container cannot have IPv6. `None` if the container can have
/// IPv6, or if the item's IPAM assigns no IPv6 address.
fn no_ipv6(
    host: &mut dyn Host,
    item: &Item,
    call: &Call<'_>,
    before: &mut Native,
) -> Result<Option<String>, Error> {
    let may_give = match &item.addresses {
        AddressSource::NoIpam => false,
        AddressSource::Ours(ipam) => ipam.has_ipv6(),
        AddressSource::Foreign(_) => true,
    };
    let Runner::Native(plugin) = &item.work else {
        return Ok(None);
    };
    if !may_give {
        return Ok(None);
    }
    let at = plugin.gateway_at(call);
    if let Some(need) = ipv6::need(at.as_ref(), &before.ahead) {
        read_more(host, vec![need], before)?;
    }
    Ok(ipv6::off(at.as_ref(), &before.ahead))
}

/// Reads the facts in `needs` and adds them to `before`. Leaves out facts about links that earlier
/// plugins will create.
fn read_more(host: &mut dyn Host, mut needs: Vec<Need>, before: &mut Native) -> Result<(), Error> {
    if !before.parts.is_empty() {
        let ahead = |at: &LinkRef| before.ahead.link(at);
        // The shaping of a bridge does not matter if its port can be shaped.
        let is_shaped = |at: &LinkRef| {
            ahead(at).is_none_or(|link| link.kind != "bridge" && before.observed.link(at).is_some())
        };
        needs.retain(|need| {
            before
                .ahead
                .place_in(need)
                .is_none_or(|at| ahead(&at).is_none())
        });
        needs.retain(|need| !matches!(need, Need::Shaped(at) if !is_shaped(at)));
    }
    if !needs.is_empty() {
        before.read(host.observe(&needs).map_err(Error::from)?);
    }
    Ok(())
}
