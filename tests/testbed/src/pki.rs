//! Certificate authority, certificates and kubeconfigs of the cluster, made with openssl.

use crate::sh;
use crate::state::{API_SERVER, API_SERVER6, Cluster, Node};
use anyhow::{Context, Result};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

const DAYS: &str = "30";

/// Creates the cluster's keys and certificates in `pki/`: `ca`, `sa` (the key that signs service
/// account tokens), `apiserver`, `admin`, and one certificate for each node.
pub(crate) fn create(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    Pki::create(cluster.pki(""), API_SERVER)?;
    nodes.iter().try_for_each(|node| add(cluster, *node))
}

/// Creates the certificate of a node, with the authority of [`create`].
pub(crate) fn add(cluster: &Cluster, node: Node) -> Result<()> {
    let pki = Pki {
        dir: cluster.pki(""),
        server: API_SERVER,
    };
    let subject = format!("/O=system:nodes/CN=system:node:{node}");
    let names = format!("DNS:{node},IP:{},IP:{}", node.address(), node.address6());
    pki.certificate(&node.to_string(), &subject, &names)
}

/// Folder with a control plane's certificates.
pub(crate) struct Pki {
    dir: PathBuf,
    server: Ipv4Addr,
}

impl Pki {
    /// Creates the certificate authority, the key for service account tokens, and certificates for
    /// the API server at `server` and for its administrator.
    pub(crate) fn create(dir: PathBuf, server: Ipv4Addr) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let pki = Self { dir, server };
        pki.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            DAYS,
        ])
        .args(["-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt"])
        .ran()?;
        pki.openssl(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-out",
            "sa.key",
        ])
        .ran()?;
        pki.openssl(&["pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub"])
            .ran()?;
        let names = format!(
            "IP:{server},IP:{API_SERVER6},IP:127.0.0.1,IP:10.96.0.1,IP:fd96::1,DNS:kubernetes,DNS:kubernetes.default"
        );
        pki.certificate("apiserver", "/CN=apiserver", &names)?;
        pki.certificate("admin", "/O=system:masters/CN=admin", "DNS:admin")?;
        Ok(pki)
    }

    /// Path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Creates a key, its certificate, and the kubeconfig `<name>.conf` with both.
    fn certificate(&self, name: &str, subject: &str, alt_names: &str) -> Result<()> {
        let file = |ending: &str| format!("{name}.{ending}");
        let extensions =
            format!("subjectAltName={alt_names}\nextendedKeyUsage=serverAuth,clientAuth\n");
        fs::write(self.file(&file("ext")), extensions)?;
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            subject,
        ])
        .args(["-keyout", &file("key"), "-out", &file("csr")])
        .ran()?;
        self.openssl(&[
            "x509",
            "-req",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            DAYS,
        ])
        .args([
            "-in",
            &file("csr"),
            "-out",
            &file("crt"),
            "-extfile",
            &file("ext"),
        ])
        .ran()?;
        self.kubeconfig(name)
    }

    fn kubeconfig(&self, name: &str) -> Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "braid", "cluster": {
                "server": format!("https://{}:6443", self.server),
                "certificate-authority": self.file("ca.crt"),
            }}],
            "users": [{"name": name, "user": {
                "client-certificate": self.file(&format!("{name}.crt")),
                "client-key": self.file(&format!("{name}.key")),
            }}],
            "contexts": [{"name": "braid", "context": {"cluster": "braid", "user": name}}],
            "current-context": "braid",
        });
        let path = self.file(&format!("{name}.conf"));
        fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))
    }

    fn openssl(&self, args: &[&str]) -> Command {
        let mut command = sh::cmd("openssl", args);
        command.current_dir(&self.dir);
        command
    }
}

trait Ran {
    /// Runs openssl until it ends. If openssl fails, the error contains its output.
    fn ran(&mut self) -> Result<()>;
}

impl Ran for Command {
    fn ran(&mut self) -> Result<()> {
        sh::read(self)?;
        Ok(())
    }
}
