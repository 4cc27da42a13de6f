//! Preparation of a claim, before its pod starts: the decision whether the pod can have the devices.
//!
//! ```text
//!  claim, pod, its other claims, networks ─┐
//!  links, settings, prepared claims ───────┴─► refuse, or Prepared: claim and its use of links
//! ```

use super::DRIVER;
use super::attachments::{Attachment, of_claims, refuse_taken_names};
use super::claim::{Claim, Share};
use super::device::{self, Form};
use super::message::about;
use super::nic::{self, Nic, Offer, Refusal};
use super::parameters::Parameters;
use super::pod_claims::PodClaims;
use super::prepared::Prepared;
use super::settings::Settings;
use super::shared_parent::{self, ParentUse};
use crate::cni::bounds::shortened;
use crate::cni::{Error, Kind};
use crate::k8s::nad::is_on_disk;
use crate::k8s::{self, Nad, ObjectName};
use crate::name::IfName;

/// Objects of a claim, from the API server.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The pod that the claim is reserved for.
    pub pod: &'a PodClaims,
    /// Other claims of the pod, as far as they are known.
    pub others: &'a [Claim],
    /// Networks that the parameters name ([`nads`]), without those that do not exist.
    pub nads: &'a [Nad],
}

/// State of the node.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Name, which is the name of the pool too.
    pub name: &'a str,
    /// Links.
    pub nics: &'a [Nic],
    /// Settings of the devices.
    pub settings: &'a Settings,
    /// Settings of calls.
    pub calls: &'a k8s::settings::Settings,
    /// Prepared claims. This claim may be one of them.
    pub prepared: &'a [Prepared],
    /// Devices that the pod of the claim has alone already: their links are in its namespace.
    pub in_pod: &'a [String],
}

/// Refuses a claim that is not the one with this uid, and one without a device of this driver.
pub fn refuse_unallocated(claim: &Claim, uid: &str) -> Result<(), Error> {
    let fault = if claim.uid != uid {
        let (asked, found) = (shortened(uid), &claim.uid);
        format!("the kubelet asks for uid {asked}, but the API has uid {found}")
    } else if claim.shares.is_empty() {
        format!("no device of {DRIVER} is allocated")
    } else {
        return Ok(());
    };
    Err(about(&claim.name, Error::config(fault)))
}

