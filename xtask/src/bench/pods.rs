//! `cargo xtask bench --pods`: attaches a pod to a default network and two more, with braid and
//! with both forms of Multus (thin and thick), beside a dedicated API server.
//!
//! ```text
//!  a network namespace: etcd ◄─ kube-apiserver ◄─ far server (a relay with a delay)
//!                                    ▲                 ▲
//!  braid-bench pods: nodes of thin, thick, braid, … ───┘
//! ```

use super::command::{Args, bench, conflist_path};
use anyhow::{Context, Result};
use braid_testbed::api_server::{ApiServer, PORT};
use braid_testbed::relay::relay;
use braid_testbed::{API_SERVER, binaries, sh, tools};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Port on which the API server is reached through a delay, as if it were far away.
const FAR_PORT: u16 = PORT + 1;
/// One-way delay at [`FAR_PORT`].
const WAY: Duration = Duration::from_millis(200);
/// Names of the runs with a pod that has networks besides the default one.
const WITH_NETWORKS: [&str; 3] = ["thin", "thick", "braid"];
/// RBAC rules of Multus.
const MULTUS_RBAC: &str = "xtask/bench/multus-rbac.yaml";

/// API server, and the files for braid and Multus.
struct Setup<'a> {
    server: ApiServer,
    dir: PathBuf,
    /// Folder of Multus' delegates.
    reference: &'a Path,
    /// Tokens of the accounts `braid` and `multus`.
    tokens: [String; 2],
}

pub(super) fn run(args: &Args, reference: &Path, braid: &Path, out: &Path) -> Result<()> {
    sh::apt(&[
        ("iptables", "iptables"),
        ("nft", "nftables"),
        ("nsenter", "util-linux"),
    ])?;
    binaries::build()?;
    let multus = tools::multus()?;
    let plugins = [
        ("thin", &*multus),
        ("thick", &multus),
        ("braid", braid),
        ("no-annotation", braid),
        ("no-kubernetes", braid),
    ];
    let mut bench = bench(&plugins, &out.join("pods.json"), Some("pods"))?;
    let dir = out.join("pods");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    // From here on this process and its children are in a new network namespace.
    unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace (needs root)")?;
    sh::ip("link set lo up")?;
    let setup = Setup::new(dir, reference)?;
    listen_far_away()?;
    bench
        .args(setup.pods()?)
        .args(setup.conflists()?)
        .arg(setup.daemon()?);
    bench.args(WITH_NETWORKS.map(|name| format!("--interfaces={name}=net1,net2")));
    bench.args(["--baseline=thick", "--runs", &args.runs.to_string()]);
    bench.arg(format!("--round-trip={}", 2 * WAY.as_millis()));
    bench.arg("--audit-log").arg(setup.server.audit_log());
    sh::run(bench.args(args.enforce.then_some("--enforce")))
}

impl<'a> Setup<'a> {
    fn new(dir: PathBuf, reference: &'a Path) -> Result<Self> {
        let server = ApiServer::start(&dir.join("api-server"))?;
        server.kubectl(&["apply", "-f", MULTUS_RBAC], None)?;
        let tokens = [
            server.create_token("braid")?,
            server.create_token("multus")?,
        ];
        Ok(Self {
            server,
            dir,
            reference,
            tokens,
        })
    }

    /// Creates the pods, each with its networks in a separate Kubernetes namespace. Returns an
    /// option `--pod` for each.
    fn pods(&self) -> Result<Vec<String>> {
        let mut options = Vec::new();
        for name in [&WITH_NETWORKS[..], &["no-annotation"]].concat() {
            options.push(format!("--pod={name}={}", self.pod(name)?));
        }
        Ok(options)
    }

