//! `cargo xtask bench --pods`: attaches a pod to a default network and two more, with braid and
//! with both forms of Multus (thin and thick), beside a dedicated API server. An agent of braid is
//! alive, hung, or away.
//!
//! ```text
//!  a network namespace: etcd ◄─ kube-apiserver ◄─ far server (a relay with a delay)
//!                                    ▲                 ▲
//!  braid-bench pods: nodes of thin, thick, braid, … ───┘
//! ```

use super::api::Api;
use super::command::{Args, bench, conflist_path};
use crate::build;
use anyhow::{Context, Result};
use braid_testbed::api_server::PORT;
use braid_testbed::relay::relay;
use braid_testbed::{API_SERVER, binaries, sh, tools};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Port on which the API server is reached through a delay, as if it were far away.
const FAR_PORT: u16 = PORT + 1;
/// One-way delay at [`FAR_PORT`].
const WAY: Duration = Duration::from_millis(200);
/// Names of the runs with a pod that has networks besides the default one.
const WITH_NETWORKS: [&str; 5] = ["thin", "thick", "braid", "agent", "hung"];
/// Names of the runs with a pod that has only the default one. The runtime passes the annotations
/// of the last.
const WITHOUT: [&str; 3] = ["no-annotation", "no-annotation-agent", "no-annotation-told"];
/// Names of the runs with an agent, and whether it is stopped.
const AGENTS: [(&str, bool); 5] = [
    (HELD, false),
    ("agent", false),
    ("hung", true),
    ("no-annotation-agent", false),
    ("no-annotation-told", false),
];
/// Names of the runs with one network and addresses of Whereabouts' pools, and each one's range. The
/// agent of the last holds addresses.
const POOLS: [(&str, &str); 3] = [
    ("ipam-whereabouts", "10.205.0.0/16"),
    ("ipam-pool", "10.206.0.0/16"),
    (HELD, "10.207.0.0/16"),
];
const HELD: &str = "ipam-held";
/// Pods beside the measured one on the node of [`HELD`]: an agent holds a quarter of their number.
const BESIDE: usize = 4;
/// Socket of the agent.
const SOCKET: &str = "/run/braid/agent.sock";
/// RBAC rules of Multus.
const MULTUS_RBAC: &str = "xtask/bench/multus-rbac.yaml";

/// API server, and the files for braid and Multus.
struct Setup<'a> {
    api: Api,
    /// Folder of Multus' delegates.
    reference: &'a Path,
    /// Tokens of the accounts `braid` and `multus`.
    tokens: [String; 2],
}

/// Makes a folder with the reference plugins and Whereabouts.
fn with_whereabouts(reference: &Path, out: &Path) -> Result<PathBuf> {
    let dir = out.join("whereabouts");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    for program in [reference.join("macvlan"), tools::whereabouts()?] {
        let name = program.file_name().context("a program without a name")?;
        symlink(&program, dir.join(name)).context("link a program")?;
    }
    Ok(dir)
}

pub(super) fn run(args: &Args, reference: &Path, braid: &Path, out: &Path) -> Result<()> {
    sh::apt(&[
        ("iptables", "iptables"),
        ("nft", "nftables"),
        ("nsenter", "util-linux"),
    ])?;
    binaries::build()?;
    let multus = tools::multus()?;
    let whereabouts = with_whereabouts(reference, out)?;
    let plugins = [
        ("thin", &*multus),
        ("thick", &multus),
        ("braid", braid),
        ("agent", braid),
        ("hung", braid),
        ("no-annotation", braid),
        ("no-annotation-agent", braid),
        ("no-annotation-told", braid),
        ("no-kubernetes", braid),
        ("lan", braid),
        ("served", braid),
        ("ipam-local", reference),
        ("ipam-whereabouts", &whereabouts),
        ("ipam-pool", braid),
        (HELD, braid),
    ];
    let mut bench = bench(&plugins, &out.join("pods.json"), Some("pods"))?;
    // From here on this process and its children are in a new network namespace.
    let setup = Setup::new(Api::start(out.join("pods"))?, reference)?;
    listen_far_away()?;
    bench
        .args(setup.pods()?)
        .args(setup.conflists()?)
        .arg(setup.daemon()?)
        .args(setup.agents(&braid.join(build::COMPANION))?);
    bench.args(WITH_NETWORKS.map(|name| format!("--interfaces={name}=net1,net2")));
    bench.arg(format!("--beside={HELD}={BESIDE}"));
    bench.args(["--baseline=thick", "--runs", &args.runs.to_string()]);
    bench.arg(format!("--round-trip={}", 2 * WAY.as_millis()));
    bench.arg("--audit-log").arg(setup.api.server.audit_log());
    sh::run(bench.args(args.enforce.then_some("--enforce")))
}

