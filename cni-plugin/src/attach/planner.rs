//! Planning neighbouring native plugins of a chain, for ADD and for the dry run alike.

use super::chain::{Chain, From, Item, Work};
use super::families::Ask;
use crate::apply::host::Host;
use crate::cni::{AddResult, Attachment, Error, Version};
use crate::ipam::Lease;
use crate::plan::step::Step;
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Planned, ipv6};
use std::ops::Range;

/// One attachment on its way through the chain.
#[derive(Debug)]
pub struct Planner<'a> {
    /// All plugins.
    pub chain: &'a Chain,
    /// The container's interface.
    pub attachment: &'a Attachment,
    /// The result so far.
    pub prev: Option<AddResult>,
    /// What the operator should know though it is no failure.
    pub warnings: Vec<String>,
    version: Version,
    sandbox: String,
}

/// What some neighbouring native plugins will do.
#[derive(Debug)]
pub struct Native {
    /// The steps of each plugin, in order.
    pub parts: Vec<Vec<Step>>,
    /// What was read before deciding.
    pub observed: Facts,
    /// The facts as the steps so far will leave them.
    ahead: Facts,
}

impl Native {
    /// Takes over what was read.
    fn read(&mut self, facts: Facts) {
        self.observed.merge(facts);
        self.ahead = self.parts.iter().fold(self.observed.clone(), |facts, steps| facts.after(steps));
    }

    /// Takes over what a plugin will do.
    fn push(&mut self, steps: Vec<Step>) {
        self.ahead = std::mem::take(&mut self.ahead).after(&steps);
        self.parts.push(steps);
    }
}

/// Gives an item of the chain its addresses.
pub type Leases<'l> = dyn FnMut(&Ask<'_>) -> Result<Option<Lease>, Error> + 'l;

impl<'a> Planner<'a> {
    /// Starts from the result of an earlier call, where there is one.
    pub fn new(chain: &'a Chain, attachment: &'a Attachment, version: Version, prev: Option<AddResult>) -> Self {
        let sandbox = attachment.netns.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
        Self { chain, attachment, prev, warnings: Vec::new(), version, sandbox }
    }

    /// The native plugins from `at` on, up to the next foreign one.
    pub fn natives_from(&self, at: usize) -> Range<usize> {
        let is_native = |item: &&super::chain::Item| !matches!(item.work, Work::Foreign);
        at..at + self.chain.items.iter().skip(at).take_while(is_native).count()
    }

    /// Plans one plugin after the other, each on the facts as the earlier ones will leave them.
    pub fn native(
        &mut self,
        items: Range<usize>,
        host: &mut dyn Host,
        leases: &mut Leases<'_>,
    ) -> Result<Native, Error> {
        let is_last = items.end == self.chain.items.len();
        let mut native = Native { parts: Vec::new(), observed: Facts::default(), ahead: Facts::default() };
        for at in items {
            let planned = self.plan(at, host, &mut native, leases)?;
            self.warnings.extend(planned.warnings);
            native.push(planned.steps);
            self.prev = Some(planned.result);
        }
        if let (Some(result), true) = (&self.prev, is_last) {
            result.convertible(self.version)?;
        }
        Ok(native)
    }

    fn plan(
        &self,
        at: usize,
        host: &mut dyn Host,
        before: &mut Native,
        leases: &mut Leases<'_>,
    ) -> Result<Planned, Error> {
        let item = &self.chain.items[at];
        let Work::Native(plugin) = &item.work else {
            return Err(Error::config(format!("{:?} can't be part of a list: it is an IPAM", item.conf.plugin)));
        };
        let call = call(self.chain, self.attachment, &self.sandbox, self.prev.as_ref());
        read_more(host, plugin.needs(&call), before)?;
        plugin.refuse(&call, &before.ahead)?;
        let ask = Ask { at, prev: self.prev.as_ref(), no_ipv6: no_ipv6(host, item, &call, before)? };
        let lease = leases(&ask)?.map(|lease| ask.left_of(&item.addresses, lease)).transpose()?;
        let (lease, warning) = lease.map_or((None, None), |(lease, warning)| (Some(lease), warning));
        let needs = lease.as_ref().map(|lease| plugin.needs_of(lease)).filter(|needs| !needs.is_empty());
        if let Some(needs) = needs {
            read_more(host, needs, before)?;
        }
        let mut planned = plugin.plan(&call, &before.ahead, lease)?;
        planned.warnings.extend(warning);
        planned.result.convertible(self.version).map(|()| planned)
    }
}

/// What a plan may depend on.
pub fn call<'a>(
    chain: &'a Chain,
    attachment: &'a Attachment,
    sandbox: &'a str,
    prev: Option<&'a AddResult>,
) -> Call<'a> {
    Call::new(chain.network(), &attachment.container_id, &attachment.ifname, sandbox, prev)
}

/// Why the item's container can't have IPv6, where its IPAM may give it and the node has none.
fn no_ipv6(host: &mut dyn Host, item: &Item, call: &Call<'_>, before: &mut Native) -> Result<Option<String>, Error> {
    let may_give = match &item.addresses {
        From::Nobody => false,
        From::Ours(ipam) => ipam.has_ipv6(),
        From::Foreign(_) => true,
    };
    let Work::Native(plugin) = &item.work else { return Ok(None) };
    if !may_give {
        return Ok(None);
    }
    let at = plugin.gateway_at(call);
    if let Some(need) = ipv6::need(at.as_ref(), &before.ahead) {
        read_more(host, vec![need], before)?;
    }
    Ok(ipv6::off(at.as_ref(), &before.ahead))
}

/// Reads what a plugin needs and no earlier one asked for; a link that an earlier one makes is not there to be read.
fn read_more(host: &mut dyn Host, mut needs: Vec<Need>, before: &mut Native) -> Result<(), Error> {
    if !before.parts.is_empty() {
        let facts = &before.ahead;
        needs.retain(|need| match need {
            Need::Link(at) => facts.link(at).is_none(),
            // Nobody shapes the bridge itself when its port can be.
            Need::Shaped(at) if facts.link(at).is_some_and(|link| link.kind == "bridge") => false,
            Need::Shaped(at) => facts.link(at).is_none() || before.observed.link(at).is_some(),
            _ => true,
        });
    }
    if !needs.is_empty() {
        before.read(host.observe(&needs).map_err(Error::from)?);
    }
    Ok(())
}
