//! The plugins of one call, in order: native plugins, foreign programs, or an IPAM called by
//! itself.

use super::flannel::Reader;
use crate::apply::delegate;
use crate::ipam::{self, Ipam};
use crate::store::record::Key;
use braid_core::cni::netconf_list::{Injected, set_valid_attachments};
use braid_core::cni::{
    AddResult, Attachment, Command, Error, Json, NetConf, NetConfList, Owner, Version,
};
use braid_core::ipam::Lease;
use braid_core::plan::Feature;
use braid_core::plugins::{self, Addresses, Plugin};
use std::path::PathBuf;
use std::rc::Rc;

/// Type of a configuration that contains a whole list.
pub const BRAID: &str = "braid";

/// The plugins of a call.
#[derive(Debug)]
pub struct Chain {
    /// Name that the plugin was called by: the type of the configuration.
    pub plugin_name: String,
    /// The plugins, in order.
    pub items: Vec<Item>,
    /// The list of the plugins, if the configuration contains one.
    list: Option<NetConfList>,
    /// Reason why no ADD can succeed now.
    unready: Option<Error>,
    /// The call's configuration.
    pub conf: NetConf,
    path: Vec<PathBuf>,
}

/// A plugin of a chain.
#[derive(Debug)]
pub struct Item {
    /// The plugin's configuration, without a `prevResult` if it is from a list.
    pub conf: NetConf,
    /// Index in the list, which contains the plugin's configuration; `None` if the configuration
    /// was generated from another plugin's.
    listed: Option<usize>,
    /// Program that does the work.
    pub work: Runner,
    /// Source of the addresses.
    pub addresses: AddressSource,
}

/// Program that does a plugin's work.
#[derive(Debug)]
pub enum Runner {
    /// This process.
    Native(Box<dyn Plugin>),
    /// This process, called under an IPAM's name: its result is the lease.
    Ipam,
    /// Another program.
    Foreign,
}

/// Source of a plugin's addresses.
#[derive(Debug)]
pub enum AddressSource {
    /// No addresses.
    NoIpam,
    /// This process.
    Ours(Box<dyn Ipam>),
    /// Another program.
    Foreign(String),
}

impl Chain {
    /// Parses the configuration of a call under the name `plugin_name`. If it is `braid`, `type`
    /// decides.
    pub fn parse(
        plugin_name: &str,
        conf: NetConf,
        args: &str,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        Self::read(plugin_name, conf, (args, path), Reading::Strict, None)
    }

    /// [`Chain::parse`] for DEL, if the configuration is no longer valid: reads only the part that
    /// a release needs.
    pub fn parse_for_release(
        plugin_name: &str,
        conf: NetConf,
        args: &str,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        Self::read(plugin_name, conf, (args, path), Reading::ForRelease, None)
    }

    /// Parses the configuration of an existing attachment. Files written by its ADD show how it was
    /// made.
    pub fn parse_told(
        plugin_name: &str,
        conf: NetConf,
        of: &Attachment,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        Self::read(
            plugin_name,
            conf,
            (&of.args, path),
            Reading::Strict,
            Some(&of.container_id),
        )
    }

    /// [`Chain::parse_told`] for DEL without a record. If this braid refuses the configuration,
    /// reads only the part that a release needs.
    pub fn parse_left(
        plugin_name: &str,
        conf: &NetConf,
        of: &Attachment,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        let for_release = || {
            Self::read(
                plugin_name,
                conf.clone(),
                (&of.args, path),
                Reading::ForRelease,
                Some(&of.container_id),
            )
        };
        Self::parse_told(plugin_name, conf.clone(), of, path).or_else(|_| for_release())
    }

