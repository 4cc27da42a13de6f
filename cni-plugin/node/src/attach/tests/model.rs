//! Model of a machine. It keeps the objects that steps create as values, and can let steps fail.

use crate::apply::executor::{OnError, Report};
use crate::apply::host::{Host, Machine};
use crate::effect::shared::is_there_already;
use crate::log::Log;
use crate::source::cluster::Cluster;
use crate::store::record::{self, Folder, Record};
use crate::store::root::Root;
use crate::sys::netns::NetNs;
use crate::{Cause, Error};
use braid_core::cni;
use braid_core::dra::claim::Claim;
use braid_core::k8s::device_info::{self, DP, dp_file};
use braid_core::k8s::dynamic::{Given, Offered};
use braid_core::k8s::on_disk::DiskFile;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::source::{Edit, Event, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::{Facts, LinkFact, Need};
use braid_core::plan::thing::moved::{Device, DeviceFact};
use braid_core::plan::thing::{HostPorts, Link, LinkKind, LinkRef, Shaping, State as _, Thing};
use braid_core::plan::{Feature, Step};
use nix::errno::Errno;
use std::cell::{RefCell, RefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;

/// State of the machine, and counters.
#[derive(Debug, Default)]
pub(super) struct ModelState {
    /// Objects that belong to attachments.
    pub(super) own: Vec<Thing>,
    /// Objects that attachments share.
    pub(super) shared: Vec<Thing>,
    /// Number of steps tried since [`Model::fail_at`].
    tried: usize,
    /// Numbers of the steps to fail.
    failing: Vec<usize>,
    /// True if the effects of some recorded steps are missing.
    pub(super) is_broken: bool,
    /// Number of applied plans that create something.
    pub(super) plans: usize,
    /// Number of requests that deleted links.
    pub(super) link_deletions: usize,
    /// A feature that the kernel lacks.
    pub(super) lacks: Option<Feature>,
    /// Number of times that rules were restored.
    pub(super) restores: usize,
    /// Warnings to the operator.
    pub(super) warnings: Vec<String>,
}

/// Objects of Kubernetes and files of the node.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) pods: Vec<Pod>,
    pub(super) nads: Vec<Nad>,
    pub(super) claims: Vec<IpamClaim>,
    pub(super) resource_claims: Vec<Claim>,
    /// The devices that the kubelet assigned to the pod.
    pub(super) devices: Given,
    /// Devices in ResourceSlices, each with its driver.
    pub(super) offered: Vec<(String, Offered)>,
    pub(super) devices_asked: usize,
    pub(super) files: Vec<(PathBuf, DiskFile)>,
    /// Written events: reason and message.
    pub(super) events: Vec<(String, String)>,
    /// Number of requests to the API.
    pub(super) asked: usize,
    /// Number of requests that succeed before all later ones fail.
    pub(super) fails_at: Option<usize>,
}

/// The cluster as a source of objects.
#[derive(Debug)]
struct Asked(Rc<RefCell<Objects>>);

impl Asked {
    fn ask(&self) -> Result<RefMut<'_, Objects>, SourceError> {
        let mut cluster = self.0.borrow_mut();
        cluster.asked += 1;
        match cluster.fails_at {
            Some(at) if cluster.asked > at => Err(SourceError::Passing {
                why: "no connection".to_owned(),
            }),
            Some(_) | None => Ok(cluster),
        }
    }
}

impl Source for Asked {
    fn pod(
        &mut self,
        pod: &ObjectName,
        _uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError> {
        let cluster = self.ask()?;
        let found = cluster
            .pods
            .iter()
            .find(|there| there.name == *pod)
            .cloned();
        let found = found.ok_or_else(|| SourceError::NotFound {
            what: format!("pod {pod}"),
        })?;
        Ok((
            found,
            cluster
                .nads
                .iter()
                .filter(|nad| nads.contains(&nad.name))
                .cloned()
                .collect(),
        ))
    }

    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        Ok(self
            .ask()?
            .nads
            .iter()
            .filter(|nad| names.contains(&nad.name))
            .cloned()
            .collect())
    }

