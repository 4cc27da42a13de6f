//! The node's files by which braid attaches pods: a kubeconfig of the service account, and a conflist.

use super::PROGRAM;
use super::root::Root;
use braid_core::cni::Json;
use braid_core::k8s::settings::key_of_pods;
use braid_node::attach::chain::BRAID;
use braid_node::source::api::Access;
use clap::Args;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Only root reads them: the API server's address and the path of a token are nobody else's business.
const MODE: u32 = 0o600;

#[derive(Debug, Args)]
pub(super) struct Files {
    /// Also write this kubeconfig, with which the plugin asks the API server
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The folder with `token` and `ca.crt` of a service account, as the node sees it; both are read anew at each call
    #[arg(long, value_name = "PATH", requires = "kubeconfig")]
    credentials: Option<PathBuf>,
    /// The API server; in a pod, as the kubelet says
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    server: Option<String>,
    /// Also write this conflist, which attaches pods to the networks of their annotations; the first other configuration
    /// of its folder is the default network
    #[arg(long, value_name = "PATH", requires = "kubeconfig")]
    conflist: Option<PathBuf>,
    /// Where the node's `/` is: --kubeconfig, --conflist and --program are the node's paths
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
}

type Outcome = Result<Vec<String>, Box<dyn std::error::Error>>;

impl Files {
    /// Writes them; says what was, or would be, done. The kubeconfig comes first, which the conflist names.
    pub(super) fn write(&self, is_dry_run: bool) -> Outcome {
        let Some(kubeconfig) = &self.kubeconfig else { return Ok(Vec::new()) };
        let mut files = vec![(kubeconfig, self.text_of_kubeconfig()?)];
        if let Some(conflist) = &self.conflist {
            files.push((conflist, self.text_of_conflist(conflist, kubeconfig)?));
        }
        let mut done = Vec::new();
        for (path, text) in files {
            let seen = self.seen(path);
            if is_written(&seen, &text) {
                continue;
            }
            if !is_dry_run {
                write(&seen, &text).map_err(|err| format!("write {}: {err}", seen.display()))?;
            }
            done.push(format!("{}: write", seen.display()));
        }
        Ok(done)
    }

    /// Removes them, the conflist first: no configuration names a file that is gone.
    pub(super) fn remove(&self, is_dry_run: bool) -> Outcome {
        let mut done = Vec::new();
        for path in self.conflist.iter().chain(&self.kubeconfig).map(|path| self.seen(path)) {
            let removed = if is_dry_run { fs::symlink_metadata(&path).map(drop) } else { fs::remove_file(&path) };
            match removed {
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|err| format!("remove {}: {err}", path.display()))?;
                    done.push(format!("{}: remove", path.display()));
                }
            }
        }
        if let Some(folder) = self.own_folder().filter(|_| !is_dry_run) {
            // One with other files stays.
            let _ = fs::remove_dir(folder);
        }
        Ok(done)
    }

    /// The node's file system.
    pub(super) fn root(&self) -> Root {
        Root::new(&self.root)
    }

    /// The folder of the kubeconfig, where it is not the one of all configurations.
    fn own_folder(&self) -> Option<PathBuf> {
        let [own, all] = [self.kubeconfig.as_ref()?.parent()?, self.conflist.as_ref()?.parent()?];
        (own != all).then(|| self.seen(own))
    }

    /// The node's path as this process sees it.
    fn seen(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// True if a file of the node is not there. Of a folder that a pod does not see nobody knows; then ADD waits for it.
    fn is_missing(&self, path: &Path) -> bool {
        let seen = self.seen(path);
        let is_known = self.root == Path::new("/") || seen.parent().is_some_and(Path::is_dir);
        is_known && !seen.exists()
    }

    fn text_of_kubeconfig(&self) -> Result<String, String> {
        let folder = self.credentials.as_ref().ok_or("--kubeconfig needs --credentials")?;
        let of_pod = || match Access::of_pod(|key| std::env::var(key).ok())? {
            Access::ServiceAccount { server, .. } => Some(server),
            Access::Kubeconfig(_) => None,
        };
        let server = self.server.clone().or_else(of_pod).ok_or("outside a pod --kubeconfig needs --server")?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "own", "cluster": {
                "server": server, "certificate-authority": folder.join("ca.crt")}}],
            "users": [{"name": PROGRAM, "user": {"tokenFile": folder.join("token")}}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": PROGRAM}}],
            "current-context": "own",
        });
        Ok(format!("{kubeconfig:#}\n"))
    }

    fn text_of_conflist(&self, conflist: &Path, kubeconfig: &Path) -> Result<String, String> {
        let folder = conflist.parent().unwrap_or(Path::new("/"));
        let seen = self.seen(folder);
        let name = first_of(&seen, conflist).map_err(|err| format!("read {}: {err}", seen.display()))?;
        let name = name.ok_or_else(|| format!("{}: no configuration of a default network yet", seen.display()))?;
        let bytes = fs::read(seen.join(&name)).map_err(|err| format!("read {name}: {err}"))?;
        let found = Json::parse(&bytes, &name).map_err(|err| err.to_string())?;
        if let Some(file) = readiness_file(&found).filter(|file| self.is_missing(Path::new(file))) {
            return Err(format!("{name}: its network is not ready: readinessindicatorfile {file} is not there yet"));
        }
        let list = of_default(&found, &folder.join(name), kubeconfig);
        Ok(list.pretty() + "\n")
    }
}

