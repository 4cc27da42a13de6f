//! Edits of a running pod's annotation: networks are attached and detached until the pod has those
//! that it selects.
//!
//! ```text
//!  pod, record ─► k8s::edit::compare ─► networks to attach: definitions, claims, devices
//!  folder locked, record unchanged ─► attach::edit ─► network-status, events
//! ```
//! The pod and its networks are read before the container is locked. Claims and the status are written
//! while it is.

use super::devices::Held;
use super::find::{Finder, no_definition, not_there, rules};
use super::interface_facts::mtu_of;
use super::network::AttachedNetwork;
use super::publish::Publisher;
use super::refusal::{REFUSED, of_source, refusal};
use crate::apply::host::{Host, Machine};
use crate::attach::adjust::{self, Adjust};
use crate::attach::edit::{Edit, edit as change, recover};
use crate::attach::invocation::{Detached, Wanted, refuse_own};
use crate::attach::{device_file, recorded};
use crate::ipam::liveness::{Netns, netns_at};
use crate::source::cluster::Cluster;
use crate::store::record::{Attached, Folder, Owed, Record, is_known};
use crate::sys::netns::NetNs;
use braid_core::cni::{AddResult, Error, Json, Kind, NetConf};
use braid_core::k8s::edit::{Changes, Present, compare};
use braid_core::k8s::interface_event::{self, FAILED_ADD};
use braid_core::k8s::requested_networks::RequestedNetworks;
use braid_core::k8s::select::{self, Choice};
use braid_core::k8s::selection::Selection;
use braid_core::k8s::settings::{PodRef, Settings};
use braid_core::k8s::source::{Event, News, SourceError};
use braid_core::k8s::{NETWORK_STATUS, NETWORKS, Nad, Pod, status};
use ipnet::IpNet;

/// Attempts to change a container that other calls change meanwhile.
const ATTEMPTS: usize = 3;

/// Outcome of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pod has the networks that it selects.
    Same,
    /// Networks were attached or detached.
    Changed,
    /// The container or its pod is gone, or is being deleted.
    Gone,
}