impl<'a> Setup<'a> {
    fn new(api: Api, reference: &'a Path) -> Result<Self> {
        api.server.kubectl(&["apply", "-f", MULTUS_RBAC], None)?;
        // Whereabouts has its own account: it changes leases too.
        for create in [
            &["serviceaccount", "whereabouts", "-n", "kube-system"][..],
            &[
                "clusterrolebinding",
                "whereabouts",
                "--clusterrole=cluster-admin",
                "--serviceaccount=kube-system:whereabouts",
            ],
        ] {
            api.server.kubectl(&[&["create"], create].concat(), None)?;
        }
        let kinds = sh::root().join("deploy/ipam.yaml");
        let apply = ["apply", "-f", &kinds.to_string_lossy()];
        api.server.kubectl(&apply, None)?;
        let tokens = [
            api.server.create_token("braid")?,
            api.server.create_token("multus")?,
        ];
        Ok(Self {
            api,
            reference,
            tokens,
        })
    }

    /// Creates the pods, each with its networks in a separate Kubernetes namespace. Returns an
    /// option `--pod` for each.
    fn pods(&self) -> Result<Vec<String>> {
        let mut options = Vec::new();
        let pools = POOLS.map(|(name, _)| name);
        for name in [&WITH_NETWORKS[..], &WITHOUT, &pools].concat() {
            options.push(format!("--pod={name}={}", self.pod(name)?));
        }
        // A call without an agent reads its Node.
        self.node("ipam-pool")?;
        Ok(options)
    }