/// Returns the NetworkAttachmentDefinitions that the parameters of a claim name.
pub fn nads(claim: &Claim) -> Result<Vec<ObjectName>, Error> {
    let mut names = Vec::new();
    for share in &claim.shares {
        let parameters = Parameters::effective(&share.request, &claim.configs)
            .map_err(|error| about(&claim.name, error))?;
        let nad = parameters.nad;
        names.extend(nad.map(|nad| nad.object(&claim.name.namespace)));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Decides whether a claim can be prepared. An error is temporary if it may pass without a change of the
/// claim.
pub fn prepare(objects: Objects<'_>, node: Node<'_>) -> Result<Prepared, Error> {
    let Objects { claim, pod, .. } = objects;
    claim.refuse_second(&pod.uid)?;
    pod.refuse_host_network()
        .map_err(|error| about(&claim.name, error))?;
    let links = Links::of(node);
    let undecided = without_links_in_pod(claim, node);
    links.refuse_not_offered(&undecided, node)?;
    let link = |share: &Share| links.of_share(share, node).ok();
    let own = of_claims(std::slice::from_ref(&undecided), link)?;
    let mut all = Vec::new();
    for other in objects.others {
        // Its own preparation reports its fault.
        let other = of_claims(std::slice::from_ref(other), link);
        all.extend(other.unwrap_or_default());
    }
    all.extend(own.iter().cloned());
    refuse_taken_names(&all)?;
    let mut uses = Vec::new();
    for attachment in &own {
        uses.push(use_of(attachment, objects.nads, node)?);
    }
    let present = node.prepared.iter().flat_map(|one| &one.uses);
    let present: Vec<ParentUse> = present.cloned().collect();
    shared_parent::refuse(&uses, &present, |link| links.capacity(link))?;
    Ok(Prepared {
        claim: claim.clone(),
        uses,
    })
}

/// Returns a claim without the devices with a link in the pod: its ADD has decided about these.
fn without_links_in_pod(claim: &Claim, node: Node<'_>) -> Claim {
    let is_here = |share: &Share| {
        let names = node.nics.iter().map(|nic| &nic.name);
        device::link(&share.device, names).is_some()
    };
    let mut claim = claim.clone();
    claim
        .shares
        .retain(|share| !node.in_pod.contains(&share.device) || is_here(share));
    claim
}

/// Returns the use of its link by an attachment. Refuses networks that do not exist, that the namespace
/// may not use, or that the plugins can't serve.
fn use_of(attachment: &Attachment, nads: &[Nad], node: Node<'_>) -> Result<ParentUse, Error> {
    let object = attachment.nad();
    if let Some(object) = &object
        && attachment.is_nad_of_claim()
    {
        let namespace = &attachment.claim.namespace;
        let allowed = node.calls.allow(namespace, object, false);
        allowed.map_err(|error| attachment.about(error))?;
    }
    let nad = nads.iter().find(|nad| Some(&nad.name) == object.as_ref());
    if nad.is_some_and(is_on_disk) {
        // The agent's container may not have the file. The call reads it.
        return Ok(ParentUse::unknown(attachment));
    }
    let none = |name: &str| Err(Error::config(format!("{:?}: no file", shortened(name))));
    let (_, found) = attachment.network(nads, none)?;
    Ok(ParentUse::of(attachment, &found.definition))
}

/// Links of the node, offered or not.
struct Links<'a> {
    offers: Vec<Offer<'a>>,
    refused: Vec<(&'a IfName, Refusal)>,
}

impl<'a> Links<'a> {
    fn of(node: Node<'a>) -> Self {
        let (offers, refused) = nic::offers(node.nics, node.settings);
        Self { offers, refused }
    }

    fn offer(&self, link: &IfName) -> Option<&Offer<'a>> {
        self.offers.iter().find(|offer| offer.nic.name == *link)
    }

    /// Returns the bandwidth that a slice offers.
    fn capacity(&self, link: &IfName) -> Option<u64> {
        self.offer(link).map(|offer| offer.bandwidth.0)
    }

    fn refuse_not_offered(&self, claim: &Claim, node: Node<'_>) -> Result<(), Error> {
        for share in &claim.shares {
            if let Err(error) = self.of_share(share, node) {
                let request = &share.request;
                let error = error.context(format_args!("request {request:?}"));
                return Err(about(&claim.name, error));
            }
        }
        Ok(())
    }

    /// Returns the link of a device. Refuses one that is not, or no longer, a device of this node.
    fn of_share(&self, share: &Share, node: Node<'_>) -> Result<(IfName, Form), Error> {
        let device = shortened(&share.device);
        if share.pool != node.name {
            let (pool, name) = (shortened(&share.pool), node.name);
            return Err(Error::config(format!(
                "device {device:?}: it is in pool {pool:?}, and this node is {name:?}"
            )));
        }
        let names = node.nics.iter().map(|nic| &nic.name);
        let Some((link, form)) = device::link(&share.device, names) else {
            // It comes back when another pod no longer has it.
            return Err(Error::new(
                Kind::TryAgain,
                format!("device {device:?}: this node has no such link"),
            ));
        };
        let why = match self.offer(link) {
            Some(offer) if offer.forms.contains(&form) => {
                if form == Form::Shared && share.bandwidth.is_none() {
                    return Err(Error::config(format!(
                        "device {device:?}: no bandwidth is allocated; the scheduler needs the feature gate \
                         DRAConsumableCapacity"
                    )));
                }
                return Ok((link.clone(), form));
            }
            Some(_) => "it has an address of the node, so no pod can have it alone".to_owned(),
            None => {
                let mut refused = self.refused.iter();
                let refused = refused.find(|(name, _)| *name == link);
                let why = refused.map_or(&Refusal::NotIncluded, |(_, why)| why);
                why.to_string()
            }
        };
        Err(Error::config(format!(
            "device {device:?}: link {link} is not offered: {why}"
        )))
    }
}

#[cfg(test)]
mod tests;
