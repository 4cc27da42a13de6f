//! Content of a record.

use crate::ipam::host_local::claimed;
use crate::sys::boot;
use crate::{Context, Error as NodeError};
use braid_core::cni::{AddResult, Attachment, Error, Json, Owner, Version};
use braid_core::k8s::ObjectName;
use braid_core::name::IfName;
use braid_core::plan::step::Step;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// The layout of records. A record of another layout is not read.
const LAYOUT: u32 = 3;

/// The call to which a record belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The container's interface in the network of the call's configuration.
    #[serde(flatten)]
    pub owner: Owner,
    /// The plugin's type; `braid` for a whole list.
    pub plugin: String,
}

/// A call and its attachments: the data needed to delete them without the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub(super) layout: u32,
    /// The call.
    pub key: Key,
    /// `CNI_NETNS`.
    pub netns: Option<PathBuf>,
    /// Cookie of the namespace, to distinguish a later namespace at the same path; `None`
    /// before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// `CNI_PATH`, for foreign plugins.
    pub path: Vec<PathBuf>,
    /// Attachments of the container, in order. A call by a network's own plugin has one.
    pub attachments: Vec<Attached>,
    /// A network status that is not published yet, as the API request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// True if a plugin or IPAM of the call is another program. The call then also has a
    /// [`foreign`] record.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_foreign: bool,
    /// Boot id of a [`foreign`] record, which has no steps; `None` in an ordinary record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde requires"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A pod's network status that is still to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// The pod.
    pub pod: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// Entries of the annotation `k8s.v1.cni.cncf.io/network-status`.
    pub status: String,
    /// Value of the annotation that ADD read and `status` replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// An attachment to one network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The network's name.
    pub network: String,
    /// Name of the container's interface.
    pub ifname: IfName,
    /// The plugin's type; `braid` for a whole list.
    pub plugin: String,
    /// The `NetworkAttachmentDefinition` of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// `CNI_ARGS`.
    pub args: String,
    /// The configuration, from stdin or resolved.
    pub conf: Rc<Json>,
    /// Steps of each plugin of the list, in order; empty for a foreign plugin.
    pub parts: Vec<Vec<Step>>,
    /// Result in the newest version; `None` until a foreign plugin has returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The claim that owns the addresses; they stay after the container's DEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The file with device information, which DEL deletes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_file: Option<PathBuf>,
    /// Indices of the plugins that a failed DEL did not finish: their addresses, or a foreign
    /// plugin's DEL, are still to be released. `parts` then has only the steps that could not be
    /// undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<usize>>,
}

impl Record {
    /// Creates a record without steps.
    pub fn new(key: Key, netns: Option<PathBuf>, attachments: Vec<Attached>) -> Self {
        Self {
            layout: LAYOUT,
            key,
            netns,
            netns_cookie: None,
            path: Vec::new(),
            attachments,
            owed: None,
            is_foreign: false,
            boot: None,
        }
    }

    /// True if this build supports the layout.
    pub(super) fn is_known(&self) -> bool {
        self.layout == LAYOUT
    }

    /// True if it is a [`foreign`] record. It has no steps, so a teardown plans from names alone.
    pub fn is_second(&self) -> bool {
        self.boot.is_some()
    }

    /// Turns it into a [`foreign`] record of this boot, for attachments found without a record.
    pub fn into_second(self) -> Result<Self, crate::Error> {
        Ok(Self {
            is_foreign: true,
            boot: Some(boot_id()?),
            ..self
        })
    }

    /// True if the node has booted since. Neither the namespace nor any kernel object exists then.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.is_second() && self.netns.is_none()
    }

    /// True if a namespace with this cookie may be the recorded one.
    pub fn is_of(&self, cookie: Option<u64>) -> bool {
        self.netns_cookie.is_none() || cookie.is_none() || self.netns_cookie == cookie
    }

    /// True if a call has begun to delete an attachment.
    pub fn is_leaving(&self) -> bool {
        self.attachments
            .iter()
            .any(|attached| attached.left.is_some())
    }

    /// Returns all steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.attachments.iter().flat_map(Attached::steps)
    }

    /// Returns the owner of an attachment.
    pub fn owner_of(&self, attached: &Attached) -> Owner {
        Owner::new(
            &attached.network,
            &self.key.owner.container_id,
            attached.ifname.as_str(),
        )
    }

    /// Returns the owner of an attachment's addresses: the claim if there is one, else the
    /// container.
    pub fn lease_owner_of(&self, attached: &Attached) -> Owner {
        match &attached.claim {
            Some(claim) => claimed::owner(&attached.network, claim),
            None => self.owner_of(attached),
        }
    }

    /// Returns the owners of all attachments.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.attachments
            .iter()
            .map(|attached| self.owner_of(attached))
    }

    /// Returns the container's interface of an attachment.
    pub fn interface_of(&self, attached: &Attached) -> Attachment {
        Attachment {
            container_id: self.key.owner.container_id.clone(),
            ifname: attached.ifname.clone(),
            netns: self.netns.clone(),
            args: attached.args.clone(),
        }
    }
}

impl Attached {
    /// Creates an attachment without steps.
    pub fn new(network: &str, plugin: &str, attachment: &Attachment, conf: Rc<Json>) -> Self {
        Self {
            network: network.to_owned(),
            ifname: attachment.ifname.clone(),
            plugin: plugin.to_owned(),
            object: None,
            args: attachment.args.clone(),
            conf,
            parts: Vec::new(),
            result: None,
            claim: None,
            device_file: None,
            left: None,
        }
    }

    /// Returns all steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().flatten()
    }

    /// Returns the recorded result.
    pub fn result(&self) -> Option<Result<AddResult, Error>> {
        let json = self.result.as_ref()?;
        Some(AddResult::parse(json, Version::NEWEST))
    }

    /// Records a result, unless the newest version cannot express it.
    pub fn note(&mut self, result: Option<&AddResult>) {
        self.result = result.and_then(|result| result.to_json(Version::NEWEST).ok());
    }

    /// Keeps only the steps in `parts` with an inverse in `inverses`.
    pub fn keep(&mut self, parts: Range<usize>, inverses: &[Step]) {
        let is_kept = |step: &Step| {
            let Some(inverse) = step.inverse() else {
                return false;
            };
            inverses.iter().any(|done| done.is_same_undo(&inverse))
        };
        for part in &mut self.parts[parts] {
            part.retain(is_kept);
        }
    }
}

pub(super) fn boot_id() -> Result<String, NodeError> {
    boot::id().doing(format_args!("read {}", boot::ID))
}
