//! The dry run: the plan of an ADD, with addresses looked up and not reserved.

use super::chain::{AddressSource, Chain, Item, Runner};
use super::invocation::{Invocation, PluginIndex, Wanted, is_foreign, places};
use super::lease_request::LeaseRequest;
use super::liveness::NodeState;
use super::planner::{Native, Planner};
use super::routes;
use crate::apply::host::Host;
use crate::effect::shared::is_there_already;
use braid_core::cni::Error;
use braid_core::ipam::Lease;
use braid_core::ipam::probe::WAIT;
use braid_core::plan::Step;
use braid_core::plugins::Addresses;

/// A line in the output of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A step that ADD would apply.
    Step(Step),
    /// A step without effect, as the node already has the shared object.
    Held(Step),
    /// A sentence about something other than a step: an available address, a foreign program, a
    /// warning.
    Note(String),
}

/// Returns the changes that ADD would make, in order. Changes nothing.
pub fn preview(call: &Invocation, host: &mut dyn Host) -> Result<Vec<Line>, Error> {
    for Wanted {
        attachment, chain, ..
    } in &call.wanted
    {
        chain.refuse_circles(attachment)?;
    }
    if let [Wanted { chain, .. }] = &call.wanted[..]
        && let Some(ipam) = chain.ipam_alone()
    {
        return Ok(addresses(
            &chain.plugin_name,
            chain,
            &ipam.peek(NodeState::of(host.root(), chain.network(), host.log()).host())?,
        ));
    }
    let mut planner = Planner::new(&call.wanted);
    let mut lines = Vec::new();
    let places = places(&call.wanted);
    let item = |place: &PluginIndex| &call.wanted[place.wanted].chain.items[place.item];
    let is_known = |place: &&PluginIndex| {
        !is_foreign(&call.wanted, **place) && !needs_foreign_addresses(item(place))
    };
    let known = places.iter().take_while(is_known).count();
    // If a plugin gets addresses through its link (DHCP), or probes them there, the plugins after it
    // depend on these addresses, which are unknown here.
    let through = places[..known]
        .iter()
        .position(|place| item(place).needs_link());
    let (known, unknown) = places.split_at(through.map_or(known, |at| at + 1));
    natives(&mut planner, known, host, (unknown.is_empty(), &mut lines))?;
    lines.extend(planner.warnings.drain(..).map(Line::Note));
    if let Some(at) = through
        && item(&places[at]).is_through_link()
    {
        let item = item(&places[at]);
        let (ipam, plugin) = (&item.conf.ipam, &item.conf.plugin);
        lines.push(Line::Note(format!(
            "{ipam}: requests the addresses of {plugin} here, through the link; not shown"
        )));
    }
    for place in unknown {
        lines.push(Line::Note(not_planned(item(place))));
    }
    Ok(lines)
}

fn needs_foreign_addresses(item: &Item) -> bool {
    let needs =
        matches!(&item.work, Runner::Native(plugin) if plugin.addresses() == Addresses::Required);
    needs && matches!(item.addresses, AddressSource::Foreign(_))
}

fn natives(
    planner: &mut Planner<'_>,
    places: &[PluginIndex],
    host: &mut dyn Host,
    (is_all, lines): (bool, &mut Vec<Line>),
) -> Result<(), Error> {
    let wanted = planner.wanted;
    let mut notes = Vec::new();
    let mut planned = planner.native(places, host, &mut noting(wanted, &mut notes))?;
    let is_probed =
        |place: &&PluginIndex| !wanted[place.wanted].chain.items[place.item].is_through_link();
    if planned.is_unaddressed()
        && let Some(last) = places.last().filter(is_probed)
    {
        show(&planned, std::mem::take(&mut notes), lines);
        planned = planner.addresses(*last, host, planned, &mut noting(wanted, &mut notes))?;
    }
    if is_all && let Some(decided) = routes::decided(wanted, &mut planner.results) {
        routes::settle(&decided, wanted, &mut planned.parts);
    }
    show(&planned, notes, lines);
    Ok(())
}

/// Returns a function that looks up the lease of a plugin, and adds the notes about it to `notes`.
fn noting<'n>(
    wanted: &'n [Wanted],
    notes: &'n mut Vec<Vec<Line>>,
) -> impl FnMut(&LeaseRequest<'_>, &mut dyn Host) -> Result<Option<Lease>, Error> + 'n {
    |ask, host| {
        let (lease, found) = look_up(&wanted[ask.place.wanted], ask, host)?;
        notes.push(found);
        Ok(lease)
    }
}

/// Adds the lines of a plan, each plugin's with its notes before.
fn show(planned: &Native, notes: Vec<Vec<Line>>, lines: &mut Vec<Line>) {
    let mut notes = notes.into_iter();
    for part in &planned.parts {
        lines.extend(notes.next().into_iter().flatten());
        for step in &part.steps {
            lines.push(if is_there_already(step, &planned.observed) {
                Line::Held(step.clone())
            } else {
                Line::Step(step.clone())
            });
        }
    }
}

/// Returns the lease that the IPAM of the requesting plugin would assign, and notes about the lease.
/// The lease is `None` without an IPAM, and if the IPAM is another program.
fn look_up(
    wanted: &Wanted,
    ask: &LeaseRequest<'_>,
    host: &dyn Host,
) -> Result<(Option<Lease>, Vec<Line>), Error> {
    let chain = &wanted.chain;
    let item = &chain.items[ask.place.item];
    match &item.addresses {
        AddressSource::NoIpam => Ok((None, Vec::new())),
        AddressSource::Ours(ipam) => {
            let lease = ask.lease(&**ipam, |ipam| {
                ipam.peek(NodeState::of(host.root(), chain.network(), host.log()).host())
            })?;
            let mut notes = addresses(&item.conf.ipam, chain, &lease);
            if ask.has_link {
                let (ipam, ifname) = (&item.conf.ipam, wanted.attachment.ifname.as_str());
                let wait = WAIT.as_millis();
                notes.push(Line::Note(format!(
                    "{ipam}: asks the other hosts on the link of {ifname} for them here, for {wait} ms"
                )));
            }
            Ok((Some(lease), notes))
        }
        AddressSource::Foreign(ipam) => {
            let plugin = &item.conf.plugin;
            let note = format!(
                "{ipam}: another program, which assigns the addresses of {plugin}; not shown"
            );
            Ok((None, vec![Line::Note(note)]))
        }
    }
}

fn addresses(ipam: &str, chain: &Chain, lease: &Lease) -> Vec<Line> {
    let note = |ip: &braid_core::cni::IpConfig| {
        Line::Note(format!(
            "{ipam}: {} of network {}",
            ip.address,
            chain.network()
        ))
    };
    lease.ips.iter().map(note).collect()
}

/// Returns the reason why an item's plan is not shown.
fn not_planned(item: &Item) -> String {
    let plugin = &item.conf.plugin;
    match (&item.work, &item.addresses) {
        (Runner::Foreign, _) => format!("{plugin}: another program, called here"),
        (_, AddressSource::Foreign(ipam)) => {
            format!("{plugin}: depends on the addresses from {ipam}, another program")
        }
        _ => format!("{plugin}: depends on the programs before it"),
    }
}
