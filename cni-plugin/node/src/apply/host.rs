//! The machine that a call works on, handed in by whoever starts the call.

use super::executor::{OnError, Report, execute};
use super::observe::observe;
use super::{by_owner, features, repair};
use crate::effect::{shaping, xsk_guard};
use crate::kernel::Kernel;
use crate::source::{self, kubelet};
use crate::store::holder::is_alive;
use crate::store::record::{self, Folder, Record};
use crate::store::root::{NODE, Root};
use crate::sys::netns::NetNs;
use crate::{Cause, Context, Error};
use braid_core::cni;
use braid_core::k8s::ObjectName;
use braid_core::k8s::device_info;
use braid_core::k8s::dynamic::Given;
use braid_core::k8s::on_disk::DiskFile;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::Source;
use braid_core::plan::facts::{Facts, LinkFact, Need};
use braid_core::plan::thing::{LinkRef, Shaping};
use braid_core::plan::{Feature, Step};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A machine: this one ([`This`]), or a model of one.
pub trait Machine {
    /// The folder below which its state is.
    fn root(&self) -> &Root;

    /// Opens it with the namespace of a container, or none.
    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error>;

    /// Locks the records of a container.
    fn folder(&self, container_id: &str) -> Result<Folder, Error>;

    /// Reads all records.
    fn records(&self) -> Result<Vec<Record>, Error>;

    /// Removes what calls that ended early left of folders.
    fn sweep_empty(&self) -> Result<(), Error>;

    /// Says whether a record could be written.
    fn probe(&self) -> Result<(), Error>;

    /// Opens the source of pods and their networks; it asks nothing yet.
    fn source(&self, settings: &Settings) -> Result<Box<dyn Source>, cni::Error>;

    /// The same, with a time limit for all requests together.
    fn source_within(
        &self,
        settings: &Settings,
        limit: Duration,
    ) -> Result<Box<dyn Source>, cni::Error>;

    /// Reads the files of a folder, or the one file of this path; none where there is nothing.
    fn files(&self, path: &Path) -> Result<Vec<DiskFile>, cni::Error>;

    /// Reads the plugins of a list that lie in this folder beside it; none where there is no such
    /// folder. Fails unless each can be read: a pod must not start without one of them.
    fn plugins_beside(&self, folder: &Path) -> Result<Vec<DiskFile>, cni::Error>;

    /// Asks the kubelet for the devices of a pod.
    fn devices(&self, pod: &ObjectName) -> Result<Given, cni::Error>;

    /// The folder of device information.
    fn devinfo(&self) -> &Path;

    /// Waits until a file is there; false where it did not appear in time.
    fn await_file(&self, file: &Path, limit: Duration) -> bool;

    /// Tells the operator what is no failure of the call.
    fn warn(&self, text: &str);
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy)]
pub struct This {
    /// The time of each send is noted.
    pub is_timed: bool,
}

impl Machine for This {
    fn root(&self) -> &Root {
        &NODE
    }

    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error> {
        let mut kernel = Kernel::open(netns)?;
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

    fn source(&self, settings: &Settings) -> Result<Box<dyn Source>, cni::Error> {
        source::api(settings)
    }

    fn source_within(
        &self,
        settings: &Settings,
        limit: Duration,
    ) -> Result<Box<dyn Source>, cni::Error> {
        source::api_within(settings, limit)
    }

    fn files(&self, path: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        source::files::read(path)
    }

    fn plugins_beside(&self, folder: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        source::files::plugins(folder)
    }

    fn devices(&self, pod: &ObjectName) -> Result<Given, cni::Error> {
        kubelet::devices(Path::new(kubelet::SOCKET), pod)
    }

    fn devinfo(&self) -> &Path {
        Path::new(device_info::DIR)
    }

    fn await_file(&self, file: &Path, limit: Duration) -> bool {
        source::files::wait(file, limit)
    }

    fn warn(&self, text: &str) {
        crate::tell!("{text}");
    }
}

/// Operations of a call on a machine that it has opened.
pub trait Host: fmt::Debug {
    /// The folder below which the machine's state is.
    fn root(&self) -> &Root;

    /// Reads what is needed.
    fn observe(&mut self, needs: &[Need]) -> Result<Facts, Error>;

    /// Applies steps; a shared thing that the facts already show is left alone.
    fn execute(&mut self, steps: &[Step], facts: &Facts, on_error: OnError) -> Report;

    /// Looks up one link; `None` where it does not exist.
    fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, Cause>;

    /// True if the container has a namespace.
    fn has_pod(&self) -> bool;

    /// True if the container's namespace has links that an attachment may have made.
    fn has_pod_links(&mut self) -> bool;

    /// The number that tells the container's namespace from all others since boot; `None` where it
    /// is not known.
    fn pod_cookie(&mut self) -> Option<u64>;

    /// Goes on as if the container had no namespace.
    fn leave_pod(&mut self);

    /// The path of the container's namespace where it is no other than the caller's own.
    fn own_netns(&self) -> Result<Option<&Path>, Error>;

    /// Restores rules that somebody flushed, of the tables that these features need; what it could
    /// not.
    fn restore(&mut self, features: &[Feature]) -> Vec<Error>;

    /// Opens what shut the way for forwarded packets of all attachments; what it could not.
    fn open_gates(&mut self, features: &[Feature]) -> Vec<Error>;

    /// The steps that take away all on the host whose owner's text `is_lost`.
    fn owned(&mut self, is_lost: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, Error>;

    /// Takes away what the host shares and nobody needs any more.
    fn sweep(&mut self) -> Result<(), Error>;

    /// The features among these that the kernel lacks, with its words.
    fn lacks(&mut self, features: &[Feature]) -> Vec<(Feature, String)>;

    /// Goes by the limits of a container whose namespace can't be entered any more.
    fn leave_shaping(&mut self, shaping: &Shaping) -> Result<(), Error>;

    /// Tells the operator.
    fn warn(&mut self, text: &str);
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
        xsk_guard::sweep().doing("end idle holds on AF_XDP sockets")
    }

    fn lacks(&mut self, features: &[Feature]) -> Vec<(Feature, String)> {
        let lack = |(feature, said): (Feature, Option<String>)| said.map(|said| (feature, said));
        features::known(features)
            .into_iter()
            .filter_map(lack)
            .collect()
    }

    fn leave_shaping(&mut self, shaping: &Shaping) -> Result<(), Error> {
        shaping::leave(shaping)
    }

    fn warn(&mut self, text: &str) {
        crate::tell!("{text}");
    }
}
