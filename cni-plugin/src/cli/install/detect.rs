//! Plugin and configuration folders of the node's container runtime. They come from the runtime's
//! configuration. If there is no configuration, they are well-known folders.

use crate::cli::conf::CONF_DIR;
use braid_node::takeover::names_of;
use braid_node::takeover::root::{Presence, Root};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Default plugin folder of runtimes.
const DEFAULT_BIN_DIR: &str = "/opt/cni/bin";

/// Folders of a runtime, as paths on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Folders {
    pub(in crate::cli) plugins: PathBuf,
    pub(in crate::cli) networks: PathBuf,
    /// Reason for the choice, as a sentence.
    pub(in crate::cli) why: String,
}

/// A container runtime and the paths of its configuration.
struct Runtime {
    name: &'static str,
    /// Paths of configuration files, or of folders with them. A later file takes precedence, as in
    /// CRI-O. A distribution may have the same settings in two files.
    configurations: &'static [&'static str],
    /// Path of a socket that exists while the runtime runs.
    socket: &'static str,
    read: fn(&Table) -> Option<Found>,
    /// Plugin folder if the configuration names none.
    plugins: &'static str,
    networks: &'static str,
}

/// Folders that a configuration names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Found {
    plugins: Option<String>,
    networks: Option<String>,
}

/// Known runtimes. A distribution precedes the runtime that the distribution includes, because its
/// node may also have an unused copy of that runtime.
const RUNTIMES: [Runtime; 6] = [
    Runtime {
        name: "k3s",
        configurations: &["/var/lib/rancher/k3s/agent/etc/containerd/config.toml"],
        socket: "/run/k3s/containerd/containerd.sock",
        read: containerd,
        plugins: "/var/lib/rancher/k3s/data/cni",
        networks: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    },
    Runtime {
        name: "RKE2",
        configurations: &["/var/lib/rancher/rke2/agent/etc/containerd/config.toml"],
        socket: "/run/k3s/containerd/containerd.sock",
        read: containerd,
        plugins: DEFAULT_BIN_DIR,
        networks: CONF_DIR,
    },
    Runtime {
        name: "MicroK8s",
        configurations: &[
            "/var/snap/microk8s/current/args/containerd.toml",
            "/var/snap/microk8s/current/args/containerd-template.toml",
        ],
        socket: "/var/snap/microk8s/common/run/containerd.sock",
        read: containerd,
        plugins: "/var/snap/microk8s/current/opt/cni/bin",
        networks: "/var/snap/microk8s/current/args/cni-network",
    },
    Runtime {
        name: "Talos",
        configurations: &["/etc/cri/containerd.toml"],
        socket: "/run/containerd/containerd.sock",
        read: containerd,
        plugins: DEFAULT_BIN_DIR,
        networks: CONF_DIR,
    },
    Runtime {
        name: "CRI-O",
        configurations: &["/etc/crio/crio.conf", "/etc/crio/crio.conf.d"],
        socket: "/run/crio/crio.sock",
        read: |table| Some(crio(table)),
        plugins: DEFAULT_BIN_DIR,
        networks: CONF_DIR,
    },
    Runtime {
        name: "containerd",
        configurations: &["/etc/containerd/config.toml"],
        socket: "/run/containerd/containerd.sock",
        read: containerd,
        plugins: DEFAULT_BIN_DIR,
        networks: CONF_DIR,
    },
];

/// Returns the folders of the node's runtime. If the node has several runtimes, a running one is
/// preferred. If no runtime's configuration is found, the folders are well-known folders.
pub(in crate::cli) fn folders(root: &Root) -> Folders {
    if let Some(configured) = configured(root).into_iter().next() {
        return configured.folders();
    }
    for runtime in &RUNTIMES {
        if runtime.plugins != DEFAULT_BIN_DIR && is_here(root, runtime.plugins) {
            return Folders {
                plugins: runtime.plugins.into(),
                networks: runtime.networks.into(),
                why: format!("{} has this folder", runtime.name),
            };
        }
    }
    Folders {
        plugins: DEFAULT_BIN_DIR.into(),
        networks: CONF_DIR.into(),
        why: "no configuration of a runtime was found".to_owned(),
    }
}

