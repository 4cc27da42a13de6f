//! Sources of pods, `NetworkAttachmentDefinition`s, claims, devices and networks.

pub mod agent;
mod call_source;
pub mod client;
pub mod cluster;
pub mod files;
pub mod manifests;
pub mod network_cache;
pub mod pools;
pub mod trace;
