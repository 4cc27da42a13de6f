//! Detaches pods that Multus attached, with the help of Multus' files in `cniDir`. So a node can
//! switch from Multus to braid while pods run.

use super::network::{interface, netconf};
use crate::apply::host::Machine;
use crate::attach::chain::{BRAID, Chain};
use crate::attach::del::netns_of;
use crate::attach::gc::Valid;
use crate::attach::invocation::{DelRequest, Wanted, refuse_own};
use crate::attach::teardown::Teardown;
use crate::ipam::liveness::{Netns, netns_at};
use braid_core::cni::netconf::is_identifier;
use braid_core::cni::{Attachment, Error, NetConf, Request};
use braid_core::k8s::multus_cache::{
    CachedAdd, Delegate, cache_name, cached_add, cached_delegate, cached_of, delegates,
};
use braid_core::k8s::settings::Settings;
use braid_core::name::IfName;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Folder of libcni's cache below `cniDir`.
const RESULTS: &str = "results";
/// The interface that the runtime requests, if no file names another.
const ETH0: &str = "eth0";

/// Multus' files about the containers that it attached.
struct Notes<'a> {
    dir: PathBuf,
    machine: &'a dyn Machine,
}

/// The networks of a container, and the files to delete after they are detached.
struct Noted {
    wanted: Vec<Wanted>,
    files: Vec<PathBuf>,
}

/// Detaches the call's container from all networks to which Multus attached it. Returns false if
/// Multus left no readable files about the container. If Multus never ran, this costs one file
/// lookup.
pub fn detach(
    call: &DelRequest,
    settings: &Settings,
    machine: &dyn Machine,
) -> Result<bool, Error> {
    let notes = Notes::of(settings, machine);
    if !notes.has(&call.attachment.container_id) {
        return Ok(false);
    }
    notes.detach(call)
}

/// Detaches containers that Multus attached and that are not in the runtime's list. If the runtime
/// passed no list, detaches the containers with a deleted network namespace. Returns all errors.
pub(super) fn collect(
    request: &Request,
    settings: &Settings,
    valid: &Valid,
    machine: &dyn Machine,
) -> Vec<Error> {
    let path = settings.path(request.path.clone());
    let lost =
        Notes::of(settings, machine).calls(&request.conf, &path, &|seen| match &valid.containers {
            Some(listed) => !listed.contains(&seen.container_id),
            None => seen.is_gone(),
        });
    let detach = |call: &DelRequest| {
        let context = format!(
            "container {}, attached by Multus",
            call.attachment.container_id
        );
        detach(call, settings, machine)
            .map(drop)
            .err()
            .map(|err| err.context(context))
    };
    lost.iter().filter_map(detach).collect()
}

/// Returns the DEL calls to pass to [`detach`]: one for each container that Multus attached, if the
/// container's network namespace is gone.
pub fn gone(
    conf: &NetConf,
    path: &[PathBuf],
    settings: &Settings,
    machine: &dyn Machine,
) -> Vec<DelRequest> {
    Notes::of(settings, machine).calls(
        conf,
        &settings.path(path.to_vec()),
        &NotedContainer::is_gone,
    )
}

/// A container in Multus' files.
struct NotedContainer {
    container_id: String,
    /// Name of the first network, to which the runtime's interface belongs.
    first: Option<String>,
    /// The interface that the runtime requested; `eth0` if no cache entry names it.
    ifname: String,
    netns: Option<PathBuf>,
}

impl NotedContainer {
    fn is_gone(&self) -> bool {
        self.netns
            .as_deref()
            .is_some_and(|path| netns_at(path) == Netns::Gone)
    }
}

impl<'a> Notes<'a> {
    fn of(settings: &Settings, machine: &'a dyn Machine) -> Self {
        Self {
            dir: machine.root().at(&settings.cni_dir.to_string_lossy()),
            machine,
        }
    }

    fn file(&self, container_id: &str) -> PathBuf {
        self.dir.join(container_id)
    }

    fn has(&self, container_id: &str) -> bool {
        fs::symlink_metadata(self.file(container_id)).is_ok_and(|meta| meta.is_file())
    }

    /// Returns the containers in Multus' files, by container ID.
    fn containers(&self) -> BTreeMap<String, NotedContainer> {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let ids: BTreeSet<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        let ids = ids
            .into_iter()
            .filter(|id| is_identifier(id) && self.has(id));
        let seen = |container_id: String| {
            let first = self.first_network(&container_id);
            (
                container_id.clone(),
                NotedContainer {
                    container_id,
                    first,
                    ifname: ETH0.to_owned(),
                    netns: None,
                },
            )
        };
        let mut all: BTreeMap<String, NotedContainer> = ids.map(seen).collect();
        if all.is_empty() {
            return all;
        }
        for file in self
            .machine
            .files(&self.dir.join(RESULTS))
            .unwrap_or_default()
        {
            let Some((container_id, ifname)) = cached_of(&file.bytes) else {
                continue;
            };
            let Some(seen) = all.get_mut(&container_id) else {
                continue;
            };
            let of_first =
                |first: &String| cached_add(&file.bytes, first, &container_id, &ifname).ok()?;
            if let Some(CachedAdd { netns, .. }) = seen.first.as_ref().and_then(of_first) {
                (seen.ifname, seen.netns) = (ifname, netns);
            }
        }
        all
    }

    fn first_network(&self, container_id: &str) -> Option<String> {
        let file = self.machine.files(&self.file(container_id)).ok()?.pop()?;
        let first = delegates(&file.bytes, ETH0).ok()?.into_iter().next()?;
        first.ok().map(|first| first.definition.name().to_owned())
    }

