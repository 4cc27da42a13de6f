//! gRPC messages of `pluginregistration.Registration` and of `v1.DRAPlugin`. They are written by hand, so
//! no code is generated.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct InfoRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistrationStatusResponse {}

/// Request of both methods of the driver.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Claims {
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Claim {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AllPrepared {
    /// By the uid of the claim. Each claim of the request is there.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Prepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Prepared {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<PreparedDevice>,
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim. Field 4 has ids of CDI devices, which braid has none of.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedDevice {
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub pool_name: String,
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// `v1beta1` has no such field.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AllUnprepared {
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Unprepared>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Unprepared {
    #[prost(string, tag = "1")]
    pub error: String,
}