/// Returns the folders of network configurations that the node's runtimes name, each with the
/// reason. Empty if no runtime's configuration is visible.
fn networks(root: &Root) -> Vec<(PathBuf, String)> {
    let mut folders = Vec::new();
    for configured in configured(root) {
        folders.push((configured.networks(), configured.why()));
    }
    folders
}

/// Returns a message if no runtime seems to read the folder of the conflist. In one case, the
/// visible runtime configurations name other folders. In the other case, no runtime configuration is
/// visible, and the default folder has networks while this one `is_empty`. The message is not an
/// error, because the node may have another runtime.
pub(super) fn elsewhere(root: &Root, conflist: &Path, is_empty: bool) -> Option<String> {
    let folder = conflist.parent().unwrap_or(Path::new("/"));
    let is_same = |other: &Path| {
        let identity = |path: &Path| root.seen(path).canonicalize().ok();
        other == folder || identity(other).is_some_and(|path| identity(folder) == Some(path))
    };
    let said = networks(root);
    if let Some((networks, why)) = said.first() {
        if said.iter().any(|(networks, _)| is_same(networks)) {
            return None;
        }
        return Some(format!(
            "the runtime reads configurations in {}: {why}",
            networks.display()
        ));
    }
    let usual = folders(root).networks;
    let is_other = |name: &String| conflist.file_name().is_none_or(|own| own != name.as_str());
    let has_networks = names_of(root, &usual).is_ok_and(|names| names.iter().any(is_other));
    if !is_empty || !has_networks || is_same(&usual) {
        return None;
    }
    Some(format!("{} has configurations", usual.display()))
}

/// A runtime with the settings that its configuration has.
struct Configured {
    runtime: &'static Runtime,
    /// First of the runtime's configuration files that exists.
    file: &'static str,
    found: Found,
}

impl Configured {
    fn folders(&self) -> Folders {
        let named = self.found.plugins.as_deref();
        let plugins = PathBuf::from(named.unwrap_or(self.runtime.plugins));
        let mut why = self.why();
        if plugins.starts_with("/var/lib/rancher/k3s/data")
            && plugins != Path::new(RUNTIMES[0].plugins)
        {
            why.push_str("; the next upgrade deletes this folder");
        }
        Folders {
            plugins,
            networks: self.networks(),
            why,
        }
    }

    fn networks(&self) -> PathBuf {
        let named = self.found.networks.as_deref();
        named.unwrap_or(self.runtime.networks).into()
    }

    /// Returns the reason for choosing the folders of this runtime.
    fn why(&self) -> String {
        format!("configured by {} in {}", self.runtime.name, self.file)
    }
}

/// Returns the runtimes with a configuration, the running ones first.
fn configured(root: &Root) -> Vec<Configured> {
    let mut all = Vec::new();
    for runtime in &RUNTIMES {
        all.extend(found(runtime, root));
    }
    all.sort_by_key(|configured: &Configured| !is_here(root, configured.runtime.socket));
    all
}

fn is_here(root: &Root, path: &str) -> bool {
    root.presence(Path::new(path)) == Presence::Here
}

/// Reads a runtime's configuration; `None` if it does not exist, or if the runtime does not serve
/// pods.
fn found(runtime: &'static Runtime, root: &Root) -> Option<Configured> {
    let mut result = None;
    let mut source = None;
    for file in runtime.configurations {
        let path = Path::new(file);
        let is_folder = root.seen(path).is_dir();
        let tables: Vec<Table> = if is_folder {
            of_folder(root, path, "")
        } else {
            read(root, path).into_iter().collect()
        };
        for table in tables {
            let mut tables = imports(root, path, &table);
            tables.insert(0, table);
            for table in tables {
                let more = (runtime.read)(&table)?;
                let before: Found = result.take().unwrap_or_default();
                result = Some(Found {
                    plugins: more.plugins.or(before.plugins),
                    networks: more.networks.or(before.networks),
                });
            }
            source.get_or_insert(*file);
        }
    }
    Some(Configured {
        runtime,
        file: source?,
        found: result?,
    })
}

fn read(root: &Root, path: &Path) -> Option<Table> {
    // Variables that only the runtime's own program expands stay in the text.
    fs::read_to_string(root.seen(path))
        .ok()?
        .replace("${SNAP_DATA}", "/var/snap/microk8s/current")
        .parse()
        .ok()
}

