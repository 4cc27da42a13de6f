//! Commands of a page of the book, run as they stand there.

use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, chart};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tempfile::TempDir;

/// Name of a node in the commands of the book.
const NODE: &str = "node-1";

/// Shell that prints commands, and ends at the first one that fails or after five minutes.
const LIMITED: [&str; 4] = ["timeout", "300", "sh", "-exc"];
/// Mount point of braid's image on a node.
const UNPACKED: &str = "/run/braid-image";

/// A page of the book, and programs with which its commands reach the cluster of this machine.
pub(crate) struct Runbook<'c> {
    cluster: &'c Cluster,
    page: String,
    /// Folder of `kubectl`, `helm` and `sudo`.
    programs: TempDir,
}

impl<'c> Runbook<'c> {
    /// Reads a page such as `flannel.md`.
    pub(crate) fn read(cluster: &'c Cluster, page: &str) -> Result<Self> {
        let path = sh::root().join("docs").join(page);
        let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let programs = tempfile::tempdir().context("make a folder of programs")?;
        let runbook = Self {
            cluster,
            page,
            programs,
        };
        runbook.write("kubectl", &script(&cluster.kubectl::<&str>([])))?;
        runbook.write("helm", &script(&chart::helm_of(cluster, &[])?))?;
        // The check is root already.
        runbook.write("sudo", "#!/bin/sh\nexec \"$@\"\n")?;
        Ok(runbook)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.programs.path().join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Runs the commands at `place`, a heading and the number of a block below it, from the root of
    /// the checkout. `node` replaces the name of a node.
    pub(crate) fn run(&self, place: (&str, usize), node: Option<Node>) -> Result<()> {
        self.run_with(place, node, ("", ""))
    }

    /// Like [`Self::run`], with another text in place of one that differs between clusters.
    pub(crate) fn run_with(
        &self,
        place: (&str, usize),
        node: Option<Node>,
        (from, to): (&str, &str),
    ) -> Result<()> {
        let mut commands = self.commands(place, node)?;
        if !from.is_empty() {
            ensure!(commands.contains(from), "{commands:?} lacks {from:?}");
            commands = commands.replace(from, to);
        }
        self.start(sh::cmd(LIMITED[0], [&LIMITED[1..], &[&commands]].concat()))
            .with_context(|| format!("run {commands:?}"))
    }

    /// Runs the commands at `place` on a node.
    pub(crate) fn run_on(&self, node: Node, place: (&str, usize)) -> Result<()> {
        let commands = self.commands(place, Some(node))?;
        let words = [&LIMITED[..], &[&commands]].concat();
        self.start(self.cluster.on(node, words)?)
            .with_context(|| format!("{node}: run {commands:?}"))
    }

    /// Puts braid's programs beside the commands of a node, as a release's archive does.
    pub(crate) fn unpack(&self, node: Node) -> Result<()> {
        let image = concat!("localhost/braid:", env!("CARGO_PKG_VERSION"));
        sh::read(&mut self.cluster.on(node, ["mkdir", "-p", UNPACKED])?)?;
        let mount = ["ctr", "-n", "k8s.io", "images", "mount", image, UNPACKED];
        sh::read(&mut self.cluster.on(node, mount)?).map(drop)
    }

    fn start(&self, mut shell: Command) -> Result<()> {
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.programs.path().display();
        let path = format!("{programs}:{UNPACKED}:{path}:/usr/sbin:/sbin");
        sh::read(shell.env("PATH", path)).map(drop)
    }

    fn commands(&self, (heading, number): (&str, usize), node: Option<Node>) -> Result<String> {
        let blocks = blocks(&self.page, heading);
        let block = blocks.get(number);
        let block = block.with_context(|| {
            let count = blocks.len();
            format!("no block {number} below {heading:?}, which has {count}")
        })?;
        let commands = node.map_or_else(
            || block.clone(),
            |node| block.replace(NODE, &node.to_string()),
        );
        ensure!(!commands.contains(NODE), "{commands:?} is for one node");
        Ok(commands)
    }
}

/// Returns a script that starts `command` with its environment and more arguments.
fn script(command: &Command) -> String {
    let mut text = "#!/bin/sh\nexec env".to_owned();
    let mut add = |word: &str| {
        text.push_str(" '");
        text.push_str(&word.replace('\'', r"'\''"));
        text.push('\'');
    };
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default().to_string_lossy();
        add(&format!("{}={value}", name.to_string_lossy()));
    }
    add(&command.get_program().to_string_lossy());
    for argument in command.get_args() {
        add(&argument.to_string_lossy());
    }
    text.push_str(" \"$@\"\n");
    text
}

/// Returns the blocks of shell commands below a heading of a page, up to the next heading.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut is_below = false;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix('#') {
            is_below = title.trim_start_matches('#').trim() == heading;
        } else if line.trim_start().starts_with("```") {
            let is_shell = line.trim() == "```sh";
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block = block.fold(String::new(), |text, line| text + line + "\n");
            if is_below && is_shell {
                blocks.push(block);
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_shell_commands_below_the_heading() {
        let page = "# A\n```sh\na\n```\n## B c\n```sh\nb\n# not a heading\n```\n\
                    ```json\n{}\n```\n```sh\nc\n```\n## D\n```sh\nd\n```\n";
        assert_eq!(blocks(page, "B c"), ["b\n# not a heading\n", "c\n"]);
        assert!(blocks(page, "C").is_empty());
    }

    #[test]
    fn a_script_keeps_each_word() {
        let mut command = Command::new("echo");
        command.args(["it's", "a b"]).env("A", "1");
        let expected = "#!/bin/sh\nexec env 'A=1' 'echo' 'it'\\''s' 'a b' \"$@\"\n";
        assert_eq!(script(&command), expected);
    }
}
