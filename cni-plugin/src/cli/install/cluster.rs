//! Files on the node that make braid attach pods: a kubeconfig for a service account, and a
//! conflist.

use super::PROGRAM;
use super::detect;
use super::folder::Bin;
use super::plan::Entry;
use crate::cli::conf::type_of;
use braid_core::cni::Json;
use braid_core::k8s::{kubeconfig, takeover};
use braid_node::attach::chain::BRAID;
use braid_node::source::files;
use braid_node::sys::replace;
use braid_node::takeover::root::{Presence, Root};
use braid_node::takeover::{Made, Programs, Site, is_conf, place};
use clap::Args;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mode of the files. Only root may read the API server's address and the path of a token.
const MODE: u32 = 0o600;

#[derive(Debug, Clone, Args)]
pub(super) struct Files {
    /// Also write this kubeconfig, with which the plugin queries the API server; `auto` is
    /// braid.d/kubeconfig beside the conflist
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Folder with `token` and `ca.crt` of a service account, as a path on the node; both are read
    /// again at each call
    #[arg(long, value_name = "PATH", requires = "kubeconfig")]
    credentials: Option<PathBuf>,
    /// API server; in a pod, by default the one in the environment that the kubelet sets
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    server: Option<String>,
    /// Also write this conflist, which attaches pods to the networks of their annotations; the
    /// first other configuration of its folder is the default network, so its name must sort first;
    /// `auto` is 00-braid.conflist in the runtime's folder
    #[arg(long, value_name = "PATH", requires = "kubeconfig")]
    conflist: Option<PathBuf>,
    /// Folder with the node's `/`; --kubeconfig, --conflist and --program are paths on the node
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
}

type Outcome = Result<Vec<String>, Box<dyn std::error::Error>>;

/// Plan for the files. They are written in the order of `files`.
pub(super) struct Planned {
    files: Vec<(PathBuf, String)>,
    /// Conditions that must become true before pods start.
    pub(super) remarks: Vec<String>,
    /// Text of the conflist; `None` if it is not written now.
    pub(super) list: Option<String>,
    /// Condition that must become true before the conflist can be written.
    pub(super) waits: Option<String>,
}

/// Value of `--kubeconfig` and `--conflist` that selects a default path in the runtime's folder.
const AUTO: &str = "auto";

impl Files {
    /// Replaces each path `auto` with the default path in `networks`, the runtime's folder of
    /// network configurations.
    pub(super) fn chosen(&self, networks: &Path) -> Self {
        let path = |given: &Option<PathBuf>, usual: &str| {
            let given = given.clone()?;
            Some(if given == Path::new(AUTO) {
                networks.join(usual)
            } else {
                given
            })
        };
        Self {
            kubeconfig: path(&self.kubeconfig, "braid.d/kubeconfig"),
            conflist: path(&self.conflist, place::NAME),
            ..self.clone()
        }
    }

    /// True if a path is `auto`.
    pub(super) fn is_chosen(&self) -> bool {
        [&self.kubeconfig, &self.conflist]
            .into_iter()
            .flatten()
            .any(|path| path == Path::new(AUTO))
    }

    /// Generates the text of each file without writing it. The kubeconfig comes first, because the
    /// conflist names it. An error means that waiting does not help.
    pub(super) fn plan(&self, bin: &Bin, names: &[&str]) -> Result<Planned, String> {
        let mut planned = Planned {
            files: Vec::new(),
            remarks: Vec::new(),
            list: None,
            waits: None,
        };
        let Some(kubeconfig) = &self.kubeconfig else {
            return Ok(planned);
        };
        planned
            .files
            .push((self.seen(kubeconfig), self.text_of_kubeconfig()?));
        if let Some(folder) = &self.credentials {
            let token = folder.join("token");
            if Root::new(&self.root).presence(&token) == Presence::Missing {
                planned.remarks.push(format!(
                    "{} does not exist yet; pods start once it does",
                    token.display()
                ));
            }
        }
        if let Some(conflist) = &self.conflist {
            match list(bin, names, conflist, kubeconfig)? {
                Made::List(list, remarks) => {
                    let text = list.pretty() + "\n";
                    planned.files.push((self.seen(conflist), text.clone()));
                    planned.list = Some(text);
                    planned.remarks.extend(remarks);
                }
                Made::NotYet(waits) => planned.waits = Some(waits),
            }
        }
        Ok(planned)
    }

