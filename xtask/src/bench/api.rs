//! An API server in a network namespace of its own, for programs that are measured beside it, and
//! their files.

use anyhow::{Context, Result};
use braid_testbed::api_server::{ApiServer, PORT};
use braid_testbed::{API_SERVER, sh};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Conflist that an agent writes, as a path on its node.
pub(super) const CONFLIST: &str = "/run/agent.conflist";

/// The API server, and the folder of all files.
pub(super) struct Api {
    pub(super) server: ApiServer,
    dir: PathBuf,
}

impl Api {
    /// Moves this process into a new network namespace, and starts the API server there. Deletes
    /// the files of an earlier run in `dir`.
    pub(super) fn start(dir: PathBuf) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        // From here on this process and its children are in a new network namespace.
        unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace (needs root)")?;
        sh::ip("link set lo up")?;
        let server = ApiServer::start(&dir.join("api-server"))?;
        Ok(Self { server, dir })
    }

    /// Creates an object and returns it as the API server has it.
    pub(super) fn create(&self, object: &Value) -> Result<Value> {
        let made = self
            .server
            .kubectl(&["create", "-o", "json", "-f", "-"], Some(object))?;
        serde_json::from_str(&made).context("kubectl printed no JSON")
    }

    /// Writes the kubeconfig of an account with this token, for the API server at `port`.
    pub(super) fn kubeconfig(&self, account: &str, token: &str, port: u16) -> Result<PathBuf> {
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

    /// Returns the command line of an agent for the node `node`, which a shell may expand. The
    /// token is of the account `braid`, and `config` is the file of the configuration.
    pub(super) fn agent(
        &self,
        program: &Path,
        token: &str,
        node: &str,
        config: &Path,
    ) -> Result<String> {
        let kubeconfig = self.kubeconfig("braid", token, PORT)?;
        Ok(format!(
            "{program} --kubeconfig {kubeconfig} --node-name {node} --config {config} \
             --conflist {CONFLIST} --call-kubeconfig /run/agent.kubeconfig",
            program = program.display(),
            kubeconfig = kubeconfig.display(),
            config = config.display(),
        ))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file in the folder, and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Writes a shell script and returns its path. Its output goes to `<name>.log` in the folder, or
    /// to `<name>-<argument>.log` if it has an argument.
    pub(super) fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let log = self.path(name);
        let text = format!(
            "#!/bin/sh -e\nexec > {}${{1:+-$1}}.log 2>&1\n{text}\n",
            log.display()
        );
        let path = self.write(&format!("{name}.sh"), &text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}
