//! Choice of a pod's networks, in the order they are attached, from the settings, the pod's
//! selections and the network definitions.

use super::claimed::ClaimedDevice;
use super::nad::Found;
use super::network::Network;
use super::request::{self, Rules};
use super::selection::Selection;
use super::settings::{Origin, Settings};
use super::{ObjectName, names};
use crate::cni::{Error, Json};
use crate::name::IfName;
use std::collections::BTreeSet;

/// A network to attach, before its configuration is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// True for the default network.
    pub is_default: bool,
    /// Source of the configuration.
    pub origin: Origin,
    /// The pod's selection; `None` if the pod did not select the network.
    pub selection: Option<Selection>,
    /// Device of a resource claim on which the network is; the claim then has the requests.
    pub claimed: Option<ClaimedDevice>,
}

impl Choice {
    /// Returns a network that all pods get.
    pub fn of_all(origin: Origin) -> Self {
        Self {
            is_default: false,
            origin,
            selection: None,
            claimed: None,
        }
    }

    /// Returns a network that a pod selected.
    fn of_pod(selection: Selection, is_default: bool) -> Self {
        Self {
            is_default,
            origin: Origin::Nad(selection.object.clone()),
            selection: Some(selection),
            claimed: None,
        }
    }

    /// Returns the name of the NetworkAttachmentDefinition that may define the network; `None` if
    /// only a file or an inline configuration can.
    pub fn object(&self, settings: &Settings) -> Option<ObjectName> {
        match &self.origin {
            Origin::Nad(object) => Some(object.clone()),
            Origin::Named(name) if names::is_object(name) => Some(ObjectName {
                namespace: settings.multus_namespace.clone(),
                name: name.clone(),
            }),
            Origin::Named(_) | Origin::Inline(_) => None,
        }
    }

    /// Returns the network's name for messages.
    fn name(&self) -> String {
        if let Some(ClaimedDevice { claim, request, .. }) = &self.claimed {
            return format!("claim {claim}: request {request:?}");
        }
        let network = match &self.origin {
            Origin::Inline(json) => json
                .str("name")
                .ok()
                .flatten()
                .unwrap_or("without a name")
                .to_owned(),
            Origin::Named(name) => name.clone(),
            Origin::Nad(object) => object.to_string(),
        };
        match &self.selection {
            Some(selection) if !self.is_default && selection.item > 0 => {
                format!("network {network} (item {})", selection.item)
            }
            _ => format!("network {network}"),
        }
    }
}

/// Returns the networks to look up for a pod of this namespace: the default network, the networks
/// that all pods get, then the selected networks. Fails only if the pod selects a network that it
/// may not use.
pub fn wanted(
    settings: &Settings,
    namespace: &str,
    default: Option<Selection>,
    asked: Vec<Selection>,
) -> Result<Vec<Choice>, Error> {
    if let Some(selection) = &default {
        settings.allow(namespace, &selection.object, true)?;
    }
    let asked = selected(settings, namespace, asked)?;
    let first = match default {
        Some(selection) => Choice::of_pod(selection, true),
        None => Choice {
            is_default: true,
            ..Choice::of_all(settings.default_network.clone())
        },
    };
    let mut all = vec![first];
    for origin in &settings.more_networks {
        all.push(Choice::of_all(origin.clone()));
    }
    if !settings.is_system(namespace) {
        for origin in &settings.default_networks {
            all.push(Choice::of_all(origin.clone()));
        }
    }
    all.extend(asked);
    Ok(all)
}

/// Returns the networks that a pod of this namespace selects beside the default network. Fails if it
/// may not use one of them.
pub fn selected(
    settings: &Settings,
    namespace: &str,
    asked: Vec<Selection>,
) -> Result<Vec<Choice>, Error> {
    let mut all = Vec::with_capacity(asked.len());
    for selection in asked {
        settings.allow(namespace, &selection.object, false)?;
        all.push(Choice::of_pod(selection, false));
    }
    Ok(all)
}

/// Returns the networks of a pod, ready to be attached. The default network has the interface
/// `ifname`, and only this network gets the runtime's `runtime_config`. Refuses requests that can't
/// be served, before any plugin runs.
pub fn networks(
    found: Vec<(Choice, Found)>,
    namespace: &str,
    ifname: &IfName,
    runtime_config: Option<&Json>,
    rules: Rules<'_>,
) -> Result<Vec<Network>, Error> {
    let wanted: Vec<&Choice> = found.iter().map(|(wanted, _)| wanted).collect();
    refuse_two_routes(&wanted)?;
    let mut readable = Vec::with_capacity(found.len());
    for (wanted, found) in found {
        readable.push((wanted, Ok(found)));
    }
    attached(readable, namespace, ifname, runtime_config, rules)?
        .into_iter()
        .collect()
}

/// Returns the networks of a pod that is already attached. An error in one network does not affect
/// the other networks.
pub fn attached(
    found: Vec<(Choice, Result<Found, Error>)>,
    namespace: &str,
    ifname: &IfName,
    runtime_config: Option<&Json>,
    rules: Rules<'_>,
) -> Result<Vec<Result<Network, Error>>, Error> {
    let wanted: Vec<&Choice> = found.iter().map(|(wanted, _)| wanted).collect();
    let ifnames = interfaces(ifname, &wanted)?;
    let mut networks = Vec::with_capacity(found.len());
    for ((wanted, found), ifname) in found.into_iter().zip(ifnames) {
        let context = wanted.name();
        let runtime = if wanted.is_default {
            runtime_config
        } else {
            None
        };
        let attached =
            found.and_then(|found| network(wanted, found, namespace, ifname, (runtime, rules)));
        networks.push(attached.map_err(|error| error.context(context)));
    }
    Ok(networks)
}

