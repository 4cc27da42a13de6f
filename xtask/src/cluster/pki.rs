//! The cluster's certificate authority, certificates and kubeconfigs, by openssl.

use super::state::{API_SERVER, Cluster, Node};
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

const DAYS: &str = "30";

/// Makes everything under `pki/`: `ca`, `sa` (service accounts' tokens), `apiserver`, `admin` and one for each node.
pub(crate) fn create(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    fs::create_dir_all(cluster.pki(""))?;
    openssl(
        cluster,
        &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS],
    )
    .args(["-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt"])
    .ran()?;
    openssl(cluster, &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "sa.key"])
        .ran()?;
    openssl(cluster, &["pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub"]).ran()?;
    let names = format!("IP:{API_SERVER},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default");
    certificate(cluster, "apiserver", "/CN=apiserver", &names)?;
    certificate(cluster, "admin", "/O=system:masters/CN=admin", "DNS:admin")?;
    for node in nodes {
        let subject = format!("/O=system:nodes/CN=system:node:{node}");
        certificate(cluster, &node.to_string(), &subject, &format!("DNS:{node},IP:{}", node.address()))?;
    }
    Ok(())
}

fn certificate(cluster: &Cluster, name: &str, subject: &str, alt_names: &str) -> Result<()> {
    let file = |ending: &str| format!("{name}.{ending}");
    let extensions = format!("subjectAltName={alt_names}\nextendedKeyUsage=serverAuth,clientAuth\n");
    fs::write(cluster.pki(&file("ext")), extensions)?;
    openssl(cluster, &["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject])
        .args(["-keyout", &file("key"), "-out", &file("csr")])
        .ran()?;
    openssl(cluster, &["x509", "-req", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS])
        .args(["-in", &file("csr"), "-out", &file("crt"), "-extfile", &file("ext")])
        .ran()?;
    kubeconfig(cluster, name)
}

fn kubeconfig(cluster: &Cluster, name: &str) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "braid", "cluster": {
            "server": format!("https://{API_SERVER}:6443"),
            "certificate-authority": cluster.pki("ca.crt"),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate": cluster.pki(&format!("{name}.crt")),
            "client-key": cluster.pki(&format!("{name}.key")),
        }}],
        "contexts": [{"name": "braid", "context": {"cluster": "braid", "user": name}}],
        "current-context": "braid",
    });
    let path = cluster.pki(&format!("{name}.conf"));
    fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))
}

fn openssl(cluster: &Cluster, args: &[&str]) -> Command {
    let mut command = sh::cmd("openssl", args);
    command.current_dir(cluster.pki(""));
    command
}

trait Ran {
    /// Runs to the end; openssl's chatter is shown on failure only.
    fn ran(&mut self) -> Result<()>;
}

impl Ran for Command {
    fn ran(&mut self) -> Result<()> {
        sh::read(self).map(drop)
    }
}
