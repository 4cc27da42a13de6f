//! Publishes a pod's attachments in the pod's annotation `network-status`.

use super::claims;
use super::interface_facts;
use super::network::AttachedNetwork;
use super::refusal::{REFUSED, of_source, refusal};
use crate::apply::host::{Host, Machine};
use crate::attach::device_file;
use crate::attach::invocation::Wanted;
use crate::store::record::{Owed, is_known};
use braid_core::cni::{AddResult, Error, Json};
use braid_core::k8s::interface_event;
use braid_core::k8s::source::{Edit, Event, News, Source, SourceError};
use braid_core::k8s::status::{self, Attached, Form};
use braid_core::k8s::{NETWORK_STATUS, Pod};
use braid_core::plan::Facts;

/// Publisher of a pod's status.
#[derive(Debug)]
pub struct Publisher {
    /// The pod; `None` if the container does not belong to a pod, or without an API.
    pub(super) pod: Option<Pod>,
    pub(super) container_id: String,
    pub(super) form: Form,
}

impl Publisher {
    /// Fails, and writes an event about the pod, if a result lacks a property that the pod
    /// requests. A hardware address that a result omits is read from the kernel.
    pub fn verify(
        &self,
        attached: &[AttachedNetwork<'_>],
        (host, source): (
            Option<&mut (dyn Host + 'static)>,
            Option<&mut (dyn Source + 'static)>,
        ),
        machine: &dyn Machine,
    ) -> Result<(), Error> {
        let Err(err) = verified(attached, host) else {
            return Ok(());
        };
        if let (Some(pod), Some(source)) = (&self.pod, source)
            && let Err(err) = source.tell(&pod.name, &pod.uid, &refusal(REFUSED, &err))
        {
            machine
                .log()
                .line(format_args!("event of pod {}: {err}", pod.name));
        }
        Err(err)
    }

    /// Reports the error of an ADD as an event.
    #[cold]
    pub(super) fn report(
        &self,
        err: &Error,
        wanted: &[Wanted],
        source: Option<&mut (dyn Source + 'static)>,
    ) {
        let (Some(pod), Some(source)) = (&self.pod, source) else {
            return;
        };
        let mut networks = Vec::new();
        for of in wanted.iter().filter_map(|wanted| wanted.of_pod.as_ref()) {
            networks.push(of.network.name());
        }
        let event = interface_event::failed(interface_event::FAILED_ADD, err, &networks);
        source.report(&pod.name, &pod.uid, &[event]);
    }

    /// Writes the pod to its claims as their owner. Also writes the assigned addresses to claims
    /// without addresses.
    pub(super) fn fill_claims(
        &self,
        attached: &[AttachedNetwork<'_>],
        source: Option<&mut (dyn Source + 'static)>,
    ) -> Result<(), Error> {
        let (Some(source), Some(pod)) = (source, &self.pod) else {
            return Ok(());
        };
        for attachment in attached {
            if let (Some(claim), Some(result)) = (&attachment.of.claim, attachment.result) {
                claims::fill(claim, result, pod, source)?;
            }
        }
        Ok(())
    }

    /// Returns the status entries before the kernel work. `ahead` has the links as they will be after
    /// it. `None` if a value is known only then.
    pub(super) fn planned(
        &self,
        attached: &[AttachedNetwork<'_>],
        ahead: &Facts,
        machine: &dyn Machine,
    ) -> Option<Vec<Json>> {
        self.pod.as_ref()?;
        verified(attached, None).ok()?;
        let mut entries = Vec::new();
        for attachment in attached.iter().filter(|one| is_published(one)) {
            let network = &attachment.of.network;
            let mtu = match interface_facts::without_mtu(&network.ifname, attachment.result?) {
                Some(at) => Some(ahead.link(&at)?.mtu),
                None => None,
            };
            entries.push(self.entry(attachment, mtu, machine));
        }
        Some(entries)
    }

    /// Starts to publish the entries beside the kernel work. Returns true if it has started. Does not
    /// start if the call does not wait for the status.
    pub(super) fn begin(
        &self,
        attached: &[AttachedNetwork<'_>],
        entries: &[Json],
        source: Option<&mut (dyn Source + 'static)>,
    ) -> bool {
        match (&self.pod, source) {
            (Some(pod), Some(source)) if is_urgent(attached) => source.begin(pod, entries),
            _ => false,
        }
    }

    /// Publishes the results in the pod's annotation `network-status`. If this fails, the pod
    /// starts nevertheless, and the returned status is to be published later. `planned` has the
    /// entries if they were known before the kernel work.
    pub fn publish(
        &self,
        attached: &[AttachedNetwork<'_>],
        planned: Option<Vec<Json>>,
        (host, source): (
            Option<&mut (dyn Host + 'static)>,
            Option<&mut (dyn Source + 'static)>,
        ),
        machine: &dyn Machine,
    ) -> Option<Owed> {
        let (pod, source) = (self.pod.as_ref()?, source?);
        let (mut host, before) = (host, pod.annotations.get(NETWORK_STATUS));
        let entries = planned.unwrap_or_else(|| {
            let mut entries = Vec::new();
            for attachment in attached.iter().filter(|one| is_published(one)) {
                let mtu = host.as_deref_mut().and_then(|host| {
                    interface_facts::mtu(&attachment.of.network, attachment.result?, host)
                });
                entries.push(self.entry(attachment, mtu, machine));
            }
            entries
        });
        let mut events: Vec<Event> = attached.iter().map(added).collect();
        events.extend(host.and_then(|host| interface_facts::event(attached, host)));
        let told = source.publish(
            pod,
            &News {
                entries: &entries,
                events: &events,
                is_urgent: is_urgent(attached),
            },
        );
        // If the pod is deleted, or replaced by another of the same name, nothing is left to
        // publish.
        let err = told
            .err()
            .filter(|err| !matches!(err, SourceError::NotFound { .. }))?;
        machine.log().line(format_args!(
            "pod {}: its network-status is not written yet: {err}",
            pod.name
        ));
        let status = Json::Array(entries).pretty();
        Some(Owed {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            status,
            seen: before.cloned(),
        })
    }

    /// Removes the call's entries from the pod's annotation, because the call failed. Restores the
    /// replaced entries, unless their container is no longer attached.
    #[cold]
    pub(super) fn withdraw(
        &self,
        source: Option<&mut (dyn Source + 'static)>,
        machine: &dyn Machine,
    ) {
        let (Some(mut pod), Some(source)) = (self.pod.clone(), source) else {
            return;
        };
        if let Some(before) = pod.annotations.get_mut(NETWORK_STATUS) {
            // An earlier sandbox of the pod has a record until its DEL.
            let is_gone = |id: &str| id == self.container_id || !is_known(machine.root(), id);
            *before = status::without(before, &is_gone);
        }
        if let Err(err) = source.withdraw(&pod, &self.container_id) {
            machine.log().line(format_args!(
                "pod {}: its network-status is from a failed call: {err}",
                pod.name
            ));
        }
    }

    /// Returns the status entry of a network, with the kernel's `mtu`.
    fn entry(
        &self,
        attachment: &AttachedNetwork<'_>,
        mtu: Option<u32>,
        machine: &dyn Machine,
    ) -> Json {
        let network = &attachment.of.network;
        let told = attachment
            .file
            .and_then(|file| device_file::read(&file.path).transpose());
        let device_info = told.and_then(|told| told.map_err(|err| machine.log().warn(&err)).ok());
        let attached = Attached {
            name: &network.name(),
            ifname: network.ifname.as_str(),
            is_default: network.is_default,
            result: attachment.result,
            mtu,
            has_default_route: network.default_route.is_some(),
            device_info: device_info.as_ref(),
            container_id: &self.container_id,
        };
        status::entry(&attached, self.form)
    }
}

/// True if the status must be in the API before the call ends: the pod requests networks.
fn is_urgent(attached: &[AttachedNetwork<'_>]) -> bool {
    attached
        .iter()
        .any(|network| !network.of.network.is_default && is_published(network))
}

/// True if the network is in the pod's status. The agent publishes a network on a device of a resource
/// claim in the status of the claim.
fn is_published(attached: &AttachedNetwork<'_>) -> bool {
    attached.of.network.claimed.is_none()
}

/// Returns the event about an attached network.
fn added(attachment: &AttachedNetwork<'_>) -> Event {
    let network = &attachment.of.network;
    let mut addresses = Vec::new();
    for ip in attachment.result.into_iter().flat_map(|result| &result.ips) {
        addresses.push(ip.address);
    }
    interface_event::added(network.ifname.as_str(), &addresses, &network.name())
}

fn verified(
    attached: &[AttachedNetwork<'_>],
    mut host: Option<&mut (dyn Host + 'static)>,
) -> Result<(), Error> {
    let nothing = AddResult::default();
    for AttachedNetwork { of, result, .. } in attached {
        if !of.network.is_to_verify() {
            continue;
        }
        let result = result.unwrap_or(&nothing);
        let seen = host
            .as_deref_mut()
            .and_then(|host| interface_facts::mac(&of.network, result, host));
        of.network.verify(result, seen)?;
    }
    Ok(())
}

/// Publishes the status that an earlier call failed to publish. Keeps entries that other writers
/// have added since that call.
pub(super) fn pay(owed: &Owed, source: &mut dyn Source) -> Result<(), Error> {
    let entries = status::list(Some(&owed.status));
    let value =
        |now: Option<&str>| Some(status::rewrite(now, owed.seen.as_deref(), entries.clone()));
    match source.annotate(
        &owed.pod,
        &owed.uid,
        &Edit {
            key: NETWORK_STATUS,
            seen: None,
            value: &value,
        },
    ) {
        Ok(()) | Err(SourceError::NotFound { .. }) => Ok(()),
        Err(err) => Err(of_source(&err)),
    }
}