    fn read(
        plugin_name: &str,
        mut conf: NetConf,
        (args, path): (&str, &[PathBuf]),
        reading: Reading,
        container_id: Option<&str>,
    ) -> Result<Self, Error> {
        let plugin_name = Self::plugin_name_of(plugin_name, &conf).to_owned();
        let list = if plugin_name == BRAID {
            Some(list_of(&conf)?)
        } else {
            None
        };
        let confs = match &list {
            Some(list) => (0..list.plugins.len())
                .map(|at| list.plugin_conf(at, &injected(&conf, None)?))
                .collect(),
            None => Ok(vec![NetConf {
                plugin: plugin_name.clone(),
                ..conf.clone()
            }]),
        };
        let (mut items, mut unready) = (Vec::new(), None);
        let mut reader = Reader {
            whole: &mut conf,
            args,
            reading,
            container_id,
        };
        for (at, conf) in confs?.into_iter().enumerate() {
            match reader.items(at, &conf)? {
                Some(made) => {
                    items.extend(made.items);
                    unready = unready.or(made.unready);
                }
                None => items.push(Item {
                    listed: Some(at),
                    ..Item::parse(conf, args, reading)?
                }),
            }
        }
        Ok(Self {
            plugin_name,
            items,
            list,
            unready,
            conf,
            path: path.to_vec(),
        })
    }

    /// Fails if no ADD can succeed now.
    pub fn ready(&self) -> Result<(), Error> {
        self.unready.clone().map_or(Ok(()), Err)
    }

    /// The network's name.
    pub fn network(&self) -> &str {
        self.list
            .as_ref()
            .map_or(&self.conf.name, |list| &list.name)
    }

    /// The IPAM, if the call is for an IPAM alone. Such a call ignores the container's namespace,
    /// which need not exist.
    pub fn ipam_alone(&self) -> Option<&dyn Ipam> {
        match self.items.as_slice() {
            [
                Item {
                    work: Runner::Ipam,
                    addresses: AddressSource::Ours(ipam),
                    ..
                },
            ] => Some(&**ipam),
            _ => None,
        }
    }

    /// Kernel features that the native plugins need.
    pub fn features(&self) -> Vec<Feature> {
        let features = |item: &Item| match &item.work {
            Runner::Native(plugin) => plugin.features(),
            Runner::Foreign | Runner::Ipam => Vec::new(),
        };
        self.items.iter().flat_map(features).collect()
    }

