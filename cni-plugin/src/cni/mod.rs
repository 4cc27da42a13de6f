//! The CNI protocol in the specification's words, without side effects.
//!
//! ```text
//!  environment ─► request::Request ◄─ netconf ◄─ json::Json (Go's rules) ◄─ stdin
//!  result::AddResult ─► any version 0.1.0-1.1.0 ─► stdout;  error::Error ─► code and message
//! ```

pub mod args;
pub mod error;
pub mod json;
pub mod netconf;
pub mod request;
pub mod result;
pub mod version;

pub use error::{Code, Error};
pub use json::Json;
pub use netconf::{NetConf, NetConfList};
pub use request::{Attachment, Command, Request};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use version::Version;
