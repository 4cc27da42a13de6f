//! The plugins of one network, in order. A native plugin is implemented by braid, a foreign plugin
//! is another program. If the runtime calls an IPAM directly, the IPAM is the only item.

use super::flannel::Reader;
use super::item::Reading;
pub use super::item::{AddressSource, BRAID, Item, Runner};
use crate::apply::delegate;
use crate::ipam::{self, Ipam};
use crate::log::Log;
use crate::store::record::Key;
use braid_core::cni::netconf_list::{Injected, set_valid_attachments};
use braid_core::cni::{
    AddResult, Attachment, Command, Error, Json, NetConf, NetConfList, Owner, Version,
};
use braid_core::plan::Feature;
use std::path::PathBuf;
use std::rc::Rc;

/// The plugins of one network, in order, with the configuration.
#[derive(Debug)]
pub struct Chain {
    /// Plugin type that the call is for. See [`Chain::plugin_name_of`].
    pub plugin_name: String,
    /// The plugins, in order.
    pub items: Vec<Item>,
    /// The plugin list, if the configuration contains one.
    list: Option<NetConfList>,
    /// Reason why no ADD can succeed now, if any.
    unready: Option<Error>,
    /// The call's configuration.
    pub conf: NetConf,
    path: Vec<PathBuf>,
}

/// A call of a plugin or IPAM that is another program.
#[derive(Debug, Clone, Copy)]
pub struct ForeignCall<'a> {
    /// Type of the plugin or IPAM.
    pub plugin: &'a str,
    /// Index of the plugin in the chain. For an IPAM, it is the plugin that uses the IPAM.
    pub item: usize,
    /// The verb.
    pub command: Command,
    /// The container's interface; `None` for GC and STATUS.
    pub attachment: Option<&'a Attachment>,
    /// Result of the plugins before this call, to be passed as `prevResult`.
    pub prev: Option<&'a AddResult>,
}

impl<'a> ForeignCall<'a> {
    /// Creates a call that is not for a container: GC or STATUS.
    pub fn of_network(plugin: &'a str, item: usize, command: Command) -> Self {
        Self {
            plugin,
            item,
            command,
            attachment: None,
            prev: None,
        }
    }
}

impl Chain {
    /// Parses a call's configuration. `plugin_name` is the name under which the program was
    /// started. See [`Chain::plugin_name_of`].
    pub fn parse(
        plugin_name: &str,
        conf: NetConf,
        args: &str,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        Self::read(plugin_name, conf, (args, path), Reading::Strict, None)
    }

    /// [`Chain::parse`] for DEL with a configuration that is no longer valid. Reads only the part
    /// that is needed to delete the attachment and release its addresses.
    pub fn parse_for_release(
        plugin_name: &str,
        conf: NetConf,
        args: &str,
        path: &[PathBuf],
    ) -> Result<Self, Error> {
        Self::read(plugin_name, conf, (args, path), Reading::ForRelease, None)
    }

    /// [`Chain::parse`] for an existing attachment. Configurations that ADD generated are read from
    /// the files in which ADD saved them.
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

    /// [`Chain::parse_told`] for DEL without a record. If this version of braid refuses the
    /// configuration, reads only the part that is needed to release the addresses.
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
        let mut confs = Vec::new();
        match &list {
            Some(list) => {
                for at in 0..list.plugins.len() {
                    confs.push(list.plugin_conf(at, &injected(&conf, None)?)?);
                }
            }
            None => confs.push(NetConf {
                plugin: plugin_name.clone(),
                ..conf.clone()
            }),
        }
        let (mut items, mut unready) = (Vec::new(), None);
        let mut reader = Reader {
            whole: &mut conf,
            args,
            reading,
            container_id,
        };
        for (at, conf) in confs.into_iter().enumerate() {
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

    /// Fails if no ADD can succeed now, for example because flanneld has not written its file yet.
    pub fn ready(&self) -> Result<(), Error> {
        self.unready.clone().map_or(Ok(()), Err)
    }

    /// Returns the network's name.
    pub fn network(&self) -> &str {
        self.list
            .as_ref()
            .map_or(&self.conf.name, |list| &list.name)
    }

    /// Returns the IPAM if the runtime calls an IPAM directly, without a plugin. Such a call
    /// ignores the container's namespace, which need not exist.
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

    /// Returns the kernel features that the native plugins need.
    pub fn features(&self) -> Vec<Feature> {
        let mut features = Vec::new();
        for item in &self.items {
            if let Runner::Native(plugin) = &item.work {
                features.extend(plugin.features());
            }
        }
        features
    }

    /// True if the list disables CHECK.
    pub fn disable_check(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.disable_check)
    }

