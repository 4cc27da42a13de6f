//! Checks of a generated conflist: types without a program, and networks of the node that can never
//! work.

use super::Site;
use super::root::Presence;
use crate::attach::chain::BRAID;
use crate::ipam;
use crate::source::files;
use braid_core::cni::{Error, Json, NetConf, NetConfList};
use braid_core::k8s::nad::Definition;
use braid_core::k8s::on_disk::{self, DiskFile, OnDisk};
use braid_core::k8s::settings::{Origin, Settings};
use braid_core::k8s::{takeover, text_at};
use braid_core::plugins;
use braid_core::plugins::meta::flannel::{FLANNEL, subnet_file};
use std::collections::BTreeSet;
use std::path::Path;

impl Site<'_> {
    /// Refuses a list that can never work. Returns a condition that must become true before the
    /// list can be written, if there is one.
    pub(super) fn judge(
        &self,
        list: &Json,
        remarks: &mut Vec<String>,
    ) -> Result<Option<String>, String> {
        let list = NetConfList::from_json(list).map_err(|err| err.to_string())?;
        let mut waits = None;
        let mut types = BTreeSet::new();
        for plugin in &list.plugins {
            if type_of(plugin) == Some(BRAID) {
                let mut conf = plugin.clone();
                conf.set("name", list.name.as_str());
                conf.set("cniVersion", list.version.as_str());
                waits = self.judge_own(conf, &mut types, remarks)?;
            } else {
                self.judge_plugin(plugin, None, false, remarks)?;
            }
        }
        for kind in list.plugins.iter().filter_map(type_of) {
            if types.contains(kind) {
                let sentence = "is in the default network and chained to braid, so it runs twice";
                remarks.push(format!("{}: {kind:?} {sentence}", self.conflist.display()));
            }
        }
        Ok(waits)
    }

    /// Checks the `braid` plugin of the list, and adds the plugin types of its networks to `types`.
    /// Returns the same condition as `judge`.
    fn judge_own(
        &self,
        conf: Json,
        types: &mut BTreeSet<String>,
        remarks: &mut Vec<String>,
    ) -> Result<Option<String>, String> {
        let text = |err: Error| err.to_string();
        let conf = NetConf::from_json(conf).map_err(text)?;
        let Some(settings) = Settings::of(&conf).map_err(text)? else {
            return Ok(None);
        };
        let mut origins = vec![&settings.default_network];
        origins.extend(&settings.more_networks);
        origins.extend(&settings.default_networks);
        for origin in origins {
            let Some(definition) = self.definition(origin, &settings)? else {
                continue;
            };
            types.extend(definition.types().map(str::to_owned));
            for plugin in definition.plugins() {
                self.judge_plugin(plugin, settings.bin_dir.as_deref(), true, remarks)
                    .map_err(|err| format!("network {:?}: {err}", definition.name()))?;
            }
        }
        let Some(file) = settings.readiness_file else {
            return Ok(None);
        };
        if self.root.presence(&file) != Presence::Missing {
            return Ok(None);
        }
        let file = file.display();
        Ok(Some(format!(
            "readinessindicatorfile {file} does not exist yet"
        )))
    }

    /// Returns the definition of a network; `None` if it is only in the API, or in a folder that is
    /// not mounted here.
    fn definition(
        &self,
        origin: &Origin,
        settings: &Settings,
    ) -> Result<Option<Definition>, String> {
        let found = match origin {
            Origin::Inline(json) => Definition::parse(json.clone(), BRAID),
            Origin::Nad(_) => return Ok(None),
            Origin::Named(path) if path.starts_with('/') => return self.definition_at(path),
            // An object in the API takes precedence over a file.
            Origin::Named(name) => match self.network(name, &settings.conf_dir) {
                Some(json) => Definition::parse(json, name),
                None => return Ok(None),
            },
        };
        found.map(Some).map_err(|err| err.to_string())
    }

    /// Returns the network at a path, which is a file or a folder. `None` if the folder that
    /// contains the path is not mounted here.
    fn definition_at(&self, text: &str) -> Result<Option<Definition>, String> {
        let path = Path::new(text);
        match self.root.presence(path) {
            Presence::Unseen => return Ok(None),
            Presence::Missing => {
                return Err(format!("clusterNetwork: {text} does not exist on the node"));
            }
            Presence::Here if path == self.conflist => {
                return Err(format!(
                    "clusterNetwork: {text} is braid's own configuration"
                ));
            }
            Presence::Here => {}
        }
        let seen = self.root.seen(path);
        let found = if seen.is_dir() {
            self.definition_in_folder(text)
        } else {
            let bytes = files::bytes(&seen).map_err(|err| format!("read {text}: {err}"))?;
            self.definition_in_file(text, bytes)
        };
        found.map(Some).map_err(|err| err.to_string())
    }

    /// Returns the definition of the network in the first configuration of a folder.
    fn definition_in_folder(&self, folder: &str) -> Result<Definition, Error> {
        let path = Path::new(folder);
        let files = self.files(path);
        let network = on_disk::first_of_folder(folder, &files)?;
        self.with_beside(network, path)
    }

    /// Returns the definition of the network in the file at `path`, which has this content.
    fn definition_in_file(&self, path: &str, bytes: Vec<u8>) -> Result<Definition, Error> {
        let file = DiskFile {
            name: path.to_owned(),
            bytes,
        };
        let network = on_disk::of_file(path, &file)?;
        let path = Path::new(path);
        self.with_beside(network, path.parent().unwrap_or(path))
    }

    /// Returns the definition of a network from a file in `folder`. It includes the plugins in the
    /// subfolder with the network's name, if the file does not exclude them.
    fn with_beside(&self, network: OnDisk<'_>, folder: &Path) -> Result<Definition, Error> {
        let files = match network.folder()? {
            Some(name) => self.files(&folder.join(name)),
            None => Vec::new(),
        };
        network.definition(&files)
    }

    /// Refuses a plugin if the node has no program for its type, or for the type of its IPAM or
    /// delegate. If `is_native`, types that braid implements need no program.
    fn judge_plugin(
        &self,
        plugin: &Json,
        bin_dir: Option<&Path>,
        is_native: bool,
        remarks: &mut Vec<String>,
    ) -> Result<(), String> {
        let own = type_of(plugin).unwrap_or_default();
        if takeover::MULTUS.contains(&own) {
            return Err(format!(
                "type {own:?} would attach the pod's networks a second time"
            ));
        }
        if !(is_native && plugins::TYPES.contains(&own)) {
            return self.judge_program(own, bin_dir);
        }
        if own == FLANNEL
            && let Some(kind) = inner_type(plugin, "delegate")
            && !plugins::TYPES.contains(&kind)
        {
            self.judge_program(kind, bin_dir)?;
        }
        if let Some(kind) = inner_type(plugin, "ipam")
            && !ipam::TYPES.contains(&kind)
        {
            self.judge_program(kind, bin_dir)
                .map_err(|err| format!("ipam: {err}"))?;
        }
        if own == FLANNEL {
            let file = flannel_file(plugin).map_err(|err| err.to_string())?;
            // On the node itself, STATUS reports it.
            if !self.root.is_node() && self.root.presence(Path::new(&file)) == Presence::Missing {
                remarks.push(format!(
                    "flannel: {file} does not exist yet; pods start once flanneld has written it"
                ));
            }
        }
        Ok(())
    }

    /// Refuses a plugin type without a program on the node. Accepts a type if its program may be in
    /// a folder that is not mounted here.
    fn judge_program(&self, kind: &str, bin_dir: Option<&Path>) -> Result<(), String> {
        braid_core::cni::netconf::check_plugin_type(kind)
            .map_err(|err| format!("type {kind:?}: {err}"))?;
        if (self.programs.is_present)(kind)? {
            return Ok(());
        }
        let mut folders = vec![self.programs.folder];
        if let Some(bin_dir) = bin_dir {
            if bin_dir != self.programs.folder
                && self.root.presence(&bin_dir.join(kind)) != Presence::Missing
            {
                return Ok(());
            }
            folders.insert(0, bin_dir);
        }
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        Err(format!(
            "type {kind:?} has no program in {}",
            folders.join(", ")
        ))
    }
}

fn type_of(plugin: &Json) -> Option<&str> {
    text_at(plugin, "type")
}

/// Returns the type of the plugin under `key`, such as `ipam`; `None` if it is missing or empty.
fn inner_type<'a>(plugin: &'a Json, key: &str) -> Option<&'a str> {
    type_of(plugin.get(key)?).filter(|kind| !kind.is_empty())
}

/// Returns the path of the file that flanneld writes.
fn flannel_file(plugin: &Json) -> Result<String, Error> {
    let mut json = plugin.clone();
    json.set("name", FLANNEL);
    subnet_file(&NetConf::from_json(json)?)
}
