//! A call of the runtime: a container, and the networks that it is to be attached to.

use super::chain::{Chain, Runner};
use super::device_file::DeviceFile;
use crate::apply::host::Host;
use crate::ipam::host_local::claimed;
use crate::store::record::{Attached, Key, Record};
use braid_core::cni::{AddResult, Attachment, Command, Error, NetConf, Owner, Request};
use braid_core::ipam::Claim;
use braid_core::k8s::ObjectName;
use braid_core::plan::Feature;
use braid_core::plugins::Call;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A call and all that it is to attach: one plan, one record, one rollback. All have one container
/// and one namespace.
#[derive(Debug)]
pub struct Invocation {
    /// The key of its record.
    pub key: Key,
    /// `CNI_NETNS_OVERRIDE`: the container's namespace may be the caller's own.
    pub netns_override: bool,
    /// `CNI_PATH`, split.
    pub path: Vec<PathBuf>,
    /// The attachments, in order; one at least. Their interfaces have different names.
    pub wanted: Vec<Wanted>,
}

/// An attachment that is wanted.
#[derive(Debug)]
pub struct Wanted {
    /// The container's interface.
    pub attachment: Attachment,
    /// The plugins of the network.
    pub chain: Chain,
    /// Gateways of the pod's default routes; empty where the network's own are to be used, none
    /// where it does not ask for them.
    pub default_route: Option<Vec<IpAddr>>,
    /// The claim that holds its addresses, where it is not the container.
    pub claim: Option<Claim>,
    /// The NetworkAttachmentDefinition that the network comes from.
    pub object: Option<ObjectName>,
    /// The file with its device information.
    pub device_file: Option<DeviceFile>,
}

/// A plugin's place in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginIndex {
    /// Of the attachment.
    pub wanted: usize,
    /// Of the plugin in its chain.
    pub item: usize,
}

/// A call whose attachments go.
#[derive(Debug)]
pub struct DelRequest {
    /// The key of its record.
    pub key: Key,
    /// The container's interface in the first network.
    pub attachment: Attachment,
    /// The call's configuration, for what has no record.
    pub conf: NetConf,
    /// `CNI_PATH`, split.
    pub path: Vec<PathBuf>,
    /// `CNI_NETNS_OVERRIDE`: the container's namespace may be the caller's own.
    pub netns_override: bool,
}

impl Invocation {
    /// The call that a runtime makes of the plugin `face`: one attachment.
    pub fn of(request: Request, face: &str) -> Result<Self, Error> {
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
            Chain::parse(face, conf, &attachment.args, &path)?
        } else {
            Chain::parse_told(face, conf, &attachment, &path)?
        };
        Ok(Self {
            key: chain.key(&attachment),
            netns_override,
            path,
            wanted: vec![Wanted::new(attachment, chain)],
        })
    }

    /// The same with one more network.
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

    /// The call that detaches all of it.
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

    /// The container's interface in the first network.
    pub fn first(&self) -> &Attachment {
        &self.wanted[0].attachment
    }

    /// Features that its native plugins ask of the kernel.
    pub fn features(&self) -> Vec<Feature> {
        self.wanted
            .iter()
            .flat_map(|wanted| wanted.chain.features())
            .collect()
    }

    /// True if any plugin makes an interface of its own.
    pub fn makes_interface(&self) -> bool {
        self.wanted
            .iter()
            .any(|wanted| wanted.chain.makes_interface())
    }

    /// A record of nothing yet.
    pub fn record(&self, netns_cookie: Option<u64>) -> Record {
        let attached = |Wanted {
                            attachment,
                            chain,
                            claim,
                            object,
                            device_file,
                            ..
                        }: &Wanted| {
            let new = Attached::new(
                chain.network(),
                &chain.face,
                attachment,
                chain.conf.json.clone(),
            );
            let device_file = device_file.as_ref().map(|file| file.path.clone());
            let claim = claim.as_ref().map(|claim| claim.owner.clone());
            Attached {
                object: object.clone(),
                claim,
                device_file,
                ..new
            }
        };
        let attachments = self.wanted.iter().map(attached).collect();
        let mut record = Record::new(self.key.clone(), self.first().netns.clone(), attachments);
        record.netns_cookie = netns_cookie;
        record.path.clone_from(&self.path);
        record.is_foreign = self.wanted.iter().any(|wanted| wanted.chain.has_foreign());
        record
    }
}

impl Wanted {
    /// An attachment of which a pod asks nothing more.
    pub fn new(attachment: Attachment, chain: Chain) -> Self {
        Self {
            attachment,
            chain,
            default_route: None,
            claim: None,
            object: None,
            device_file: None,
        }
    }

    /// The owner of its addresses.
    pub fn lease_owner(&self) -> Owner {
        let of_claim = |claim: &Claim| claimed::owner(self.chain.network(), &claim.owner);
        self.claim
            .as_ref()
            .map_or_else(|| self.chain.owner(&self.attachment), of_claim)
    }

    /// The network as errors name it.
    pub fn title(&self) -> String {
        let of_object = |object: &ObjectName| format!("network {object}");
        self.object
            .as_ref()
            .map_or_else(|| format!("network {:?}", self.chain.network()), of_object)
    }

    /// The container's namespace as results name it.
    pub fn sandbox(&self) -> String {
        self.attachment
            .netns
            .as_deref()
            .unwrap_or(Path::new(""))
            .display()
            .to_string()
    }
}

/// The places of all plugins, in order.
pub fn places(wanted: &[Wanted]) -> Vec<PluginIndex> {
    let of = |(at, wanted): (usize, &Wanted)| {
        (0..wanted.chain.items.len()).map(move |item| PluginIndex { wanted: at, item })
    };
    wanted.iter().enumerate().flat_map(of).collect()
}

/// True if another program does the work of the plugin at this place.
pub fn is_foreign(wanted: &[Wanted], place: PluginIndex) -> bool {
    matches!(
        wanted[place.wanted].chain.items[place.item].work,
        Runner::Foreign
    )
}

/// Refuses to work on the plugin's own namespace as if it were a container's.
pub fn refuse_own(host: &dyn Host) -> Result<(), Error> {
    if let Some(path) = host.own_netns().map_err(Error::from)? {
        let sentence = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::netns(format!("{sentence}: {}", path.display())));
    }
    Ok(())
}

/// Inputs that a plan may depend on.
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