    /// True if the plugins support GC: their `cniVersion` is at least 1.1.0.
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

    /// Returns the same key as [`Chain::key`], without parsing the plugins' configurations.
    pub fn key_of(plugin_name: &str, conf: &NetConf, attachment: &Attachment) -> Key {
        let plugin_name = Self::plugin_name_of(plugin_name, conf);
        let mut name = conf.name.as_str();
        if plugin_name == BRAID
            && let Some(network) = conf.json.get("network")
            && let Some(own) = network.get("name").and_then(Json::as_str)
        {
            name = own;
        }
        Key {
            owner: attachment.owner(name),
            plugin: plugin_name.to_owned(),
        }
    }

    /// Returns the plugin type that a call is for. It is `plugin_name`, the name under which the
    /// program was started. If that name is `braid`, it is the `type` in the configuration.
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

    /// Returns the type of the first plugin that a call runs: [`Chain::plugin_name_of`], or the first
    /// type in the list that a configuration of `braid` contains.
    pub fn first_type_of<'a>(plugin_name: &'a str, conf: &'a NetConf) -> &'a str {
        let plugin_name = Self::plugin_name_of(plugin_name, conf);
        if plugin_name != BRAID {
            return plugin_name;
        }
        let first = |json: &'a Json| {
            if let Some(Json::Array(plugins)) = json.get("plugins") {
                plugins.first()
            } else {
                None
            }
        };
        let network = conf.json.get("network");
        let first = first(&conf.json).or_else(|| first(network?)).or(network);
        let kind = first.and_then(|plugin| plugin.get("type")?.as_str());
        kind.unwrap_or(BRAID)
    }

    /// Returns the owner of the attachment's state in this network.
    pub fn owner(&self, attachment: &Attachment) -> Owner {
        attachment.owner(self.network())
    }

    /// Returns the key of the call's record.
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

    /// Returns the types of the plugins and IPAMs that are other programs.
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

    /// Fails if [`Chain::ready`] fails, or if a foreign plugin or IPAM does not exist or would
    /// start this program again. ADD checks this before it changes anything.
    pub fn find_foreign(&self, attachment: &Attachment) -> Result<(), Error> {
        self.ready()?;
        let owner = self.owner(attachment);
        for plugin in self.foreign() {
            delegate::find(plugin, &self.path, &owner)?;
        }
        Ok(())
    }

    /// Returns an error if the foreign plugin or IPAM `plugin` would start this program again, in
    /// an endless loop. `is_begun` means that an ADD has run `plugin`, so the file of `plugin` was
    /// another program at that time.
    pub fn circle(&self, plugin: &str, attachment: &Attachment, is_begun: bool) -> Option<Error> {
        delegate::circle(plugin, &self.path, &self.owner(attachment), is_begun)
    }

    /// Fails if [`Chain::ready`] fails, or if [`Chain::circle`] returns an error for a foreign
    /// plugin or IPAM of the chain.
    pub fn refuse_circles(&self, attachment: &Attachment) -> Result<(), Error> {
        self.ready()?;
        self.foreign()
            .find_map(|plugin| self.circle(plugin, attachment, false))
            .map_or(Ok(()), Err)
    }

    /// Returns the configuration to pass to the foreign program of item `at`, with `prev` as its
    /// `prevResult`.
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

    /// Runs a foreign plugin or IPAM, and passes its standard error to `log`. Returns the result of
    /// ADD; `None` for the other verbs.
    pub fn delegate(&self, call: &ForeignCall<'_>, log: &Log) -> Result<Option<AddResult>, Error> {
        let conf = self.conf_for(call.item, call.prev)?;
        let owner = match call.attachment {
            Some(attachment) => self.owner(attachment),
            None => Owner::new(self.network(), "", ""),
        };
        let netns = call.attachment.and_then(|own| own.netns.as_deref());
        let netns = netns.map(|path| path.display().to_string());
        let run = delegate::DelegateCall {
            command: call.command,
            owner: &owner,
            netns: netns.as_deref().unwrap_or_default(),
            args: call.attachment.map_or("", |own| &own.args),
            path: &self.path,
            log,
        };
        let result = delegate::run(call.plugin, &conf, &run)?;
        if call.command != Command::Add || matches!(result, Json::Null) {
            return Ok(None);
        }
        Ok(Some(AddResult::parse(&result, self.conf.version)?))
    }
}

/// [`Chain::ipam_alone`] for DEL. Reads only the part of the configuration that is needed to
/// release the addresses.
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

/// Returns the plugin list inside a configuration of type `braid`.
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
