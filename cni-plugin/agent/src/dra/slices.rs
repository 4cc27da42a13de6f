//! The node's ResourceSlices on the API server: a copy that a watch keeps, and changes.

use crate::error::Error;
use crate::watch::Watch;
use braid_core::dra::DRIVER;
use braid_core::dra::slice::{API_VERSION, Change, KIND, Slice, is_cut};
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeMap;

/// The node's slices.
pub(super) struct Slices {
    api: Api<DynamicObject>,
    watch: Watch<DynamicObject>,
    known: BTreeMap<String, Slice>,
    /// Slices of a list that is still arriving.
    arriving: BTreeMap<String, Slice>,
    is_complete: bool,
    /// Fault of the watch that was reported last.
    fault: Option<String>,
}

/// Outcome of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Number of written and deleted slices.
    pub(super) count: usize,
    /// True if the API server has left out a part of a slice.
    pub(super) is_cut: bool,
}

impl Slices {
    /// Begins the watch of a node's slices.
    pub(super) fn new(client: &Client, node: &str) -> Self {
        let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            plural: "resourceslices".to_owned(),
        };
        let api = Api::all_with(client.clone(), &resource);
        let fields = format!("spec.driver={DRIVER},spec.nodeName={node}");
        Self {
            watch: Watch::new(api.clone(), &fields),
            api,
            known: BTreeMap::new(),
            arriving: BTreeMap::new(),
            is_complete: false,
            fault: None,
        }
    }

    /// Waits for the next change of the slices. Errors of the watch are logged once.
    pub(super) async fn changed(&mut self) {
        while let Some(event) = self.watch.next().await {
            match event {
                Ok(event) => {
                    self.fault = None;
                    if self.update(event) {
                        return;
                    }
                }
                Err(err) => self.report(&err),
            }
        }
    }

    /// Returns the slices; `None` before the first list is complete.
    pub(super) fn present(&self) -> Option<Vec<Slice>> {
        let slices = self.known.values().cloned().collect();
        self.is_complete.then_some(slices)
    }

    /// Takes an event in. Returns true if the slices may differ.
    fn update(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Init => {
                self.arriving.clear();
                false
            }
            Event::InitApply(object) => {
                let slice = slice(&object);
                self.arriving
                    .extend(slice.map(|slice| (slice.name.clone(), slice)));
                false
            }
            Event::InitDone => {
                let arrived = std::mem::take(&mut self.arriving);
                let is_changed = !self.is_complete || self.known != arrived;
                self.known = arrived;
                self.is_complete = true;
                is_changed
            }
            Event::Apply(object) => self.keep(&object),
            Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.known.remove(&name).is_some()
            }
        }
    }

    /// Takes an object in. Returns true if it differs.
    fn keep(&mut self, object: &DynamicObject) -> bool {
        let Some(slice) = slice(object) else {
            return false;
        };
        let before = self.known.insert(slice.name.clone(), slice.clone());
        before != Some(slice)
    }

    fn report(&mut self, err: &watcher::Error) {
        let fault = err.to_string();
        if self.fault.as_ref() != Some(&fault) {
            tracing::warn!(error = %err, "watch ResourceSlices");
            self.fault = Some(fault);
        }
    }

    /// Carries out changes, up to the first that fails.
    pub(super) async fn apply(&mut self, changes: &[Change]) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for change in changes {
            outcome.is_cut |= self.carry_out(change).await?;
            outcome.count += 1;
        }
        Ok(outcome)
    }

    /// Carries out a change. Returns true if the API server has left out a part.
    async fn carry_out(&mut self, change: &Change) -> Result<bool, Error> {
        let (api, params) = (&self.api, PostParams::default());
        let stored = match change {
            Change::Create(object) => {
                let created = api.create(&params, &dynamic(object)?).await;
                created.map_err(|err| Error::new("create a ResourceSlice", err))?
            }
            Change::Update(name, object) => {
                let updated = api.replace(name, &params, &dynamic(object)?).await;
                let doing = format_args!("update ResourceSlice {name}");
                updated.map_err(|err| Error::new(doing, err))?
            }
            Change::Delete(name) => {
                match api.delete(name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(err) => {
                        let doing = format_args!("delete ResourceSlice {name}");
                        return Err(Error::new(doing, err));
                    }
                    Ok(_) => {}
                }
                self.known.remove(name);
                return Ok(false);
            }
        };
        // The event of the watch comes later.
        self.keep(&stored);
        Ok(is_cut(change, &value(&stored)))
    }
}

fn slice(object: &DynamicObject) -> Option<Slice> {
    Slice::of(&value(object))
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn dynamic(object: &Value) -> Result<DynamicObject, Error> {
    let object = serde_json::from_value(object.clone());
    object.map_err(|err| Error::new("make a ResourceSlice", err))
}