/// Parses the files in `folder`, in the order of their names. Includes only names that end with
/// `ending`.
fn of_folder(root: &Root, folder: &Path, ending: &str) -> Vec<Table> {
    let mut names = root.file_names(folder);
    names.retain(|name| name.ends_with(ending));
    names.sort_unstable();
    let mut tables = Vec::new();
    for name in names {
        tables.extend(read(root, &folder.join(name)));
    }
    tables
}

/// Parses the imports of a containerd configuration. An import is one file, or all `.toml` files of
/// a folder.
fn imports(root: &Root, file: &Path, table: &Table) -> Vec<Table> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut tables = Vec::new();
    for pattern in texts(table, "imports") {
        match pattern.rsplit_once('/') {
            Some((folder_of_all, "*.toml")) => {
                tables.extend(of_folder(root, &folder.join(folder_of_all), ".toml"));
            }
            _ => tables.extend(read(root, &folder.join(pattern))),
        }
    }
    tables
}

/// Returns the strings in the array under `key`; empty if there is no array.
fn texts<'a>(table: &'a Table, key: &str) -> Vec<&'a str> {
    let Some(Value::Array(values)) = table.get(key) else {
        return Vec::new();
    };
    values.iter().filter_map(Value::as_str).collect()
}

/// Parses versions 1 to 3 of containerd's configuration; `None` if its CRI plugin is disabled.
fn containerd(table: &Table) -> Option<Found> {
    const RUNTIME: [&str; 3] = [
        "io.containerd.cri.v1.runtime",
        "io.containerd.grpc.v1.cri",
        "cri",
    ];
    let disabled = texts(table, "disabled_plugins");
    if disabled.iter().any(|name| RUNTIME.contains(name)) {
        return None;
    }
    let cni = RUNTIME
        .iter()
        .find_map(|name| table.get("plugins")?.get(name)?.get("cni"));
    let text = |key: &str| {
        let text = cni?.get(key)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    Some(Found {
        plugins: first_text(cni, "bin_dirs").or_else(|| text("bin_dir")),
        networks: text("conf_dir"),
    })
}

/// Returns the folders in CRI-O's configuration.
fn crio(table: &Table) -> Found {
    let network = table.get("crio").and_then(|crio| crio.get("network"));
    let networks = || Some(network?.get("network_dir")?.as_str()?.to_owned());
    Found {
        plugins: first_text(network, "plugin_dirs"),
        networks: networks(),
    }
}

/// Returns the first string of the array under `key`.
fn first_text(table: Option<&Value>, key: &str) -> Option<String> {
    let values = table?.get(key)?.as_array()?;
    Some(values.first()?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a node with these files.
    fn node(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(&path[1..]);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[track_caller]
    fn assert_folders(files: &[(&str, &str)], expected: [&str; 3]) {
        let root = node(files);
        let folders = folders(&Root::new(root.path()));
        let found = [
            folders.plugins.display().to_string(),
            folders.networks.display().to_string(),
            folders.why,
        ];
        assert_eq!(found, expected);
    }

    const CONTAINERD: &str = "/etc/containerd/config.toml";
    const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    const CRIO: &str = "/etc/crio/crio.conf";

    #[test]
    fn each_version_of_containerds_configuration_is_read() {
        let expected = [
            "/p",
            "/n",
            "configured by containerd in /etc/containerd/config.toml",
        ];
        for text in [
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/p\"\n  conf_dir = \"/n\"\n",
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dir = ''\n  bin_dirs = ['/p', '/q']\n  conf_dir = '/n'\n",
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dir = '/p'\nconf_dir = '/n'\n",
            "[plugins.cri.cni]\nbin_dir = '/p'\nconf_dir = '/n'\n",
        ] {
            assert_folders(&[(CONTAINERD, text)], expected);
        }
        let main = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml', 'more.toml']\n";
        let imported = "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/p']\n";
        let backup = "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/old']\n";
        let more = "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/n'\n";
        let files = [
            (CONTAINERD, main),
            ("/etc/containerd/conf.d/a.toml", imported),
            ("/etc/containerd/conf.d/a.toml.bak", backup),
            ("/etc/containerd/more.toml", more),
        ];
        assert_folders(&files, expected);
        let usual = ["/opt/cni/bin", "/etc/cni/net.d", expected[2]];
        assert_folders(&[(CONTAINERD, "version = 2\n")], usual);
    }

    #[test]
    fn crio_configuration_has_parts_and_the_last_one_is_used() {
        let main =
            "[crio]\n[crio.network]\nnetwork_dir = \"/n\"\nplugin_dirs = [\n  \"/old\",\n]\n";
        let part = "[crio.network]\nplugin_dirs = [\"/p\", \"/opt/cni/bin\"]\n";
        let expected = ["/p", "/n", "configured by CRI-O in /etc/crio/crio.conf"];
        assert_folders(
            &[(CRIO, main), ("/etc/crio/crio.conf.d/10.conf", part)],
            expected,
        );
        assert_folders(
            &[("/etc/crio/crio.conf.d/10.conf", part)],
            [
                "/p",
                "/etc/cni/net.d",
                "configured by CRI-O in /etc/crio/crio.conf.d",
            ],
        );
    }

    #[test]
    fn distributions_are_found_by_their_configuration_then_by_their_folders() {
        let k3s = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"/var/lib/rancher/k3s/data/cni\"]\n\
                   conf_dir = \"/var/lib/rancher/k3s/agent/etc/cni/net.d\"\n";
        let folders = [
            "/var/lib/rancher/k3s/data/cni",
            "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        ];
        let by_file = format!("configured by k3s in {K3S}");
        let docker = (CONTAINERD, "disabled_plugins = [\"cri\"]\n");
        assert_folders(&[docker, (K3S, k3s)], [folders[0], folders[1], &by_file]);
        let version = "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/var/lib/rancher/k3s/data/4a/bin\"\n";
        let goes = format!("{by_file}; the next upgrade deletes this folder");
        assert_folders(
            &[(K3S, version)],
            ["/var/lib/rancher/k3s/data/4a/bin", folders[1], &goes],
        );
        assert_folders(
            &[("/var/lib/rancher/k3s/data/cni/cni", "")],
            [folders[0], folders[1], "k3s has this folder"],
        );
        let rke2 = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml";
        let by_file = format!("configured by RKE2 in {rke2}");
        assert_folders(
            &[(rke2, "version = 2\n")],
            ["/opt/cni/bin", "/etc/cni/net.d", &by_file],
        );
        let template = "/var/snap/microk8s/current/args/containerd-template.toml";
        let text = "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"${SNAP_DATA}/opt/cni/bin\"\nconf_dir = \"${SNAP_DATA}/args/cni-network\"\n";
        let snap = [
            "/var/snap/microk8s/current/opt/cni/bin",
            "/var/snap/microk8s/current/args/cni-network",
        ];
        let by_file = format!("configured by MicroK8s in {template}");
        assert_folders(&[(template, text)], [snap[0], snap[1], &by_file]);
        let talos = [(
            "/etc/cri/containerd.toml",
            "version = 3\nimports = ['/etc/cri/conf.d/*.toml']\n",
        )];
        let by_file = "configured by Talos in /etc/cri/containerd.toml";
        assert_folders(&talos, ["/opt/cni/bin", "/etc/cni/net.d", by_file]);
    }

    #[test]
    fn running_runtime_is_chosen_and_without_one_the_default_folders() {
        let part = "[crio.network]\nplugin_dirs = [\"/p\"]\n";
        let both = [(CRIO, part), (CONTAINERD, "version = 2\n")];
        let by = |name: &str, file: &str| format!("configured by {name} in {file}");
        assert_folders(&both, ["/p", "/etc/cni/net.d", &by("CRI-O", CRIO)]);
        let running = [both[0], both[1], ("/run/containerd/containerd.sock", "")];
        assert_folders(
            &running,
            [
                "/opt/cni/bin",
                "/etc/cni/net.d",
                &by("containerd", CONTAINERD),
            ],
        );
        let none = [
            "/opt/cni/bin",
            "/etc/cni/net.d",
            "no configuration of a runtime was found",
        ];
        assert_folders(&[], none);
        assert_folders(&[(CONTAINERD, "not = [toml")], none);
        assert_folders(
            &[(
                CONTAINERD,
                "disabled_plugins = ['io.containerd.grpc.v1.cri']",
            )],
            none,
        );
    }
}
