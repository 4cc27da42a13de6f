//! The dry run: what an ADD would do, with addresses looked up and not reserved.

use super::chain::{Chain, From, Item, Work};
use super::families::Ask;
use super::liveness::Known;
use super::planner::Planner;
use crate::apply::executor::is_there_already;
use crate::apply::host::Host;
use crate::cni::{Error, Request};
use crate::ipam::Lease;
use crate::plan::Step;
use crate::plugins::Addresses;
use std::ops::Range;

/// One line of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A change.
    Step(Step),
    /// Something that the node shares, and has already.
    Held(Step),
    /// What is no change of braid's own: an address found, a foreign program, a warning.
    Note(String),
}

/// What would be done, in order. Everything is looked at and stays as it is.
pub fn preview(request: &Request, chain: &Chain, host: &mut dyn Host) -> Result<Vec<Line>, Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("a dry run needs a container"))?;
    chain.refuse_circles(attachment)?;
    if let Some(ipam) = chain.ipam_alone() {
        return Ok(addresses(&chain.face, chain, &ipam.peek(Known::of(chain.network()).host())?));
    }
    let mut planner = Planner::new(chain, attachment, request.conf.version, request.conf.prev_result.clone());
    let mut lines = Vec::new();
    let known = planner.natives_from(0);
    let unknown = known.clone().find(|at| needs_foreign_addresses(&chain.items[*at]));
    natives(&mut planner, known.start..unknown.unwrap_or(known.end), host, &mut lines)?;
    lines.extend(planner.warnings.iter().map(|warning| Line::Note(warning.clone())));
    lines.extend((unknown.unwrap_or(known.end)..chain.items.len()).map(|at| Line::Note(not_planned(&chain.items[at]))));
    Ok(lines)
}

fn needs_foreign_addresses(item: &Item) -> bool {
    let needs = matches!(&item.work, Work::Native(plugin) if plugin.addresses() == Addresses::Required);
    needs && matches!(item.addresses, From::Foreign(_))
}

fn natives(
    planner: &mut Planner<'_>,
    items: Range<usize>,
    host: &mut dyn Host,
    lines: &mut Vec<Line>,
) -> Result<(), Error> {
    let chain = planner.chain;
    let mut notes: Vec<Vec<Line>> = vec![Vec::new(); items.len()];
    let mut look_up = |ask: &Ask<'_>| {
        let (lease, found) = look_up(chain, &chain.items[ask.at], ask)?;
        notes[ask.at] = found;
        Ok(lease)
    };
    let planned = planner.native(items, host, &mut look_up)?;
    for (notes, steps) in notes.into_iter().zip(planned.parts) {
        lines.extend(notes);
        let is_held = |step: &Step| is_there_already(step, &planned.observed);
        lines.extend(steps.into_iter().map(|step| if is_held(&step) { Line::Held(step) } else { Line::Step(step) }));
    }
    Ok(())
}

/// What the item's IPAM would give, and what there is to say about it.
fn look_up(chain: &Chain, item: &Item, ask: &Ask<'_>) -> Result<(Option<Lease>, Vec<Line>), Error> {
    match &item.addresses {
        From::Nobody => Ok((None, Vec::new())),
        From::Ours(ipam) => {
            let lease = ask.lease(&**ipam, |ipam| ipam.peek(Known::of(chain.network()).host()))?;
            let notes = addresses(&item.conf.ipam, chain, &lease);
            Ok((Some(lease), notes))
        }
        From::Foreign(ipam) => {
            let plugin = &item.conf.plugin;
            let note = format!("{ipam}: another program gives the addresses of {plugin}; they are not shown");
            Ok((None, vec![Line::Note(note)]))
        }
    }
}

fn addresses(ipam: &str, chain: &Chain, lease: &Lease) -> Vec<Line> {
    let note = |ip: &crate::cni::IpConfig| Line::Note(format!("{ipam}: {} of network {}", ip.address, chain.network()));
    lease.ips.iter().map(note).collect()
}

/// Why nothing is shown of an item.
fn not_planned(item: &Item) -> String {
    let plugin = &item.conf.plugin;
    match (&item.work, &item.addresses) {
        (Work::Foreign, _) => format!("{plugin}: another program, called here"),
        (_, From::Foreign(ipam)) => format!("{plugin}: depends on the addresses that {ipam} gives, another program"),
        _ => format!("{plugin}: depends on what the programs before it do"),
    }
}
