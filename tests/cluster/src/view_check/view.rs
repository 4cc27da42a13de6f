//! The program as a plugin of kubectl, and readers of its output.

use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// Pod with limits and the second network, on the first node.
pub(super) const LIMITED: &str = "view-limited";
/// Pod without limits, on the second node.
pub(super) const FREE: &str = "view-free";
/// Columns of a narrow terminal.
const WIDTH: usize = 80;
/// Longest time until the view follows the cluster.
pub(super) const LIMIT: Duration = Duration::from_secs(40);

/// The program as a plugin of kubectl.
pub(super) struct View<'a> {
    pub(super) cluster: &'a Cluster,
    /// Folder in the search path, with the program as `kubectl-braid`.
    folder: TempDir,
}

impl<'a> View<'a> {
    /// Takes the program from a node, which has the one of the agent's image.
    pub(super) fn new(cluster: &'a Cluster, node: Node) -> Result<Self> {
        let folder = tempfile::tempdir().context("create a folder")?;
        let program = cluster.root(node)?.join("opt/cni/bin/braid");
        fs::copy(&program, folder.path().join("kubectl-braid"))
            .with_context(|| format!("copy {}", program.display()))?;
        Ok(Self { cluster, folder })
    }

    /// Returns the command `kubectl braid` with arguments, separated by blanks.
    pub(super) fn command(&self, arguments: &str) -> Command {
        let path: &Path = self.folder.path();
        let words = ["braid"].into_iter().chain(arguments.split(' '));
        self.cluster.kubectl_plugin(path, words)
    }

    /// Runs `kubectl braid`. Fails if a line of its output is too long.
    pub(super) fn run(&self, arguments: &str) -> Result<Output> {
        let out = self.command(arguments).output().context("run kubectl")?;
        if !arguments.contains("json") {
            for line in String::from_utf8_lossy(&out.stdout).lines() {
                ensure!(
                    line.chars().count() <= WIDTH,
                    "{arguments}: {line:?} is too long"
                );
            }
        }
        Ok(out)
    }

    /// Runs `kubectl braid`, which must succeed, and returns its output.
    pub(super) fn read(&self, arguments: &str) -> Result<String> {
        let out = self.run(arguments)?;
        let (stdout, stderr) = (&out.stdout, String::from_utf8_lossy(&out.stderr));
        let stdout = String::from_utf8_lossy(stdout).into_owned();
        ensure!(
            out.status.success(),
            "kubectl braid {arguments}: {stdout}{stderr}"
        );
        Ok(stdout)
    }
}

/// Returns the elements of an array; none of anything else.
pub(super) fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("parse {text:?}"))
}