    /// True if the list disables CHECK.
    pub fn disable_check(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.disable_check)
    }

    /// True if the plugins support GC, by their version.
    pub fn knows_gc(&self) -> bool {
        self.list
            .as_ref()
            .map_or(self.conf.version, |list| list.version)
            >= Version::V1_1_0
    }

    /// True if the list disables GC.
    pub fn disable_gc(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.disable_gc)
    }

    /// Returns [`Chain::key`] without parsing the configuration.
    pub fn key_of(plugin_name: &str, conf: &NetConf, attachment: &Attachment) -> Key {
        let plugin_name = Self::plugin_name_of(plugin_name, conf);
        let own = conf
            .json
            .get("network")
            .filter(|_| plugin_name == BRAID)
            .and_then(|network| network.get("name")?.as_str());
        Key {
            owner: attachment.owner(own.unwrap_or(&conf.name)),
            plugin: plugin_name.to_owned(),
        }
    }

    /// Returns the type that a call is for. For the name `braid` it is the `type` of the
    /// configuration.
    pub fn plugin_name_of<'a>(plugin_name: &'a str, conf: &'a NetConf) -> &'a str {
        let plugin_name = if plugin_name == BRAID {
            conf.plugin.as_str()
        } else {
            plugin_name
        };
        if plugin_name.is_empty() {
            BRAID
        } else {
            plugin_name
        }
    }

    /// Owner of the attachment's state in this network.
    pub fn owner(&self, attachment: &Attachment) -> Owner {
        attachment.owner(self.network())
    }

    /// Key of the call's record.
    pub fn key(&self, attachment: &Attachment) -> Key {
        Key {
            owner: self.owner(attachment),
            plugin: self.plugin_name.clone(),
        }
    }

    /// True if any plugin creates an interface.
    pub fn makes_interface(&self) -> bool {
        self.items
            .iter()
            .any(|item| matches!(&item.work, Runner::Native(plugin) if plugin.makes_interface()))
    }

    /// Types of the plugins and IPAMs that are other programs.
    fn foreign(&self) -> impl Iterator<Item = &str> {
        self.items
            .iter()
            .filter_map(|item| match (&item.work, &item.addresses) {
                (Runner::Foreign, _) => Some(item.conf.plugin.as_str()),
                (_, AddressSource::Foreign(ipam)) => Some(ipam.as_str()),
                _ => None,
            })
    }

    /// True if any plugin or IPAM is another program.
    pub fn has_foreign(&self) -> bool {
        self.foreign().next().is_some()
    }

    /// Refuses a foreign plugin or IPAM that does not exist or would start this program again,
    /// before anything is changed.
    pub fn find_foreign(&self, attachment: &Attachment) -> Result<(), Error> {
        self.ready()?;
        let owner = self.owner(attachment);
        self.foreign()
            .try_for_each(|plugin| delegate::find(plugin, &self.path, &owner).map(drop))
    }

    /// Returns an error if the foreign plugin or IPAM would start this program again, endlessly.
    pub fn circle(&self, plugin: &str, attachment: &Attachment, is_begun: bool) -> Option<Error> {
        delegate::circle(plugin, &self.path, &self.owner(attachment), is_begun)
    }

    /// Refuses the chain if [`Chain::circle`] finds an error for any of its foreign programs.
    pub fn refuse_circles(&self, attachment: &Attachment) -> Result<(), Error> {
        self.ready()?;
        self.foreign()
            .find_map(|plugin| self.circle(plugin, attachment, false))
            .map_or(Ok(()), Err)
    }

    /// Returns the configuration for item `at`, called as a foreign program.
    pub fn conf_for(&self, at: usize, prev: Option<&AddResult>) -> Result<Json, Error> {
        let item = self
            .items
            .get(at)
            .ok_or_else(|| Error::internal(format!("no plugin {at} in the chain")))?;
        if let (Some(list), Some(listed)) = (&self.list, item.listed) {
            return Ok(Rc::unwrap_or_clone(
                list.plugin_conf(listed, &injected(&self.conf, prev)?)?.json,
            ));
        }
        let mut json = Json::clone(&item.conf.json);
        set_valid_attachments(&mut json, self.conf.valid_attachments.as_deref());
        if let (None, Some(prev)) = (item.listed, prev) {
            json.set("prevResult", prev.to_json(item.conf.version)?);
        }
        Ok(json)
    }

    /// Runs a foreign plugin or IPAM for a container.
    pub fn delegate(
        &self,
        plugin: &str,
        at: usize,
        command: Command,
        attachment: Option<&Attachment>,
        prev: Option<&AddResult>,
    ) -> Result<Option<AddResult>, Error> {
        let conf = self.conf_for(at, prev)?;
        let netns = attachment
            .and_then(|a| a.netns.as_ref())
            .map(|path| path.display().to_string());
        let nobody = || Owner::new(self.network(), "", "");
        let owner = attachment.map_or_else(nobody, |attachment| self.owner(attachment));
        let call = delegate::DelegateCall {
            command,
            owner: &owner,
            netns: netns.as_deref().unwrap_or_default(),
            args: attachment.map_or("", |a| &a.args),
            path: &self.path,
        };
        let result = delegate::run(plugin, &conf, &call)?;
        let is_result = command == Command::Add && !matches!(result, Json::Null);
        is_result
            .then(|| AddResult::parse(&result, self.conf.version))
            .transpose()
    }
}

/// [`Chain::ipam_alone`] for DEL: reads only the part that a release needs.
pub fn ipam_alone_for_release(
    plugin_name: &str,
    conf: &NetConf,
) -> Result<Option<Box<dyn Ipam>>, Error> {
    ipam::parse_for_release(
        if plugin_name == BRAID {
            &conf.plugin
        } else {
            plugin_name
        },
        conf,
    )
}

/// The list inside a `braid` configuration.
fn list_of(conf: &NetConf) -> Result<NetConfList, Error> {
    NetConfList::from_braid(conf)?.ok_or_else(|| {
        Error::config("type \"braid\" needs \"plugins\" or \"network\" in its configuration")
    })
}

