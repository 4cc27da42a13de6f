//! A runtime's call: a container and the networks to attach it to.

use super::chain::{Chain, Runner};
use super::device_file::DeviceFile;
use crate::apply::host::Host;
use crate::ipam::host_local::claimed;
use crate::store::record::{Attached, Key, Record};
use braid_core::cni::{AddResult, Attachment, Command, Error, NetConf, Owner, Request};
use braid_core::ipam::Claim;
use braid_core::k8s::network::Network;
use braid_core::k8s::{IpamClaim, ObjectName};
use braid_core::name::IfName;
use braid_core::plan::Feature;
use braid_core::plugins::Call;
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A call with all its attachments: one plan, one record, one rollback. All attachments are of one
/// container and one namespace.
#[derive(Debug)]
pub struct Invocation {
    /// Key of the call's record.
    pub key: Key,
    /// `CNI_NETNS_OVERRIDE`: if true, the container's namespace may be the namespace of this
    /// process.
    pub netns_override: bool,
    /// `CNI_PATH`, split into folders.
    pub path: Vec<PathBuf>,
    /// The attachments, in order; at least one. Their interfaces have different names.
    pub wanted: Vec<Wanted>,
}

/// A requested attachment.
#[derive(Debug)]
pub struct Wanted {
    /// The container's interface.
    pub attachment: Attachment,
    /// The plugins of the network.
    pub chain: Chain,
    /// Gateways of the pod's default routes; empty for the network's own gateways. `None` if the
    /// pod does not request default routes through this network.
    pub default_route: Option<Vec<IpAddr>>,
    /// The IPAMClaim that owns the addresses; `None` if the container owns them.
    pub claim: Option<Claim>,
    /// The NetworkAttachmentDefinition that defines the network, if any.
    pub object: Option<ObjectName>,
    /// Device information file of the attachment, if any.
    pub device_file: Option<DeviceFile>,
    /// The network as the pod requests it. `None` without a pod, and in an attachment that was read
    /// from a record.
    pub of_pod: Option<OfPod>,
}

/// An interface that the container had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// Its name.
    pub ifname: IfName,
    /// Addresses that braid set.
    pub addresses: Vec<IpNet>,
    /// Name of its network.
    pub network: String,
}

/// A network as a pod requests it, for the pod's status.
#[derive(Debug)]
pub struct OfPod {
    /// The network.
    pub network: Network,
    /// The claim that owns the addresses, if any.
    pub claim: Option<IpamClaim>,
}

/// Position of a plugin in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginIndex {
    /// Index of the attachment.
    pub wanted: usize,
    /// Index of the plugin in its chain.
    pub item: usize,
}

/// Arguments of a DEL call.
#[derive(Debug)]
pub struct DelRequest {
    /// Key of the call's record.
    pub key: Key,
    /// The container's interface in the first network.
    pub attachment: Attachment,
    /// The call's configuration, which is used if there is no record.
    pub conf: NetConf,
    /// `CNI_PATH`, split into folders.
    pub path: Vec<PathBuf>,
    /// `CNI_NETNS_OVERRIDE`: if true, the container's namespace may be the namespace of this
    /// process.
    pub netns_override: bool,
}

impl Invocation {
    /// Creates a call with one attachment from a runtime's request to the plugin `plugin_name`.
    pub fn of(request: Request, plugin_name: &str) -> Result<Self, Error> {
        let verb = request.command.as_str();
        let Request {
            command,
            attachment,
            path,
            netns_override,
            conf,
        } = request;
        let attachment =
            attachment.ok_or_else(|| Error::env(format!("{verb} needs a container")))?;
        let chain = if command == Command::Add {
            Chain::parse(plugin_name, conf, &attachment.args, &path)?
        } else {
            Chain::parse_told(plugin_name, conf, &attachment, &path)?
        };
        Ok(Self {
            key: chain.key(&attachment),
            netns_override,
            path,
            wanted: vec![Wanted::new(attachment, chain)],
        })
    }

    /// Adds a network. Refuses a second network with the same interface name.
    pub fn push(&mut self, wanted: Wanted) -> Result<(), Error> {
        let ifname = &wanted.attachment.ifname;
        if self
            .wanted
            .iter()
            .any(|other| other.attachment.ifname == *ifname)
        {
            return Err(Error::config(format!(
                "two networks request interface {:?}",
                ifname.as_str()
            )));
        }
        self.wanted.push(wanted);
        Ok(())
    }

    /// Returns the DEL call for all attachments.
    pub fn leaving(&self) -> DelRequest {
        let (attachment, conf) = (self.first().clone(), self.wanted[0].chain.conf.clone());
        let (key, path) = (self.key.clone(), self.path.clone());
        DelRequest {
            key,
            attachment,
            conf,
            path,
            netns_override: self.netns_override,
        }
    }