/// The name of the first configuration of a folder that is not at `own`, as runtimes choose it.
fn first_of(folder: &Path, own: &Path) -> io::Result<Option<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let is_conf =
            Path::new(&name).extension().is_some_and(|end| ["conf", "conflist", "json"].iter().any(|c| end == *c));
        if is_conf && own.file_name().is_none_or(|own| own != name.as_str()) {
            names.push(name);
        }
    }
    Ok(names.into_iter().min())
}

/// The plugins of a configuration or a list.
fn plugins_of(found: &Json) -> &[Json] {
    match found.get("plugins") {
        Some(Json::Array(plugins)) => plugins,
        Some(_) | None => std::slice::from_ref(found),
    }
}

/// The file by which the default network of a configuration of Multus, or of braid, says that it is ready.
fn readiness_file(found: &Json) -> Option<&str> {
    let mut files = plugins_of(found).iter().filter_map(|plugin| plugin.get("readinessindicatorfile")?.as_str());
    files.find(|file| !file.is_empty())
}

/// The list that attaches pods, with what was `found` at `path` as their default network. A configuration of Multus, or of
/// braid, is taken over with all its keys; any other is named.
fn of_default(found: &Json, path: &Path, kubeconfig: &Path) -> Json {
    let version = found.get("cniVersion").and_then(Json::as_str).unwrap_or("1.0.0");
    let plugins = plugins_of(found);
    let is_of_pods = |plugin: &&Json| {
        let kind = plugin.get("type").and_then(Json::as_str);
        kind == Some("multus") || kind == Some(BRAID) || key_of_pods(plugin).is_some()
    };
    let mut own = match plugins {
        [plugin] if is_of_pods(&plugin) => plugin.clone(),
        _ => {
            let on = plugins.iter().filter_map(|plugin| plugin.get("capabilities")).flat_map(Json::fields);
            let on =
                on.filter(|(_, value)| *value == Json::Bool(true)).map(|(key, value)| (key.as_str(), value.clone()));
            let network = path.display().to_string();
            Json::object_of([("capabilities", Json::object_of(on)), ("clusterNetwork", network.into())])
        }
    };
    for key in ["name", "cniVersion"] {
        own.remove(key);
    }
    own.set("type", BRAID);
    own.set("kubeconfig", kubeconfig.display().to_string());
    let name = found.get("name").and_then(Json::as_str).unwrap_or(BRAID);
    Json::object_of([("cniVersion", version.into()), ("name", name.into()), ("plugins", vec![own].into())])
}

fn is_written(path: &Path, text: &str) -> bool {
    let mode = fs::metadata(path).map(|meta| meta.permissions().mode() & 0o7777);
    mode.is_ok_and(|mode| mode == MODE) && fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}

