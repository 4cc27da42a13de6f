use super::*;
use std::os::unix::fs::PermissionsExt;

/// A node in a temporary folder. Only its plugin folder, with `linkerd-cni`, and its folder of
/// configurations are mounted.
struct Node {
    root: tempfile::TempDir,
    files: Files,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let files = Files {
            kubeconfig: Some("/etc/cni/net.d/braid.d/kubeconfig".into()),
            credentials: Some("/var/lib/kubelet/x".into()),
            server: Some("https://10.96.0.1:443".to_owned()),
            conflist: Some("/etc/cni/net.d/00-braid.conflist".into()),
            root: root.path().to_owned(),
        };
        let node = Self { root, files };
        node.put("/opt/cni/bin/linkerd-cni", "a plugin");
        fs::create_dir_all(node.at("/etc/cni/net.d")).expect("a folder");
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(&path[1..])
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn conf(&self, name: &str, text: &str) {
        self.put(&format!("/etc/cni/net.d/{name}"), text);
    }

    fn plan(&self) -> Result<Planned, String> {
        let (dir, program) = (self.at("/opt/cni/bin"), "/opt/cni/bin/braid".into());
        let bin = Bin {
            dir,
            program,
            companion: PathBuf::new(),
            root: Root::new(self.root.path()),
        };
        self.files.plan(&bin, &["bridge", "bandwidth"])
    }

    fn write(&self) -> Vec<String> {
        Files::write(&self.plan().expect("planned"), false).expect("written")
    }

    #[track_caller]
    fn refused(&self, word: &str) {
        let why = self.plan().err().expect(word);
        assert!(why.contains(word), "{why}");
    }

    #[track_caller]
    fn waits(&self, word: &str) {
        let planned = self.plan().expect("planned");
        let waits = planned.waits.clone().expect(word);
        assert!(waits.contains(word), "{waits}");
        Files::write(&planned, false).expect("written");
        assert!(!self.at("/etc/cni/net.d/00-braid.conflist").exists());
    }
}

// Conformance: C3
#[test]
fn no_configuration_is_written_before_the_default_network_exists_and_is_ready() {
    let node = Node::new();
    node.waits("no configuration for the default network yet");
    let multus = r#"{"name":"n","type":"multus","delegates":[{"type":"ptp"}],"readinessindicatorfile":"/host/run/ready"}"#;
    node.conf("10.conf", &multus[..20]);
    node.waits("10.conf");
    node.conf("10.conf", multus);
    fs::create_dir_all(node.at("/run")).expect("a folder");
    node.waits("readinessindicatorfile /run/ready does not exist yet");
    assert!(
        node.at("/etc/cni/net.d/braid.d/kubeconfig").exists(),
        "the kubeconfig waits for nothing"
    );
    node.put("/run/ready", "");
    assert_eq!(node.write().len(), 1);
}

