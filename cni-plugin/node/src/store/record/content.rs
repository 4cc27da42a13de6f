//! The content of a record.

use super::layout;
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

/// The call that a record belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The container's interface, in the network of the call's configuration.
    #[serde(flatten)]
    pub owner: Owner,
    /// The plugin's type; `braid` for a whole list.
    pub plugin: String,
}

/// A call and its attachments: what is needed to take them back without the runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "layout::Any")]
pub struct Record {
    pub(super) layout: u32,
    /// The call.
    pub key: Key,
    /// `CNI_NETNS`.
    pub netns: Option<PathBuf>,
    /// Number that tells the namespace from another one at the same path; none of a kernel before
    /// Linux 5.14.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// `CNI_PATH`, for foreign plugins.
    pub path: Vec<PathBuf>,
    /// The networks that the container is attached to, in order; one for a call by a network's own
    /// plugin.
    pub attachments: Vec<Attached>,
    /// A status that the API could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// A plugin or an IPAM of it is another program: the call has a [`foreign`] record as well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_foreign: bool,
    /// The boot that a [`foreign`] record is of; none in a record proper. No step is known then.
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

/// The status of a pod, which is still to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// The pod.
    pub pod: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// The entries of its annotation `k8s.v1.cni.cncf.io/network-status`.
    pub status: String,
    /// The annotation's value when ADD read the pod, which they replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// An attachment to one network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The network's name.
    pub network: String,
    /// The interface in the container.
    pub ifname: IfName,
    /// The plugin's type; `braid` for a whole list.
    pub plugin: String,
    /// The NetworkAttachmentDefinition that the network comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// `CNI_ARGS`.
    pub args: String,
    /// The configuration as it arrived, or was resolved.
    pub conf: Rc<Json>,
    /// The steps of each plugin of the list, in order; none for a foreign one.
    pub parts: Vec<Vec<Step>>,
    /// The result, in the newest version; none where a foreign plugin has not yet answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The claim that holds its addresses, where it is not the container: they stay when it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The file with its device information, which goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_file: Option<PathBuf>,
    /// The plugins of the list whose addresses, or whose own work where they are foreign, are
    /// still to be given back, since taking the attachment back failed in part. The steps are
    /// then those that could not be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<usize>>,
}

impl Record {
    /// A record of nothing yet.
    pub fn new(key: Key, netns: Option<PathBuf>, attachments: Vec<Attached>) -> Self {
        Self {
            layout: layout::NEWEST,
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

    /// True if it is a [`foreign`] record: the steps are not known, names alone say what there is
    /// to undo.
    pub fn is_second(&self) -> bool {
        self.boot.is_some()
    }

    /// Makes it a [`foreign`] record of this boot, for attachments that were found without any.
    pub fn into_second(self) -> Result<Self, crate::Error> {
        Ok(Self {
            is_foreign: true,
            boot: Some(boot_id()?),
            ..self
        })
    }

    /// True if the node was booted since: neither the namespace nor anything of the kernel is
    /// there.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.is_second() && self.netns.is_none()
    }

    /// True if a namespace with this cookie may be the one that was there.
    pub fn is_of(&self, cookie: Option<u64>) -> bool {
        self.netns_cookie.is_none() || cookie.is_none() || self.netns_cookie == cookie
    }

    /// True if somebody began to take it back.
    pub fn is_leaving(&self) -> bool {
        self.attachments
            .iter()
            .any(|attached| attached.left.is_some())
    }

    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.attachments.iter().flat_map(Attached::steps)
    }

    /// The owner of an attachment.
    pub fn owner_of(&self, attached: &Attached) -> Owner {
        Owner::new(
            &attached.network,
            &self.key.owner.container_id,
            attached.ifname.as_str(),
        )
    }

    /// The owner of an attachment's addresses.
    pub fn lease_owner_of(&self, attached: &Attached) -> Owner {
        let of_claim = |claim: &String| claimed::owner(&attached.network, claim);
        attached
            .claim
            .as_ref()
            .map_or_else(|| self.owner_of(attached), of_claim)
    }

    /// The owners of all attachments.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.attachments
            .iter()
            .map(|attached| self.owner_of(attached))
    }

    /// The container's interface of an attachment.
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
    /// An attachment of which nothing is done yet.
    pub fn new(network: &str, plugin: &str, attachment: &Attachment, conf: Rc<Json>) -> Self {
        let (ifname, args) = (attachment.ifname.clone(), attachment.args.clone());
        let [network, plugin] = [network, plugin].map(str::to_owned);
        Self {
            network,
            ifname,
            plugin,
            object: None,
            args,
            conf,
            parts: Vec::new(),
            result: None,
            claim: None,
            device_file: None,
            left: None,
        }
    }

    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().flatten()
    }

    /// The recorded result.
    pub fn result(&self) -> Option<Result<AddResult, Error>> {
        self.result
            .as_ref()
            .map(|json| AddResult::parse(json, Version::NEWEST))
    }

    /// Takes over a result; one that the newest version can't say is left out.
    pub fn note(&mut self, result: Option<&AddResult>) {
        self.result = result.and_then(|result| result.to_json(Version::NEWEST).ok());
    }

    /// Forgets the steps of some parts but for those that one of `inverses` takes back.
    pub fn keep(&mut self, parts: Range<usize>, inverses: &[Step]) {
        let is_kept = |step: &Step| {
            step.inverse()
                .is_some_and(|inverse| inverses.iter().any(|done| done.is_same_undo(&inverse)))
        };
        self.parts[parts]
            .iter_mut()
            .for_each(|part| part.retain(is_kept));
    }
}

pub(super) fn boot_id() -> Result<String, NodeError> {
    boot::id().doing(format_args!("read {}", boot::ID))
}
