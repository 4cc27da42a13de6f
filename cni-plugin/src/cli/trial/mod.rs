//! `braid try`: attaches a sandbox, shows the result and the time of each step, and detaches it.

mod look;
mod show;

use super::SUCCESS;
use super::pod::{InCluster, Networks, bridge_of};
use super::{Outcome, conf, output};
use crate::entry::signal;
use braid_core::cni::Error;
use braid_core::name::IfName;
use braid_core::plan::thing::{Link, LinkRef};
use braid_core::plan::{Facts, Step};
use braid_node::apply::executor::OnError;
use braid_node::apply::host::{Machine, This};
use braid_node::attach::add::{Added, add};
use braid_node::attach::del;
use braid_node::attach::invocation::Invocation;
use braid_node::attach::pods::AttachedNetwork;
use braid_node::attach::receiver::DeliverBy;
use braid_node::kernel::Kernel;
use braid_node::sys::netns::NetNs;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folder in which `ip netns` keeps network namespaces by name.
const NETNS_DIR: &str = "/run/netns";
/// Prefix of the container ids of sandboxes.
const PREFIX: &str = "braid-try-";

/// Attach a sandbox, show its interfaces and timings, and detach it
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    networks: Networks,
    /// Interface in the sandbox
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    ifname: String,
    /// `CNI_ARGS` of the call
    #[arg(long, value_name = "K=V;…", default_value = "")]
    args: String,
    /// Keep the sandbox attached
    #[arg(long)]
    keep: bool,
}

/// Returns the path of a sandbox's network namespace; `None` if the container is not a sandbox of
/// `braid try`.
pub(super) fn sandbox_of(container_id: &str) -> Option<PathBuf> {
    container_id
        .starts_with(PREFIX)
        .then(|| Path::new(NETNS_DIR).join(container_id))
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let id = format!("{PREFIX}{}", random_word()?);
    let path = Path::new(NETNS_DIR).join(&id);
    let attachment = conf::attachment(&id, &arguments.ifname, Some(path.clone()), &arguments.args)?;
    let (call, mut cluster) = arguments
        .networks
        .call(&attachment, &This::new(output::log()))?;
    signal::note_instead()?;
    NetNs::make_at(&path)?;
    let attached = attach(&call, cluster.as_mut(), &path);
    if let (Ok(text), true, None) = (&attached, arguments.keep, signal::noted()) {
        let keep = format!(
            "inspect: nsenter --net={} ip address\ndetach: braid detach {id}\n",
            path.display()
        );
        return Ok(output::print(&format!("{text}\n{keep}")));
    }
    let detached = detach(&call);
    let removed = remove(&id, &path);
    if let Ok(text) = &attached {
        output::print(text);
    }
    match detached {
        Ok(took) => output::print(&format!("detached in {}\n", show::milliseconds(took))),
        Err(err) => {
            return Err(attached
                .map_or_else(|first| first, |_| err.context("detach the sandbox"))
                .into());
        }
    };
    removed?;
    attached?;
    // Shells use the same status for a program that a signal ended.
    Ok(signal::noted().map_or(SUCCESS, |signal| 128 + signal))
}

/// Runs ADD, and describes its result.
fn attach(
    call: &Invocation,
    mut cluster: Option<&mut InCluster>,
    path: &Path,
) -> Result<String, Error> {
    let start = Instant::now();
    let mut deliver = DeliverBy(&mut |results, host| {
        cluster
            .as_mut()
            .map_or(Ok(()), |cluster| {
                let attached = AttachedNetwork::all(&call.wanted, results);
                cluster.publish(&attached, host)
            })
            .map(|()| None)
    });
    let added = add(call, &This::new(output::log()).timed(), &mut deliver)?;
    let took = start.elapsed();
    let Added {
        results, timings, ..
    } = added;
    let fail = |err: &dyn std::fmt::Display| Error::internal(format!("inspect the sandbox: {err}"));
    let netns = NetNs::open(path).map_err(|err| fail(&err))?;
    let mut kernel = Kernel::open(Some(netns), output::log()).map_err(|err| fail(&err))?;
    let seen = look::look(&mut kernel, &results, &timings).map_err(|err| fail(&err))?;
    let told = cluster.map_or_else(String::new, |cluster| format!("\n{}", cluster.shown()));
    Ok(show::attached(path, &seen, &timings, took) + &told)
}

/// Removes the network namespace of a detached sandbox. Also removes the bridge that was created
/// for the sandbox, if there is one.
pub(super) fn remove(id: &str, path: &Path) -> Result<(), Error> {
    let fail = |err: &dyn std::fmt::Display| Error::internal(format!("remove the sandbox: {err}"));
    NetNs::remove_at(path).map_err(|err| fail(&err))?;
    let bridge = IfName::parse(&bridge_of(id)).map_err(|err| fail(&err))?;
    let mut host = This::new(output::log()).open(None).map_err(Error::from)?;
    let steps = [Step::del(Link::any(LinkRef::host(bridge)))];
    let errors = host
        .execute(&steps, &Facts::default(), OnError::GoOn)
        .errors;
    Error::joined(&errors.into_iter().map(Error::from).collect::<Vec<_>>())
}

/// Runs DEL as a runtime does, also after a failed ADD. Returns its duration.
fn detach(call: &Invocation) -> Result<Duration, Error> {
    let start = Instant::now();
    del::detach(&call.leaving(), &This::new(output::log())).map(|()| start.elapsed())
}

/// Returns eight hexadecimal digits.
fn random_word() -> std::io::Result<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(uuid.chars().take_while(char::is_ascii_hexdigit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sandboxs_own_namespace_is_ever_removed() {
        assert_eq!(
            sandbox_of("braid-try-1a2b3c4d"),
            Some(PathBuf::from("/run/netns/braid-try-1a2b3c4d"))
        );
        assert_eq!(sandbox_of("4f1c"), None);
    }

    #[test]
    fn sandboxes_have_unique_names() {
        let (one, other) = (
            random_word().expect("a word"),
            random_word().expect("a word"),
        );
        assert_eq!(one.len(), 8);
        assert_ne!(one, other);
    }
}
