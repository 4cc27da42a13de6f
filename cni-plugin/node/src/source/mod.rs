//! Sources of pods, `NetworkAttachmentDefinition`s, claims, devices and networks.

pub mod api;
pub mod files;
pub mod kubelet;
pub mod manifests;
pub mod runtime;

use api::{Access, Api, Limits};
use braid_core::cni::Error;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::Source;
use std::time::Duration;

/// Returns the API server from the settings. No request is sent yet.
pub fn api(settings: &Settings) -> Result<Box<dyn Source>, Error> {
    api_with(settings, Limits::default())
}

/// [`api`] with one time limit for all requests together.
pub fn api_within(settings: &Settings, limit: Duration) -> Result<Box<dyn Source>, Error> {
    api_with(
        settings,
        Limits {
            attempt: limit,
            call: limit,
            process: limit,
            event: limit,
        },
    )
}

fn api_with(settings: &Settings, limits: Limits) -> Result<Box<dyn Source>, Error> {
    let kubeconfig = settings
        .kubeconfig
        .clone()
        .ok_or_else(|| Error::config("\"kubeconfig\" is required to access the API"))?;
    Ok(Box::new(Api::new(Access::Kubeconfig(kubeconfig), limits)))
}