/// Gives the running pod with this record the networks that its annotation selects now. `conf` is
/// the configuration of calls on this node. After an error, which is also reported as an event, the
/// pod has the networks of before.
pub fn edit(
    mut record: Record,
    conf: &NetConf,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<Outcome, Error> {
    let settings = Settings::of(conf)?
        .ok_or_else(|| Error::config("the configuration has no networks of pods"))?;
    let mut editor = Editor {
        finder: Finder::new(&settings, machine, cluster),
        conf,
        settings: &settings,
        machine,
    };
    for _ in 0..ATTEMPTS {
        match editor.attempt(&record)? {
            Attempt::Done(outcome) => return Ok(outcome),
            Attempt::Stale(newer) => record = *newer,
        }
    }
    let id = &record.key.owner.container_id;
    let sentence = format!("container {id} was changed by {ATTEMPTS} other calls");
    Err(Error::new(Kind::TryAgain, sentence))
}

/// Publishes the networks of the running pod with this record, if its `network-status` is stale.
/// Returns true if it did. `conf` is the configuration of calls on this node.
pub fn republish(
    record: &Record,
    conf: &NetConf,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<bool, Error> {
    let Some(settings) = Settings::of(conf)? else {
        return Ok(false);
    };
    let mut editor = Editor {
        finder: Finder::new(&settings, machine, cluster),
        conf,
        settings: &settings,
        machine,
    };
    let Some(pod) = editor.pod(record)? else {
        return Ok(false);
    };
    let published = pod.annotations.get(NETWORK_STATUS).map(String::as_str);
    let is_gone = |id: &str| !is_known(machine.root(), id);
    if record.is_interrupted() || !is_stale(record, published, &is_gone) {
        return Ok(false);
    }
    match editor.open(record)? {
        Ok((folder, mut host)) => {
            Ok(editor.publish(&pod, record.clone(), &[], (&folder, &mut *host)))
        }
        // A call has changed the record, and publishes it.
        Err(_) => Ok(false),
    }
}

/// True if a pod's `network-status` contradicts the record of its container.
/// `is_gone` is true for a container without a record.
pub fn is_stale(record: &Record, published: Option<&str>, is_gone: &dyn Fn(&str) -> bool) -> bool {
    let attachments = record.attachments.iter();
    let published_here = attachments.filter(|attached| attached.claimed.is_none());
    let names: Vec<String> = published_here.map(Attached::name).collect();
    status::is_stale(published, &record.key.owner.container_id, &names, is_gone)
}

enum Attempt {
    Done(Outcome),
    /// The record has changed since it was read.
    Stale(Box<Record>),
}

struct Editor<'e> {
    finder: Finder<'e>,
    conf: &'e NetConf,
    settings: &'e Settings,
    machine: &'e dyn Machine,
}

impl Editor<'_> {
    fn attempt(&mut self, record: &Record) -> Result<Attempt, Error> {
        let Some(pod) = self.pod(record)? else {
            return Ok(Attempt::Done(Outcome::Gone));
        };
        if record.is_interrupted() {
            return self.recover(record);
        }
        let edit = self.plan(&pod, record)?;
        if edit.is_none() {
            return self.pay(&pod, record);
        }
        let edited = self.apply(&pod, record, edit);
        edited.map_err(|err| self.refuse(&pod, FAILED_ADD, err))
    }

    /// Returns the pod of a record; `None` if it or its container is gone, or about to go.
    fn pod(&mut self, record: &Record) -> Result<Option<Pod>, Error> {
        let Some(first) = record.attachments.first() else {
            return Ok(None);
        };
        let Some(pod_ref) = PodRef::of(&first.args)?.filter(|_| !record.is_leaving()) else {
            return Ok(None);
        };
        let uid = pod_ref.uid.as_deref();
        match self.finder.ask()?.pod(&pod_ref.name, uid, &[]) {
            Ok((pod, _)) if pod.is_over || pod_ref.refuse_other(&pod).is_err() => Ok(None),
            Ok((pod, _)) => Ok(Some(pod)),
            Err(SourceError::NotFound { .. }) => Ok(None),
            Err(err) => Err(of_source(&err)),
        }
    }

    /// Compares the pod's annotation with its attachments.
    fn plan(&mut self, pod: &Pod, record: &Record) -> Result<Edit, Error> {
        let asked = RequestedNetworks::of(pod, self.settings);
        if let Some(invalid) = asked.invalid.iter().find(|one| one.annotation == NETWORKS) {
            return Err(self.refuse(pod, "InvalidAnnotation", invalid.clone().into()));
        }
        let mut present = Vec::new();
        for attached in &record.attachments {
            present.push(Present {
                ifname: &attached.ifname,
                // What a claim requests is not the annotation's.
                object: attached
                    .object
                    .as_ref()
                    .filter(|_| attached.claimed.is_none()),
                asked: attached.asked.as_ref(),
            });
        }
        let compared = compare(&asked.networks, &present);
        let Changes {
            mut detach,
            mut attach,
            adjust,
        } = compared.map_err(|err| self.refuse(pod, REFUSED, err))?;
        let mut adjusted = Vec::new();
        let (changed, selections): (Vec<_>, Vec<_>) = adjust.iter().cloned().unzip();
        let wanted = self.networks(pod, record, (selections, &changed))?;
        for ((at, selection), wanted) in adjust.into_iter().zip(wanted) {
            let adjust = Adjust { at, wanted };
            if adjust::is_possible(record, &adjust) {
                adjusted.push((adjust, selection));
            } else {
                detach.push(at);
                attach.push(selection);
            }
        }
        // Networks that come or go may have default routes as well.
        if !detach.is_empty() || !attach.is_empty() {
            let moves = |(one, _): &mut (Adjust, Selection)| {
                adjust::moves_routes(record, one.at, &one.wanted)
            };
            for (one, selection) in adjusted.extract_if(.., moves) {
                detach.push(one.at);
                attach.push(selection);
            }
        }
        detach.sort_unstable();
        let attach = self.networks(pod, record, (attach, &detach))?;
        let used = refuse_used_claims(record, &detach, &attach);
        used.map_err(|err| self.refuse(pod, REFUSED, err))?;
        Ok(Edit {
            detach,
            attach,
            adjust: adjusted.into_iter().map(|(adjust, _)| adjust).collect(),
        })
    }

    /// Returns the networks to attach, with their configurations. The attachments with the indices
    /// `leaving` make room for them.
    fn networks(
        &mut self,
        pod: &Pod,
        record: &Record,
        (selections, leaving): (Vec<Selection>, &[usize]),
    ) -> Result<Vec<Wanted>, Error> {
        let namespace = &pod.name.namespace;
        let choices = select::selected(self.settings, namespace, selections)
            .map_err(|err| self.refuse(pod, "NetworkNotAllowed", err))?;
        let mut objects = Vec::new();
        for choice in &choices {
            objects.extend(choice.object(self.settings));
        }
        objects.sort_unstable();
        objects.dedup();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let nads = self.finder.ask()?.nads(&objects);
        let nads = nads.map_err(|err| of_source(&err))?;
        if let Some(object) = not_there(&choices, &nads) {
            let err = no_definition(&object);
            return Err(self.refuse(pod, "NoNetworkFound", err));
        }
        let held = Held::of(record, leaving);
        let resolved = self.resolve(pod, record, (choices, &nads), &held);
        resolved.map_err(|err| self.refuse(pod, REFUSED, err))
    }

    fn resolve(
        &mut self,
        pod: &Pod,
        record: &Record,
        (choices, nads): (Vec<Choice>, &[Nad]),
        held: &Held,
    ) -> Result<Vec<Wanted>, Error> {
        let first = record.interface_of(&record.attachments[0]);
        let mut found = Vec::new();
        for choice in choices {
            let network = self.finder.found(&choice, nads, self.conf)?;
            found.push((choice, network));
        }
        let rules = rules(self.settings.require_capabilities);
        let namespace = &pod.name.namespace;
        let networks = select::networks(found, namespace, &first.ifname, None, rules)?;
        let to = (&first, record.path.as_slice());
        self.finder.all_wanted(networks, Some(pod), to, held)
    }

    /// Changes the container, and publishes its networks.
    fn apply(&mut self, pod: &Pod, record: &Record, edit: Edit) -> Result<Attempt, Error> {
        let (folder, mut host) = match self.open(record)? {
            Ok(opened) => opened,
            Err(attempt) => return Ok(attempt),
        };
        let features: Vec<_> = edit
            .attach
            .iter()
            .flat_map(|one| one.chain.features())
            .collect();
        for err in host.restore(&features) {
            self.machine.log().warn(&err);
        }
        let publisher = Publisher {
            pod: Some(pod.clone()),
            container_id: record.key.owner.container_id.clone(),
            form: self.settings.status,
        };
        let (finder, machine) = (&mut self.finder, self.machine);
        let mut complete =
            |wanted: &[Wanted], results: &[Option<AddResult>], host: &mut (dyn Host + 'static)| {
                let attached = AttachedNetwork::all(wanted, results);
                publisher.verify(&attached, (Some(host), None), machine)?;
                publisher.fill_claims(&attached, finder.source())
            };
        let edited = change(record.clone(), edit, (&folder, &mut *host), &mut complete)?;
        let events = events(
            &recorded::interfaces(record),
            &recorded::interfaces(&edited),
        );
        self.publish(pod, edited, &events, (&folder, &mut *host));
        Ok(Attempt::Done(Outcome::Changed))
    }

    /// Locks the container and opens its namespace. The inner error is the end of the attempt: the
    /// container is gone, or its record is another one.
    #[expect(
        clippy::type_complexity,
        reason = "an opened container, or the end of an attempt"
    )]
    fn open(&self, record: &Record) -> Result<Result<(Folder, Box<dyn Host>), Attempt>, Error> {
        let gone = || Ok(Err(Attempt::Done(Outcome::Gone)));
        let machine = self.machine;
        let folder = machine
            .folder(&record.key.owner.container_id)
            .map_err(Error::from)?;
        match folder.load(&record.key).map_err(Error::from)? {
            None => return gone(),
            Some(newer) if newer != *record => return Ok(Err(Attempt::Stale(Box::new(newer)))),
            Some(_) => {}
        }
        let Some(path) = record.netns.as_deref() else {
            return gone();
        };
        let netns = match NetNs::open(path) {
            Err(_) if netns_at(path) == Netns::Gone => return gone(),
            opened => opened.map_err(|err| Error::netns(err.to_string()))?,
        };
        let mut host = machine.open(Some(netns)).map_err(Error::from)?;
        refuse_own(&*host)?;
        if !record.is_of(host.pod_cookie()) {
            return gone();
        }
        Ok(Ok((folder, host)))
    }

    /// Completes an interrupted edit: detaches what it has left, and gives default routes back.
    fn recover(&self, record: &Record) -> Result<Attempt, Error> {
        let (folder, mut host) = match self.open(record)? {
            Ok(opened) => opened,
            Err(attempt) => return Ok(attempt),
        };
        let recovered = recover(record.clone(), &folder, &mut *host)?;
        Ok(Attempt::Stale(Box::new(recovered)))
    }

    /// Publishes the status if an earlier call could not.
    fn pay(&mut self, pod: &Pod, record: &Record) -> Result<Attempt, Error> {
        if record.owed.is_some() || record.is_unpublished {
            let (folder, mut host) = match self.open(record)? {
                Ok(opened) => opened,
                Err(attempt) => return Ok(attempt),
            };
            let is_paid = self.publish(pod, record.clone(), &[], (&folder, &mut *host));
            if !is_paid {
                let sentence = "its network-status is not written yet";
                return Err(Error::new(Kind::TryAgain, sentence));
            }
        }
        Ok(Attempt::Done(Outcome::Same))
    }

    /// Publishes the attachments in `record`. If this fails, returns false, and the record owes them.
    fn publish(
        &mut self,
        pod: &Pod,
        mut record: Record,
        events: &[Event],
        (folder, host): (&Folder, &mut (dyn Host + 'static)),
    ) -> bool {
        let entries = self.entries(&record, host);
        // So the entries of other writers, and the keys that they added to braid's, are all kept.
        let mut unread = pod.clone();
        unread.annotations.remove(NETWORK_STATUS);
        let news = News {
            entries: &entries,
            events,
            is_urgent: true,
        };
        let told = self
            .finder
            .ask()
            .map(|source| source.publish(&unread, &news));
        let why = match told {
            Ok(Ok(()) | Err(SourceError::NotFound { .. })) => None,
            Ok(Err(err)) => Some(err.to_string()),
            Err(err) => Some(err.to_string()),
        };
        let log = self.machine.log();
        if let Some(why) = &why {
            log.line(format_args!(
                "pod {}: its network-status is not written yet: {why}",
                pod.name
            ));
        }
        let is_paid = why.is_none();
        let owed = why.map(|_| Owed {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            status: Json::Array(entries).pretty(),
            seen: None,
        });
        if record.owed != owed || record.is_unpublished {
            (record.owed, record.is_unpublished) = (owed, false);
            if let Err(err) = folder.store(&record) {
                log.warn(&err);
            }
        }
        is_paid
    }

    /// Returns the status entry of each attachment.
    fn entries(&self, record: &Record, host: &mut (dyn Host + 'static)) -> Vec<Json> {
        let mut entries = Vec::new();
        for (at, attached) in record.attachments.iter().enumerate() {
            if attached.claimed.is_some() {
                continue;
            }
            let result = attached.result().and_then(Result::ok);
            let mtu = result
                .as_ref()
                .and_then(|result| mtu_of(&attached.ifname, result, host));
            let told = attached.device_file.as_deref();
            let device_info = told.and_then(|path| device_file::read(path).ok().flatten());
            let attached = status::Attached {
                name: &attached.name(),
                ifname: attached.ifname.as_str(),
                is_default: at == 0,
                result: result.as_ref(),
                mtu,
                has_default_route: attached.default_route().is_some(),
                device_info: device_info.as_ref(),
                container_id: &record.key.owner.container_id,
            };
            entries.push(status::entry(&attached, self.settings.status));
        }
        entries
    }

    /// Writes an event with the reason why the edit is refused or failed, and returns the error. An
    /// edit that may succeed soon is not reported.
    #[cold]
    fn refuse(&mut self, pod: &Pod, reason: &'static str, err: Error) -> Error {
        if err.kind != Kind::TryAgain
            && let Some(source) = self.finder.source()
        {
            source.report(&pod.name, &pod.uid, &[refusal(reason, &err)]);
        }
        err
    }
}

/// Returns the events about interfaces that went and came. One that only another network or another
/// address has is both.
fn events(before: &[Detached], after: &[Detached]) -> Vec<Event> {
    let text = |event: fn(&str, &[IpNet], &str) -> Event, one: &Detached| {
        event(one.ifname.as_str(), &one.addresses, &one.network)
    };
    let mut events = Vec::new();
    for gone in before.iter().filter(|one| !after.contains(one)) {
        events.push(text(interface_event::removed, gone));
    }
    for new in after.iter().filter(|one| !before.contains(one)) {
        events.push(text(interface_event::added, new));
    }
    events
}

/// Fails if a network to attach uses the claim of an attachment that stays.
fn refuse_used_claims(record: &Record, detach: &[usize], attach: &[Wanted]) -> Result<(), Error> {
    let all = record.attachments.iter().enumerate();
    let kept = all.filter(|(at, _)| !detach.contains(at));
    let used: Vec<&String> = kept.filter_map(|(_, one)| one.claim.as_ref()).collect();
    for wanted in attach {
        if let Some(claim) = &wanted.claim
            && used.contains(&&claim.owner)
        {
            return Err(
                Error::config("two networks of the pod refer to one claim").context(wanted.title())
            );
        }
    }
    Ok(())
}