    fn node(&self, name: &str) -> Result<()> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.api.create(&node).map(drop)
    }

    /// Creates a pod and returns its `CNI_ARGS`.
    fn pod(&self, name: &str) -> Result<String> {
        let create = ["create", "namespace", name];
        self.api.server.kubectl(&create, None)?;
        let mut annotations = json!({});
        if WITH_NETWORKS.contains(&name) {
            for network in ["lan", "served"] {
                let config = fs::read_to_string(conflist_path(&format!("pod-{network}")))?;
                self.api.create(&json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                    "metadata": {"name": network, "namespace": name}, "spec": {"config": config}}))?;
            }
            annotations = json!({"k8s.v1.cni.cncf.io/networks": networks().to_string()});
        }
        // Multus' daemon watches the pods of its node.
        let pod = self.api.create(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "pod", "namespace": name, "annotations": annotations},
            "spec": {"nodeName": name, "containers": [{"name": "main", "image": "none"}]}}))?;
        let uid = pod["metadata"]["uid"]
            .as_str()
            .context("a pod without uid")?;
        Ok(format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={name};K8S_POD_NAME=pod;K8S_POD_UID={uid}"
        ))
    }

    /// Writes all conflists. Returns the options of `braid-bench` that name them.
    fn conflists(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(conflist_path("bridge"))?;
        let default: Value = serde_json::from_str(&text).context("the default network")?;
        let braid = json!({"type": "braid", "plugins": default["plugins"]});
        let multus = |plugin: &str| json!({"type": plugin, "binDir": self.reference, "delegates": [default]});
        let with = |mut plugin: Value, key: &str, value: &Value| {
            plugin[key] = value.clone();
            plugin
        };
        let asking = |port| {
            anyhow::Ok(with(
                braid.clone(),
                "kubeconfig",
                &json!(self.kubeconfig("braid", port)?),
            ))
        };
        let near = self.conflist("braid", &asking(PORT)?)?;
        let far = self.conflist("far", &asking(FAR_PORT)?)?;
        let thin = with(
            multus("multus"),
            "kubeconfig",
            &json!(self.kubeconfig("multus", PORT)?),
        );
        let thin = self.conflist("thin", &thin)?;
        let thick = with(
            multus("multus-shim"),
            "daemonSocketDir",
            &json!("/run/multus"),
        );
        let thick = self.conflist("thick", &thick)?;
        let none = self.conflist("no-kubernetes", &braid)?;
        let told = with(
            asking(PORT)?,
            "runtimeConfig",
            &json!({"io.kubernetes.cri.pod-annotations": {}}),
        );
        let told = self.conflist("told", &told)?;
        let mut pools = Vec::new();
        for (name, range) in POOLS {
            pools.push(format!("{name}={}", self.pool(name, range)?));
        }
        let pools = pools.join(",");
        let (lan, served) = (conflist_path("pod-lan"), self.served()?);
        let (lan, served) = (lan.display(), served.display());
        Ok(vec![
            format!(
                "--conflist={near},thin={thin},thick={thick},no-kubernetes={none},\
                 no-annotation-told={told},lan={lan},served={served},ipam-local={lan},{pools}"
            ),
            format!("--far=braid={far}"),
            format!("--far=no-annotation={far}"),
        ])
    }

    /// Writes the list of the first network with addresses of a pool. Returns its path.
    fn pool(&self, name: &str, range: &str) -> Result<String> {
        let kubeconfig = if name == "ipam-whereabouts" {
            let token = self.api.server.create_token("whereabouts")?;
            self.api.kubeconfig("whereabouts", &token, PORT)?
        } else {
            self.kubeconfig("braid", PORT)?
        };
        let flat = json!({"kubernetes": {"kubeconfig": kubeconfig}});
        // Whereabouts refuses a call without a flat file.
        let flat = self.api.write(&format!("{name}.flat"), &flat.to_string())?;
        let text = fs::read_to_string(conflist_path("pod-lan"))?;
        let mut list: Value = serde_json::from_str(&text).context("the first network")?;
        list["plugins"][0]["ipam"] =
            json!({"type": "whereabouts", "range": range, "configuration_path": flat});
        let path = self
            .api
            .write(&format!("{name}.conflist"), &list.to_string())?;
        Ok(path.display().to_string())
    }

    /// Writes the list of the pod's second network, with the pod's requests. Returns its path.
    fn served(&self) -> Result<PathBuf> {
        let text = fs::read_to_string(conflist_path("pod-served"))?;
        let mut list: Value = serde_json::from_str(&text).context("the second network")?;
        let requests = &networks()[1];
        for plugin in list["plugins"].as_array_mut().context("plugins")? {
            plugin["runtimeConfig"] = json!({"portMappings": requests["portMappings"],
                "bandwidth": requests["bandwidth"]});
        }
        self.api.write("served.conflist", &list.to_string())
    }

    /// Writes a list with one plugin. Returns its path.
    fn conflist(&self, name: &str, plugin: &Value) -> Result<String> {
        let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]});
        let path = self
            .api
            .write(&format!("{name}.conflist"), &list.to_string())?;
        Ok(path.display().to_string())
    }

    /// Writes the kubeconfig of a service account, for the API server at `port`.
    fn kubeconfig(&self, account: &str, port: u16) -> Result<PathBuf> {
        let [braid, multus] = &self.tokens;
        let token = if account == "braid" { braid } else { multus };
        self.api.kubeconfig(account, token, port)
    }

    /// Writes a script that runs Multus' daemon. The script first creates the files that the daemon
    /// would have in its pod. Returns the option of `braid-bench` that names the script.
    fn daemon(&self) -> Result<String> {
        const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
        // With a given file instead of "auto" the daemon ends immediately.
        const NETWORKS: &str = "/run/net.d";
        let config = json!({"cniVersion": "1.0.0", "binDir": self.reference, "logToStderr": true, "logLevel": "error",
            "multusConfigFile": "auto", "multusAutoconfigDir": NETWORKS, "cniConfigDir": NETWORKS});
        let config = self.api.write("daemon.json", &config.to_string())?;
        let token = self.api.write("token", &self.tokens[1])?;
        let script = format!(
            "mkdir -p {ACCOUNT} {NETWORKS}\n\
             cp {token} {ACCOUNT}/token\ncp {ca} {ACCOUNT}/ca.crt\ncp {network} {NETWORKS}\n\
             export KUBERNETES_SERVICE_HOST={API_SERVER} KUBERNETES_SERVICE_PORT={PORT} MULTUS_NODE_NAME=thick\n\
             exec {daemon} -config {config}",
            token = token.display(),
            ca = self.api.server.pki("ca.crt").display(),
            network = conflist_path("bridge").display(),
            daemon = tools::multus()?.join("multus-daemon").display(),
            config = config.display(),
        );
        let path = self.api.script("multus-daemon", &script)?;
        Ok(format!("--daemon=thick={}", path.display()))
    }

    /// Creates the Node of each agent, and a script that runs the agent. Returns the options of
    /// `braid-bench` that name the scripts.
    fn agents(&self, program: &Path) -> Result<Vec<String>> {
        // The nodes have no pod ranges, so the agents only answer calls.
        let config = self.api.write("agent.yaml", "mode: none\n")?;
        let mut options = Vec::new();
        for (name, is_stopped) in AGENTS {
            self.node(name)?;
            let agent = self.api.agent(program, &self.tokens[0], name, &config)?;
            let agent = format!("setpriv --pdeathsig KILL {agent}");
            let run = if is_stopped {
                format!(
                    "{agent} &\nwhile [ ! -S {SOCKET} ]; do sleep 0.1; done\nkill -STOP $!\nwait"
                )
            } else {
                format!("exec {agent}")
            };
            let path = self.api.script(name, &run)?;
            options.push(format!("--daemon={name}={}", path.display()));
        }
        Ok(options)
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
