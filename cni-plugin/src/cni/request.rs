//! One call of a plugin: its environment and its standard input, checked.

use super::NetConf;
use crate::plan::IfName;
use std::path::PathBuf;

/// The verb of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each arm is the verb it is named for")]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// Which interface of which container a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
    /// `CNI_NETNS`; `None` where it is empty (allowed for DEL).
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS` as written.
    pub args: String,
}

/// A checked call.
#[derive(Debug, Clone)]
pub struct Request {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// The container's interface; `None` for GC and STATUS.
    pub attachment: Option<Attachment>,
    /// `CNI_PATH`, split: where foreign plugins are looked up.
    pub path: Vec<PathBuf>,
    /// `CNI_NETNS_OVERRIDE` is `1` or `true`: the container's namespace may be the plugin's own.
    pub netns_override: bool,
    /// The configuration from standard input.
    pub conf: NetConf,
}