    /// Creates a pod and returns its `CNI_ARGS`.
    fn pod(&self, name: &str) -> Result<String> {
        self.server.kubectl(&["create", "namespace", name], None)?;
        let mut annotations = json!({});
        if WITH_NETWORKS.contains(&name) {
            for network in ["lan", "served"] {
                let config = fs::read_to_string(conflist_path(&format!("pod-{network}")))?;
                self.create(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                    "metadata": {"name": network, "namespace": name}, "spec": {"config": config}}))?;
            }
            annotations = json!({"k8s.v1.cni.cncf.io/networks": networks().to_string()});
        }
        // Multus' daemon watches the pods of its node.
        let pod = self.create(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "pod", "namespace": name, "annotations": annotations},
            "spec": {"nodeName": name, "containers": [{"name": "main", "image": "none"}]}}))?;
        let uid = pod["metadata"]["uid"]
            .as_str()
            .context("a pod without uid")?;
        Ok(format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={name};K8S_POD_NAME=pod;K8S_POD_UID={uid}"
        ))
    }

    fn create(&self, object: &Value) -> Result<Value> {
        let made = self
            .server
            .kubectl(&["create", "-o", "json", "-f", "-"], Some(object))?;
        serde_json::from_str(&made).context("kubectl printed no JSON")
    }

    /// Writes all conflists. Returns the options of `braid-bench` that name them.
    fn conflists(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(conflist_path("bridge"))?;
        let default: Value = serde_json::from_str(&text).context("the default network")?;
        let braid = json!({"type": "braid", "plugins": default["plugins"]});
        let multus = |plugin: &str| json!({"type": plugin, "binDir": self.reference, "delegates": [default]});
        let with = |mut plugin: Value, key: &str, value: &Path| {
            plugin[key] = json!(value);
            plugin
        };
        let asking = |port| {
            anyhow::Ok(with(
                braid.clone(),
                "kubeconfig",
                &self.kubeconfig("braid", port)?,
            ))
        };
        let near = self.conflist("braid", &asking(PORT)?)?;
        let far = self.conflist("far", &asking(FAR_PORT)?)?;
        let thin = with(
            multus("multus"),
            "kubeconfig",
            &self.kubeconfig("multus", PORT)?,
        );
        let thin = self.conflist("thin", &thin)?;
        let thick = with(
            multus("multus-shim"),
            "daemonSocketDir",
            Path::new("/run/multus"),
        );
        let thick = self.conflist("thick", &thick)?;
        let none = self.conflist("no-kubernetes", &braid)?;
        Ok(vec![
            format!("--conflist={near},thin={thin},thick={thick},no-kubernetes={none}"),
            format!("--far=braid={far}"),
            format!("--far=no-annotation={far}"),
        ])
    }

    /// Writes a list with one plugin. Returns its path.
    fn conflist(&self, name: &str, plugin: &Value) -> Result<String> {
        let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]});
        let path = self.write(&format!("{name}.conflist"), &list.to_string())?;
        Ok(path.display().to_string())
    }

    /// Writes the kubeconfig of a service account, for the API server at `port`.
    fn kubeconfig(&self, account: &str, port: u16) -> Result<PathBuf> {
        let token = if account == "braid" {
            &self.tokens[0]
        } else {
            &self.tokens[1]
        };
        let server = format!("https://{API_SERVER}:{port}");
        let cluster = json!({"server": server, "certificate-authority": self.server.pki("ca.crt")});
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "current-context": "c",
        });
        self.write(&format!("{account}-{port}.kubeconfig"), &config.to_string())
    }

    /// Writes a script that runs Multus' daemon. The script first creates the files that the daemon
    /// would have in its pod. Returns the option of `braid-bench` that names the script.
    fn daemon(&self) -> Result<String> {
        const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
        // With a given file instead of "auto" the daemon ends immediately.
        const NETWORKS: &str = "/run/net.d";
        let config = json!({"cniVersion": "1.0.0", "binDir": self.reference, "logToStderr": true, "logLevel": "error",
            "multusConfigFile": "auto", "multusAutoconfigDir": NETWORKS, "cniConfigDir": NETWORKS});
        let config = self.write("daemon.json", &config.to_string())?;
        let token = self.write("token", &self.tokens[1])?;
        let script = format!(
            "#!/bin/sh -e\nexec > {log} 2>&1\nmkdir -p {ACCOUNT} {NETWORKS}\n\
             cp {token} {ACCOUNT}/token\ncp {ca} {ACCOUNT}/ca.crt\ncp {network} {NETWORKS}\n\
             export KUBERNETES_SERVICE_HOST={API_SERVER} KUBERNETES_SERVICE_PORT={PORT} MULTUS_NODE_NAME=thick\n\
             exec {daemon} -config {config}\n",
            log = self.dir.join("multus-daemon.log").display(),
            token = token.display(),
            ca = self.server.pki("ca.crt").display(),
            network = conflist_path("bridge").display(),
            daemon = tools::multus()?.join("multus-daemon").display(),
            config = config.display(),
        );
        let path = self.write("multus-daemon.sh", &script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(format!("--daemon=thick={}", path.display()))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

/// Returns the value of the pod's annotation `k8s.v1.cni.cncf.io/networks`.
fn networks() -> Value {
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let bandwidth = json!({"ingressRate": 100_000_000, "ingressBurst": 1_000_000,
        "egressRate": 100_000_000, "egressBurst": 1_000_000});
    json!([{"name": "lan"}, {"name": "served", "portMappings": ports, "bandwidth": bandwidth}])
}

/// Listens on [`FAR_PORT`], and relays connections to the API server with a delay of [`WAY`] each
/// way.
fn listen_far_away() -> Result<()> {
    let listener =
        TcpListener::bind((API_SERVER, FAR_PORT)).context("listen for the far API server")?;
    std::thread::spawn(move || {
        for client in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || {
                // Opening a connection takes a round trip as well.
                std::thread::sleep(WAY * 2);
                let server = TcpStream::connect((API_SERVER, PORT))?;
                relay(client, server, WAY)
            });
        }
    });
    Ok(())
}
