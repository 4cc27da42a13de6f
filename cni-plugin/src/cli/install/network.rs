//! The conflist that attaches pods. Its input files are read through `--root`, and a list that can
//! never work is refused.

use super::detect;
use super::folder::Bin;
use super::place;
use super::plan::Entry;
use super::root::Presence;
use braid_core::cni::{Json, NetConf, NetConfList};
use braid_core::k8s::nad::Definition;
use braid_core::k8s::on_disk::{self, DiskFile, OnDisk};
use braid_core::k8s::settings::{Origin, Settings};
use braid_core::k8s::takeover::{self, Conf, Known};
use braid_core::plugins;
use braid_core::plugins::meta::flannel::{FLANNEL, subnet_file};
use braid_node::attach::chain::BRAID;
use braid_node::ipam;
use braid_node::source::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// Default of `confDir`, the folder of networks on disk.
const CONF_DIR: &str = "/etc/cni/multus/net.d";
/// Configuration of Multus' daemon, beside the conflist.
const DAEMON: &str = "multus.d/daemon-config.json";
/// Mount points of the node's files in the containers of Multus' manifests.
const MOUNTS: [&str; 2] = ["/hostroot", "/host"];

/// Conflist that can be written now, or the reason to wait.
pub(super) enum Made {
    /// Text, and conditions that must become true before pods start.
    Text(String, Vec<String>),
    /// Condition that it must wait for.
    NotYet(String),
}

/// Location of the conflist.
pub(super) struct Site<'a> {
    pub(super) bin: &'a Bin,
    /// Names that start this program after the installation.
    pub(super) names: &'a [&'a str],
    pub(super) conflist: &'a Path,
    pub(super) kubeconfig: &'a Path,
}

