//! Parser of the pod annotations that select networks, in JSON or comma-separated format. An
//! annotation is validated before any plugin runs.

use super::selection::{Item, Selection, interface_name};
use super::{DEFAULT_NETWORK, NETWORKS, ObjectName, names};
use crate::cni::bounds::shortened;
use crate::cni::{Error, FaultPlace, Json, PathPart};
use std::fmt;

/// Maximum length of an annotation in bytes. Kubernetes limits all annotations of a pod together to
/// 256 KiB.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of networks of a pod.
pub const MAX_ITEMS: usize = 64;

/// A fault that makes a pod annotation invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The annotation's key.
    pub annotation: &'static str,
    /// Number of the item with the fault, from 1; 0 if the fault is not in a single item.
    pub item: usize,
    /// Key within the item; empty if the fault is not in a single key.
    pub key: String,
    /// Faulty value as written, shortened for the message.
    pub value: String,
    /// Description of the fault.
    pub why: String,
    /// Place of the fault in the annotation.
    pub place: FaultPlace,
}

impl Invalid {
    /// Narrows the place of the fault to the element at `index` of a list.
    #[must_use]
    pub fn at_index(mut self, index: usize) -> Self {
        if let FaultPlace::Path(path) = &mut self.place {
            path.push(PathPart::Index(index));
        }
        self
    }
}

/// Returns the place of `key` in an item of the annotation, or of the whole item if `key` is empty.
/// `item` counts from 1.
pub fn place_of(item: usize, key: &str) -> FaultPlace {
    let mut path = vec![PathPart::Index(item.saturating_sub(1))];
    if !key.is_empty() {
        path.push(PathPart::Key(key.to_owned()));
    }
    FaultPlace::Path(path)
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.annotation)?;
        if self.item > 0 {
            write!(f, ": item {}", self.item)?;
        }
        match (self.key.as_str(), self.value.as_str()) {
            ("", "") => {}
            ("", what) | (what, "") => write!(f, ": {what}")?,
            (key, value) => write!(f, ": {key} {value}")?,
        }
        write!(f, ": {}", self.why)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::config(invalid.to_string())
    }
}

/// Parses the annotation [`NETWORKS`] of a pod in `namespace`. A blank annotation selects no
/// network.
pub fn networks(text: &str, namespace: &str) -> Result<Vec<Selection>, Invalid> {
    let selections = selections(NETWORKS, text, namespace)?;
    let mut routed = selections
        .iter()
        .filter(|selection| selection.default_route.is_some());
    match (routed.next(), routed.next()) {
        (Some(first), Some(second)) => Err(Invalid {
            annotation: NETWORKS,
            item: second.item,
            place: place_of(second.item, "default-route"),
            key: "default-route".to_owned(),
            value: shortened(&format!(
                "{:?}",
                second.default_route.as_deref().unwrap_or_default()
            )),
            why: format!(
                "item {} has it already; at most one network can have it",
                first.item
            ),
        }),
        _ => Ok(selections),
    }
}

/// Parses the annotation [`DEFAULT_NETWORK`], which must name exactly one network; `None` if the
/// annotation is blank. `namespace` is used if the annotation does not name one.
pub fn default_network(text: &str, namespace: &str) -> Result<Option<Selection>, Invalid> {
    let mut selections = selections(DEFAULT_NETWORK, text, namespace)?;
    match (selections.pop(), selections.len()) {
        (None, _) if text.trim().is_empty() => Ok(None),
        (Some(only), 0) => Ok(Some(only)),
        (None, _) => Err(whole(
            DEFAULT_NETWORK,
            text,
            "no network; exactly one is required",
        )),
        (Some(_), more) => {
            let why = format!("{} networks; exactly one is required", more + 1);
            Err(whole(DEFAULT_NETWORK, text, why))
        }
    }
}

fn selections(
    annotation: &'static str,
    text: &str,
    namespace: &str,
) -> Result<Vec<Selection>, Invalid> {
    if text.len() > MAX_BYTES {
        return Err(whole(
            annotation,
            text,
            format!("{} bytes, more than {MAX_BYTES}", text.len()),
        ));
    }
    match text.trim().chars().next() {
        None => Ok(Vec::new()),
        Some('[' | '{' | '"') => json_list(annotation, text, namespace),
        Some(_) => comma_separated(annotation, text, namespace),
    }
}

fn json_list(
    annotation: &'static str,
    text: &str,
    namespace: &str,
) -> Result<Vec<Selection>, Invalid> {
    let json = Json::parse(text.as_bytes(), "value").map_err(|error| Invalid {
        place: error.place(),
        ..whole(annotation, text, error.msg)
    })?;
    let Json::Array(items) = &json else {
        return Err(whole(annotation, text, "not a list"));
    };
    refuse_many(annotation, text, items.len())?;
    let mut selections = Vec::with_capacity(items.len());
    for (number, json) in (1..).zip(items) {
        let item = Item {
            annotation,
            number,
            json,
        };
        selections.push(Selection::parse(&item, namespace)?);
    }
    Ok(selections)
}

/// Parses `[<namespace>/]<name>[@<interface>]` items separated by commas. Blanks around any part
/// are ignored.
fn comma_separated(
    annotation: &'static str,
    text: &str,
    namespace: &str,
) -> Result<Vec<Selection>, Invalid> {
    let mut items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() > 1 && items.last().is_some_and(|last| last.is_empty()) {
        items.pop();
    }
    refuse_many(annotation, text, items.len())?;
    let selection = |(number, item): (usize, &str)| {
        let wrong = |why: String| {
            let value = format!("{:?}", shortened(item));
            Invalid {
                annotation,
                item: number,
                place: place_of(number, ""),
                key: String::new(),
                value,
                why,
            }
        };
        of_text(number, item, namespace).map_err(wrong)
    };
    (1..).zip(items).map(selection).collect()
}

fn of_text(number: usize, item: &str, namespace: &str) -> Result<Selection, String> {
    let (network, interface) = match item.split_once('@') {
        Some((network, interface)) => (network, Some(interface.trim())),
        None => (item, None),
    };
    let (namespace, name) = match network.split_once('/') {
        Some((namespace, name)) => (namespace.trim(), name.trim()),
        None => (namespace, network.trim()),
    };
    if !names::is_namespace(namespace) {
        return Err(format!(
            "{:?} is not the name of a namespace",
            shortened(namespace)
        ));
    }
    if !names::is_object(name) {
        return Err(format!(
            "{:?} is not the name of an object",
            shortened(name)
        ));
    }
    let interface = match interface {
        Some("") => return Err("interface name after \"@\" is empty".to_owned()),
        Some(text) if text.contains('@') => return Err("more than one \"@\"".to_owned()),
        Some(text) => Some(interface_name(text)?),
        None => None,
    };
    let object = ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Ok(Selection {
        interface,
        ..Selection::of(number, object)
    })
}

fn refuse_many(annotation: &'static str, text: &str, items: usize) -> Result<(), Invalid> {
    if items > MAX_ITEMS {
        return Err(whole(
            annotation,
            text,
            format!("{items} networks, more than {MAX_ITEMS}"),
        ));
    }
    Ok(())
}

fn whole(annotation: &'static str, text: &str, why: impl Into<String>) -> Invalid {
    let value = format!("{:?}", shortened(text.trim()));
    Invalid {
        annotation,
        item: 0,
        place: FaultPlace::Path(Vec::new()),
        key: String::new(),
        value,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests;