    /// Writes the files. Returns a line for each file that was, or would be, written.
    pub(super) fn write(planned: &Planned, is_dry_run: bool) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        for (path, text) in &planned.files {
            if replace::is_written(path, text, MODE) {
                continue;
            }
            if !is_dry_run {
                replace::replace(path, text, MODE)
                    .map_err(|err| format!("write {}: {err}", path.display()))?;
            }
            done.push(format!("{}: write", path.display()));
        }
        Ok(done)
    }

    /// Deletes the files, the conflist first, so that no configuration names a missing file.
    /// Refuses a conflist of another program.
    pub(super) fn remove(&self, is_dry_run: bool) -> Outcome {
        if let (Some(list), Some(kubeconfig)) = (&self.conflist, &self.kubeconfig) {
            let list = self.seen(list);
            refuse_others(&list, kubeconfig)
                .map_err(|err| format!("remove {}: {err}", list.display()))?;
        }
        let mut done = Vec::new();
        if let Some(list) = &self.conflist {
            done.extend(lost_entries(&self.seen(list)));
        }
        for path in [&self.conflist, &self.kubeconfig].into_iter().flatten() {
            let path = self.seen(path);
            let removed = if is_dry_run {
                fs::symlink_metadata(&path).map(drop)
            } else {
                fs::remove_file(&path)
            };
            match removed {
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|err| format!("remove {}: {err}", path.display()))?;
                    done.push(format!("{}: remove", path.display()));
                }
            }
        }
        if !is_dry_run && let Some(folder) = self.own_folder() {
            // A folder with other files stays.
            let _ = fs::remove_dir(folder);
        }
        Ok(done)
    }

    /// Fails while a remaining configuration has a plugin of type `braid`. Without the program, no
    /// pod of that network could be attached or detached. `networks` is the runtime's folder of
    /// configurations.
    pub(super) fn refuse_in_use(&self, networks: &Path) -> Result<(), String> {
        let mut folders = BTreeSet::from([networks]);
        folders.extend(self.conflist.as_ref().and_then(|list| list.parent()));
        for folder in folders {
            for name in Root::new(&self.root).file_names(folder) {
                let path = folder.join(&name);
                if !is_conf(&name) || self.conflist.as_ref() == Some(&path) {
                    continue;
                }
                if self.is_in_use(&path) {
                    let sentence = "remove that file first, or pass it with --conflist and --kubeconfig if install wrote it";
                    return Err(format!(
                        "{} has a plugin of type {BRAID:?}: {sentence}",
                        path.display()
                    ));
                }
            }
        }
        Ok(())
    }

    /// True if a configuration has a plugin of type `braid`.
    fn is_in_use(&self, path: &Path) -> bool {
        let Ok(bytes) = files::bytes(&self.seen(path)) else {
            return false;
        };
        Json::parse(&bytes, "").is_ok_and(|json| has_own_type(&json))
    }

    /// Returns the node's file system. Fails if `--root` is not a directory.
    pub(super) fn root(&self) -> Result<Root, String> {
        let failed = |err: io::Error| format!("--root {}: {err}", self.root.display());
        let meta = fs::metadata(&self.root).map_err(failed)?;
        if !meta.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Root::new(&self.root))
    }

    /// Returns the folder of the kubeconfig, or `None` if the conflist is in the same folder.
    fn own_folder(&self) -> Option<PathBuf> {
        let own = self.kubeconfig.as_ref()?.parent()?;
        let configurations = self.conflist.as_ref()?.parent()?;
        (own != configurations).then(|| self.seen(own))
    }

    /// Converts a path on the node to the path in this process, which is below `--root`.
    fn seen(&self, path: &Path) -> PathBuf {
        Root::new(&self.root).seen(path)
    }

    fn text_of_kubeconfig(&self) -> Result<String, String> {
        let folder = self
            .credentials
            .as_ref()
            .ok_or("--kubeconfig needs --credentials")?;
        let of_pod = || kubeconfig::server_of_pod(|key| std::env::var(key).ok());
        let server = self
            .server
            .clone()
            .or_else(of_pod)
            .ok_or("outside a pod --kubeconfig needs --server")?;
        Ok(kubeconfig::text(&server, folder))
    }
}

/// Generates and checks the conflist. `names` start this program after the installation.
fn list(bin: &Bin, names: &[&str], conflist: &Path, kubeconfig: &Path) -> Result<Made, String> {
    let is_present = |kind: &str| {
        let entry = bin
            .entry(kind)
            .map_err(|err| format!("read {}: {err}", bin.at(kind).display()))?;
        Ok(matches!(entry, Entry::Other | Entry::Alias(_)) || names.contains(&kind))
    };
    let site = Site {
        root: &bin.root,
        programs: Programs {
            folder: bin.program.parent().unwrap_or(Path::new("/")),
            is_present: &is_present,
        },
        conflist,
        kubeconfig,
        first: None,
        ignored: &BTreeSet::new(),
        elsewhere: &|is_empty| detect::elsewhere(&bin.root, conflist, is_empty),
    };
    site.list()
}

/// Requires that the conflist has a `braid` plugin with this kubeconfig. Accepts a missing file.
fn refuse_others(list: &Path, kubeconfig: &Path) -> Result<(), String> {
    if fs::symlink_metadata(list).is_err_and(|err| err.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let not_own = |why: String| format!("it is not a list that {PROGRAM} wrote: {why}");
    let bytes = files::bytes(list).map_err(|err| not_own(err.to_string()))?;
    let json = Json::parse(&bytes, "the list").map_err(|err| not_own(err.to_string()))?;
    let is_own = |plugin: &Json| {
        let named = plugin.get("kubeconfig").and_then(Json::as_str);
        type_of(plugin) == Some(BRAID) && named.is_some_and(|path| Path::new(path) == kubeconfig)
    };
    if json.get("type").is_none() && takeover::plugins_of(&json).iter().any(is_own) {
        return Ok(());
    }
    Err(not_own(format!(
        "it has no plugin of type {BRAID:?} with the kubeconfig {}",
        kubeconfig.display()
    )))
}

/// True if a plugin anywhere in a configuration has the type `braid`.
fn has_own_type(json: &Json) -> bool {
    match json {
        Json::Object(fields) => {
            type_of(json) == Some(BRAID) || fields.iter().any(|(_, json)| has_own_type(json))
        }
        Json::Array(items) => items.iter().any(has_own_type),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// Returns a message about the other plugins in the conflist, which no longer run once the conflist
/// is removed. `None` if there are no other plugins.
fn lost_entries(list: &Path) -> Option<String> {
    let json = Json::parse(&files::bytes(list).ok()?, "the list").ok()?;
    let mut others: Vec<&str> = takeover::plugins_of(&json)
        .iter()
        .filter_map(type_of)
        .collect();
    others.retain(|kind| *kind != BRAID);
    if others.is_empty() {
        return None;
    }
    let sentence = "are removed with it; their installers must add them to the next configuration";
    Some(format!(
        "{}: {} {sentence}",
        list.display(),
        others.join(" ")
    ))
}

#[cfg(test)]
mod tests;
