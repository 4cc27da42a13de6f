//! gRPC messages of `pluginregistration.Registration` and of `v1.DRAPlugin`. They are written by hand, so
//! no code is generated.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InfoRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(super) plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub(super) error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RegistrationStatusResponse {}

/// Request of both methods of the driver.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Claims {
    #[prost(message, repeated, tag = "1")]
    pub(super) claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Claim {
    #[prost(string, tag = "1")]
    pub(super) namespace: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AllPrepared {
    /// By the uid of the claim. Each claim of the request is there.
    #[prost(map = "string, message", tag = "1")]
    pub(super) claims: HashMap<String, Prepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Prepared {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<PreparedDevice>,
    #[prost(string, tag = "2")]
    pub(super) error: String,
}

/// A device of a claim. Field 4 has ids of CDI devices, which braid has none of.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PreparedDevice {
    #[prost(string, repeated, tag = "1")]
    pub(super) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(super) pool_name: String,
    #[prost(string, tag = "3")]
    pub(super) device_name: String,
    /// `v1beta1` has no such field.
    #[prost(string, optional, tag = "5")]
    pub(super) share_id: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AllUnprepared {
    #[prost(map = "string, message", tag = "1")]
    pub(super) claims: HashMap<String, Unprepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Unprepared {
    #[prost(string, tag = "1")]
    pub(super) error: String,
}
