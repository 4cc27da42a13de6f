//! The conflist that attaches pods, made from the network configurations of a node. Used by
//! `braid install` and by the agent.
//!
//! ```text
//!  root ─ the node's files, also as a container sees them
//!  place ─ paths that runtimes read a list from
//!  examples ─ configurations that no cluster uses
//!  judge ─ lists that can never work are refused
//! ```

pub mod examples;
mod judge;
pub mod place;
pub mod root;

use crate::source::files;
use braid_core::cni::Json;
use braid_core::k8s::on_disk::DiskFile;
use braid_core::k8s::takeover::{self, Conf, Known};
use root::{Presence, Root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Default of the key `confDir`, the folder with networks in files.
const CONF_DIR: &str = "/etc/cni/multus/net.d";
/// Configuration of Multus' daemon, beside the conflist.
const DAEMON: &str = "multus.d/daemon-config.json";
/// Mount points of the node's files in the containers of Multus' manifests.
const MOUNTS: [&str; 2] = ["/hostroot", "/host"];

/// Conflist that can be written now, or the reason to wait.
#[derive(Debug, Clone, PartialEq)]
pub enum Made {
    /// Text, and conditions that must become true before pods start.
    List(Json, Vec<String>),
    /// Condition that must become true before the conflist can be written.
    NotYet(String),
}

/// Programs that the runtime can start.
#[derive(Clone, Copy)]
pub struct Programs<'a> {
    /// Plugin folder, for messages.
    pub folder: &'a Path,
    /// Returns true if the folder has a program for this plugin type.
    pub is_present: &'a dyn Fn(&str) -> Result<bool, String>,
}

/// Inputs of the conflist. All paths are the node's.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The node's files.
    pub root: &'a Root,
    /// Programs of plugin types that braid does not implement.
    pub programs: Programs<'a>,
    /// The conflist.
    pub conflist: &'a Path,
    /// Kubeconfig that the conflist names.
    pub kubeconfig: &'a Path,
    /// Configuration to take over. `None` selects the first one beside the conflist, which the name
    /// of the conflist must precede.
    pub first: Option<&'a Path>,
    /// Names of configurations beside the conflist that are not networks of the cluster.
    pub ignored: &'a BTreeSet<String>,
    /// Returns a message if no runtime seems to read the conflist's folder. The argument is true if
    /// the folder has no other configuration.
    pub elsewhere: &'a dyn Fn(bool) -> Option<String>,
}