    /// Returns a DEL call for each container for which `is_lost` is true.
    fn calls(
        &self,
        conf: &NetConf,
        path: &[PathBuf],
        is_lost: &dyn Fn(&NotedContainer) -> bool,
    ) -> Vec<DelRequest> {
        let call = |seen: NotedContainer| {
            let netns = seen.netns.filter(|path| netns_at(path) == Netns::Alive);
            let ifname = IfName::parse(&seen.ifname)
                .or_else(|_| IfName::parse(ETH0))
                .ok()?;
            let attachment = Attachment {
                container_id: seen.container_id,
                ifname,
                netns,
                args: String::new(),
            };
            let (key, conf) = (Chain::key_of(BRAID, conf, &attachment), conf.clone());
            Some(DelRequest {
                key,
                attachment,
                conf,
                path: path.to_vec(),
                netns_override: false,
            })
        };
        self.containers()
            .into_values()
            .filter(is_lost)
            .filter_map(call)
            .collect()
    }

    /// Detaches the call's container, and then deletes Multus' files about it. Returns false if the
    /// files name no network.
    fn detach(&self, call: &DelRequest) -> Result<bool, Error> {
        let folder = self
            .machine
            .folder(&call.attachment.container_id)
            .map_err(Error::from)?;
        let noted = self.read(call);
        let mut host = self
            .machine
            .open(netns_of(&call.attachment)?)
            .map_err(Error::from)?;
        if !call.netns_override {
            refuse_own(&*host)?;
        }
        let mut errors = Teardown {
            wanted: &noted.wanted,
            record: None,
            passes_prev_result: true,
        }
        .run(&mut *host);
        if errors.is_empty() {
            errors.extend(noted.files.iter().filter_map(|file| remove(file).err()));
        }
        errors.extend(folder.close().err().map(Error::from));
        Error::joined(&errors).map(|()| !noted.wanted.is_empty())
    }

    /// Reads the networks of a container. An unreadable network is only logged, as no later call
    /// could read it either.
    fn read(&self, call: &DelRequest) -> Noted {
        let file = self.file(&call.attachment.container_id);
        let mut noted = Noted {
            wanted: Vec::new(),
            files: Vec::new(),
        };
        let read = self.machine.files(&file).map(|mut files| files.pop());
        let read = read.and_then(|read| {
            let read = read.ok_or_else(|| {
                Error::io(format!("{}: not a file of at most 1 MiB", file.display()))
            })?;
            delegates(&read.bytes, call.attachment.ifname.as_str())
        });
        let warn = |err: &Error| {
            self.machine
                .log()
                .line(format_args!("{}: {err}", file.display()));
        };
        let read = read
            .inspect_err(warn)
            .unwrap_or_else(|_| self.of_results(&call.attachment.container_id));
        for delegate in read {
            match delegate.and_then(|delegate| self.wanted(&delegate, call, &mut noted.files)) {
                Ok(wanted) => noted.wanted.push(wanted),
                Err(err) => warn(&err),
            }
        }
        // Deleted last, so that another call finds the remaining files.
        noted.files.push(file);
        noted
    }

    /// Reads the networks of a container from libcni's cache alone, ordered by file name.
    fn of_results(&self, container_id: &str) -> Vec<Result<Delegate, Error>> {
        let mut files = self
            .machine
            .files(&self.dir.join(RESULTS))
            .unwrap_or_default();
        files.sort_by(|one, other| one.name.cmp(&other.name));
        files
            .iter()
            .filter_map(|file| cached_delegate(&file.bytes, container_id))
            .map(Ok)
            .collect()
    }

    /// Returns the attachment to a network for DEL, with the arguments and the result of its ADD.
    fn wanted(
        &self,
        delegate: &Delegate,
        call: &DelRequest,
        files: &mut Vec<PathBuf>,
    ) -> Result<Wanted, Error> {
        let Delegate { definition, ifname } = delegate;
        let cached = self.cached(
            definition.name(),
            &call.attachment.container_id,
            ifname,
            files,
        )?;
        let ifname =
            IfName::parse(ifname).map_err(|err| Error::config(format!("{ifname:?}: {err}")))?;
        let mut attachment = interface(&call.attachment, &ifname);
        let (mut runtime_config, mut prev) = (braid_core::cni::Json::object_of([]), None);
        if let Some(cached) = cached {
            attachment.args = cached.args;
            (runtime_config, prev) = (cached.runtime_config, cached.result);
        }
        let json = definition.conf(&runtime_config)?;
        let conf = netconf(json.clone(), prev).or_else(|_| netconf(json, None))?;
        let chain = Chain::parse_left(BRAID, &conf, &attachment, &call.path)
            .map_err(|err| err.context(format_args!("network {:?}", definition.name())))?;
        Ok(Wanted::new(attachment, chain))
    }

    /// Returns libcni's cache entry for the ADD, and adds the entry's file to `files`. `None` if
    /// there is no readable entry.
    fn cached(
        &self,
        network: &str,
        container_id: &str,
        ifname: &str,
        files: &mut Vec<PathBuf>,
    ) -> Result<Option<CachedAdd>, Error> {
        let Some(name) = cache_name(network, container_id, ifname) else {
            return Ok(None);
        };
        let path = self.dir.join(RESULTS).join(name);
        let Some(file) = self.machine.files(&path)?.pop() else {
            return Ok(None);
        };
        let read = cached_add(&file.bytes, network, container_id, ifname);
        match read {
            Ok(None) => return Ok(None),
            Ok(_) => {}
            Err(ref err) => self
                .machine
                .log()
                .line(format_args!("{}: {err}", path.display())),
        }
        files.push(path);
        Ok(read.ok().flatten())
    }
}

fn remove(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}: {err}", file.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
