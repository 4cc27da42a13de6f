//! Publishing what a pod was attached to: its annotation `network-status`.

use super::claims;
use crate::attach::device_file::{self, DeviceFile};
use crate::store::record::Owed;
use braid_core::cni::{AddResult, Error};
use braid_core::k8s::network::Network;
use braid_core::k8s::source::{Source, SourceError};
use braid_core::k8s::status::{self, Attached};
use braid_core::k8s::{IpamClaim, NETWORK_STATUS, Pod};

/// The networks of a pod, for its status.
#[derive(Debug)]
pub struct Publisher {
    /// None where there is no pod to tell: a container that is none, or no API.
    pub(super) pod: Option<Pod>,
    pub(super) networks: Vec<Network>,
    /// The claim of each network.
    pub(super) claims: Vec<Option<IpamClaim>>,
    /// The file with each network's device information.
    pub(super) files: Vec<Option<DeviceFile>>,
    pub(super) container_id: String,
    pub(super) with_prefix: bool,
}

impl Publisher {
    /// Fails where a plugin passed over what the pod asked for.
    pub fn verify(&self, results: &[Option<AddResult>]) -> Result<(), Error> {
        let given = self.networks.iter().zip(results);
        given
            .filter_map(|(network, result)| Some((network, result.as_ref()?)))
            .try_for_each(|(n, result)| n.verify(result))
    }

    /// Writes the addresses to claims that have none.
    pub(super) fn fill_claims(
        &self,
        results: &[Option<AddResult>],
        source: Option<&mut (dyn Source + 'static)>,
    ) -> Result<(), Error> {
        let Some(source) = source else { return Ok(()) };
        let given = self.claims.iter().zip(results);
        given
            .filter_map(|(claim, result)| Some((claim.as_ref()?, result.as_ref()?)))
            .try_for_each(|(claim, result)| claims::fill(claim, result, source))
    }

    /// Publishes the results; what can't be published is owed, and the pod starts all the same.
    pub fn publish(&self, results: &[Option<AddResult>], source: Option<&mut (dyn Source + 'static)>) -> Option<Owed> {
        let (pod, source) = (self.pod.as_ref()?, source?);
        let entry = |((network, result), file): ((&Network, &Option<AddResult>), &Option<DeviceFile>)| {
            let device_info = file.as_ref().and_then(|file| device_file::read(&file.path));
            let attached = Attached {
                name: &network.name(),
                ifname: network.ifname.as_str(),
                is_default: network.is_default,
                result: result.as_ref(),
                mtu: None,
                has_default_route: network.default_route.is_some(),
                device_info: device_info.as_ref(),
                container_id: &self.container_id,
            };
            status::entry(&attached, self.with_prefix)
        };
        let entries = self.networks.iter().zip(results).zip(&self.files).map(entry).collect();
        let value = status::rewrite(pod.annotations.get(NETWORK_STATUS).map(String::as_str), entries);
        let told = source.annotate(&pod.name, &pod.uid, NETWORK_STATUS, &value);
        // A pod that is gone, or another one of its name, is owed nothing.
        let err = told.err().filter(|err| !matches!(err, SourceError::NotFound { .. }))?;
        crate::tell!("pod {}: its network-status is owed: {err}", pod.name);
        Some(Owed { pod: pod.name.clone(), uid: pod.uid.clone(), status: value })
    }
}

/// Publishes what an earlier call owes.
pub(super) fn pay(owed: &Owed, source: &mut dyn Source) -> Result<(), Error> {
    match source.annotate(&owed.pod, &owed.uid, NETWORK_STATUS, &owed.status) {
        Ok(()) | Err(SourceError::NotFound { .. }) => Ok(()),
        Err(err) => Err(super::find::of_source(&err)),
    }
}