impl Site<'_> {
    /// Generates and checks the conflist. An error means that waiting does not help.
    pub fn list(&self) -> Result<Made, String> {
        let mut remarks = Vec::new();
        let known = match self.known(&mut remarks)? {
            Ok(known) => known,
            Err(missing) => return Ok(Made::NotYet(missing)),
        };
        let list = takeover::list(&known).map_err(|err| err.to_string())?;
        let waits = self
            .judge(&list, &mut remarks)
            .map_err(|err| format!("{}: {err}", known.first.path))?;
        let Some(waits) = waits else {
            return Ok(Made::List(list, remarks));
        };
        let path = known.first.path;
        Ok(Made::NotYet(format!(
            "{path}: its network is not ready: {waits}"
        )))
    }

    /// Reads the files from which the conflist is generated. The inner error is temporary, such as
    /// a missing file. The outer error is permanent.
    fn known(&self, remarks: &mut Vec<String>) -> Result<Result<Known, String>, String> {
        place::check_path(self.conflist)?;
        let folder = self.conflist.parent().unwrap_or(Path::new("/"));
        let mut names = self
            .names()
            .map_err(|err| format!("read {}: {err}", folder.display()))?;
        if self.first.is_none() {
            place::check_order(self.conflist, names.first().map(String::as_str))?;
        }
        names.retain(|name| !self.ignored.contains(name));
        let elsewhere = (self.elsewhere)(names.is_empty());
        let mut paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        if let Some(first) = self.first {
            paths.retain(|path| path != first);
            paths.insert(0, first.to_owned());
        }
        let [path, rest @ ..] = paths.as_slice() else {
            let why = elsewhere.map_or_else(String::new, |why| format!("; {why}"));
            return Ok(Err(format!(
                "{}: no configuration for the default network yet{why}",
                folder.display()
            )));
        };
        if let Some(why) = elsewhere {
            remarks.push(format!("--conflist {}: {why}", self.conflist.display()));
        }
        let read = self
            .conf(path)
            .map_err(|err| format!("read {}: {err}", path.display()))?;
        // The file may be half written.
        let first = match read {
            Ok(first) => first,
            Err(err) => return Ok(Err(err)),
        };
        let others = self.others(rest, remarks);
        Ok(Ok(self.known_of(folder, first, others)))
    }

    /// Reads the configurations after the first one. Skips an unreadable configuration. Also skips
    /// a path that is not a file, and reports the path in `remarks`.
    fn others(&self, paths: &[PathBuf], remarks: &mut Vec<String>) -> Vec<Conf> {
        let mut others = Vec::new();
        for path in paths {
            match self.conf(path) {
                Ok(conf) => others.extend(conf.ok()),
                Err(err) => remarks.push(format!("{}: skipped: {err}", path.display())),
            }
        }
        others
    }

    /// Reads the files that the first configuration names. Returns all inputs of the conflist.
    fn known_of(&self, folder: &Path, first: Conf, others: Vec<Conf>) -> Known {
        let daemon = self.read(&folder.join(DAEMON)).ok();
        let mut paths = BTreeMap::new();
        for text in takeover::paths(&first.json, daemon.as_ref()) {
            paths.insert(text.to_owned(), self.of_node(text));
        }
        let conf_dir = takeover::plugins_of(&first.json)
            .iter()
            .find_map(|plugin| plugin.get("confDir")?.as_str());
        let conf_dir = conf_dir.map_or(CONF_DIR, |text| mapped(&paths, text));
        let mut named = BTreeMap::new();
        for text in takeover::names(&first.json) {
            let network = self.network(mapped(&paths, text), Path::new(conf_dir));
            if let Some(network) = network {
                named.insert(text.to_owned(), network);
            }
        }
        Known {
            own: self.conflist.display().to_string(),
            kubeconfig: self.kubeconfig.display().to_string(),
            named,
            others,
            former: self.read(self.conflist).ok(),
            first,
            daemon,
            paths,
        }
    }

    /// Returns the names of the configurations beside the conflist, in the order in which runtimes
    /// choose one.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = names_of(self.root, self.conflist.parent().unwrap_or(Path::new("/")))?;
        let own = self.conflist.file_name();
        names.retain(|name| own.is_none_or(|own| own != name.as_str()));
        Ok(names)
    }

    fn read(&self, path: &Path) -> Result<Json, String> {
        parsed(path, files::bytes(&self.root.seen(path)))
    }

    /// Reads a configuration of the folder. The outer error is for a path that is not a file, or a
    /// file that is too large. The inner error is temporary.
    fn conf(&self, path: &Path) -> io::Result<Result<Conf, String>> {
        let read = match files::bytes(&self.root.seen(path)) {
            Err(err) if err.kind() == io::ErrorKind::InvalidInput => return Err(err),
            read => read,
        };
        let json = match parsed(path, read) {
            Ok(json) => json,
            Err(err) => return Ok(Err(err)),
        };
        let path = path.display().to_string();
        Ok(Ok(Conf { path, json }))
    }

    /// Converts a path in a Multus container to a path on the node. Removes the mount point, unless
    /// the path exists on the node. If the path without the mount point does not exist, a file with
    /// the same name beside the conflist is used. On k3s, for example, Multus mounts the folder of
    /// configurations at another path than the node's.
    fn of_node(&self, text: &str) -> String {
        let Some(stripped) = without_mount(text) else {
            return text.to_owned();
        };
        let is_there = |path: &Path| self.root.presence(path) == Presence::Here;
        if is_there(Path::new(text)) {
            return text.to_owned();
        }
        if let Some(name) = Path::new(text).file_name() {
            let beside = self.conflist.with_file_name(name);
            if is_there(&beside) && !is_there(Path::new(stripped)) {
                return beside.display().to_string();
            }
        }
        stripped.to_owned()
    }

    /// Reads a network configuration. `text` is the path of a file, the path of a folder (its first
    /// file is read), or the name of a network in `conf_dir`.
    fn network(&self, text: &str, conf_dir: &Path) -> Option<Json> {
        if text.starts_with('/') {
            let path = Path::new(text);
            let names = self.files(path).into_iter().map(|file| file.name);
            return match names.filter(|name| is_conf(name)).min() {
                Some(name) => self.read(&path.join(name)).ok(),
                None => self.read(path).ok(),
            };
        }
        for file in self.files(conf_dir) {
            if let Ok(json) = Json::parse(&file.bytes, &file.name)
                && json.get("name").and_then(Json::as_str) == Some(text)
            {
                return Some(json);
            }
        }
        None
    }

    /// Reads the files of a folder; empty for any other path.
    fn files(&self, folder: &Path) -> Vec<DiskFile> {
        let mut all = Vec::new();
        for name in self.root.file_names(folder) {
            if let Ok(bytes) = files::bytes(&self.root.seen(&folder.join(&name))) {
                all.push(DiskFile { name, bytes });
            }
        }
        all
    }
}

/// Returns the names of the configuration files in `folder`, in the order in which runtimes choose a
/// configuration.
pub fn names_of(root: &Root, folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.seen(folder))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Runtimes skip folders.
        if !entry.file_type()?.is_dir() && is_conf(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn parsed(path: &Path, read: io::Result<Vec<u8>>) -> Result<Json, String> {
    let bytes = read.map_err(|err| format!("read {}: {err}", path.display()))?;
    Json::parse(&bytes, &path.display().to_string()).map_err(|err| err.to_string())
}

/// Removes a mount point of Multus' manifests from a path; `None` if the path is not below one.
fn without_mount(text: &str) -> Option<&str> {
    for mount in MOUNTS {
        if let Some(rest) = text.strip_prefix(mount)
            && rest.starts_with('/')
        {
            return Some(rest);
        }
    }
    None
}

/// Returns the path on the node for a path in a configuration: the entry in `paths`, or else
/// `text`.
fn mapped<'a>(paths: &'a BTreeMap<String, String>, text: &'a str) -> &'a str {
    paths.get(text).map_or(text, String::as_str)
}

/// True if runtimes read a file with this name.
pub fn is_conf(name: &str) -> bool {
    let end = Path::new(name).extension();
    end.is_some_and(|end| end == "conf" || end == "conflist" || end == "json")
}
