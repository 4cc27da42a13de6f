//! Repair of running containers: recorded steps whose effect another program has deleted are applied
//! again, and the record stays as it is.
//!
//! ```text
//!  records ─► links, addresses and routes of the node ─► which containers may be broken
//!  folder locked, record unchanged ─► steps that do not hold ─► applied again
//! ```
//!
//! A program in the container may change its own namespace. So steps in it are applied again only if
//! the whole interface is gone.

use super::check::is_overwritten;
use super::invocation::refuse_own;
use crate::apply::executor::OnError;
use crate::apply::host::{Host, Machine};
use crate::store::holder::is_alive;
use crate::store::record::{Attached, Record};
use crate::sys::netns::NetNs;
use braid_core::cni::Error;
use braid_core::name::Ns;
use braid_core::plan::order::ordered;
use braid_core::plan::step::Step;
use braid_core::plan::thing::{Link, LinkAttr, LinkRef, Thing};
use braid_core::plan::{Facts, Feature, Need};
use std::collections::{BTreeMap, BTreeSet};

/// Links of the node that attachments use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Index of each bridge and of each parent, by name; `None` while it is missing.
    pub shared: BTreeMap<String, Option<u32>>,
    /// Indices of all links, also of those that are one container's.
    pub indices: BTreeSet<u32>,
}

/// Containers and links as the node shows them.
#[derive(Debug, Default)]
pub struct Look {
    /// Indices of the records with a step that does not hold on the node.
    pub broken: Vec<usize>,
    /// The links.
    pub links: Links,
}

/// A network of a container that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The network's name.
    pub network: String,
    /// Name of the container's interface.
    pub ifname: String,
    /// Number of links, addresses, routes and others on the node that were restored, by the word of
    /// their kind. Empty if the interface itself was attached again.
    pub parts: BTreeMap<&'static str, u64>,
}

/// Tables of calls, as of the last comparison.
#[derive(Debug, Default)]
pub struct SeenTables {
    handles: BTreeSet<u64>,
    /// Ids of the containers with rules.
    owners: BTreeSet<String>,
}

/// Outcome of a restoration of tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// Networks that have rules again, each with the index of its record.
    pub restored: Vec<(usize, Restored)>,
    /// True if rules are still missing, as those of a container that a call is processing.
    pub is_incomplete: bool,
    /// The errors.
    pub errors: Vec<Error>,
}

/// Restores the tables of calls if they were deleted or flushed. A call, such as STATUS, may have
/// been faster: then a table was created again although a container had rules in it all the time.
pub fn restore_tables(records: &[Record], host: &mut dyn Host, seen: &mut SeenTables) -> Tables {
    let (mut features, mut networks) = (BTreeSet::new(), Vec::new());
    let mut owners = BTreeSet::new();
    for (at, record) in records.iter().enumerate() {
        for attached in &record.attachments {
            let needed: Vec<Feature> = attached.steps().filter_map(table_of).collect();
            if !needed.is_empty() {
                owners.insert(record.key.owner.container_id.clone());
                networks.push((at, Restored::of(attached, [("table", 1)].into())));
            }
            features.extend(needed);
        }
    }
    let features: Vec<Feature> = features.into_iter().collect();
    if !host.has_lost_rules(&features) {
        let handles = host.table_handles();
        let is_kept = seen.handles.is_subset(&handles) || owners.is_disjoint(&seen.owners);
        if is_kept {
            networks.clear();
        }
        networks.retain(|(at, _): &(usize, Restored)| {
            seen.owners.contains(&records[*at].key.owner.container_id)
        });
        *seen = SeenTables { handles, owners };
        return Tables {
            restored: networks,
            ..Tables::default()
        };
    }
    let errors = host.restore(&features);
    let is_incomplete = !errors.is_empty() || host.has_lost_rules(&features);
    if is_incomplete {
        networks.clear();
    } else {
        let handles = host.table_handles();
        *seen = SeenTables { handles, owners };
    }
    Tables {
        restored: networks,
        is_incomplete,
        errors: errors.into_iter().map(Error::from).collect(),
    }
}

/// Returns the feature for whose table the step adds rules.
fn table_of(step: &Step) -> Option<Feature> {
    let Step::Add(thing) = step else {
        return None;
    };
    if matches!(thing, Thing::Masquerade(_)) {
        Some(Feature::Masquerade)
    } else if matches!(thing, Thing::HostPorts(_) | Thing::Firewall(_)) {
        Some(Feature::NfTables)
    } else {
        matches!(thing, Thing::MacCheck(_)).then_some(Feature::MacCheck)
    }
}

impl Restored {
    fn of(attached: &Attached, parts: BTreeMap<&'static str, u64>) -> Self {
        Self {
            network: attached.network.clone(),
            ifname: attached.ifname.to_string(),
            parts,
        }
    }
}

