//! Finds the networks of a pod for a DEL without a record. The search is the same as for ADD,
//! except that an error affects only one network, and no events are written.

use super::{Finder, claims, interface, netconf, of_source, rules};
use crate::apply::host::Machine;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::invocation::DelRequest;
use crate::attach::invocation::Wanted;
use crate::attach::pods::devices;
use crate::attach::recorded::PREV_RESULT;
use crate::source::cluster::Cluster;
use braid_core::cni::{Attachment, Error, Json, NetConf};
use braid_core::ipam::Claim;
use braid_core::k8s::network::Network;
use braid_core::k8s::requested_networks::RequestedNetworks;
use braid_core::k8s::select::{self, Choice};
use braid_core::k8s::settings::{PodRef, Settings};
use braid_core::k8s::{Nad, ObjectName};
use std::time::Duration;

impl<'a> Finder<'a> {
    /// Creates a finder with a time limit for all its requests to the API together.
    pub(in super::super) fn within(
        settings: &'a Settings,
        machine: &'a dyn Machine,
        cluster: &'a dyn Cluster,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut finder = Self::new(settings, machine, cluster);
        if settings.kubeconfig.is_some() {
            finder.source = Some(cluster.source(settings, Some(limit))?);
        }
        Ok(finder)
    }

    /// Returns the attachments of the call's pod, the default network first. Empty if the call is
    /// not for a pod. `conf` is the configuration that the runtime passed.
    pub(in super::super) fn left(
        &mut self,
        call: &DelRequest,
        conf: &NetConf,
    ) -> Result<Vec<Wanted>, Error> {
        let pod_ref =
            PodRef::of(&call.attachment.args)?.filter(|_| self.settings.kubeconfig.is_some());
        let Some(pod_ref) = pod_ref else {
            return Ok(Vec::new());
        };
        let (choices, nads) = self.choices(&pod_ref, conf)?;
        let mut found = Vec::new();
        for choice in choices {
            let network = self.found(&choice, &nads, conf);
            found.push((choice, network));
        }
        found.extend(self.auxiliary(conf)?.map(|(choice, one)| (choice, Ok(one))));
        let (namespace, ifname) = (&pod_ref.name.namespace, &call.attachment.ifname);
        let networks = select::attached(
            found,
            namespace,
            ifname,
            conf.json.object("runtimeConfig")?,
            rules(false),
        )?;
        let mut left = Vec::new();
        for network in networks {
            match network
                .and_then(|network| self.as_left(&network, call, conf.json.get(PREV_RESULT)))
            {
                Ok(wanted) => left.push(wanted),
                Err(err) => self.machine.log().line(format_args!(
                    "pod {}: nothing to detach: {err}",
                    pod_ref.name
                )),
            }
        }
        Ok(left)
    }

    /// Returns the pod's selected networks, and the existing NetworkAttachmentDefinitions among
    /// them.
    fn choices(
        &mut self,
        pod_ref: &PodRef,
        conf: &NetConf,
    ) -> Result<(Vec<Choice>, Vec<Nad>), Error> {
        let namespace = &pod_ref.name.namespace;
        let objects = |choices: &[Choice]| -> Vec<ObjectName> {
            choices
                .iter()
                .filter_map(|choice| choice.object(self.settings))
                .collect()
        };
        let mut known = objects(&select::wanted(self.settings, namespace, None, Vec::new())?);
        let (pod, mut nads) = self.pod(pod_ref, conf, &mut known)?;
        let asked = RequestedNetworks::of(&pod, self.settings);
        let choices = select::wanted(self.settings, namespace, asked.default, asked.networks)?;
        let mut missing = objects(&choices);
        missing.retain(|object| !known.contains(object));
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            nads.extend(self.ask()?.nads(&missing).map_err(|err| of_source(&err))?);
        }
        Ok((choices, nads))
    }

    /// Returns the attachment to a network, for DEL. `prev` is the default network's result, which
    /// the runtime passes.
    fn as_left(
        &self,
        network: &Network,
        call: &DelRequest,
        prev: Option<&Json>,
    ) -> Result<Wanted, Error> {
        let own = interface(&call.attachment, &network.ifname);
        let attachment = Attachment {
            args: network.args(&call.attachment.args),
            ..own
        };
        let conf = netconf(
            network.conf()?,
            prev.filter(|_| network.is_default).cloned(),
        )?;
        let chain = Chain::parse_left(BRAID, &conf, &attachment, &call.path)?;
        // A claim keeps its addresses, so its identity does not matter.
        let claim = claims::reference(network, &chain).map(|_| Claim {
            owner: String::new(),
            addresses: Vec::new(),
        });
        let device_file = Some(devices::file_of(
            network,
            &attachment.container_id,
            self.machine,
        )?);
        Ok(Wanted {
            claim,
            object: network.object.clone(),
            device_file,
            ..Wanted::new(attachment, chain)
        })
    }
}