    fn annotate(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        edit: &Edit<'_>,
    ) -> Result<(), SourceError> {
        let mut cluster = self.ask()?;
        let found = cluster
            .pods
            .iter_mut()
            .find(|there| there.name == *pod && there.uid == uid);
        let found = found.ok_or_else(|| SourceError::NotFound {
            what: format!("pod {pod}"),
        })?;
        let value = (edit.value)(found.annotations.get(edit.key).map(String::as_str));
        value.map(|value| found.annotations.insert(edit.key.to_owned(), value));
        Ok(())
    }

    fn tell(&mut self, _pod: &ObjectName, _uid: &str, event: &Event) -> Result<(), SourceError> {
        self.ask()?
            .events
            .push((event.reason.to_string(), event.message.clone()));
        Ok(())
    }

    fn report(&mut self, _pod: &ObjectName, _uid: &str, events: &[Event]) {
        let mut cluster = self.0.borrow_mut();
        for event in events {
            let event = (event.reason.to_string(), event.message.clone());
            cluster.events.push(event);
        }
    }

    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError> {
        let cluster = self.ask()?;
        let found = cluster
            .claims
            .iter()
            .find(|claim| claim.name == *name)
            .cloned();
        found.ok_or_else(|| SourceError::NotFound {
            what: format!("IPAMClaim {name}"),
        })
    }

    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError> {
        Ok(self
            .ask()?
            .claims
            .iter()
            .map(|claim| claim.uid.clone())
            .collect())
    }

    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError> {
        let mut cluster = self.ask()?;
        let found = cluster
            .claims
            .iter_mut()
            .find(|there| there.uid == claim.uid);
        let found = found.ok_or_else(|| SourceError::NotFound {
            what: format!("IPAMClaim {}", claim.name),
        })?;
        *found = claim.clone();
        Ok(())
    }

    fn resource_claims(
        &mut self,
        _pod: &ObjectName,
        _uid: &str,
    ) -> Result<Vec<Claim>, SourceError> {
        Ok(self.ask()?.resource_claims.clone())
    }

    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError> {
        let cluster = self.ask()?;
        let of_driver = |(of, _): &&(String, Offered)| of == driver && node == "node-1";
        Ok(cluster
            .offered
            .iter()
            .filter(of_driver)
            .map(|(_, offered)| offered.clone())
            .collect())
    }
}

/// A model of a machine. Clones share one state.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) state: Rc<RefCell<ModelState>>,
    pub(super) cluster: Rc<RefCell<Objects>>,
    /// Root folder of the machine.
    root: Root,
    _folder: Rc<TempDir>,
    has_pod: bool,
    log: Log,
}

impl Model {
    pub(super) fn new() -> Self {
        let folder = Rc::new(TempDir::new().expect("a folder"));
        let root = Root::below(folder.path());
        std::fs::create_dir_all(root.at(record::ROOT)).expect("a folder");
        let state: Rc<RefCell<ModelState>> = Rc::default();
        let warned = Rc::clone(&state);
        let log = Log::new(move |text| warned.borrow_mut().warnings.push(text.to_string()));
        Self {
            state,
            cluster: Rc::default(),
            root,
            _folder: folder,
            has_pod: false,
            log,
        }
    }

    /// Adds a hardware link, `lan`.
    pub(super) fn lan(&self) {
        let lan = LinkRef::host(IfName::parse("lan").expect("a name"));
        let link = Link {
            kind: LinkKind::Other(String::new()),
            up: true,
            ..Link::any(lan)
        };
        self.state.borrow_mut().shared.push(link.into());
    }

    /// Lets the steps with these numbers fail, counted from 0 from now on.
    pub(super) fn fail_at(&self, steps: &[usize]) {
        let mut state = self.state.borrow_mut();
        (state.tried, state.failing) = (0, steps.to_vec());
    }