/// Compares links, addresses and routes of the node with the records. Enters no namespace.
pub fn look(records: &[Record], host: &mut dyn Host) -> Result<Look, Error> {
    let mut needs = Vec::new();
    for record in records {
        for step in host_steps(record) {
            needs.extend(step.needs());
        }
        let links = host_ends(record).chain(parents(record));
        needs.extend(links.cloned().map(Need::Link));
    }
    let facts = observe(needs, host)?;
    let mut look = Look::default();
    for (at, record) in records.iter().enumerate() {
        let is_up = |at: &LinkRef| facts.link(at).is_some_and(|fact| fact.up);
        let is_right = host_ends(record).all(is_up)
            && host_steps(record).all(|step| step.holds(&facts).is_ok());
        if !is_right {
            look.broken.push(at);
        }
        note_links(&mut look.links, record, &facts);
    }
    Ok(look)
}

fn observe(mut needs: Vec<Need>, host: &mut dyn Host) -> Result<Facts, Error> {
    needs.sort_unstable();
    needs.dedup();
    host.observe(&needs).map_err(Error::from)
}

/// Returns the links that attachments have added.
fn links(record: &Record) -> impl Iterator<Item = &Link> {
    let attachments = record.attachments.iter().filter(|it| is_settled(it));
    attachments.flat_map(Attached::steps).filter_map(added)
}

fn added(step: &Step) -> Option<&Link> {
    if let Step::Add(Thing::Link(link)) = step {
        Some(link)
    } else {
        None
    }
}

/// Returns the ends of the container's links on the node.
fn host_ends(record: &Record) -> impl Iterator<Item = &LinkRef> {
    links(record)
        .flat_map(Link::ends)
        .filter(|end| end.ns == Ns::Host)
}

/// Returns the parents of the container's links on the node.
pub fn parents(record: &Record) -> impl Iterator<Item = &LinkRef> {
    links(record)
        .filter_map(|link| link.kind.parent())
        .filter(|at| at.ns == Ns::Host)
}

fn note_links(links: &mut Links, record: &Record, facts: &Facts) {
    let index = |at: &LinkRef| facts.link(at).map(|fact| fact.index);
    let mut shared: Vec<&LinkRef> = parents(record).collect();
    for step in host_steps(record) {
        if let Step::Ensure(Thing::Link(link)) = step {
            shared.push(&link.at);
        }
    }
    for at in shared {
        links.indices.extend(index(at));
        links.shared.insert(at.name.to_string(), index(at));
    }
    links.indices.extend(host_ends(record).filter_map(index));
}

/// Returns the steps of the node that a look compares: shared links, addresses and routes.
fn host_steps(record: &Record) -> impl Iterator<Item = &Step> {
    let is_plain = |need: &Need| {
        matches!(need, Need::Link(at) | Need::Addrs(at) if at.ns == Ns::Host)
            || *need == Need::Routes(Ns::Host)
    };
    let attachments = record.attachments.iter().filter(|it| is_settled(it));
    attachments
        .flat_map(Attached::steps)
        .filter(move |step| is_of_node(step) && step.needs().iter().all(is_plain))
}

/// True for a step that makes something on the node, but for the container's own links.
fn is_of_node(step: &Step) -> bool {
    is_state(step) && step.ns() == Ns::Host && added(step).is_none()
}

/// True for a step that makes something. Others wait, or delete.
fn is_state(step: &Step) -> bool {
    matches!(step, Step::Add(_) | Step::Ensure(_) | Step::Set { .. })
}

/// True if no edit and no DEL has begun to change the attachment.
pub(super) fn is_settled(attached: &Attached) -> bool {
    attached.left.is_none() && !attached.is_unsettled
}

/// Restores the networks of a container. Does nothing if it is gone, or if another call has changed
/// it since the record was read.
pub fn repair(listed: &Record, machine: &dyn Machine) -> Result<Vec<Restored>, Error> {
    let id = &listed.key.owner.container_id;
    let folder = machine.folder(id).map_err(Error::from)?;
    let record = folder.load(&listed.key).map_err(Error::from)?;
    let Some(record) = record.filter(|record| record == listed && is_alive(record)) else {
        folder.close().map_err(Error::from)?;
        return Ok(Vec::new());
    };
    let Some(Ok(netns)) = record.netns.as_deref().map(NetNs::open) else {
        return Ok(Vec::new());
    };
    let mut host = machine.open(Some(netns)).map_err(Error::from)?;
    refuse_own(&*host)?;
    if !record.is_of(host.pod_cookie()) {
        return Ok(Vec::new());
    }
    let (mut restored, mut errors) = (Vec::new(), Vec::new());
    for attached in record.attachments.iter().filter(|it| is_settled(it)) {
        match restore(attached, &mut *host) {
            Ok(None) => {}
            Ok(Some(one)) => restored.push(one),
            Err(err) => {
                let context = format_args!("restore network {:?}", attached.network);
                errors.push(err.context(context));
            }
        }
    }
    match Error::joined(&errors) {
        Err(err) if restored.is_empty() => Err(err),
        Err(err) => {
            machine.log().warn(&err);
            Ok(restored)
        }
        Ok(()) => Ok(restored),
    }
}

