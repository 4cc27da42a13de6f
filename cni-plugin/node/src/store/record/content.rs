//! Content of a record. A record is a file about one call. DEL, CHECK and GC work from this file.

use crate::ipam::host_local::claimed;
use crate::sys::boot;
use crate::{Context, Error as NodeError};
use braid_core::cni::{AddResult, Attachment, Error, Json, Owner, Version};
use braid_core::k8s::ObjectName;
use braid_core::k8s::claimed::ClaimedDevice;
use braid_core::k8s::device_info::Device;
use braid_core::k8s::settings::PodRef;
use braid_core::name::IfName;
use braid_core::plan::step::Step;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// Version of the record format. Records with another version are ignored.
const LAYOUT: u32 = 3;

/// Identity of the call to which a record belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Network of the call's configuration, container and interface.
    #[serde(flatten)]
    pub owner: Owner,
    /// Plugin type of the configuration; `braid` for a whole plugin list.
    pub plugin: String,
}

/// Record of a call and its attachments, with all data that is needed to delete the attachments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub(super) layout: u32,
    /// Identity of the call.
    pub key: Key,
    /// `CNI_NETNS` of the call.
    pub netns: Option<PathBuf>,
    /// Cookie of the network namespace. It shows if a later namespace is at the path. `None` before
    /// Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// `CNI_PATH` of the call, to find plugins that are other programs.
    pub path: Vec<PathBuf>,
    /// Attachments of the call, in order. A call for a pod can have several.
    pub attachments: Vec<Attached>,
    /// The pod's network status, if it is still to be published because the API request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// True if an edit has changed the attachments since the pod's network status was published.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unpublished: bool,
    /// True if a plugin or IPAM of the call is another program. The call then also has a
    /// [`foreign`] record.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_foreign: bool,
    /// Id of the node's boot in which a [`foreign`] record was written; `None` in an ordinary
    /// record.
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
    /// Namespace and name of the pod.
    pub pod: ObjectName,
    /// `metadata.uid` of the pod.
    pub uid: String,
    /// The status to publish: entries for the annotation `k8s.v1.cni.cncf.io/network-status`.
    pub status: String,
    /// Value of the annotation when ADD read it. `status` replaces this value.
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
    /// Plugin type of the configuration; `braid` for a whole plugin list.
    pub plugin: String,
    /// The `NetworkAttachmentDefinition` that defines the network, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    /// The pod's requests to the network
    /// ([`Selection::requests`](braid_core::k8s::selection::Selection::requests)); `None` if the pod
    /// did not select it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Json>,
    /// Gateways of the pod's default routes through this network; empty for the network's own. `None`
    /// if the pod does not request them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Vec<IpAddr>>,
    /// `CNI_ARGS`.
    pub args: String,
    /// Configuration of the network, from stdin or, for a network of a pod, from its definition.
    pub conf: Rc<Json>,
    /// Steps of each plugin in the list, in the list's order. A foreign plugin has none.
    pub parts: Vec<Vec<Step>>,
    /// Steps that add the network's default routes, while another network of the pod has them
    /// (`default-route`). They are not applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displaced: Vec<Step>,
    /// Result of ADD in the newest CNI version; `None` while ADD waits for a foreign plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Owner of the addresses if they belong to an `IPAMClaim`: `ipamclaim-<uid>`. The addresses
    /// then stay reserved after DEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Device of the attachment, if its network takes one of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Device of a resource claim on which the network is, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<ClaimedDevice>,
    /// File with device information about the attachment. DEL deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_file: Option<PathBuf>,
    /// Indices of the plugins that a failed DEL did not finish. Their addresses are still to be
    /// released, or the foreign plugin's DEL is still to be called. `parts` then has only the steps
    /// that could not be undone. `None` before the first DEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<usize>>,
    /// True while an edit of the running container attaches or detaches it. If the edit was
    /// interrupted, the next one detaches it first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unsettled: bool,
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
            is_unpublished: false,
            is_foreign: false,
            boot: None,
        }
    }

    /// True if this build can read the record's layout.
    pub(super) fn is_known(&self) -> bool {
        self.layout == LAYOUT
    }

    /// True if this is a [`foreign`] record. Such a record has no steps, so the deletion is planned
    /// from names alone.
    pub fn is_second(&self) -> bool {
        self.boot.is_some()
    }

    /// Converts the record to a [`foreign`] record of this boot, for attachments that were found
    /// without a record.
    pub fn into_second(self) -> Result<Self, crate::Error> {
        Ok(Self {
            is_foreign: true,
            boot: Some(boot_id()?),
            ..self
        })
    }

    /// True if this is a [`foreign`] record from before the node's last boot. Its network namespace
    /// and its kernel objects no longer exist.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.is_second() && self.netns.is_none()
    }

    /// True if the network namespace with this cookie may be the recorded namespace.
    pub fn is_of(&self, cookie: Option<u64>) -> bool {
        self.netns_cookie.is_none() || cookie.is_none() || self.netns_cookie == cookie
    }

    /// True if a call has begun to delete the record's attachments. An edit, which detaches single
    /// ones, does not count.
    pub fn is_leaving(&self) -> bool {
        self.attachments
            .iter()
            .any(|attached| attached.left.is_some() && !attached.is_unsettled)
    }

    /// Removes the attachments with these indices. Returns a record of them alone.
    #[must_use]
    pub fn take(&mut self, which: &[usize]) -> Self {
        let mut taken = Self {
            attachments: Vec::new(),
            ..self.clone()
        };
        let all = std::mem::take(&mut self.attachments);
        for (at, attached) in all.into_iter().enumerate() {
            let is_taken = which.contains(&at);
            let record = if is_taken { &mut taken } else { &mut *self };
            record.attachments.push(attached);
        }
        taken
    }

    /// True if an interrupted edit has left an attachment to detach, or default routes to give back.
    pub fn is_interrupted(&self) -> bool {
        self.attachments.iter().any(|one| one.is_unsettled) || self.lacks_default_routes()
    }

    /// True if attachments have lost their default routes to a network that is gone.
    pub fn lacks_default_routes(&self) -> bool {
        let all = &self.attachments;
        all.iter().any(|one| !one.displaced.is_empty())
            && all.iter().all(|one| one.default_route().is_none())
    }

    /// Returns all recorded steps in order.
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

    /// Returns the CNI parameters of an attachment: container, interface, namespace and arguments.
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
            asked: None,
            default_route: None,
            args: attachment.args.clone(),
            conf,
            parts: Vec::new(),
            displaced: Vec::new(),
            result: None,
            claim: None,
            device: None,
            claimed: None,
            device_file: None,
            left: None,
            is_unsettled: false,
        }
    }

    /// Returns the pod of the call; `None` if the runtime passed none, or none that can be parsed.
    pub fn pod(&self) -> Option<PodRef> {
        PodRef::of(&self.args).ok()?
    }

    /// Returns the network's name for the status: the name of its `NetworkAttachmentDefinition`, or else
    /// the name in its configuration.
    pub fn name(&self) -> String {
        let of_object = self.object.as_ref().map(ToString::to_string);
        of_object.unwrap_or_else(|| self.network.clone())
    }

    /// Returns the gateways of the default routes that the pod requests through this network. `None`
    /// if it requests none. Records of earlier versions have them in the requests alone.
    pub fn default_route(&self) -> Option<Vec<IpAddr>> {
        if self.default_route.is_some() {
            return self.default_route.clone();
        }
        let gateways = self.asked.as_ref()?.strings("default-route").ok()?;
        let parsed = gateways.iter().filter_map(|gateway| gateway.parse().ok());
        self.asked
            .as_ref()?
            .has("default-route")
            .then(|| parsed.collect())
    }

    /// Returns all recorded steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().flatten()
    }

    /// Parses the recorded result of ADD; `None` if there is none.
    pub fn result(&self) -> Option<Result<AddResult, Error>> {
        let json = self.result.as_ref()?;
        Some(AddResult::parse(json, Version::NEWEST))
    }

    /// Sets the recorded result, or clears it if the newest CNI version cannot express it.
    pub fn note(&mut self, result: Option<&AddResult>) {
        self.result = result.and_then(|result| result.to_json(Version::NEWEST).ok());
    }

    /// Removes the undone steps of the plugins with the indices `parts`: keeps a step only if its
    /// inverse is in `inverses`.
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
