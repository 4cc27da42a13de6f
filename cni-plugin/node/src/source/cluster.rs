//! The cluster that a call asks, passed in by the caller.

use super::api::{Access, Api, Limits};
use super::{files, kubelet};
use braid_core::cni::Error;
use braid_core::k8s::ObjectName;
use braid_core::k8s::device_info::{DIR, DP, dp_file};
use braid_core::k8s::dynamic::Given;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::Source;
use std::path::Path;
use std::time::Duration;

/// Knowledge of the API server, the kubelet and its device plugins. Implemented by [`Kubernetes`]
/// for the plugin call, by [`NoCluster`] for callers without Kubernetes, and by callers with their
/// own knowledge: manifests, or caches of a process that runs on.
pub trait Cluster {
    /// Opens the source of pods, networks and claims, without a request. `limit` is for all
    /// requests together; `None` for the default limits.
    fn source(
        &self,
        settings: &Settings,
        limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, Error>;

    /// Returns the devices that the kubelet assigned to a pod.
    fn devices(&self, pod: &ObjectName) -> Result<Given, Error>;

    /// Returns the information that the device plugin of `resource` wrote about a device, if any.
    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, Error>;
}

/// The API server in the settings and the kubelet of this node, asked anew for each answer.
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
        let limits = match limit {
            Some(limit) => Limits {
                attempt: limit,
                call: limit,
                process: limit,
                event: limit,
            },
            None => Limits::default(),
        };
        Ok(Box::new(Api::new(Access::Kubeconfig(kubeconfig), limits)))
    }

    fn devices(&self, pod: &ObjectName) -> Result<Given, Error> {
        kubelet::devices(Path::new(kubelet::SOCKET), pod)
    }

    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = Path::new(DIR).join(DP).join(dp_file(resource, device)?);
        Ok(files::read(&path)?.pop().map(|file| file.bytes))
    }
}

/// A cluster that knows nothing: no object, no device.
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

    fn devices(&self, _pod: &ObjectName) -> Result<Given, Error> {
        Ok(Given::default())
    }

    fn device_info(&self, _resource: &str, _device: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }
}
