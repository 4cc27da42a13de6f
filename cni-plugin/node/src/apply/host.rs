//! The node on which a call works, passed in by the caller.

use super::executor::{OnError, Report, execute};
use super::observe::observe;
use super::{by_owner, features, repair};
use crate::effect::{shaping, xsk_guard};
use crate::kernel::{Kernel, link};
use crate::log::Log;
use crate::source::files;
use crate::store::holder::is_alive;
use crate::store::record::{self, Folder, Record};
use crate::store::root::{NODE, Root};
use crate::sys::boot;
use crate::sys::netlink::Socket;
use crate::sys::netns::NetNs;
use crate::{Cause, Context, Error};
use braid_core::cni;
use braid_core::k8s::on_disk::DiskFile;
use braid_core::name::IfName;
use braid_core::plan::facts::{Facts, LinkFact, Need};
use braid_core::plan::thing::{LinkRef, Shaping};
use braid_core::plan::{Feature, Step};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The node: namespaces, kernel, records, files of networks, and the log. Implemented by [`This`]
/// for every caller on a node, and by a model for tests. Pods and devices are not part of it: see
/// [`Cluster`](crate::source::cluster::Cluster).
pub trait Machine {
    /// Returns the root folder of the machine's state.
    fn root(&self) -> &Root;

    /// Opens the machine for a call. `netns` is the container's network namespace, if present.
    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error>;

    /// Locks the folder with a container's records, and returns it.
    fn folder(&self, container_id: &str) -> Result<Folder, Error>;

    /// Reads the records of all containers.
    fn records(&self) -> Result<Vec<Record>, Error>;

    /// Removes empty folders left by calls that were killed.
    fn sweep_empty(&self) -> Result<(), Error>;

    /// Checks that a record could be written.
    fn probe(&self) -> Result<(), Error>;

    /// Returns the names of the links of this process's namespace.
    fn links(&self) -> Result<Vec<IfName>, Error>;

    /// Reads the files of a folder, or the single file at `path`. Returns none if `path` is
    /// missing.
    fn files(&self, path: &Path) -> Result<Vec<DiskFile>, cni::Error>;

    /// Reads the files in `folder`, each with one plugin configuration of the same network. Returns
    /// none if the folder is missing. Fails if a file cannot be read, as a pod must not start
    /// without one of these plugins.
    fn plugins_beside(&self, folder: &Path) -> Result<Vec<DiskFile>, cni::Error>;

    /// Waits until a file exists. Returns false if it does not exist after `limit`.
    fn await_file(&self, file: &Path, limit: Duration) -> bool;

    /// Returns the time since the node has booted; `None` if it cannot be read.
    fn uptime(&self) -> Option<Duration>;

    /// Returns the log for the node's operator.
    fn log(&self) -> &Log;
}

/// The machine that this process runs on.
#[derive(Debug, Clone)]
pub struct This {
    is_timed: bool,
    log: Log,
}

impl This {
    /// Creates this machine with `log` as the log for the operator.
    pub fn new(log: Log) -> Self {
        Self {
            is_timed: false,
            log,
        }
    }

    /// Enables recording the duration of each send to the kernel.
    #[must_use]
    pub fn timed(self) -> Self {
        Self {
            is_timed: true,
            ..self
        }
    }
}

impl Machine for This {
    fn root(&self) -> &Root {
        &NODE
    }

    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error> {
        let mut kernel = Kernel::open(netns, self.log.clone())?;
        if self.is_timed {
            kernel.time();
        }
        Ok(Box::new(kernel))
    }

    fn folder(&self, container_id: &str) -> Result<Folder, Error> {
        Folder::lock(container_id)
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        record::list()
    }

    fn sweep_empty(&self) -> Result<(), Error> {
        record::sweep_empty()
    }

    fn probe(&self) -> Result<(), Error> {
        record::probe()
    }

    fn links(&self) -> Result<Vec<IfName>, Error> {
        let mut socket = Socket::route().doing("open a route socket")?;
        let links = link::list(&mut socket).doing("list links")?;
        let names = links.iter().map(|(name, _)| IfName::parse(name));
        Ok(names.filter_map(Result::ok).collect())
    }

    fn files(&self, path: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        files::read(path)
    }

    fn plugins_beside(&self, folder: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        files::plugins(folder)
    }

    fn await_file(&self, file: &Path, limit: Duration) -> bool {
        files::wait(file, limit)
    }

    fn uptime(&self) -> Option<Duration> {
        boot::uptime()
    }

    fn log(&self) -> &Log {
        &self.log
    }
}

/// Operations of a call on an opened machine.
pub trait Host: fmt::Debug {
    /// Returns the root folder of the machine's state.
    fn root(&self) -> &Root;

    /// Reads the facts for `needs`.
    fn observe(&mut self, needs: &[Need]) -> Result<Facts, Error>;