fn restore(attached: &Attached, host: &mut dyn Host) -> Result<Option<Restored>, Error> {
    let mut parts = BTreeMap::new();
    let steps: Vec<&Step> = attached.steps().collect();
    let facts = all_facts(&steps, host)?;
    let down = down(&steps, &facts);
    if !down.is_empty() {
        parts.insert("link", u64::try_from(down.len()).unwrap_or_default());
        execute(down, host)?;
    }
    let facts = all_facts(&steps, host)?;
    let links = steps.iter().filter_map(|step| added(step));
    let gone: Vec<&Link> = links.filter(|link| is_gone(link, &facts)).collect();
    // The kernel deletes an end with the other one. A port without its bridge is made again.
    let mut leftovers = Vec::new();
    for link in &gone {
        for end in link.ends().filter(|end| facts.link(end).is_some()) {
            leftovers.push(Step::del(Link::any(end.clone())));
        }
    }
    execute(leftovers, host)?;
    let facts = all_facts(&steps, host)?;
    let lost = lost(&steps, !gone.is_empty(), &facts);
    if lost.is_empty() && parts.is_empty() {
        return Ok(None);
    }
    for step in &lost {
        *parts.entry(word(step)).or_default() += 1;
    }
    if let Err(err) = execute(lost, host) {
        // An interface without its addresses would look like one that the container has changed.
        for link in &gone {
            delete_new(link, host);
        }
        return Err(err);
    }
    if !gone.is_empty() {
        parts.clear();
    }
    Ok(Some(Restored::of(attached, parts)))
}

/// Deletes a link that a failed repair has made, if it has. The next repair makes it again.
#[cold]
fn delete_new(link: &Link, host: &mut dyn Host) {
    for end in link.ends() {
        let deleted = execute(vec![Step::del(Link::any(end.clone()))], host);
        if deleted.is_ok() {
            return;
        }
    }
}

fn all_facts(steps: &[&Step], host: &mut dyn Host) -> Result<Facts, Error> {
    let mut needs: Vec<Need> = steps.iter().flat_map(|step| step.needs()).collect();
    let links = steps.iter().filter_map(|step| added(step));
    needs.extend(links.flat_map(Link::ends).cloned().map(Need::Link));
    observe(needs, host)
}

fn execute(steps: Vec<Step>, host: &mut dyn Host) -> Result<(), Error> {
    if steps.is_empty() {
        return Ok(());
    }
    let report = host.execute(&ordered(steps), &Facts::default(), OnError::Stop);
    let error = report.errors.into_iter().next();
    error.map_or(Ok(()), |err| Err(err.into()))
}

/// Returns the steps that set links of the node up again.
fn down(steps: &[&Step], facts: &Facts) -> Vec<Step> {
    let mut down = Vec::new();
    for step in steps {
        if let Step::Add(Thing::Link(link)) | Step::Ensure(Thing::Link(link)) = step {
            for end in link.ends().filter(|end| end.ns == Ns::Host) {
                if facts.link(end).is_some_and(|fact| !fact.up) {
                    down.push(Step::Set {
                        at: end.clone(),
                        to: LinkAttr::Up(true),
                        from: LinkAttr::Up(false),
                    });
                }
            }
        }
    }
    down
}

/// True if the link was deleted, or is no longer a port of its bridge. The container may have
/// renamed its own end of a pair.
fn is_gone(link: &Link, facts: &Facts) -> bool {
    let end = link
        .ends()
        .find(|end| end.ns == Ns::Host)
        .unwrap_or(&link.at);
    let Some(fact) = facts.link(end) else {
        return true;
    };
    let Some(master) = link.master.clone().filter(|_| link.at.ns == Ns::Host) else {
        return false;
    };
    let bridge = facts.link(&LinkRef::host(master));
    bridge.is_none_or(|bridge| fact.master != Some(bridge.index))
}

/// Returns the steps to apply again: those of the node, and all of them for a lost interface.
fn lost(steps: &[&Step], is_whole: bool, facts: &Facts) -> Vec<Step> {
    let mut lost = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let is_own = is_whole && is_state(step);
        if (is_own || is_of_node(step))
            && !is_overwritten(step, steps[at + 1..].iter().copied())
            && step.holds(facts).is_err()
        {
            lost.push((*step).clone());
        }
    }
    lost
}

/// Returns the kind of a restored object, as the counter names it.
fn word(step: &Step) -> &'static str {
    let (Step::Add(thing) | Step::Ensure(thing)) = step else {
        return "link";
    };
    let words = [
        (matches!(thing, Thing::Addr(_)), "address"),
        (matches!(thing, Thing::Route(_)), "route"),
        (matches!(thing, Thing::Rule(_)), "rule"),
        (matches!(thing, Thing::Neigh(_)), "neighbour"),
        (matches!(thing, Thing::Fdb(_)), "fdb"),
        (matches!(thing, Thing::Sysctl(_)), "sysctl"),
        (table_of(step).is_some(), "table"),
    ];
    let found = words.into_iter().find(|(is_it, _)| *is_it);
    found.map_or("link", |(_, word)| word)
}
