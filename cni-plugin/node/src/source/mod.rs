//! Sources of pods, `NetworkAttachmentDefinition`s, claims, devices and networks.

pub mod api;
pub mod cluster;
pub mod files;
pub mod kubelet;
pub mod manifests;
pub mod runtime;