    /// Number of steps tried since [`Model::fail_at`].
    pub(super) fn tried(&self) -> usize {
        self.state.borrow().tried
    }

    /// Folder of device information.
    pub(super) fn devinfo(&self) -> PathBuf {
        self.root.at(device_info::DIR)
    }

    /// Number of folders with records.
    pub(super) fn folders(&self) -> usize {
        std::fs::read_dir(self.root.at(record::ROOT))
            .expect("a folder")
            .count()
    }
}

impl Model {
    /// Deletes all records.
    pub(super) fn lose_records(&self) {
        for folder in std::fs::read_dir(self.root.at(record::ROOT))
            .expect("a folder")
            .flatten()
        {
            std::fs::remove_dir_all(folder.path()).expect("removed");
        }
    }
}

impl Machine for Model {
    fn root(&self) -> &Root {
        &self.root
    }

    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error> {
        Ok(Box::new(Self {
            has_pod: netns.is_some(),
            ..self.clone()
        }))
    }

    fn folder(&self, container_id: &str) -> Result<Folder, Error> {
        Folder::lock_in(&self.root, container_id)
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        record::list_in(&self.root.at(record::ROOT))
    }

    fn sweep_empty(&self) -> Result<(), Error> {
        record::sweep_empty_in(&self.root.at(record::ROOT))
    }

    fn probe(&self) -> Result<(), Error> {
        Ok(())
    }

    fn links(&self) -> Result<Vec<IfName>, Error> {
        let state = self.state.borrow();
        let mut names = Vec::new();
        for thing in state.shared.iter().chain(&state.own) {
            if let Thing::Link(link) = thing {
                names.push(link.at.name.clone());
            }
        }
        Ok(names)
    }

    fn files(&self, path: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        let cluster = self.cluster.borrow();
        let is_it = |(folder, file): &&(PathBuf, DiskFile)| {
            folder == path || folder.join(&file.name) == path
        };
        Ok(cluster
            .files
            .iter()
            .filter(is_it)
            .map(|(_, file)| file.clone())
            .collect())
    }

    fn plugins_beside(&self, folder: &Path) -> Result<Vec<DiskFile>, cni::Error> {
        self.files(folder)
    }

    fn await_file(&self, file: &Path, _limit: Duration) -> bool {
        self.files(file).is_ok_and(|files| !files.is_empty())
    }

    fn uptime(&self) -> Option<Duration> {
        Some(Duration::from_secs(1000))
    }

    fn log(&self) -> &Log {
        &self.log
    }
}

impl Cluster for Model {
    fn source(
        &self,
        _settings: &Settings,
        _limit: Option<Duration>,
    ) -> Result<Box<dyn Source>, cni::Error> {
        Ok(Box::new(Asked(Rc::clone(&self.cluster))))
    }

    fn devices(&self, _settings: &Settings, _pod: &ObjectName) -> Result<Given, cni::Error> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.devices_asked += 1;
        Ok(cluster.devices.clone())
    }

    fn device_info(&self, resource: &str, device: &str) -> Result<Option<Vec<u8>>, cni::Error> {
        let path = self.devinfo().join(DP).join(dp_file(resource, device)?);
        Ok(std::fs::read(path).ok())
    }
}

impl ModelState {
    fn facts(&self) -> Facts {
        let there = self
            .shared
            .iter()
            .chain(&self.own)
            .cloned()
            .map(Step::Add)
            .collect::<Vec<_>>();
        Facts::default().after(&there)
    }