#[test]
fn files_are_for_root_only_and_a_second_run_changes_nothing() {
    let node = Node::new();
    let folder = node.at("/etc/cni/net.d");
    node.conf("10.conflist", r#"{"name":"n","plugins":[{"type":"ptp"}]}"#);
    let planned = node.plan().expect("planned");
    assert_eq!(Files::write(&planned, true).expect("a dry run").len(), 2);
    assert!(!folder.join("00-braid.conflist").exists());
    assert_eq!(node.write().len(), 2);
    for name in ["braid.d/kubeconfig", "00-braid.conflist"] {
        let mode = fs::metadata(folder.join(name))
            .expect(name)
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    let text = fs::read_to_string(folder.join("braid.d/kubeconfig")).expect("a kubeconfig");
    assert!(
        text.contains(r#""tokenFile": "/var/lib/kubelet/x/token""#),
        "{text}"
    );
    assert_eq!(node.write(), [""; 0]);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
    let own = r#"{"type":"braid","kubeconfig":"/etc/cni/net.d/braid.d/kubeconfig"}"#;
    let chained = &format!(r#"{{"plugins":[{own},{{"type":"istio-cni"}}]}}"#);
    node.conf("00-braid.conflist", chained);
    let removed = node.files.remove(false).expect("removed");
    assert!(
        removed.len() == 3 && removed[0].contains("istio-cni are removed with it"),
        "{removed:?}"
    );
    assert_eq!(node.files.remove(false).expect("removed"), [""; 0]);
    let left: Vec<_> = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["10.conflist"]);
}

#[test]
fn impossible_configuration_is_refused_for_every_version() {
    for version in ["0.3.1", "1.1.0"] {
        let multus = |keys: &str| {
            format!(r#"{{"name":"m","cniVersion":"{version}","type":"multus",{keys}}}"#)
        };
        for (keys, word) in [
            (
                r#""clusterNetwork":"/host/etc/cni/net.d/gone""#,
                "/etc/cni/net.d/gone does not exist on the node",
            ),
            (
                r#""clusterNetwork":"/etc/cni/net.d/00-braid.conflist""#,
                "braid itself",
            ),
            (
                r#""delegates":[{"type":"calico"}]"#,
                "\"calico\" has no program in /opt/cni/bin",
            ),
            (
                r#""delegates":[{"type":"ptp","ipam":{"type":"calico-ipam"}}]"#,
                "\"calico-ipam\" has no program",
            ),
            (
                r#""delegates":[{"type":"flannel","delegate":{"type":"x"}}]"#,
                "\"x\" has no program",
            ),
            (r#""delegates":[{"type":"../x"}]"#, "invalid plugin name"),
            (
                r#""delegates":[{"type":"ptp"},{"type":"braid","kubeconfig":"/k"}]"#,
                "kubeconfig",
            ),
            (
                r#""delegates":[{"type":"ptp"},{"type":"multus-shim"}]"#,
                "a second time",
            ),
            (r#""delegates":[]"#, "no default network"),
            (
                r#""delegates":[{"type":"ptp"}],"systemNamespaces":1"#,
                "systemNamespaces",
            ),
            (
                r#""delegates":[{"type":"x"}],"binDir":"/opt/cni/bin""#,
                "\"x\" has no program in /opt/cni/bin",
            ),
        ] {
            let node = Node::new();
            node.conf("10.conf", &multus(keys));
            node.refused(word);
        }
        let node = Node::new();
        node.conf(
            "10.conf",
            &multus(r#""delegates":[{"type":"linkerd-cni"}],"binDir":"/elsewhere""#),
        );
        assert_eq!(node.write().len(), 2);
    }
}

#[test]
fn a_list_with_an_unknown_version_or_a_missing_plugin_is_refused() {
    let node = Node::new();
    node.conf(
        "10.conflist",
        r#"{"cniVersion":"9.9.9","name":"n","plugins":[{"type":"ptp"}]}"#,
    );
    node.refused("9.9.9");
    node.conf(
        "10.conflist",
        r#"{"name":"n","plugins":[{"type":"multus","delegates":[{"type":"ptp"}]},{"type":"gone"}]}"#,
    );
    node.refused("type \"gone\" has no program in /opt/cni/bin");
}

#[test]
fn unseen_files_and_temporary_failures_undo_nothing() {
    let node = Node::new();
    let multus =
        r#"{"name":"m","type":"multus-shim","clusterNetwork":"/host/elsewhere/net.conflist"}"#;
    node.conf("00.conf", multus);
    assert_eq!(node.write().len(), 2);
    let text = fs::read_to_string(node.at("/etc/cni/net.d/00-braid.conflist")).expect("a list");
    assert!(text.contains(r#""/elsewhere/net.conflist""#), "{text}");
    node.conf(
        "00.conf",
        r#"{"name":"n","plugins":[{"type":"flannel"},{"type":"linkerd-cni"}]}"#,
    );
    assert_eq!(
        node.plan().expect("planned").remarks,
        [""; 0],
        "/run is not mounted"
    );
    fs::create_dir_all(node.at("/run/flannel")).expect("a folder");
    let remarks = node.plan().expect("planned").remarks;
    assert_eq!(
        remarks,
        [
            "flannel: /run/flannel/subnet.env does not exist yet; pods start once flanneld has written it"
        ]
    );
}

#[test]
fn multus_folder_at_another_path_is_the_conflists_and_duplicate_plugins_are_reported() {
    let mut node = Node::new();
    let folder = "/var/lib/rancher/k3s/agent/etc/cni/net.d";
    node.files.conflist = Some(format!("{folder}/00-braid.conflist").into());
    let network = r#"{"name":"n","plugins":[{"type":"ptp"},{"type":"linkerd-cni"}]}"#;
    node.put(&format!("{folder}/10.conflist"), network);
    let multus = r#"{"name":"m","plugins":[{"type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10.conflist"},{"type":"linkerd-cni"}]}"#;
    node.put(&format!("{folder}/00-multus.conflist"), multus);
    let planned = node.plan().expect("planned");
    let text = planned.list.expect("a list");
    assert!(
        text.contains(&format!(r#""clusterNetwork": "{folder}/10.conflist""#)),
        "{text}"
    );
    assert!(
        planned
            .remarks
            .concat()
            .contains("\"linkerd-cni\" is in the default network and chained")
    );
}

#[test]
fn damaged_later_file_is_skipped_and_links_resolve_as_on_the_node() {
    let node = Node::new();
    node.put(
        "/data/flannel.conflist",
        r#"{"name":"n","plugins":[{"type":"ptp"}]}"#,
    );
    std::os::unix::fs::symlink(
        "/data/flannel.conflist",
        node.at("/etc/cni/net.d/05.conflist"),
    )
    .expect("a link");
    node.conf("10.conf", "{");
    assert_eq!(node.write().len(), 2);
    let text = fs::read_to_string(node.at("/etc/cni/net.d/00-braid.conflist")).expect("a list");
    assert!(
        text.contains(r#""clusterNetwork": "/etc/cni/net.d/05.conflist""#),
        "{text}"
    );
}

#[test]
fn list_that_runtimes_would_not_use_is_refused() {
    let node_with = |path: &str| {
        let mut node = Node::new();
        node.files.conflist = Some(path.into());
        node.conf(
            "10-flannel.conflist",
            r#"{"name":"n","plugins":[{"type":"ptp"}]}"#,
        );
        node
    };
    node_with("/etc/cni/net.d/99-braid.conflist").refused("runtimes use 10-flannel.conflist");
    node_with("/etc/cni/net.d/00-braid.conf").refused("only from .conflist files");
    node_with("etc/cni/net.d/00-braid.conflist").refused("an absolute path");
    let node = node_with("/etc/cni/net.d/05-braid.conflist");
    assert!(node.plan().is_ok());
    // braid takes Multus' file over, but the file stays and sorts first.
    node.conf(
        "00-multus.conf",
        r#"{"name":"m","type":"multus","delegates":[{"type":"ptp"}]}"#,
    );
    node.refused("runtimes use 00-multus.conf");
    // Multus' own list is overwritten.
    let node = node_with("/etc/cni/net.d/00-multus.conflist");
    node.conf(
        "00-multus.conflist",
        r#"{"name":"m","plugins":[{"type":"multus","delegates":[{"type":"ptp"}]}]}"#,
    );
    assert!(node.plan().is_ok());
}

#[test]
fn a_list_outside_the_folder_of_the_runtime_is_reported() {
    let mut node = Node::new();
    let list = r#"{"name":"n","plugins":[{"type":"ptp"}]}"#;
    node.conf("10-flannel.conflist", list);
    node.put("/etc/cni/net.d/sub/x", "");
    node.files.conflist = Some("/etc/cni/net.d/sub/00-braid.conflist".into());
    let remarks = |node: &Node| node.plan().expect("a plan").remarks.join("\n");
    let waits = node.plan().expect("a plan").waits.expect("it waits");
    assert!(
        waits.contains(
            "no configuration for the default network yet; /etc/cni/net.d has configurations"
        ),
        "{waits}"
    );
    node.put("/etc/cni/net.d/sub/10-flannel.conflist", list);
    assert_eq!(remarks(&node), "", "no runtime's configuration is seen");
    node.put("/etc/containerd/config.toml", "version = 2\n");
    let said = remarks(&node);
    assert!(said.contains(
        "reads configurations in /etc/cni/net.d: configured by containerd in /etc/containerd/config.toml"
    ));
    node.put(
        "/etc/crio/crio.conf",
        "[crio.network]\nnetwork_dir = \"/link\"\n",
    );
    assert!(remarks(&node).contains("reads configurations in /link: configured by CRI-O"));
    std::os::unix::fs::symlink("/etc/cni/net.d/sub", node.at("/link")).expect("a link");
    assert_eq!(remarks(&node), "", "one of the runtimes reads it");
}

#[test]
fn path_that_is_not_a_file_is_refused_as_the_first_and_skipped_later() {
    let node = Node::new();
    let fifo = |name: &str| {
        let path = node.at("/etc/cni/net.d").join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600))
            .expect("a FIFO");
    };
    node.conf("10.conflist", r#"{"name":"n","plugins":[{"type":"ptp"}]}"#);
    node.put(
        "/etc/cni/net.d/05.conflist/x",
        "a folder is not a configuration",
    );
    for name in ["20.conf", "00-braid.conflist", "note"] {
        fifo(name);
    }
    std::os::unix::fs::symlink("/dev/zero", node.at("/etc/cni/net.d/30.conf")).expect("a link");
    let planned = node.plan().expect("planned");
    let expected = "/etc/cni/net.d/20.conf: skipped: not a regular file of at most 1048576 bytes";
    assert_eq!(planned.remarks, [expected]);
    assert!(
        planned
            .list
            .is_some_and(|list| list.contains("/etc/cni/net.d/10.conflist"))
    );
    assert_eq!(
        node.write().len(),
        2,
        "the list takes the place of the FIFO"
    );
    assert_eq!(node.write(), [""; 0]);
    fifo("01.conf");
    node.refused("read /etc/cni/net.d/01.conf: not a regular file of");
    fs::remove_file(node.at("/etc/cni/net.d/01.conf")).expect("removed");
    let multus = |keys: &str| format!(r#"{{"name":"m","type":"multus",{keys}}}"#);
    node.conf(
        "01.conf",
        &multus(r#""clusterNetwork":"/etc/cni/net.d/20.conf""#),
    );
    node.refused("read /etc/cni/net.d/20.conf: not a regular file of");
    node.conf(
        "01.conf",
        &multus(r#""clusterNetwork":"net","confDir":"/etc/cni/net.d""#),
    );
    assert!(
        node.plan().is_ok(),
        "a name is looked for in the files of the folder"
    );
}

#[test]
fn removal_deletes_no_list_of_others() {
    let node = Node::new();
    for text in [
        "a note",
        r#"{"name":"n","plugins":[{"type":"ptp"}]}"#,
        r#"{"name":"n","plugins":[{"type":"braid","plugins":[{"type":"ptp"}]}]}"#,
        r#"{"name":"n","plugins":[{"type":"braid","kubeconfig":"/another"}]}"#,
        r#"{"name":"n","type":"braid","kubeconfig":"/etc/cni/net.d/braid.d/kubeconfig"}"#,
    ] {
        node.conf("00-braid.conflist", text);
        node.conf("braid.d/kubeconfig", "kept");
        let why = node.files.remove(false).expect_err(text).to_string();
        assert!(
            why.contains("net.d/00-braid.conflist: it is not a list that braid wrote: "),
            "{why}"
        );
        assert!(node.at("/etc/cni/net.d/braid.d/kubeconfig").exists());
        assert_eq!(
            fs::read_to_string(node.at("/etc/cni/net.d/00-braid.conflist")).expect("the list"),
            text
        );
    }
}

#[test]
fn a_root_that_is_not_a_folder_is_refused() {
    let mut node = Node::new();
    assert!(node.files.root().is_ok());
    node.files.root = node.at("/nosuch");
    let expected = format!("--root {}: No such file", node.files.root.display());
    assert!(
        node.files
            .root()
            .is_err_and(|err| err.starts_with(&expected))
    );
    node.put("/file", "");
    node.files.root = node.at("/file");
    assert!(
        node.files
            .root()
            .is_err_and(|err| err.ends_with("not a directory"))
    );
}
