//! The networks that a pod was attached to, for a DEL whose record is lost: as ADD finds them, but
//! an error of one network stops no other, and no event is written.

use super::{Finder, claims, interface, netconf, of_source};
use crate::apply::host::Machine;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::invocation::DelRequest;
use crate::attach::invocation::Wanted;
use crate::attach::pods::devices;
use crate::attach::recorded::PREV_RESULT;
use braid_core::cni::{Attachment, Error, Json, NetConf};
use braid_core::ipam::Claim;
use braid_core::k8s::network::Network;
use braid_core::k8s::requested_networks::RequestedNetworks;
use braid_core::k8s::select::{self, Choice};
use braid_core::k8s::settings::{PodRef, Settings};
use braid_core::k8s::{Nad, ObjectName};
use std::time::Duration;

impl<'a> Finder<'a> {
    /// A finder that asks the API for so long at most, all requests together.
    pub(in super::super) fn within(
        settings: &'a Settings,
        machine: &'a dyn Machine,
        limit: Duration,
    ) -> Result<Self, Error> {
        let source = settings
            .kubeconfig
            .as_ref()
            .map(|_| machine.source_within(settings, limit))
            .transpose()?;
        Ok(Self::of(settings, machine, source))
    }

    /// The networks of the call's pod, the default one first; none if the call is for no pod.
    /// `conf` is the call's own.
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
        let (choices, nads) = self.choices(&pod_ref)?;
        let mut found = Vec::new();
        for choice in choices {
            let one = self.found(&choice, &nads, conf);
            found.push((choice, one));
        }
        found.extend(self.auxiliary(conf)?.map(|(choice, one)| (choice, Ok(one))));
        let (namespace, ifname) = (&pod_ref.name.namespace, &call.attachment.ifname);
        let networks = select::attached(
            found,
            namespace,
            ifname,
            conf.json.object("runtimeConfig")?,
            false,
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

    /// The choices of a pod, and the definitions that are there.
    fn choices(&mut self, pod_ref: &PodRef) -> Result<(Vec<Choice>, Vec<Nad>), Error> {
        let namespace = &pod_ref.name.namespace;
        let objects = |choices: &[Choice]| -> Vec<ObjectName> {
            choices
                .iter()
                .filter_map(|choice| choice.object(self.settings))
                .collect()
        };
        let known = objects(&select::wanted(self.settings, namespace, None, Vec::new())?);
        let source = self
            .source
            .as_deref_mut()
            .ok_or_else(|| Error::internal("no API is configured"))?;
        let (pod, mut nads) = source
            .pod(&pod_ref.name, &known)
            .map_err(|err| of_source(&err))?;
        pod_ref.refuse_other(&pod)?;
        let asked = RequestedNetworks::of(&pod, self.settings);
        let choices = select::wanted(self.settings, namespace, asked.default, asked.networks)?;
        let mut missing = objects(&choices);
        missing.retain(|object| !known.contains(object));
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            nads.extend(source.nads(&missing).map_err(|err| of_source(&err))?);
        }
        Ok((choices, nads))
    }

    /// A network as its attachment is taken back. The runtime knows the default network's result.
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
        // The addresses of a claim stay. Which claim it was, makes no difference.
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
