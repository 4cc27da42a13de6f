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

/// The API server that the settings name; it is asked nothing yet.
pub fn api(settings: &Settings) -> Result<Box<dyn Source>, Error> {
    let kubeconfig =
        settings.kubeconfig.clone().ok_or_else(|| Error::config("\"kubeconfig\" is needed to ask the API"))?;
    Ok(Box::new(Api::new(Access::Kubeconfig(kubeconfig), Limits::default())))
}