fn injected<'a>(conf: &'a NetConf, prev: Option<&'a AddResult>) -> Result<Injected<'a>, Error> {
    Ok(Injected {
        runtime_config: conf.json.object("runtimeConfig")?,
        prev_result: prev,
        valid_attachments: conf.valid_attachments.as_deref(),
    })
}

/// Strictness in reading a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Refuses a configuration that cannot be read or cannot work.
    Strict,
    /// Reads only the part that a release needs.
    ForRelease,
}

impl Reading {
    fn plugin(self, conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
        match self {
            Self::Strict => plugins::parse(conf, args),
            Self::ForRelease => plugins::parse_for_release(conf, args),
        }
    }

    fn ipam(self, kind: &str, conf: &NetConf, args: &str) -> Result<Option<Box<dyn Ipam>>, Error> {
        match self {
            Self::Strict => ipam::parse(kind, conf, args),
            Self::ForRelease => ipam::parse_for_release(kind, conf),
        }
    }
}

impl Item {
    /// True if the addresses come through the container's link: the link is created first and
    /// deleted last.
    pub fn is_through_link(&self) -> bool {
        matches!(&self.addresses, AddressSource::Ours(ipam) if ipam.is_through_link())
    }

    pub(super) fn parse(conf: NetConf, args: &str, reading: Reading) -> Result<Self, Error> {
        if let Some(ipam) = reading.ipam(&conf.plugin, &conf, args)? {
            return Ok(Self {
                conf,
                listed: Some(0),
                work: Runner::Ipam,
                addresses: AddressSource::Ours(ipam),
            });
        }
        let Some(plugin) = reading.plugin(&conf, args)? else {
            return Ok(Self::foreign(conf, 0));
        };
        let addresses = match (plugin.addresses(), conf.ipam.as_str()) {
            (Addresses::Never, _) | (Addresses::Optional, "") => AddressSource::NoIpam,
            (Addresses::Required, "") if reading == Reading::ForRelease => AddressSource::NoIpam,
            (Addresses::Required, "") => {
                return Err(Error::config(format!(
                    "\"ipam\": {} needs an IPAM type",
                    conf.plugin
                )));
            }
            (_, ipam) => match reading.ipam(ipam, &conf, args)? {
                Some(ours) => {
                    let is_judged = ours.is_through_link() && reading == Reading::Strict;
                    if let (true, Err(why)) = (is_judged, plugin.through_link()) {
                        let needs = format!(
                            "{ipam:?} needs a DHCP server behind the link of {}: {why}",
                            conf.plugin
                        );
                        return Err(Error::config(format!("\"ipam\": type {needs}")));
                    }
                    AddressSource::Ours(ours)
                }
                None if reading == Reading::ForRelease && is_no_ipam(ipam) => AddressSource::NoIpam,
                None if is_no_ipam(ipam) => {
                    return Err(Error::config(format!(
                        "\"ipam\": type {ipam:?} is a network plugin, not an IPAM plugin"
                    )));
                }
                None => AddressSource::Foreign(ipam.to_owned()),
            },
        };
        Ok(Self {
            conf,
            listed: Some(0),
            work: Runner::Native(plugin),
            addresses,
        })
    }

    /// Creates the item for a foreign plugin at index `at` of a list.
    pub(super) fn foreign(conf: NetConf, at: usize) -> Self {
        Self {
            conf,
            listed: Some(at),
            work: Runner::Foreign,
            addresses: AddressSource::NoIpam,
        }
    }

    /// Marks the item's configuration as generated: it is not in the list.
    pub(super) fn made(self) -> Self {
        Self {
            listed: None,
            ..self
        }
    }
}

/// True for types of braid that are not an IPAM.
fn is_no_ipam(kind: &str) -> bool {
    kind == BRAID || plugins::TYPES.contains(&kind)
}

/// Converts a foreign IPAM's result to a lease.
pub fn lease_of(result: AddResult) -> Lease {
    Lease {
        ips: result.ips,
        routes: result.routes,
        dns: result.dns,
    }
}
