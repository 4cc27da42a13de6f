//! Places that pods, NetworkAttachmentDefinitions and claims come from.

pub mod api;
