//! Publishing a pod's attachments in its annotation `network-status`.

use super::claims;
use super::interface_facts::{self, InterfaceFacts};
use super::network::OfNetwork;
use super::refusal::{REFUSED, of_source, refusal};
use crate::apply::host::{Host, Machine};
use crate::attach::device_file;
use crate::store::record::Owed;
use braid_core::cni::{AddResult, Error, Json};
use braid_core::k8s::source::{Edit, Source, SourceError};
use braid_core::k8s::status::{self, Attached, Form};
use braid_core::k8s::{NETWORK_STATUS, Pod};

/// The networks of a pod, for its status.
#[derive(Debug)]
pub struct Publisher {
    /// The pod; `None` if the container does not belong to a pod, or without an API.
    pub(super) pod: Option<Pod>,
    pub(super) networks: Vec<OfNetwork>,
    pub(super) container_id: String,
    pub(super) form: Form,
}

impl Publisher {
    /// Pairs each network with its result, if present.
    fn given<'r>(
        &self,
        results: &'r [Option<AddResult>],
    ) -> impl Iterator<Item = (&OfNetwork, &'r AddResult)> {
        self.networks
            .iter()
            .zip(results)
            .filter_map(|(of, result)| Some((of, result.as_ref()?)))
    }

    /// Fails, and writes an event of the pod, if a result lacks a property that the pod requests.
    /// If a result omits a hardware address, it is read from the kernel.
    pub fn verify(
        &self,
        results: &[Option<AddResult>],
        (host, source): (
            Option<&mut (dyn Host + 'static)>,
            Option<&mut (dyn Source + 'static)>,
        ),
        machine: &dyn Machine,
    ) -> Result<(), Error> {
        let Err(err) = self.verified(results, host) else {
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

    fn verified(
        &self,
        results: &[Option<AddResult>],
        mut host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<(), Error> {
        for (of, result) in self
            .networks
            .iter()
            .zip(results)
            .filter(|(of, _)| of.network.is_to_verify())
        {
            let nothing = AddResult::default();
            let result = result.as_ref().unwrap_or(&nothing);
            let seen = host
                .as_deref_mut()
                .and_then(|host| interface_facts::mac(&of.network, result, host));
            of.network.verify(result, seen)?;
        }
        Ok(())
    }

    /// Writes the pod to its claims, and the addresses to claims that have none.
    pub(super) fn fill_claims(
        &self,
        results: &[Option<AddResult>],
        source: Option<&mut (dyn Source + 'static)>,
    ) -> Result<(), Error> {
        let (Some(source), Some(pod)) = (source, &self.pod) else {
            return Ok(());
        };
        let mut claimed = self
            .given(results)
            .filter_map(|(of, result)| Some((of.claim.as_ref()?, result)));
        claimed.try_for_each(|(claim, result)| claims::fill(claim, result, pod, source))
    }

    /// Publishes the results. On a failure, returns the status as owed; the pod starts regardless.
    pub fn publish(
        &self,
        results: &[Option<AddResult>],
        (host, source): (
            Option<&mut (dyn Host + 'static)>,
            Option<&mut (dyn Source + 'static)>,
        ),
        machine: &dyn Machine,
    ) -> Option<Owed> {
        let (pod, source) = (self.pod.as_ref()?, source?);
        let kernel = host
            .map(|host| InterfaceFacts::of(&self.networks, results, host))
            .unwrap_or_default();
        let of_each = self.networks.iter().zip(results).enumerate();
        let entries = of_each
            .map(|(at, (of, result))| self.entry(of, result.as_ref(), kernel.mtu(at), machine));
        let (entries, before) = (
            entries.collect::<Vec<_>>(),
            pod.annotations.get(NETWORK_STATUS),
        );
        let seen = before.map(String::as_str);
        let value = |now: Option<&str>| Some(status::rewrite(now, seen, entries.clone()));
        let edit = Edit {
            key: NETWORK_STATUS,
            seen: Some(&pod.annotations),
            value: &value,
        };
        let told = source.annotate(&pod.name, &pod.uid, &edit);
        if let Some(Err(err)) = kernel
            .event()
            .map(|event| source.tell(&pod.name, &pod.uid, &event))
        {
            machine
                .log()
                .line(format_args!("event of pod {}: {err}", pod.name));
        }
        // A pod that is deleted, or replaced by another of the same name, is owed nothing.
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

    /// Withdraws the entries of a call that failed to deliver its result, and restores the entries
    /// that they replaced.
    #[cold]
    pub(super) fn withdraw(
        &self,
        source: Option<&mut (dyn Source + 'static)>,
        machine: &dyn Machine,
    ) {
        let (Some(pod), Some(source)) = (self.pod.as_ref(), source) else {
            return;
        };
        let seen = pod.annotations.get(NETWORK_STATUS).map(String::as_str);
        let value = |now: Option<&str>| status::withdrawn(now, seen, &self.container_id);
        let edit = Edit {
            key: NETWORK_STATUS,
            seen: None,
            value: &value,
        };
        if let Err(err) = source.annotate(&pod.name, &pod.uid, &edit) {
            machine.log().line(format_args!(
                "pod {}: its network-status is from a failed call: {err}",
                pod.name
            ));
        }
    }

    /// Returns the status entry of a network, with the kernel's `mtu`.
    fn entry(
        &self,
        of: &OfNetwork,
        result: Option<&AddResult>,
        mtu: Option<u32>,
        machine: &dyn Machine,
    ) -> Json {
        let OfNetwork { network, file, .. } = of;
        let told = file
            .as_ref()
            .and_then(|file| device_file::read(&file.path).transpose());
        let device_info = told.and_then(|told| told.map_err(|err| machine.log().warn(&err)).ok());
        let attached = Attached {
            name: &network.name(),
            ifname: network.ifname.as_str(),
            is_default: network.is_default,
            result,
            mtu,
            has_default_route: network.default_route.is_some(),
            device_info: device_info.as_ref(),
            container_id: &self.container_id,
        };
        status::entry(&attached, self.form)
    }
}

/// Publishes the status that an earlier call owes. Keeps entries that other writers have added
/// since.
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
