//! Places that pods, NetworkAttachmentDefinitions, claims, devices and networks come from.

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

/// The API server that the settings name; it is asked nothing yet.
pub fn api(settings: &Settings) -> Result<Box<dyn Source>, Error> {
    api_with(settings, Limits::default())
}

/// The same, asked for so long at most, all requests together.
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
        .ok_or_else(|| Error::config("\"kubeconfig\" is needed to ask the API"))?;
    Ok(Box::new(Api::new(Access::Kubeconfig(kubeconfig), limits)))
}
