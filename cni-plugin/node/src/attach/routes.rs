//! Default routes of a pod, if a network of the pod requests them.

use super::invocation::Wanted;
use crate::apply::host::Host;
use crate::apply::transaction::Part;
use crate::store::record::Attached;
use braid_core::cni::{self, AddResult, Error};
use braid_core::k8s::default_route::{DefaultRoutes, Families, Gateway, decide, families};
use braid_core::kernel_numbers::RT_TABLE_MAIN;
use braid_core::name::Ns;
use braid_core::plan::facts::RouteFact;
use braid_core::plan::thing::{LinkRef, Route, Thing};
use braid_core::plan::{Need, Step};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::IpAddr;

/// Decides the default routes of each network, and changes the results accordingly. `None` if no
/// network requests default routes.
pub(super) fn decided(
    wanted: &[Wanted],
    results: &mut [Option<AddResult>],
) -> Option<Vec<DefaultRoutes>> {
    if wanted.iter().all(|wanted| wanted.default_route.is_none()) {
        return None;
    }
    let (mut asked, mut own) = (Vec::new(), Vec::new());
    for wanted in wanted {
        asked.push(wanted.default_route.as_deref());
    }
    for result in results.iter() {
        own.push(result.as_ref().map_or(Families::default(), families));
    }
    let decided = decide(&asked, &own);
    for (decided, result) in decided.iter().zip(results) {
        if let Some(result) = result {
            decided.apply(result);
        }
    }
    Some(decided)
}

/// Removes steps that add default routes, if another network replaces these routes, and returns them.
/// Adds steps for default routes through the requested gateways.
pub(super) fn settle(
    decided: &[DefaultRoutes],
    wanted: &[Wanted],
    parts: &mut Vec<Part>,
) -> Vec<Part> {
    let mut displaced = Vec::new();
    for part in parts.iter_mut() {
        let families = decided[part.attachment].families();
        let is_gone = |step: &mut Step| is_default_of(step, families);
        let gone: Vec<Step> = part.steps.extract_if(.., is_gone).collect();
        displaced.push(Part::new(part.attachment, gone));
    }
    for (attachment, decided) in decided.iter().enumerate() {
        let DefaultRoutes::Via(gateways) = decided else {
            continue;
        };
        let at = LinkRef::pod(wanted[attachment].attachment.ifname.clone());
        let mut steps = Vec::new();
        for gateway in gateways {
            steps.push(Step::add(route(&at, *gateway)));
        }
        parts.push(Part::new(attachment, steps));
    }
    displaced
}

/// Returns steps that delete the container's existing default routes, if another network replaces
/// them, and steps that add them again. Plugins that have already run created these routes.
pub(super) fn of_kernel(
    decided: &[DefaultRoutes],
    wanted: &[Wanted],
    host: &mut dyn Host,
) -> Result<(Vec<Part>, Vec<Part>), Error> {
    let link_of = |wanted: &Wanted| LinkRef::pod(wanted.attachment.ifname.clone());
    let mut needs = Vec::new();
    for wanted in wanted {
        needs.push(Need::Link(link_of(wanted)));
    }
    needs.push(Need::Routes(Ns::Pod));
    let facts = host.observe(&needs).map_err(Error::from)?;
    let routes = facts.routes.get(&Ns::Pod).map_or(&[][..], Vec::as_slice);
    let (mut parts, mut displaced) = (Vec::new(), Vec::new());
    for (attachment, decided) in decided.iter().enumerate() {
        let at = link_of(&wanted[attachment]);
        let Some(link) = facts.link(&at) else {
            continue;
        };
        let (mut steps, mut again) = (Vec::new(), Vec::new());
        for fact in routes {
            let is_default = fact.dst.prefix_len() == 0
                && fact.table == RT_TABLE_MAIN
                && fact.link == Some(link.index);
            if is_default && decided.families().has(&fact.dst.addr()) {
                let route = of_fact(&at, fact);
                again.push(Step::add(Route {
                    src: fact.src,
                    mtu: fact.mtu,
                    advmss: fact.advmss,
                    onlink: fact.onlink,
                    ..route.clone()
                }));
                steps.push(Step::del(route));
            }
        }
        if !steps.is_empty() {
            parts.push(Part::new(attachment, steps));
            displaced.push(Part::new(attachment, again));
        }
    }
    Ok((parts, displaced))
}

