//! etcd and an API server without a cluster, in the namespaces of the thread that starts them. Both
//! processes end with that thread.

use crate::audit::{self, Audit};
use crate::control_plane::{api_server_flags, services};
use crate::pki::Pki;
use crate::state::{API_SERVER, bin};
use crate::{sh, wait};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Port of the API server at [`API_SERVER`].
pub const PORT: u16 = 6443;
/// Longest time until the API server is ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// An API server, with braid's custom resources and RBAC role unless it is bare.
pub struct ApiServer {
    dir: PathBuf,
    pki: Pki,
}

impl ApiServer {
    /// Returns an error message that names the first missing program, or `None` if no program is
    /// missing.
    pub fn missing() -> Option<String> {
        let mut built = ["kube-apiserver", "kubectl"].into_iter();
        let mut installed = ["etcd", "openssl", "setpriv"].into_iter();
        let missing = built
            .find(|name| !bin().join(name).is_file())
            .or_else(|| installed.find(|name| !sh::on_path(name)))?;
        Some(format!(
            "needs {missing}, which `cargo xtask cluster build` builds or installs"
        ))
    }

    /// Starts etcd and the API server with their files in `dir`. Returns after braid's custom
    /// resources and role are applied.
    pub fn start(dir: &Path) -> Result<Self> {
        let server = Self::start_bare(dir)?;
        server.set_up().with_context(|| server.logs())?;
        Ok(server)
    }

    /// Starts etcd and the API server with their files in `dir`, without an object of braid.
    /// Returns when the API server is ready.
    pub fn start_bare(dir: &Path) -> Result<Self> {
        let server = Self {
            dir: dir.to_owned(),
            pki: Pki::create(dir.join("pki"), API_SERVER)?,
        };
        sh::read(&mut sh::cmd(
            "ip",
            ["addr", "add", &format!("{API_SERVER}/32"), "dev", "lo"],
        ))?;
        // The data need not survive a power cut, and fsync would be most of the API server's time.
        server.daemon(
            "etcd",
            sh::cmd("etcd", ["--unsafe-no-fsync", "--data-dir"]).arg(dir.join("etcd")),
        )?;
        let mut api_server = sh::cmd(
            bin().join("kube-apiserver"),
            api_server_flags(|file| server.pki(file), API_SERVER, services(false)),
        );
        api_server.args(audit::flags(dir, &[])?);
        // The pods need no service account, and no controller here would create one.
        server.daemon(
            "kube-apiserver",
            api_server.arg("--disable-admission-plugins=ServiceAccount"),
        )?;
        let is_ready = || wait::succeeds(&mut server.command(&["get", "--raw", "/readyz"]));
        wait::until("the API server is ready", PATIENCE, is_ready)
            .with_context(|| server.logs())?;
        Ok(server)
    }

    /// Applies kinds and rights of braid's manifest.
    fn set_up(&self) -> Result<()> {
        // Tokens of most tests are not bound to Nodes, so the policies would refuse requests.
        self.apply("crd, rbac")?;
        self.kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "crd",
                "--all",
                &wait::timeout(PATIENCE),
            ],
            None,
        )?;
        Ok(())
    }

    /// Applies the objects of braid's manifest with these components.
    pub fn apply(&self, components: &str) -> Result<()> {
        let manifest = sh::root().join("deploy/braid.yaml");
        let parts = format!("app.kubernetes.io/component in ({components})");
        self.kubectl(
            &["apply", "-f", &manifest.to_string_lossy(), "-l", &parts],
            None,
        )?;
        Ok(())
    }

    /// Returns the path of a certificate, key or kubeconfig by its file name.
    pub fn pki(&self, file: &str) -> PathBuf {
        self.pki.file(file)
    }

    /// Creates a token of a service account in `kube-system`.
    pub fn create_token(&self, account: &str) -> Result<String> {
        Ok(self
            .kubectl(&["create", "token", account, "-n", "kube-system"], None)?
            .trim()
            .to_owned())
    }

    /// Runs kubectl as administrator and returns its standard output. Fails if kubectl fails.
    pub fn kubectl(&self, args: &[&str], input: Option<&Value>) -> Result<String> {
        let output = self.try_kubectl(args, input)?;
        if !output.status.success() {
            bail!(
                "kubectl {args:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs kubectl as administrator and returns its output, even if kubectl fails.
    pub fn try_kubectl(&self, args: &[&str], input: Option<&Value>) -> Result<Output> {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("start kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no input")?;
        if let Some(input) = input {
            stdin
                .write_all(input.to_string().as_bytes())
                .context("write to kubectl")?;
        }
        drop(stdin);
        child.wait_with_output().context("wait for kubectl")
    }

    /// Reads from the audit log which requests braid's account has sent so far.
    pub fn audit(&self) -> Result<Audit> {
        Audit::read(&self.dir)
    }

    /// Path of the audit log, which contains the requests of all accounts.
    pub fn audit_log(&self) -> PathBuf {
        audit::log(&self.dir)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut kubectl = sh::cmd(bin().join("kubectl"), ["--kubeconfig"]);
        kubectl
            .arg(self.pki("admin.conf"))
            .arg("--cache-dir")
            .arg(self.dir.join("kubectl"))
            .args(args);
        kubectl
    }

    /// Starts `command` so that it ends with this thread. Its output goes to `<name>.log`.
    fn daemon(&self, name: &str, command: &mut Command) -> Result<()> {
        let path = self.dir.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut tied = sh::cmd("setpriv", ["--pdeathsig", "KILL"]);
        tied.arg(command.get_program())
            .args(command.get_args())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Nothing waits for the child: it runs until the thread ends.
        tied.spawn().with_context(|| format!("start {name}"))?;
        Ok(())
    }

    fn logs(&self) -> String {
        let log = |name: &str| {
            fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default()
        };
        format!(
            "the API server did not start:\n{}",
            ["etcd", "kube-apiserver"].map(log).join("\n")
        )
    }
}
