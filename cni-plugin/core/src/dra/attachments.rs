//! Attachments of a pod that follow from its claims: one for each allocated device.

use super::claim::{Claim, Share};
use super::definition::{self, Parent};
use super::device::Form;
use super::message::about;
use super::parameters::Parameters;
use crate::cni::{Error, Json};
use crate::k8s::nad::{Definition, Found};
use crate::k8s::request::{self, BuiltIn, Rules};
use crate::k8s::select::Choice;
use crate::k8s::selection::{Bandwidth, Limit, Selection};
use crate::k8s::settings::Origin;
use crate::k8s::{Nad, ObjectName};
use crate::name::IfName;
use crate::{ipam, plugins};
use std::collections::BTreeSet;

/// Maximum number of attachments of a pod, as for networks in its annotation.
const MAX_ATTACHMENTS: usize = 64;
/// Interfaces that each pod has.
const OF_EACH_POD: [&str; 2] = ["lo", "eth0"];
/// Item number of a selection that is not in an annotation.
const NO_ITEM: usize = 0;

/// An attachment that a request of a claim asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// The claim.
    pub claim: ObjectName,
    /// `metadata.uid` of the claim.
    pub claim_uid: String,
    /// Request, device and reserved bandwidth. The bandwidth is the limit in each direction.
    pub share: Share,
    /// Link of the device.
    pub parent: IfName,
    /// Form in which the device is offered.
    pub form: Form,
    /// Parameters of the class and of the claim.
    pub parameters: Parameters,
}

/// Returns the attachments of a pod in the order of its claims, then of their devices. `link`
/// returns the link of a device on this node.
pub fn of_claims(
    claims: &[Claim],
    link: impl Fn(&Share) -> Option<(IfName, Form)>,
) -> Result<Vec<Attachment>, Error> {
    let mut all = Vec::new();
    for claim in claims {
        for share in &claim.shares {
            let attachment = Attachment::new(claim, share, link(share));
            all.push(attachment.map_err(|error| about(&claim.name, error))?);
        }
    }
    if all.len() > MAX_ATTACHMENTS {
        let found = all.len();
        return Err(Error::config(format!(
            "{found} network devices of claims, more than {MAX_ATTACHMENTS}"
        )));
    }
    Ok(all)
}

impl Attachment {
    fn new(claim: &Claim, share: &Share, link: Option<(IfName, Form)>) -> Result<Self, Error> {
        let parameters = Parameters::effective(&share.request, &claim.configs)?;
        let Some((parent, form)) = link else {
            let Share {
                request, device, ..
            } = share;
            return Err(Error::internal(format!(
                "request {request:?}: device {device:?}: this node has no such link"
            )));
        };
        Ok(Self {
            claim: claim.name.clone(),
            claim_uid: claim.uid.clone(),
            share: share.clone(),
            parent,
            form,
            parameters,
        })
    }

    /// Returns the NetworkAttachmentDefinition that the parameters name.
    pub fn nad(&self) -> Option<ObjectName> {
        let nad = self.parameters.nad.as_ref()?;
        Some(nad.object(&self.claim.namespace))
    }

    /// True if the claim itself names the NetworkAttachmentDefinition, so that the pod's namespace
    /// has to be allowed to use it.
    pub fn is_nad_of_claim(&self) -> bool {
        let nad = self.parameters.nad.as_ref();
        nad.is_some_and(|nad| !nad.is_of_class)
    }

    /// Returns the network to attach, as a pod's annotation would select it. `nads` has the
    /// NetworkAttachmentDefinitions; `on_disk` finds the configuration of one without it. Fails if
    /// the plugins can't serve the parameters.
    pub fn network(
        &self,
        nads: &[Nad],
        on_disk: impl FnOnce(&str) -> Result<Definition, Error>,
    ) -> Result<(Choice, Found), Error> {
        self.found(nads, on_disk).map_err(|error| self.about(error))
    }

    /// Returns the error about this attachment.
    pub fn about(&self, error: Error) -> Error {
        let request = &self.share.request;
        about(
            &self.claim,
            error.context(format_args!("request {request:?}")),
        )
    }

    fn found(
        &self,
        nads: &[Nad],
        on_disk: impl FnOnce(&str) -> Result<Definition, Error>,
    ) -> Result<(Choice, Found), Error> {
        let parent = Parent {
            link: &self.parent,
            form: self.form,
        };
        let nad = self.nad();
        let mut definition = match &nad {
            Some(object) => {
                let Some(nad) = nads.iter().find(|nad| nad.name == *object) else {
                    return Err(Error::config(format!(
                        "network {object}: there is no such NetworkAttachmentDefinition"
                    )));
                };
                let definition = Found::of_nad(nad, on_disk)?.definition;
                if self.is_nad_of_claim() {
                    definition::refuse_other_kind(&definition)
                        .map_err(|error| error.context(format_args!("network {object}")))?;
                }
                definition
            }
            None => definition::of_network(self.parameters.network.as_ref(), parent)?,
        };
        let Share { bandwidth, .. } = self.share;
        definition::complete(&mut definition, parent, &self.parameters.ips, bandwidth)?;
        let selection = self.selection(nad.as_ref());
        let rules = Rules {
            // Parameters need no capabilities, even if requests in annotations do.
            is_strict: false,
            built_in: BUILT_IN,
        };
        request::serve(&selection, &mut definition, rules)?;
        let choice = Choice {
            is_default: false,
            origin: match &nad {
                Some(object) => Origin::Nad(object.clone()),
                None => Origin::Inline(Json::object_of([])),
            },
            selection: Some(selection),
            claimed: Some(self.share.claimed(&self.claim, &self.claim_uid)),
        };
        // A resource in the annotation of a NetworkAttachmentDefinition would add another device.
        let found = Found {
            object: nad,
            ..Found::of(definition)
        };
        Ok((choice, found))
    }

    fn selection(&self, nad: Option<&ObjectName>) -> Selection {
        let Parameters {
            interface,
            ips,
            mac,
            ..
        } = &self.parameters;
        let limit = self.share.bandwidth.map(|rate| Limit { rate, burst: None });
        Selection {
            interface: interface.clone(),
            ips: ips.clone(),
            mac: *mac,
            bandwidth: limit.map(|limit| Bandwidth {
                ingress: Some(limit),
                egress: Some(limit),
            }),
            ..Selection::of(NO_ITEM, nad.unwrap_or(&self.claim).clone())
        }
    }
}

/// Refuses an interface name that two attachments of a pod have, or an attachment and the pod.
pub fn refuse_taken_names(attachments: &[Attachment]) -> Result<(), Error> {
    let mut taken = BTreeSet::from(OF_EACH_POD);
    for attachment in attachments {
        if let Some(name) = &attachment.parameters.interface
            && !taken.insert(name.as_str())
        {
            let sentence = format!("\"interface\": {:?}: the pod has it already", name.as_str());
            return Err(attachment.about(Error::config(sentence)));
        }
    }
    Ok(())
}

/// Plugin and IPAM types that braid implements.
const BUILT_IN: BuiltIn<'_> = BuiltIn {
    plugins: plugins::TYPES,
    ipams: ipam::configuration::TYPES,
    mac_by: plugins::mac_by,
};

#[cfg(test)]
mod tests;
