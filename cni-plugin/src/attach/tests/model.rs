//! A model of a machine: it keeps what steps make as values, and fails where it is told to.

use crate::apply::Error;
use crate::apply::executor::{OnError, Report, is_there_already};
use crate::apply::host::{Host, Machine};
use crate::apply::record::Folder;
use crate::plan::facts::{Facts, LinkFact, Need};
use crate::plan::thing::{Link, LinkKind, LinkRef, Shaping, Thing};
use crate::plan::{Feature, IfName, Ns, Step};
use crate::sys::netlink::KernelError;
use crate::sys::netns::NetNs;
use nix::errno::Errno;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tempfile::TempDir;

/// What the machine has, and what became of it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Of attachments.
    pub(super) own: Vec<Thing>,
    /// Of the node.
    pub(super) shared: Vec<Thing>,
    /// How many steps were tried since [`Model::fail_at`].
    tried: usize,
    /// Which of them fail.
    failing: Vec<usize>,
    /// How many requests took links of the host away.
    pub(super) link_deletions: usize,
}

/// The machine; its clones share one state.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) state: Rc<RefCell<State>>,
    records: Rc<TempDir>,
    has_pod: bool,
}

impl Model {
    pub(super) fn new() -> Self {
        let records = Rc::new(TempDir::new().expect("a folder"));
        Self { state: Rc::default(), records, has_pod: false }
    }

    /// Gives it a link of hardware, `lan`.
    pub(super) fn lan(&self) {
        let lan = LinkRef::host(IfName::parse("lan").expect("a name"));
        let link = Link { kind: LinkKind::Other(String::new()), up: true, ..Link::any(lan) };
        self.state.borrow_mut().shared.push(link.into());
    }

    /// Has the steps of these numbers fail, counted from 0 from here on.
    pub(super) fn fail_at(&self, steps: &[usize]) {
        let mut state = self.state.borrow_mut();
        (state.tried, state.failing) = (0, steps.to_vec());
    }

    /// How many steps were tried since then.
    pub(super) fn tried(&self) -> usize {
        self.state.borrow().tried
    }

    /// How many records, or folders of them, there are.
    pub(super) fn records(&self) -> usize {
        std::fs::read_dir(self.records.path()).expect("a folder").count()
    }
}

impl Machine for Model {
    fn open(&self, netns: Option<NetNs>) -> Result<Box<dyn Host>, Error> {
        Ok(Box::new(Self { has_pod: netns.is_some(), ..self.clone() }))
    }

    fn folder(&self, container_id: &str) -> Result<Folder, Error> {
        Folder::lock_in(self.records.path(), container_id)
    }
}

impl State {
    fn facts(&self) -> Facts {
        let there = self.shared.iter().chain(&self.own).cloned().map(Step::Add).collect::<Vec<_>>();
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
            // It goes with its link or namespace.
            Step::Add(thing) if thing.is_setting() => {}
            Step::Add(thing) if self.own.contains(thing) => return Err(Errno::EEXIST),
            Step::Add(thing) => self.own.push(thing.clone()),
            Step::Ensure(thing) => {
                self.shared.retain(|there| there != thing);
                self.shared.push(thing.clone());
            }
            Step::Del(Thing::Link(link)) => return Ok(self.take_link(link)),
            Step::Del(thing) => {
                let before = self.own.len();
                // Limits of which a link took a part along are not as they were.
                let is_it = |there: &Thing| match (there, thing) {
                    (Thing::Shaping(there), Thing::Shaping(_)) => !there.shapers.is_empty(),
                    (there, thing) => there == thing,
                };
                self.own.retain(|there| !is_it(there));
                return Ok(self.own.len() < before);
            }
            Step::Set { .. } | Step::Wait(_) | Step::Forget(..) | Step::Legacy(_) => {}
        }
        Ok(true)
    }

    /// Takes a link away with all that goes with it; whether it was there.
    fn take_link(&mut self, link: &Link) -> bool {
        let is_it = |thing: &Thing| matches!(thing, Thing::Link(there) if there.at == link.at);
        let Some(place) = self.own.iter().position(is_it) else { return false };
        let Thing::Link(taken) = self.own.remove(place) else { return false };
        let ends: Vec<&LinkRef> = taken.ends().collect();
        for thing in &mut self.own {
            if let Thing::Shaping(shaping) = thing {
                shaping.shapers.retain(|shaper| !ends.contains(&&shaper.at));
            }
        }
        self.own.retain(|thing| match (thing, &thing.state().goes_with()[..]) {
            (Thing::Shaping(_), []) => false,
            (_, with) => with.is_empty() || !with.iter().all(|at| ends.contains(at)),
        });
        true
    }
}

impl Host for Model {
    fn observe(&mut self, needs: &[Need]) -> Result<Facts, Error> {
        let mut facts = self.state.borrow().facts();
        facts.netns = Some(1);
        for need in needs {
            if let Need::Features(wanted) = need {
                facts.features.extend(wanted.iter().map(|feature| (*feature, None)));
            }
        }
        Ok(facts)
    }

    fn execute(&mut self, steps: &[Step], facts: &Facts, on_error: OnError) -> Report {
        let mut report = Report::default();
        let mut state = self.state.borrow_mut();
        let is_link = |step: &Step| matches!(step, Step::Del(Thing::Link(link)) if link.at.ns == Ns::Host);
        state.link_deletions += steps.chunk_by(|a, b| is_link(a) == is_link(b)).filter(|run| is_link(&run[0])).count();
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

    fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, KernelError> {
        Ok(self.state.borrow().facts().link(at).cloned())
    }

    fn has_pod(&self) -> bool {
        self.has_pod
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

    fn set_record(&mut self, _path: PathBuf) {}

    fn restore(&mut self, _features: &[Feature]) -> Vec<Error> {
        Vec::new()
    }

    fn leave_shaping(&mut self, _shaping: &Shaping) -> Result<(), Error> {
        Ok(())
    }

    fn warn(&mut self, _text: &str) {}
}
