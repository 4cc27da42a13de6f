//! Access to a Kubernetes cluster, which the caller of the library passes in.

use super::call_source::CallSource;
use super::client::protocol::Limits;
use super::client::{Client, devices};
use super::files;
use braid_core::cni::{Error, Kind};
use braid_core::k8s::ObjectName;
use braid_core::k8s::device_info::{DIR, DP, dp_file};
use braid_core::k8s::dynamic::Given;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::Source;
use std::path::Path;
use std::time::Duration;

/// The kubelet's socket for the devices of pods, in the kubelet's folder.
const KUBELET: &str = "pod-resources/kubelet.sock";

/// Access to the API server, to the kubelet and to the kubelet's device plugins. Implemented by
/// [`Kubernetes`] for the plugin call and by [`NoCluster`] for callers without Kubernetes. A
/// long-running process can implement it with its caches.
pub trait Cluster {
    /// Creates a source of pods, networks and claims, without sending a request yet. `limit` is the
    /// time limit of all requests together; `None` means the default limits.
    fn source(
        &self,
        settings: &Settings,
        limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, Error>;

    /// Returns the devices that the kubelet assigned to a pod.
    fn devices(&self, settings: &Settings, pod: &ObjectName) -> Result<Given, Error>;

    /// Returns the information that the device plugin of `resource` wrote about `device`, if any.
    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, Error>;

    /// True if a kubelet prepares resource claims on this node before it creates a pod. While none is
    /// prepared, no pod has any.
    fn prepares_claims(&self) -> bool {
        true
    }
}

/// The agent of this node, the API server in the settings, and the kubelet.
#[derive(Debug, Clone, Copy)]
pub struct Kubernetes;

impl Cluster for Kubernetes {
    fn source(
        &self,
        settings: &Settings,
        limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, Error> {
        let kubeconfig = settings
            .kubeconfig
            .clone()
            .ok_or_else(|| Error::config("\"kubeconfig\" is required to access the API"))?;
        let Some(limit) = limit else {
            let client = Client::new(kubeconfig, Limits::default());
            return Ok(Box::new(CallSource::new(client)));
        };
        // A pod that is gone would let the agent wait until it appears.
        let limits = Limits {
            attempt: limit,
            call: limit,
            process: limit,
            event: limit,
        };
        Ok(Box::new(Client::new(kubeconfig, limits)))
    }

    fn devices(&self, settings: &Settings, pod: &ObjectName) -> Result<Given, Error> {
        devices(&settings.kubelet_root_dir.join(KUBELET), pod)
            .map_err(|err| Error::new(Kind::TryAgain, err.to_string()))
    }

    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = Path::new(DIR).join(DP).join(dp_file(resource, device)?);
        Ok(files::read(&path)?.pop().map(|file| file.bytes))
    }
}

/// A cluster without an API server and without devices.
#[derive(Debug, Clone, Copy)]
pub struct NoCluster;

impl Cluster for NoCluster {
    fn source(
        &self,
        _settings: &Settings,
        _limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, Error> {
        Err(Error::config("pods need a cluster, but this call has none"))
    }

    fn devices(&self, _settings: &Settings, _pod: &ObjectName) -> Result<Given, Error> {
        Ok(Given::default())
    }

    fn device_info(&self, _resource: &str, _device: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }
}
