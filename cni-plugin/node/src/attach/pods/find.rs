//! Search for a pod's networks: the pod and its NetworkAttachmentDefinitions from the API, other
//! networks from the node's files.

mod claimed;
mod left;

use super::chained::Chained;
use super::network::{interface, netconf};
use super::publish::Publisher;
use super::refusal::{REFUSED, of_source, refusal};
use super::{claims, devices};
use crate::apply::host::Machine;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::device_file::DeviceFile;
use crate::attach::invocation::{Invocation, OfPod, Wanted};
use crate::source::cluster::Cluster;
use braid_core::cni::{Attachment, Error, Json, Kind, NetConf, Request};
use braid_core::ipam::configuration;
use braid_core::k8s::nad::{Definition, Found};
use braid_core::k8s::network::Network;
use braid_core::k8s::on_disk::{self, DiskFile};
use braid_core::k8s::request::{BuiltIn, Rules};
use braid_core::k8s::requested_networks::RequestedNetworks;
use braid_core::k8s::runtime_annotations;
use braid_core::k8s::select::{self, Choice};
use braid_core::k8s::settings::{Origin, PodRef, Settings};
use braid_core::k8s::source::{Event, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod};
use braid_core::plugins;
use std::path::{Path, PathBuf};

/// Finder of the networks of one pod.
pub(super) struct Finder<'a> {
    settings: &'a Settings,
    machine: &'a dyn Machine,
    cluster: &'a dyn Cluster,
    /// Source of Kubernetes objects; opened at the first query.
    source: Option<Box<dyn Source>>,
    /// Files of `confDir`, read once.
    files: Option<Vec<DiskFile>>,
    chained: Chained,
}