impl Site<'_> {
    /// Generates and checks the list. An error is permanent.
    pub(super) fn list(&self) -> Result<Made, String> {
        let mut remarks = Vec::new();
        let known = match self.known(&mut remarks)? {
            Ok(known) => known,
            Err(missing) => return Ok(Made::NotYet(missing)),
        };
        let list = takeover::list(&known).map_err(|err| err.to_string())?;
        let waits = self
            .judge(&list, &mut remarks)
            .map_err(|err| format!("{}: {err}", known.first.path))?;
        Ok(waits.map_or_else(
            || Made::Text(list.pretty() + "\n", remarks),
            |waits| {
                Made::NotYet(format!(
                    "{}: its network is not ready: {waits}",
                    known.first.path
                ))
            },
        ))
    }

    /// Reads the inputs of the list. The inner error is temporary.
    fn known(&self, remarks: &mut Vec<String>) -> Result<Result<Known, String>, String> {
        place::check_path(self.conflist)?;
        let folder = self.conflist.parent().unwrap_or(Path::new("/"));
        let names = self
            .names_of(folder)
            .map_err(|err| format!("read {}: {err}", folder.display()))?;
        place::check_order(self.conflist, names.first().map(String::as_str))?;
        let elsewhere = self.elsewhere(folder, names.is_empty());
        let mut paths = names.into_iter().map(|name| folder.join(name));
        let Some(path) = paths.next() else {
            let why = elsewhere.map_or_else(String::new, |why| format!("; {why}"));
            return Ok(Err(format!(
                "{}: no configuration for the default network yet{why}",
                folder.display()
            )));
        };
        remarks
            .extend(elsewhere.map(|why| format!("--conflist {}: {why}", self.conflist.display())));
        // The file may be half written.
        let first = match self
            .conf(&path)
            .map_err(|err| format!("read {}: {err}", path.display()))?
        {
            Ok(first) => first,
            Err(err) => return Ok(Err(err)),
        };
        let mut others = Vec::new();
        for path in paths {
            match self.conf(&path) {
                Ok(conf) => others.extend(conf.ok()),
                Err(err) => remarks.push(format!("{}: skipped: {err}", path.display())),
            }
        }
        let daemon = self.read(&folder.join(DAEMON)).ok();
        let texts = takeover::paths(&first.json, daemon.as_ref());
        let paths: BTreeMap<String, String> = texts
            .into_iter()
            .map(|text| (text.to_owned(), self.of_node(text)))
            .collect();
        let conf_dir = takeover::plugins_of(&first.json)
            .iter()
            .find_map(|plugin| plugin.get("confDir")?.as_str());
        let conf_dir = conf_dir.map_or(CONF_DIR, |text| {
            paths.get(text).map_or(text, String::as_str)
        });
        let named = takeover::names(&first.json).into_iter().filter_map(|text| {
            let path = paths.get(text).map_or(text, String::as_str);
            Some((text.to_owned(), self.network(path, Path::new(conf_dir))?))
        });
        Ok(Ok(Known {
            own: self.conflist.display().to_string(),
            kubeconfig: self.kubeconfig.display().to_string(),
            named: named.collect(),
            others,
            former: self.read(self.conflist).ok(),
            first,
            daemon,
            paths,
        }))
    }

    /// Returns the reason if no runtime of the node may read this folder. The visible
    /// configurations of runtimes name other folders, or none is visible and only the default
    /// folder has networks. This is not an error, because the node may have another runtime.
    fn elsewhere(&self, folder: &Path, is_empty: bool) -> Option<String> {
        let root = &self.bin.root;
        let is_same = |other: &Path| {
            let identity = |path: &Path| root.seen(path).canonicalize().ok();
            other == folder || identity(other).is_some_and(|path| identity(folder) == Some(path))
        };
        let said = detect::networks(root);
        if let Some((networks, why)) = said.first() {
            let is_read = said.iter().any(|(networks, _)| is_same(networks));
            return (!is_read).then(|| {
                format!(
                    "the runtime reads configurations in {}: {why}",
                    networks.display()
                )
            });
        }
        let usual = detect::folders(root).networks;
        let has_networks = self.names_of(&usual).is_ok_and(|names| !names.is_empty());
        (is_empty && has_networks && !is_same(&usual))
            .then(|| format!("{} has configurations", usual.display()))
    }

    /// Returns the names of the folder's other configurations, in the order in which runtimes
    /// choose.
    fn names_of(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.bin.root.seen(folder))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // Runtimes skip folders.
            if entry.file_type()?.is_dir() {
                continue;
            }
            if is_conf(&name)
                && self
                    .conflist
                    .file_name()
                    .is_none_or(|own| own != name.as_str())
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, path: &Path) -> Result<Json, String> {
        parsed(path, files::bytes(&self.bin.root.seen(path)))
    }

    /// Reads a configuration of the folder. The outer error is for a path that is not a file, or a
    /// file that is too large. The inner error is temporary.
    fn conf(&self, path: &Path) -> io::Result<Result<Conf, String>> {
        match files::bytes(&self.bin.root.seen(path)) {
            Err(err) if err.kind() == io::ErrorKind::InvalidInput => Err(err),
            read => Ok(parsed(path, read).map(|json| Conf {
                path: path.display().to_string(),
                json,
            })),
        }
    }

    /// Returns the node's path for a path in a container of Multus: unchanged, or without the mount
    /// point. The folder of configurations may be mounted at another path than the node's, as on
    /// k3s.
    fn of_node(&self, text: &str) -> String {
        let stripped = MOUNTS
            .iter()
            .filter_map(|mount| text.strip_prefix(mount))
            .find(|rest| rest.starts_with('/'));
        let Some(stripped) = stripped else {
            return text.to_owned();
        };
        let is_there = |path: &Path| self.bin.root.presence(path) == Presence::Here;
        let beside = Path::new(text)
            .file_name()
            .map(|name| self.conflist.with_file_name(name));
        match beside.filter(|path| is_there(path)) {
            _ if is_there(Path::new(text)) => text.to_owned(),
            Some(path) if !is_there(Path::new(stripped)) => path.display().to_string(),
            Some(_) | None => stripped.to_owned(),
        }
    }

    /// Reads the configuration at a path, which is the first one for a folder, or the one with this
    /// name in `conf_dir`.
    fn network(&self, text: &str, conf_dir: &Path) -> Option<Json> {
        if text.starts_with('/') {
            let path = Path::new(text);
            let files = self.files(path);
            return match files
                .iter()
                .map(|file| &file.name)
                .filter(|name| is_conf(name))
                .min()
            {
                Some(name) => self.read(&path.join(name)).ok(),
                None => self.read(path).ok(),
            };
        }
        let all = self
            .files(conf_dir)
            .into_iter()
            .filter_map(|file| Json::parse(&file.bytes, &file.name).ok());
        all.into_iter()
            .find(|json| json.get("name").and_then(Json::as_str) == Some(text))
    }

    /// Reads the files of a folder; empty for any other path.
    fn files(&self, folder: &Path) -> Vec<DiskFile> {
        let seen = self.bin.root.seen(folder);
        let entries = fs::read_dir(seen).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let bytes = files::bytes(&self.bin.root.seen(&folder.join(&name))).ok()?;
            Some(DiskFile { name, bytes })
        };
        entries.filter_map(file).collect()
    }

    /// Refuses a list that can never work. Returns the condition that it must wait for.
    fn judge(&self, list: &Json, remarks: &mut Vec<String>) -> Result<Option<String>, String> {
        let all = NetConfList::from_json(list).map_err(|err| err.to_string())?;
        let mut waits = None;
        let mut types = BTreeSet::new();
        for plugin in &all.plugins {
            if plugin.get("type").and_then(Json::as_str) == Some(BRAID) {
                let mut conf = plugin.clone();
                conf.set("name", all.name.as_str());
                conf.set("cniVersion", all.version.as_str());
                waits = self.judge_own(conf, &mut types, remarks)?;
            } else {
                self.judge_plugin(plugin, None, false, remarks)?;
            }
        }
        let chained = all
            .plugins
            .iter()
            .filter_map(|plugin| plugin.get("type")?.as_str());
        for kind in chained.filter(|kind| types.contains(*kind)) {
            let sentence = "is in the default network and chained to braid, so it runs twice";
            remarks.push(format!("{}: {kind:?} {sentence}", self.conflist.display()));
        }
        Ok(waits)
    }

    /// Checks braid's entry. Adds the types of its networks to `types`.
    fn judge_own(
        &self,
        conf: Json,
        types: &mut BTreeSet<String>,
        remarks: &mut Vec<String>,
    ) -> Result<Option<String>, String> {
        let text = |err: braid_core::cni::Error| err.to_string();
        let conf = NetConf::from_json(conf).map_err(text)?;
        let Some(settings) = Settings::of(&conf).map_err(text)? else {
            return Ok(None);
        };
        let all = [&settings.default_network]
            .into_iter()
            .chain(&settings.more_networks);
        for origin in all.chain(&settings.default_networks) {
            let Some(definition) = self.definition(origin, &settings)? else {
                continue;
            };
            types.extend(definition.types().map(str::to_owned));
            for plugin in definition.plugins() {
                self.judge_plugin(plugin, settings.bin_dir.as_deref(), true, remarks)
                    .map_err(|err| format!("network {:?}: {err}", definition.name()))?;
            }
        }
        let waits = settings
            .readiness_file
            .filter(|file| self.bin.root.presence(file) == Presence::Missing);
        Ok(waits.map(|file| {
            format!(
                "readinessindicatorfile {} does not exist yet",
                file.display()
            )
        }))
    }

    /// Returns the network; `None` if it is only in the API, or in a folder that is not mounted
    /// here.
    fn definition(
        &self,
        origin: &Origin,
        settings: &Settings,
    ) -> Result<Option<Definition>, String> {
        let text = |err: braid_core::cni::Error| err.to_string();
        let found = match origin {
            Origin::Inline(json) => Definition::parse(json.clone(), BRAID),
            Origin::Nad(_) => return Ok(None),
            Origin::Named(name) if name.starts_with('/') => {
                let path = Path::new(name);
                match self.bin.root.presence(path) {
                    Presence::Unseen => return Ok(None),
                    Presence::Missing => {
                        return Err(format!("clusterNetwork: {name} does not exist on the node"));
                    }
                    Presence::Here if path == self.conflist => {
                        return Err(format!(
                            "clusterNetwork: {name} is braid's own configuration"
                        ));
                    }
                    Presence::Here => {}
                }
                let seen = self.bin.root.seen(path);
                if seen.is_dir() {
                    let files = self.files(path);
                    on_disk::first_of_folder(name, &files)
                        .and_then(|network| self.with_beside(network, path))
                } else {
                    let bytes = files::bytes(&seen).map_err(|err| format!("read {name}: {err}"))?;
                    let (file, folder) = (
                        DiskFile {
                            name: name.clone(),
                            bytes,
                        },
                        path.parent().unwrap_or(path),
                    );
                    on_disk::of_file(name, &file)
                        .and_then(|network| self.with_beside(network, folder))
                }
            }
            // An object in the API takes precedence over a file.
            Origin::Named(name) => match self.network(name, &settings.conf_dir) {
                Some(json) => Definition::parse(json, name),
                None => return Ok(None),
            },
        };
        found.map(Some).map_err(text)
    }

    /// Returns a network from a file in `folder`, with the plugins of the folder beside it.
    fn with_beside(
        &self,
        network: OnDisk<'_>,
        folder: &Path,
    ) -> Result<Definition, braid_core::cni::Error> {
        let files = network
            .folder()?
            .map_or_else(Vec::new, |name| self.files(&folder.join(name)));
        network.definition(&files)
    }

    /// Refuses a plugin, an IPAM or a delegate without a program on the node. If `is_native`, braid
    /// runs its own types itself.
    fn judge_plugin(
        &self,
        plugin: &Json,
        bin_dir: Option<&Path>,
        is_native: bool,
        remarks: &mut Vec<String>,
    ) -> Result<(), String> {
        let kind = |json: &Json| {
            json.get("type")
                .and_then(Json::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let own = kind(plugin);
        if takeover::MULTUS.contains(&own.as_str()) {
            return Err(format!(
                "type {own:?} would attach the pod's networks a second time"
            ));
        }
        if !(is_native && plugins::TYPES.contains(&own.as_str())) {
            return self.judge_program(&own, bin_dir);
        }
        let delegate = plugin.get("delegate").filter(|_| own == FLANNEL).map(kind);
        for kind in delegate
            .iter()
            .filter(|kind| !kind.is_empty() && !plugins::TYPES.contains(&kind.as_str()))
        {
            self.judge_program(kind, bin_dir)?;
        }
        let of_ipam = plugin.get("ipam").map(kind).filter(|kind| !kind.is_empty());
        if let Some(kind) = of_ipam.filter(|kind| !ipam::TYPES.contains(&kind.as_str())) {
            self.judge_program(&kind, bin_dir)
                .map_err(|err| format!("ipam: {err}"))?;
        }
        if own == FLANNEL {
            let mut json = plugin.clone();
            json.set("name", FLANNEL);
            let file = NetConf::from_json(json)
                .and_then(|conf| subnet_file(&conf))
                .map_err(|err| err.to_string())?;
            // On the node itself, STATUS reports it.
            if !self.bin.root.is_node()
                && self.bin.root.presence(Path::new(&file)) == Presence::Missing
            {
                remarks.push(format!(
                    "flannel: {file} does not exist yet; pods start once flanneld has written it"
                ));
            }
        }
        Ok(())
    }

    /// Refuses a type without a program. A folder that is not mounted here may contain one.
    fn judge_program(&self, kind: &str, bin_dir: Option<&Path>) -> Result<(), String> {
        braid_core::cni::netconf::check_plugin_type(kind)
            .map_err(|err| format!("type {kind:?}: {err}"))?;
        let entry = self
            .bin
            .entry(kind)
            .map_err(|err| format!("read {}: {err}", self.bin.at(kind).display()))?;
        let is_plugin =
            matches!(entry, Entry::Other | Entry::Alias(_)) || self.names.contains(&kind);
        let elsewhere = bin_dir
            .filter(|folder| *folder != self.folder())
            .map(|folder| folder.join(kind));
        let may_be = elsewhere
            .as_ref()
            .is_some_and(|path| self.bin.root.presence(path) != Presence::Missing);
        if is_plugin || may_be {
            return Ok(());
        }
        let folders: Vec<String> = bin_dir
            .into_iter()
            .chain([self.folder()])
            .map(|folder| folder.display().to_string())
            .collect();
        Err(format!(
            "type {kind:?} has no program in {}",
            folders.join(", ")
        ))
    }

    /// Returns the plugin folder's path on the node.
    fn folder(&self) -> &Path {
        self.bin.program.parent().unwrap_or(Path::new("/"))
    }
}

fn parsed(path: &Path, read: io::Result<Vec<u8>>) -> Result<Json, String> {
    let bytes = read.map_err(|err| format!("read {}: {err}", path.display()))?;
    Json::parse(&bytes, &path.display().to_string()).map_err(|err| err.to_string())
}

pub(super) fn is_conf(name: &str) -> bool {
    let end = Path::new(name).extension().and_then(|end| end.to_str());
    end.is_some_and(|end| ["conf", "conflist", "json"].contains(&end))
}