    /// Returns the container's interface in the first network.
    pub fn first(&self) -> &Attachment {
        &self.wanted[0].attachment
    }

    /// Returns the kernel features that the native plugins need.
    pub fn features(&self) -> Vec<Feature> {
        let mut features = Vec::new();
        for wanted in &self.wanted {
            features.extend(wanted.chain.features());
        }
        features
    }

    /// True if any plugin creates an interface.
    pub fn makes_interface(&self) -> bool {
        self.wanted
            .iter()
            .any(|wanted| wanted.chain.makes_interface())
    }

    /// Creates the record of the call, without steps.
    pub fn record(&self, netns_cookie: Option<u64>) -> Record {
        let attachments = self.wanted.iter().map(Wanted::attached).collect();
        let mut record = Record::new(self.key.clone(), self.first().netns.clone(), attachments);
        record.netns_cookie = netns_cookie;
        record.path.clone_from(&self.path);
        record.is_foreign = self.wanted.iter().any(|wanted| wanted.chain.has_foreign());
        record
    }
}

impl Wanted {
    /// Creates an attachment without the options of a pod: default routes, claim, device.
    pub fn new(attachment: Attachment, chain: Chain) -> Self {
        Self {
            attachment,
            chain,
            default_route: None,
            claim: None,
            object: None,
            device_file: None,
            of_pod: None,
        }
    }

    /// Returns the recorded form, without steps.
    pub fn attached(&self) -> Attached {
        let Self {
            attachment, chain, ..
        } = self;
        let new = Attached::new(
            chain.network(),
            &chain.plugin_name,
            attachment,
            chain.conf.json.clone(),
        );
        let network = self.of_pod.as_ref().map(|of_pod| &of_pod.network);
        Attached {
            object: self.object.clone(),
            asked: network.and_then(|network| network.requests.clone()),
            default_route: self.default_route.clone(),
            claim: self.claim.as_ref().map(|claim| claim.owner.clone()),
            device: network.and_then(Network::device),
            claimed: network.and_then(|network| network.claimed.clone()),
            device_file: self.device_file.as_ref().map(|file| file.path.clone()),
            ..new
        }
    }

    /// Returns the owner of the addresses: the claim if there is one, else the container.
    pub fn lease_owner(&self) -> Owner {
        let of_claim = |claim: &Claim| claimed::owner(self.chain.network(), &claim.owner);
        self.claim
            .as_ref()
            .map_or_else(|| self.chain.owner(&self.attachment), of_claim)
    }

    /// Returns the network's name for errors.
    pub fn title(&self) -> String {
        let of_object = |object: &ObjectName| format!("network {object}");
        self.object
            .as_ref()
            .map_or_else(|| format!("network {:?}", self.chain.network()), of_object)
    }

    /// Returns the path of the container's namespace, for the key `sandbox` of results.
    pub fn sandbox(&self) -> String {
        self.attachment
            .netns
            .as_deref()
            .unwrap_or(Path::new(""))
            .display()
            .to_string()
    }
}

/// Lists the positions of all plugins, in order.
pub fn places(wanted: &[Wanted]) -> Vec<PluginIndex> {
    let mut places = Vec::new();
    for (at, wanted) in wanted.iter().enumerate() {
        for item in 0..wanted.chain.items.len() {
            places.push(PluginIndex { wanted: at, item });
        }
    }
    places
}

/// True if the plugin at this position is another program.
pub fn is_foreign(wanted: &[Wanted], place: PluginIndex) -> bool {
    matches!(
        wanted[place.wanted].chain.items[place.item].work,
        Runner::Foreign
    )
}

/// Returns a function that adds the network at index `at` to an error, if there are several networks.
pub(super) fn of_network(wanted: &[Wanted], at: usize) -> impl Fn(Error) -> Error {
    move |err| {
        if wanted.len() > 1 {
            err.context(wanted[at].title())
        } else {
            err
        }
    }
}

/// Fails if the container's namespace is the namespace of this process.
pub fn refuse_own(host: &dyn Host) -> Result<(), Error> {
    if let Some(path) = host.own_netns().map_err(Error::from)? {
        let sentence = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::netns(format!("{sentence}: {}", path.display())));
    }
    Ok(())
}

/// Creates the input for planning a plugin of this attachment.
pub fn call<'a>(wanted: &'a Wanted, sandbox: &'a str, prev: Option<&'a AddResult>) -> Call<'a> {
    let Wanted {
        chain, attachment, ..
    } = wanted;
    Call::new(
        chain.network(),
        &attachment.container_id,
        &attachment.ifname,
        sandbox,
        prev,
    )
}