    fn apply(&mut self, step: &Step, facts: &Facts) -> Result<bool, Errno> {
        if is_there_already(step, facts) {
            return Ok(false);
        }
        let number = self.tried;
        self.tried += 1;
        if self.failing.contains(&number) {
            return Err(Errno::EIO);
        }
        match step {
            // A setting disappears with its link or namespace.
            Step::Add(thing) if thing.state().is_setting() => {}
            Step::Add(thing) if self.own.contains(thing) => return Err(Errno::EEXIST),
            Step::Add(Thing::HostPorts(ports)) => self.add_ports(ports)?,
            Step::Add(thing) => self.own.push(thing.clone()),
            Step::Ensure(thing) => {
                // Host ports are their owner's, and there already.
                if !matches!(thing, Thing::HostPorts(_)) {
                    self.shared.retain(|there| there != thing);
                    self.shared.push(thing.clone());
                }
            }
            Step::Del(Thing::Link(link)) => return Ok(self.take_link(link)),
            Step::Del(Thing::HostPorts(ports)) => return Ok(self.take_ports(ports)),
            Step::Retune { to, from } => {
                let is_it =
                    |thing: &&mut Thing| matches!(thing, Thing::Shaping(there) if there == from);
                let found = self.own.iter_mut().find(is_it);
                *found.ok_or(Errno::ENOENT)? = to.clone().into();
            }
            Step::Del(thing) => {
                let before = self.own.len();
                // Shapings differ if a part was already deleted with a link.
                let is_it = |there: &Thing| match (there, thing) {
                    (Thing::Shaping(there), Thing::Shaping(gone)) => there.is_same(gone),
                    // The record may have a newer index.
                    (Thing::Moved(there), Thing::Moved(moved)) => {
                        (&there.to, &there.from) == (&moved.to, &moved.from)
                    }
                    (there, thing) => there == thing,
                };
                self.own.retain(|there| !is_it(there));
                if let Thing::Moved(moved) = thing {
                    self.own
                        .retain(|there| !there.state().goes_with().contains(&&moved.to));
                }
                return Ok(self.own.len() < before);
            }
            Step::Set { .. } | Step::Wait(_) | Step::Forget(..) | Step::Legacy(_) => {}
        }
        Ok(true)
    }

    /// Adds host ports to those that their owner has.
    fn add_ports(&mut self, new: &HostPorts) -> Result<(), Errno> {
        for thing in &mut self.own {
            let Thing::HostPorts(there) = thing else {
                continue;
            };
            if new.ports.iter().any(|port| there.ports.contains(port)) {
                return Err(Errno::EEXIST);
            }
            if there.owner == new.owner {
                there.ports.extend(&new.ports);
                there.targets.extend(&new.targets);
                return Ok(());
            }
        }
        self.own.push(new.clone().into());
        Ok(())
    }

    /// Deletes host ports of their owner. Returns false if none was there.
    fn take_ports(&mut self, gone: &HostPorts) -> bool {
        let mut is_any = false;
        for thing in &mut self.own {
            if let Thing::HostPorts(there) = thing
                && there.owner == gone.owner
            {
                let before = there.ports.len();
                there.ports.retain(|port| !gone.ports.contains(port));
                there
                    .targets
                    .retain(|target| !gone.targets.contains(target));
                is_any |= there.ports.len() < before;
            }
        }
        self.own
            .retain(|thing| !matches!(thing, Thing::HostPorts(there) if there.ports.is_empty() && there.targets.is_empty()));
        is_any
    }

    /// Deletes a link and everything that the kernel deletes with it. Returns false if it did not
    /// exist.
    fn take_link(&mut self, link: &Link) -> bool {
        let is_it = |thing: &Thing| matches!(thing, Thing::Link(there) if there.is_same(link));
        let Some(place) = self.own.iter().position(is_it) else {
            return false;
        };
        let Thing::Link(taken) = self.own.remove(place) else {
            return false;
        };
        let ends: Vec<&LinkRef> = taken.ends().collect();
        for thing in &mut self.own {
            if let Thing::Shaping(shaping) = thing {
                shaping.shapers.retain(|shaper| !ends.contains(&&shaper.at));
            }
        }
        self.own
            .retain(|thing| match (thing, &thing.state().goes_with()[..]) {
                (Thing::Shaping(_), []) => false,
                (_, with) => with.is_empty() || !with.iter().all(|at| ends.contains(at)),
            });
        true
    }
}