    /// True if the effects of all these steps are present.
    fn has(&mut self, steps: &[Step]) -> Result<bool, Error> {
        let mut needs: Vec<Need> = steps.iter().flat_map(Step::needs).collect();
        needs.sort_unstable();
        needs.dedup();
        let facts = self.observe(&needs)?;
        Ok(steps.iter().all(|step| step.holds(&facts).is_ok()))
    }

    /// Applies steps in order. Skips a step that ensures a shared thing if `facts` already contain
    /// that thing.
    fn execute(&mut self, steps: &[Step], facts: &Facts, on_error: OnError) -> Report;

    /// Looks up a link; `None` if it does not exist.
    fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, Cause>;

    /// True if the container has a namespace.
    fn has_pod(&self) -> bool;

    /// True if the container's namespace has links that an attachment may have created.
    fn has_pod_links(&mut self) -> bool;

    /// Returns the cookie of the container's namespace, unique since boot; `None` if unknown.
    fn pod_cookie(&mut self) -> Option<u64>;

    /// Continues as if the container had no namespace.
    fn leave_pod(&mut self);

    /// Returns the path of the container's namespace if this process is in that namespace.
    fn own_netns(&self) -> Result<Option<&Path>, Error>;

    /// True if one of braid's nf_tables tables that `features` need was deleted, or lacks rules.
    fn has_lost_rules(&mut self, _features: &[Feature]) -> bool {
        false
    }

    /// Returns the handles of braid's nf_tables tables. A table that is created again has another
    /// one.
    fn table_handles(&mut self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    /// Restores flushed rules in braid's nf_tables tables, if `features` need these tables. Returns
    /// the errors.
    fn restore(&mut self, features: &[Feature]) -> Vec<Error>;

    /// Restores the rules that accept forwarded packets of all attachments. Another program may
    /// have deleted them. Does nothing unless `features` contain forwarding. Returns the errors.
    fn open_gates(&mut self, features: &[Feature]) -> Vec<Error>;

    /// Returns the steps that delete all objects on the host of every owner for which `is_lost`
    /// returns true. An owner is passed as the text `<network> <container> <interface>`.
    fn owned(&mut self, is_lost: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, Error>;

    /// Deletes shared objects of the host that no attachment uses any more.
    fn sweep(&mut self) -> Result<(), Error>;

    /// Returns each of `features` that the kernel lacks, with the kernel's error.
    fn lacks(&mut self, features: &[Feature]) -> Vec<(Feature, String)>;

    /// Abandons the shaping of a container after its namespace can no longer be entered. The
    /// container's filters may still run, so the program slots that they use are not reused.
    fn leave_shaping(&mut self, shaping: &Shaping) -> Result<(), Error>;

    /// Returns the log for the node's operator.
    fn log(&self) -> &Log;
}

impl Host for Kernel {
    fn root(&self) -> &Root {
        &NODE
    }

    fn observe(&mut self, needs: &[Need]) -> Result<Facts, Error> {
        observe(self, needs)
    }

    fn execute(&mut self, steps: &[Step], facts: &Facts, on_error: OnError) -> Report {
        execute(self, steps, facts, on_error)
    }

    fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, Cause> {
        Self::link(self, at)
    }

    fn has_pod(&self) -> bool {
        Self::has_pod(self)
    }

    fn has_pod_links(&mut self) -> bool {
        Self::has_pod_links(self)
    }

    fn pod_cookie(&mut self) -> Option<u64> {
        Self::pod_cookie(self)
    }

    fn leave_pod(&mut self) {
        Self::leave_pod(self);
    }

    fn own_netns(&self) -> Result<Option<&Path>, Error> {
        Ok(Self::own_netns(self)?.map(NetNs::path))
    }

    fn has_lost_rules(&mut self, features: &[Feature]) -> bool {
        repair::has_lost_rules(self, features)
    }

    fn table_handles(&mut self) -> BTreeSet<u64> {
        // Without nf_tables there is no table.
        repair::handles(self).unwrap_or_default()
    }

    fn restore(&mut self, features: &[Feature]) -> Vec<Error> {
        repair::rules(self, features, is_alive)
    }

    fn open_gates(&mut self, features: &[Feature]) -> Vec<Error> {
        repair::gates(self, features)
    }

    fn owned(&mut self, is_lost: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, Error> {
        by_owner::steps(self, is_lost)
    }

    fn sweep(&mut self) -> Result<(), Error> {
        xsk_guard::sweep().doing("delete unused AF_XDP guards")
    }

    fn lacks(&mut self, features: &[Feature]) -> Vec<(Feature, String)> {
        let mut lacks = Vec::new();
        for (feature, said) in features::known(features, Self::log(self)) {
            if let Some(said) = said {
                lacks.push((feature, said));
            }
        }
        lacks
    }

    fn leave_shaping(&mut self, shaping: &Shaping) -> Result<(), Error> {
        shaping::leave(shaping)
    }

    fn log(&self) -> &Log {
        Self::log(self)
    }
}