/// Moves default routes of a running container, whose attachments `after` have other requests than
/// `before`. Returns the steps, and gives `after` its routes.
pub(super) fn moved(before: &[Attached], after: &mut [Attached]) -> Vec<Step> {
    let (mut asked, mut own, mut families) = (Vec::new(), Vec::new(), Vec::new());
    for (before, after) in before.iter().zip(&*after) {
        let routes = own_defaults(before);
        let to: Vec<IpAddr> = routes.iter().filter_map(destination).collect();
        families.push(Families::of(&to));
        own.push(routes);
        asked.push(after.default_route());
    }
    let asked: Vec<Option<&[IpAddr]>> = asked.iter().map(Option::as_deref).collect();
    let decided = decide(&asked, &families);
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for ((attached, own), decided) in after.iter_mut().zip(own).zip(decided) {
        let there = present(attached);
        let is_displaced = |step: &Step| is_default_of(step, decided.families());
        let (displaced, mut kept): (Vec<Step>, Vec<Step>) = own.into_iter().partition(is_displaced);
        if let DefaultRoutes::Via(gateways) = &decided {
            let at = LinkRef::pod(attached.ifname.clone());
            kept.extend(gateways.iter().map(|via| Step::add(route(&at, *via))));
        }
        for step in there.iter().filter(|step| !kept.contains(step)) {
            if let Step::Add(thing) = step {
                gone.push(Step::Del(thing.clone()));
            }
        }
        new.extend(kept.iter().filter(|step| !there.contains(step)).cloned());
        if kept != there {
            set(attached, kept);
        }
        attached.displaced = displaced;
    }
    // Both routes are there for a moment, so that one always is.
    [new, gone].concat()
}

/// Gives an attachment these default routes, in its steps and its result.
fn set(attached: &mut Attached, routes: Vec<Step>) {
    forget_defaults(attached);
    attached.parts.push(routes);
    note(attached);
}

/// Gives the result of an attachment its recorded default routes.
pub(super) fn note(attached: &mut Attached) {
    if let Some(Ok(mut result)) = attached.result() {
        DefaultRoutes::Clear(Families::BOTH).apply(&mut result);
        let routes = present(attached);
        result.routes.extend(routes.iter().filter_map(entry));
        attached.note(Some(&result));
    }
}

/// Removes the recorded steps about default routes of the container's main table.
pub(super) fn forget_defaults(attached: &mut Attached) {
    for part in &mut attached.parts {
        part.retain(|step| {
            !matches!(step, Step::Add(thing) | Step::Del(thing) if is_default(thing, Families::BOTH))
        });
    }
}

/// Returns the default routes of the network's own configuration, also while they are displaced.
fn own_defaults(attached: &Attached) -> Vec<Step> {
    let requested = Families::of(&attached.default_route().unwrap_or_default());
    let mut own = present(attached);
    own.retain(|step| !is_default_of(step, requested));
    own.extend_from_slice(&attached.displaced);
    own
}

/// Returns the steps that have added the attachment's default routes.
pub(super) fn present(attached: &Attached) -> Vec<Step> {
    let is_default = |step: &&Step| is_default_of(step, Families::BOTH);
    attached.steps().filter(is_default).cloned().collect()
}

fn destination(step: &Step) -> Option<IpAddr> {
    let Step::Add(Thing::Route(route)) = step else {
        return None;
    };
    Some(route.dst.addr())
}

/// True if the step adds a default route of one of these families to the container's main table.
pub(super) fn is_default_of(step: &Step, families: Families) -> bool {
    matches!(step, Step::Add(thing) if is_default(thing, families))
}

fn is_default(thing: &Thing, families: Families) -> bool {
    matches!(thing, Thing::Route(Route { at, dst, table: RT_TABLE_MAIN, .. })
        if at.ns == Ns::Pod && dst.prefix_len() == 0 && families.has(&dst.addr()))
}

/// Returns the entry in a result for a step that adds a route; `None` for other steps.
pub(super) fn entry(step: &Step) -> Option<cni::Route> {
    let Step::Add(Thing::Route(route)) = step else {
        return None;
    };
    Some(cni::Route {
        gw: route.gw,
        priority: route.priority.unwrap_or_default(),
        ..cni::Route::to(route.dst)
    })
}

fn route(at: &LinkRef, Gateway { address, metric }: Gateway) -> Route {
    let dst: IpNet = if address.is_ipv4() {
        Ipv4Net::default().into()
    } else {
        Ipv6Net::default().into()
    };
    let priority = Some(metric).filter(|metric| *metric > 0);
    Route {
        at: at.clone(),
        dst,
        gw: Some(address),
        src: None,
        table: RT_TABLE_MAIN,
        scope: 0,
        priority,
        mtu: None,
        advmss: None,
        onlink: false,
    }
}

fn of_fact(at: &LinkRef, fact: &RouteFact) -> Route {
    let RouteFact {
        dst,
        gw,
        table,
        scope,
        priority,
        ..
    } = *fact;
    Route {
        at: at.clone(),
        dst,
        gw,
        src: None,
        table,
        scope,
        priority,
        mtu: None,
        advmss: None,
        onlink: false,
    }
}