impl Host for Model {
    fn root(&self) -> &Root {
        &self.root
    }

    fn has(&mut self, _steps: &[Step]) -> Result<bool, Error> {
        Ok(!self.state.borrow().is_broken)
    }

    fn observe(&mut self, needs: &[Need]) -> Result<Facts, Error> {
        let mut facts = self.state.borrow().facts();
        facts.netns = Some(1);
        for need in needs {
            if let Need::Features(wanted) = need {
                facts
                    .features
                    .extend(wanted.iter().map(|feature| (*feature, None)));
            }
            if let Need::Device(
                device @ Device {
                    name: Some(name), ..
                },
            ) = need
            {
                let own = name.short().expect("a name of at most 15 bytes");
                facts.devices.insert(device.clone(), DeviceFact::Link(own));
            }
        }
        Ok(facts)
    }

    fn execute(&mut self, steps: &[Step], facts: &Facts, on_error: OnError) -> Report {
        let mut report = Report::default();
        let mut state = self.state.borrow_mut();
        state.plans += usize::from(steps.iter().any(|step| matches!(step, Step::Add(_))));
        let link_ns = |step: &Step| {
            if let Step::Del(Thing::Link(link)) = step {
                Some(link.at.ns)
            } else {
                None
            }
        };
        let runs = steps.chunk_by(|a, b| link_ns(a) == link_ns(b));
        state.link_deletions += runs.filter(|run| link_ns(&run[0]).is_some()).count();
        for (at, step) in steps.iter().enumerate() {
            match state.apply(step, facts) {
                Ok(true) => report.applied.push(at),
                Ok(false) => {}
                Err(errno) => {
                    report.failed.push((at, errno.into()));
                    report.errors.push(Error::of_steps([step], errno.into()));
                    if on_error == OnError::Stop {
                        break;
                    }
                }
            }
        }
        report
    }

    fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, Cause> {
        Ok(self.state.borrow().facts().link(at).cloned())
    }

    fn has_pod(&self) -> bool {
        self.has_pod
    }

    fn has_pod_links(&mut self) -> bool {
        let is_there = |thing: &Thing| matches!(thing, Thing::Link(link) if link.ends().any(|at| at.ns == Ns::Pod));
        self.has_pod && self.state.borrow().own.iter().any(is_there)
    }

    fn pod_cookie(&mut self) -> Option<u64> {
        Some(1)
    }

    fn leave_pod(&mut self) {
        self.has_pod = false;
    }

    fn own_netns(&self) -> Result<Option<&Path>, Error> {
        Ok(None)
    }

    fn restore(&mut self, _features: &[Feature]) -> Vec<Error> {
        self.state.borrow_mut().restores += 1;
        Vec::new()
    }

    fn open_gates(&mut self, _features: &[Feature]) -> Vec<Error> {
        Vec::new()
    }

    fn owned(&mut self, is_lost: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, Error> {
        let is_lost = |thing: &&Thing| thing.state().owner().is_some_and(is_lost);
        Ok(self
            .state
            .borrow()
            .own
            .iter()
            .filter(is_lost)
            .cloned()
            .map(Step::Del)
            .collect())
    }

    fn sweep(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn lacks(&mut self, features: &[Feature]) -> Vec<(Feature, String)> {
        let lacks = self.state.borrow().lacks;
        features
            .iter()
            .filter(|feature| lacks == Some(**feature))
            .map(|lack| (*lack, "EOPNOTSUPP".to_owned()))
            .collect()
    }

    fn leave_shaping(&mut self, _shaping: &Shaping) -> Result<(), Error> {
        Ok(())
    }

    fn log(&self) -> &Log {
        &self.log
    }
}
