//! gRPC messages of `pluginregistration.Registration`, `v1.DRAPlugin` and `v1alpha1.DRAResourceHealth`. They
//! are written by hand, so no code is generated.

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

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HealthRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AllHealth {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<DeviceHealth>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeviceHealth {
    #[prost(message, optional, tag = "1")]
    pub(super) device: Option<DeviceId>,
    /// 0: unknown, 1: healthy, 2: unhealthy.
    #[prost(int32, tag = "2")]
    pub(super) health: i32,
    /// Seconds since 1970.
    #[prost(int64, tag = "3")]
    pub(super) last_updated_time: i64,
    /// Time after which the health is unknown without another message.
    #[prost(int64, tag = "4")]
    pub(super) health_check_timeout_seconds: i64,
    #[prost(string, tag = "5")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeviceId {
    #[prost(string, tag = "1")]
    pub(super) pool_name: String,
    #[prost(string, tag = "2")]
    pub(super) device_name: String,
}
