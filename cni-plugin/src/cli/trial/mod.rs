//! `braid try`: attaches a sandbox for real, shows what came of it and how long each step took, and takes it back.

mod look;
mod show;

use super::SUCCESS;
use super::{Outcome, conf, output};
use crate::entry::signal;
use braid_core::cni::Error;
use braid_node::apply::host::This;
use braid_node::apply::kernel::Kernel;
use braid_node::attach::add::{Added, add};
use braid_node::attach::del;
use braid_node::attach::invocation::Invocation;
use braid_node::sys::netns::NetNs;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folder in which `ip netns` keeps namespaces.
const NETNS_DIR: &str = "/run/netns";
/// Prefix of the container ids of sandboxes.
const PREFIX: &str = "braid-try-";

/// Attach a sandbox, show its interfaces and timings, and take it back
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A plugin's configuration or a list of plugins, of each network; `-` for standard input
    #[arg(required = true)]
    conf: Vec<PathBuf>,
    /// The interface in the sandbox
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    ifname: String,
    /// `CNI_ARGS` of the call
    #[arg(long, value_name = "K=V;…", default_value = "")]
    args: String,
    /// Leave the sandbox attached
    #[arg(long)]
    keep: bool,
}

/// The namespace of a sandbox; `None` for a container that is none.
pub(super) fn sandbox_of(container_id: &str) -> Option<PathBuf> {
    container_id.starts_with(PREFIX).then(|| Path::new(NETNS_DIR).join(container_id))
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let id = format!("{PREFIX}{}", random_word()?);
    let path = Path::new(NETNS_DIR).join(&id);
    let attachment = conf::attachment(&id, &arguments.ifname, Some(path.clone()), &arguments.args)?;
    let call = conf::call(&arguments.conf, &attachment)?;
    signal::note_instead()?;
    NetNs::make_at(&path)?;
    let attached = attach(&call, &path);
    if let (Ok(text), true, None) = (&attached, arguments.keep, signal::noted()) {
        let keep =
            format!("look inside: nsenter --net={} ip address\ntake it back: braid detach {id}\n", path.display());
        return Ok(output::print(&format!("{text}\n{keep}")));
    }
    let detached = detach(&call);
    let removed = NetNs::remove_at(&path);
    if let Ok(text) = &attached {
        output::print(text);
    }
    match detached {
        Ok(took) => output::print(&format!("taken back in {}\n", show::milliseconds(took))),
        Err(err) => return Err(attached.map_or_else(|first| first, |_| err.context("take back the sandbox")).into()),
    };
    removed?;
    attached?;
    // As a shell shows a program that a signal ended.
    Ok(signal::noted().map_or(SUCCESS, |signal| 128 + signal))
}

/// ADD, and everything that there is to say about it.
fn attach(call: &Invocation, path: &Path) -> Result<String, Error> {
    let start = Instant::now();
    let added = add(call, &This { is_timed: true }, &mut |_| Ok(None))?;
    let took = start.elapsed();
    let Added { results, timings, .. } = added;
    let fail = |err: &dyn std::fmt::Display| Error::internal(format!("look at the sandbox: {err}"));
    let netns = NetNs::open(path).map_err(|err| fail(&err))?;
    let mut kernel = Kernel::open(Some(netns)).map_err(|err| fail(&err))?;
    let seen = look::look(&mut kernel, &results, &timings).map_err(|err| fail(&err))?;
    Ok(show::attached(path, &seen, &timings, took))
}

/// DEL, also after an ADD that failed, as a runtime does it.
fn detach(call: &Invocation) -> Result<Duration, Error> {
    let start = Instant::now();
    del::detach(&call.leaving(), &This { is_timed: false }).map(|()| start.elapsed())
}

/// Eight hexadecimal digits.
fn random_word() -> std::io::Result<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(uuid.chars().take_while(char::is_ascii_hexdigit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sandboxs_own_namespace_is_ever_removed() {
        assert_eq!(sandbox_of("braid-try-1a2b3c4d"), Some(PathBuf::from("/run/netns/braid-try-1a2b3c4d")));
        assert_eq!(sandbox_of("4f1c"), None);
    }

    #[test]
    fn sandboxes_have_names_of_their_own() {
        let (one, other) = (random_word().expect("a word"), random_word().expect("a word"));
        assert_eq!(one.len(), 8);
        assert_ne!(one, other);
    }
}