fn network(
    wanted: Choice,
    Found {
        mut definition,
        object,
        resource,
    }: Found,
    namespace: &str,
    ifname: IfName,
    (runtime, rules): (Option<&Json>, Rules<'_>),
) -> Result<Network, Error> {
    let is_default = wanted.is_default;
    let mut runtime_config = runtime.cloned().unwrap_or_else(|| Json::object_of([]));
    let (mut asked, mut cni_args) = (Vec::new(), Vec::new());
    let (mut default_route, mut ipam_claim, mut device) = (None, None, None);
    let mut requests = None;
    if let Some(selection) = wanted.selection {
        // An edit of the pod's annotation does not change what a claim requests.
        let is_of_annotation = !is_default && wanted.claimed.is_none();
        requests = is_of_annotation.then(|| selection.requests());
        refuse_two_sources(&selection, is_default)?;
        let rules = Rules {
            // Parameters of a claim need no capabilities, and its preparation has accepted them.
            is_strict: rules.is_strict && wanted.claimed.is_none(),
            ..rules
        };
        cni_args = request::serve(&selection, &mut definition, rules)?;
        for (capability, _, value) in selection.runtime_config() {
            runtime_config.set(capability, value);
            asked.push(capability);
        }
        definition.merge_args(&selection.cni_args)?;
        default_route = selection.default_route;
        ipam_claim = selection.ipam_claim.map(|name| ObjectName {
            namespace: namespace.to_owned(),
            name,
        });
        device = selection.device;
    }
    Ok(Network {
        is_default,
        object,
        ifname,
        definition,
        runtime_config,
        asked,
        cni_args,
        default_route,
        ipam_claim,
        resource,
        device,
        requests,
        claimed: wanted.claimed,
    })
}

fn refuse_two_sources(selection: &Selection, is_default: bool) -> Result<(), Error> {
    const CLAIM: &str = "ipam-claim-reference";
    if selection.ipam_claim.is_none() {
        return Ok(());
    }
    if is_default {
        return Err(Error::config(format!(
            "{CLAIM:?}: the default network does not support claims"
        )));
    }
    if !selection.ips.is_empty() {
        return Err(Error::config(format!(
            "\"ips\" and {CLAIM:?} can't both be set"
        )));
    }
    Ok(())
}

/// Fails if two networks request the pod's default route, even in different annotations.
fn refuse_two_routes(wanted: &[&Choice]) -> Result<(), Error> {
    let has_route = |wanted: &&&Choice| {
        wanted
            .selection
            .as_ref()
            .is_some_and(|one| one.default_route.is_some())
    };
    let mut routed = wanted.iter().filter(has_route);
    match (routed.next(), routed.next()) {
        (Some(first), Some(second)) => Err(Error::config(format!(
            "{}: \"default-route\": {} has it already",
            second.name(),
            first.name()
        ))),
        _ => Ok(()),
    }
}

/// Returns the interface name of each network: the requested name, else `net<position>`, else
/// `net<number>` with the lowest free number.
fn interfaces(ifname: &IfName, wanted: &[&Choice]) -> Result<Vec<IfName>, Error> {
    let mut taken: BTreeSet<&str> = BTreeSet::from(["lo"]);
    let mut names: Vec<Option<IfName>> = Vec::new();
    for one in wanted {
        let asked = match &one.selection {
            Some(selection) => selection.interface.as_ref(),
            None => None,
        };
        let name = match asked {
            Some(asked) if one.is_default && asked != ifname => {
                let sentence =
                    format!("interface {asked} is requested, but the runtime expects {ifname}");
                return Err(Error::config(sentence).context(one.name()));
            }
            _ if one.is_default => Some(ifname),
            asked => asked,
        };
        if let Some(name) = name
            && !taken.insert(name.as_str())
        {
            return Err(Error::config(format!(
                "interface {name} is already used by another network"
            ))
            .context(one.name()));
        }
        names.push(name.cloned());
    }
    let mut taken: BTreeSet<String> = taken.into_iter().map(str::to_owned).collect();
    for (number, name) in names.iter_mut().enumerate() {
        if name.is_none() {
            *name = take(&mut taken, number)?;
        }
    }
    for name in &mut names {
        let mut number = 1;
        while name.is_none() {
            *name = take(&mut taken, number)?;
            number += 1;
        }
    }
    Ok(names.into_iter().flatten().collect())
}

/// Returns `net<number>` and adds it to `taken`; `None` if it is already taken.
fn take(taken: &mut BTreeSet<String>, number: usize) -> Result<Option<IfName>, Error> {
    let name = format!("net{number}");
    let ifname =
        IfName::parse(&name).map_err(|error| Error::internal(format!("{name}: {error}")))?;
    Ok(taken.insert(name).then_some(ifname))
}

#[cfg(test)]
mod tests;