/// A pod, its selected networks and their definitions.
#[derive(Default)]
struct Requested {
    pod: Option<Pod>,
    choices: Vec<Choice>,
    nads: Vec<Nad>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        machine: &'a dyn Machine,
        cluster: &'a dyn Cluster,
    ) -> Self {
        Self {
            settings,
            machine,
            cluster,
            source: None,
            files: None,
            chained: Chained::default(),
        }
    }

    /// Returns the source of Kubernetes objects; `None` without a cluster.
    pub(super) fn source(&mut self) -> Option<&mut (dyn Source + 'static)> {
        self.settings.kubeconfig.as_ref()?;
        self.ask().ok()
    }

    /// Returns the call for all networks of the request's pod, and the publisher of the pod's
    /// status.
    pub(super) fn call(&mut self, request: &Request) -> Result<(Invocation, Publisher), Error> {
        let record_key = |attachment: &Attachment| Chain::key_of(BRAID, &request.conf, attachment);
        let attachment = request
            .attachment
            .as_ref()
            .ok_or_else(|| Error::env("ADD needs a container"))?;
        let (key, path) = (
            record_key(attachment),
            self.settings.path(request.path.clone()),
        );
        let pod_ref = PodRef::of(&attachment.args)?.filter(|_| self.settings.kubeconfig.is_some());
        let Requested { pod, choices, nads } = match &pod_ref {
            Some(pod_ref) => self.of_pod(pod_ref, &request.conf)?,
            None => Requested {
                choices: select::wanted(self.settings, "", None, Vec::new())?,
                ..Requested::default()
            },
        };
        let namespace = pod_ref
            .as_ref()
            .map_or("", |pod_ref| pod_ref.name.namespace.as_str());
        let resolved = self
            .networks(request, (namespace, pod.as_ref()), (choices, &nads))
            .and_then(|networks| {
                let none = devices::Held::default();
                self.all_wanted(networks, pod.as_ref(), (attachment, &path), &none)
            });
        let wanted = match (resolved, &pod) {
            (Ok(wanted), _) => wanted,
            (Err(err), Some(pod)) if err.kind != Kind::TryAgain => {
                return Err(self.refuse(pod, REFUSED, err));
            }
            (Err(err), _) => return Err(err),
        };
        let container_id = attachment.container_id.clone();
        let call = Invocation {
            key,
            netns_override: request.netns_override,
            path,
            wanted,
        };
        Ok((
            call,
            Publisher {
                pod,
                container_id,
                form: self.settings.status,
            },
        ))
    }

    /// Returns the networks that were selected, each with its configuration and interface name.
    fn networks(
        &mut self,
        request: &Request,
        (namespace, pod): (&str, Option<&Pod>),
        (choices, nads): (Vec<Choice>, &[Nad]),
    ) -> Result<Vec<Network>, Error> {
        let mut found = Vec::new();
        for choice in choices {
            let network = self.found(&choice, nads, &request.conf)?;
            found.push((choice, network));
        }
        if let Some(pod) = pod {
            found.extend(self.claimed(pod)?);
        }
        found.extend(self.auxiliary(&request.conf)?);
        let runtime_config = request.conf.json.object("runtimeConfig")?;
        let attachment = request
            .attachment
            .as_ref()
            .ok_or_else(|| Error::env("ADD needs a container"))?;
        select::networks(
            found,
            namespace,
            &attachment.ifname,
            runtime_config,
            rules(self.settings.require_capabilities),
        )
    }

    /// Returns the attachments to these networks, with the pod's devices and claims. `held` are the
    /// devices that the container has.
    pub(super) fn all_wanted(
        &mut self,
        networks: Vec<Network>,
        pod: Option<&Pod>,
        (attachment, path): (&Attachment, &[PathBuf]),
        held: &devices::Held,
    ) -> Result<Vec<Wanted>, Error> {
        let on = devices::On {
            container_id: &attachment.container_id,
            machine: self.machine,
            cluster: self.cluster,
            settings: self.settings,
            held,
        };
        let given = devices::give(networks, pod, on, &mut |node, driver| {
            let source = self.ask()?;
            let offered = match pod.filter(|_| node.is_empty()) {
                // The runtime does not pass the node.
                Some(pod) => source
                    .pod(&pod.name, Some(&pod.uid), &[])
                    .and_then(|(pod, _)| source.offered(&pod.node, driver)),
                None => source.offered(node, driver),
            };
            offered.map_err(|err| of_source(&err))
        })?;
        let mut all = Vec::new();
        for (network, file) in given {
            let wanted = self.wanted(network, file, pod, (attachment, path), &all)?;
            all.push(wanted);
        }
        Ok(all)
    }

    /// Returns the attachment to one network. `others` are the pod's attachments before it, which
    /// must not use the same claim.
    fn wanted(
        &mut self,
        network: Network,
        device_file: Option<DeviceFile>,
        pod: Option<&Pod>,
        (attachment, path): (&Attachment, &[PathBuf]),
        others: &[Wanted],
    ) -> Result<Wanted, Error> {
        let attachment = Attachment {
            args: network.args(&attachment.args),
            ..interface(attachment, &network.ifname)
        };
        let chain = Chain::parse(
            BRAID,
            netconf(network.conf()?, None)?,
            &attachment.args,
            path,
        )
        .map_err(|err| err.context(format_args!("network {}", network.name())))?;
        let claim = self.claim(&network, &chain, pod)?;
        let of_network = |claim| {
            claims::of_network(
                claim,
                &network,
                others,
                (&attachment.container_id, self.machine),
            )
        };
        let claimed = claim.as_ref().map(of_network).transpose()?;
        Ok(Wanted {
            default_route: network.default_route.clone(),
            claim: claimed,
            object: network.object.clone(),
            device_file,
            of_pod: Some(OfPod { network, claim }),
            ..Wanted::new(attachment, chain)
        })
    }

    /// Returns the claim for a network's addresses, if any. Refuses a claim that another pod uses.
    fn claim(
        &mut self,
        network: &Network,
        chain: &Chain,
        pod: Option<&Pod>,
    ) -> Result<Option<IpamClaim>, Error> {
        let Some(name) = claims::reference(network, chain) else {
            return Ok(None);
        };
        let claim = match (self.ask()?.claim(name), pod) {
            (Ok(claim), _) => claim,
            // The claim may be created later, or never.
            (Err(err @ SourceError::NotFound { .. }), Some(pod)) => {
                return Err(self.refuse(pod, REFUSED, of_source(&err)));
            }
            (Err(err), _) => return Err(of_source(&err)),
        };
        if let Some(pod) = pod {
            claims::refuse_second(&claim, pod, self.ask()?)?;
        }
        Ok(Some(claim))
    }

    /// Returns the pod and the networks `known`, which all pods have. If the runtime passes the
    /// pod's annotations, no one is asked, and `known` becomes empty.
    fn pod(
        &mut self,
        pod_ref: &PodRef,
        conf: &NetConf,
        known: &mut Vec<ObjectName>,
    ) -> Result<(Pod, Vec<Nad>), Error> {
        if let Some(pod) = runtime_annotations::pod(pod_ref, &conf.json) {
            known.clear();
            return Ok((pod, Vec::new()));
        }
        let found = self
            .ask()?
            .pod(&pod_ref.name, pod_ref.uid.as_deref(), known)
            .map_err(|err| of_source(&err))?;
        pod_ref.refuse_other(&found.0)?;
        Ok(found)
    }

    /// Returns the pod and its networks. `conf` is the configuration that the runtime passed. This
    /// takes one round trip if the pod's annotation names no other networks than the settings.
    fn of_pod(&mut self, pod_ref: &PodRef, conf: &NetConf) -> Result<Requested, Error> {
        let namespace = &pod_ref.name.namespace;
        let known = select::wanted(self.settings, namespace, None, Vec::new())?;
        let mut known: Vec<ObjectName> = known
            .iter()
            .filter_map(|choice| choice.object(self.settings))
            .collect();
        let (pod, mut nads) = self.pod(pod_ref, conf, &mut known)?;
        let asked = RequestedNetworks::of(&pod, self.settings);
        for event in asked.events() {
            self.tell(&pod, &event);
        }
        asked.refuse_invalid(self.settings)?;
        let choices = select::wanted(self.settings, namespace, asked.default, asked.networks)
            .map_err(|err| self.refuse(&pod, "NetworkNotAllowed", err))?;
        let mut missing: Vec<ObjectName> = choices
            .iter()
            .filter_map(|choice| choice.object(self.settings))
            .collect();
        missing.retain(|object| !known.contains(object));
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            nads.extend(self.ask()?.nads(&missing).map_err(|err| of_source(&err))?);
        }
        if let Some(object) = not_there(&choices, &nads) {
            return Err(self.refuse(&pod, "NoNetworkFound", no_definition(&object)));
        }
        Ok(Requested {
            pod: Some(pod),
            choices,
            nads,
        })
    }

    /// Returns the definition of a selected network, from `nads` or else from the node's files.
    pub(super) fn found(
        &mut self,
        choice: &Choice,
        nads: &[Nad],
        call: &NetConf,
    ) -> Result<Found, Error> {
        let (object, call) = (
            choice.object(self.settings),
            Some(call).filter(|_| choice.is_default),
        );
        match nads.iter().find(|nad| Some(&nad.name) == object.as_ref()) {
            Some(nad) => Found::of_nad(nad, |name| self.of_conf_dir(name, call)),
            None => self.of_origin(&choice.origin, call).map(Found::of),
        }
    }

    /// Returns the network with this name in the files of `confDir`.
    fn of_conf_dir(&mut self, name: &str, call: Option<&NetConf>) -> Result<Definition, Error> {
        let files = match self.files.take() {
            Some(files) => files,
            None => self.machine.files(&self.settings.conf_dir)?,
        };
        let at = (self.settings.conf_dir.as_path(), call);
        self.chained.definition(
            on_disk::of_disk(name, self.files.insert(files))?,
            at,
            self.machine,
        )
    }

    /// Returns the network in the file `name`, or the first network in the folder `name`.
    fn of_path(&mut self, name: &str, call: Option<&NetConf>) -> Result<Definition, Error> {
        let path = Path::new(name);
        let files = self.machine.files(path)?;
        let (network, folder) = match &files[..] {
            [file] if path.ends_with(&file.name) => {
                (on_disk::of_file(name, file)?, path.parent().unwrap_or(path))
            }
            files => (on_disk::first_of_folder(name, files)?, path),
        };
        self.chained
            .definition(network, (folder, call), self.machine)
    }

    /// Returns a network that is not a NetworkAttachmentDefinition. For the default network, `call`
    /// is the configuration of the CNI call.
    fn of_origin(&mut self, origin: &Origin, call: Option<&NetConf>) -> Result<Definition, Error> {
        match origin {
            Origin::Inline(json) => Definition::parse(json.clone(), ""),
            Origin::Nad(object) => Err(no_definition(object)),
            Origin::Named(name) if name.starts_with('/') => self.of_path(name, call),
            Origin::Named(name) => self.of_conf_dir(name, call),
        }
        .map_err(|err| err.context("default network"))
    }

    /// Returns the plugins that run after all networks of a pod. They are in a folder beside the
    /// default network's file. `None` if the settings name no such plugins, or if they already run
    /// after the default network.
    fn auxiliary(&mut self, conf: &NetConf) -> Result<Option<(Choice, Found)>, Error> {
        let (Some(name), Origin::Named(default)) = (
            &self.settings.auxiliary_chain,
            &self.settings.default_network,
        ) else {
            return Ok(None);
        };
        let Some(folder) = Path::new(default)
            .parent()
            .filter(|folder| folder.is_absolute())
        else {
            return Ok(None);
        };
        let files = self.chained.plugins(folder, name, conf, self.machine)?;
        let chain = on_disk::chain_of_folder(name, conf.version, &files)?;
        Ok(chain.map(|chain| {
            (
                Choice::of_all(Origin::Named(name.clone())),
                Found::of(chain),
            )
        }))
    }

    /// Returns the default network's configuration. Fails if only the API has it.
    pub(super) fn default_conf(
        &mut self,
        call: &NetConf,
        prev: Option<Json>,
    ) -> Result<NetConf, Error> {
        let origin = self.settings.default_network.clone();
        let definition = self.of_origin(&origin, Some(call))?;
        netconf(definition.conf(&Json::object_of([]))?, prev)
    }

    /// True if the default network may be a NetworkAttachmentDefinition, which only the API has.
    pub(super) fn default_may_be_object(&self) -> bool {
        let choice = Choice::of_all(self.settings.default_network.clone());
        self.settings.kubeconfig.is_some() && choice.object(self.settings).is_some()
    }

    pub(super) fn ask(&mut self) -> Result<&mut (dyn Source + 'static), Error> {
        let source = match self.source.take() {
            Some(source) => source,
            None => self.cluster.source(self.settings, None)?,
        };
        Ok(&mut **self.source.insert(source))
    }

    /// Writes an event with the reason why the pod's request is refused, and returns the error.
    #[cold]
    fn refuse(&mut self, pod: &Pod, reason: &'static str, err: Error) -> Error {
        self.tell(pod, &refusal(reason, &err));
        err
    }

    /// Writes an event about the pod. Events are only informative, so a failure is only logged.
    fn tell(&mut self, pod: &Pod, event: &Event) {
        let told = self
            .ask()
            .map(|source| source.tell(&pod.name, &pod.uid, event));
        if let Ok(Err(err)) = told {
            self.machine
                .log()
                .line(format_args!("event of pod {}: {err}", pod.name));
        }
    }
}

/// Returns the rules by which a network's plugins serve the pod's requests.
pub(super) fn rules(is_strict: bool) -> Rules<'static> {
    Rules {
        is_strict,
        built_in: BuiltIn {
            plugins: plugins::TYPES,
            ipams: configuration::TYPES,
            mac_by: plugins::mac_by,
        },
    }
}

/// Returns the first requested NetworkAttachmentDefinition that does not exist. Ignores names in
/// the settings, as these may be files.
pub(super) fn not_there(choices: &[Choice], nads: &[Nad]) -> Option<ObjectName> {
    let is_there = |object: &ObjectName| nads.iter().any(|nad| nad.name == *object);
    choices.iter().find_map(|choice| match &choice.origin {
        Origin::Nad(object) if !is_there(object) => Some(object.clone()),
        Origin::Nad(_) | Origin::Named(_) | Origin::Inline(_) => None,
    })
}

/// Returns the error about a NetworkAttachmentDefinition that does not exist.
pub(super) fn no_definition(object: &ObjectName) -> Error {
    Error::config(format!(
        "network {object}: there is no such NetworkAttachmentDefinition"
    ))
}
