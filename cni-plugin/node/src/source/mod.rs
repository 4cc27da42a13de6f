//! Sources of pods, `NetworkAttachmentDefinition`s, claims, devices and networks.

pub mod agent;
pub mod api;
mod call_source;
pub mod cluster;
pub mod files;
pub mod kubelet;
pub mod manifests;
pub mod network_cache;
pub mod runtime;
