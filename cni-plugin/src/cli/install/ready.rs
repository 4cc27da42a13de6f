//! STATUS of the installed conflist: conditions that must become true before pods start.

use super::PROGRAM;
use super::folder::Bin;
use crate::cli::conf::type_of;
use braid_core::cni::{Error, Json, Version};
use braid_node::attach::chain::BRAID;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Runs STATUS for the conflist with the program in the plugin folder, and returns its error or
/// warnings as a message. Returns `None` in a container, which does not see the files that STATUS
/// reads.
pub(super) fn remark(bin: &Bin, list: &str) -> Option<String> {
    if !bin.root.is_node() {
        return None;
    }
    let list = Json::parse(list.as_bytes(), "the list").ok()?;
    let Some(Json::Array(plugins)) = list.get("plugins") else {
        return None;
    };
    let mut conf = plugins
        .iter()
        .find(|plugin| type_of(plugin) == Some(BRAID))?
        .clone();
    conf.set("name", list.get("name")?.clone());
    conf.set("cniVersion", Version::NEWEST.as_str());
    let said = match status(bin, &conf) {
        Ok(output) => {
            let warnings = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ");
            Error::from_stdout(&output.stdout).map_or(warnings, |err| err.to_string())
        }
        Err(err) => err.to_string(),
    };
    (!said.is_empty()).then(|| format!("pods may have to wait, STATUS reports: {said}"))
}

fn status(bin: &Bin, conf: &Json) -> io::Result<std::process::Output> {
    let mut process = Command::new(bin.at(PROGRAM));
    process
        .env("CNI_COMMAND", "STATUS")
        .env("CNI_PATH", &bin.dir);
    process
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = process.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(conf.to_string().as_bytes())?;
    }
    child.wait_with_output()
}