/// A call that reads it finds the old one or the new one, whole.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let temp = folder.join(format!(".{PROGRAM}.{}.tmp", std::process::id()));
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temp, path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&temp);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path) -> Files {
        Files {
            kubeconfig: Some("/etc/cni/net.d/braid.d/kubeconfig".into()),
            credentials: Some("/var/lib/kubelet/x".into()),
            server: Some("https://10.96.0.1:443".to_owned()),
            conflist: Some("/etc/cni/net.d/00-braid.conflist".into()),
            root: root.to_owned(),
        }
    }

    fn of(found: &str) -> String {
        let found = Json::parse(found.as_bytes(), "test").expect("json");
        of_default(&found, Path::new("/c/10.conflist"), Path::new("/k")).to_string()
    }

    #[test]
    fn c3_no_configuration_is_written_before_the_default_network_is_there_and_ready() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("etc/cni/net.d");
        fs::create_dir_all(&folder).expect("a folder");
        let files = files(root.path());
        let refused = |word: &str| {
            let why = files.write(false).expect_err(word).to_string();
            assert!(why.contains(word), "{why}");
            assert!(!folder.join("00-braid.conflist").exists() && !folder.join("braid.d").exists());
        };
        refused("no configuration of a default network yet");
        let multus = r#"{"name":"n","type":"multus","clusterNetwork":"c","readinessindicatorfile":"/run/ready"}"#;
        fs::write(folder.join("10.conf"), &multus[..20]).expect("a file");
        refused("10.conf");
        fs::write(folder.join("10.conf"), multus).expect("a file");
        fs::create_dir_all(root.path().join("run")).expect("a folder");
        refused("readinessindicatorfile /run/ready is not there yet");
        fs::write(root.path().join("run/ready"), "").expect("a file");
        assert_eq!(files.write(false).expect("written").len(), 2);
    }

    #[test]
    fn files_are_roots_alone_and_a_second_time_there_is_nothing_to_do() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("etc/cni/net.d");
        fs::create_dir_all(&folder).expect("a folder");
        let files = files(root.path());
        assert!(files.write(false).expect_err("no network").to_string().contains("no configuration"));
        fs::write(folder.join("10.conflist"), r#"{"name":"n","plugins":[{"type":"ptp"}]}"#).expect("a file");
        assert_eq!(files.write(true).expect("a dry run").len(), 2);
        assert!(!folder.join("00-braid.conflist").exists());
        assert_eq!(files.write(false).expect("written").len(), 2);
        for name in ["braid.d/kubeconfig", "00-braid.conflist"] {
            let mode = fs::metadata(folder.join(name)).expect(name).permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
        let text = fs::read_to_string(folder.join("braid.d/kubeconfig")).expect("a kubeconfig");
        assert!(text.contains(r#""tokenFile": "/var/lib/kubelet/x/token""#), "{text}");
        assert_eq!(files.write(false).expect("written"), [""; 0]);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
        assert_eq!(files.remove(false).expect("removed").len(), 2);
        assert_eq!(files.remove(false).expect("removed"), [""; 0]);
        let left: Vec<_> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(left, ["10.conflist"]);
    }

    #[test]
    fn the_default_network_is_taken_over_or_named() {
        let list =
            |name: &str, plugin: &str| format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{plugin}]}}"#);
        for (found, plugin) in [
            (
                r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"},{"type":"portmap","capabilities":{"portMappings":true,"x":false}}]}"#,
                r#"{"capabilities":{"portMappings":true},"clusterNetwork":"/c/10.conflist","type":"braid","kubeconfig":"/k"}"#,
            ),
            (
                r#"{"cniVersion":"1.0.0","name":"n","type":"multus","kubeconfig":"/old","clusterNetwork":"c"}"#,
                r#"{"clusterNetwork":"c","type":"braid","kubeconfig":"/k"}"#,
            ),
            (
                r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"braid","plugins":[{"type":"ptp"}]}]}"#,
                r#"{"plugins":[{"type":"ptp"}],"type":"braid","kubeconfig":"/k"}"#,
            ),
        ] {
            assert_eq!(of(found), list("n", plugin), "{found}");
        }
    }
}
