//! The CNI protocol without side effects, with the names of the specification.
//!
//! ```text
//!  environment ─► request::Request ◄─ netconf ◄─ json::Json (Go's rules) ◄─ stdin
//!  result::AddResult ─► any version 0.1.0-1.1.0 ─► stdout;  error::Error ─► code and message
//! ```

pub mod address;
pub mod args;
pub mod bounds;
pub mod error;
pub mod fault;
mod fields;
pub mod json;
mod layout;
pub mod mac_by;
pub mod netconf;
pub mod netconf_list;
pub mod owner;
pub mod request;
pub mod result;
pub mod trace;
pub mod version;

pub use args::CniArgs;
pub use error::{Error, Kind};
pub use fault::{FaultPlace, PathPart};
pub use json::Json;
pub use netconf::NetConf;
pub use netconf_list::{Injected, NetConfList};
pub use owner::Owner;
pub use request::{Attachment, Command, Environment, Request};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use version::{Family, Gated, Version};
