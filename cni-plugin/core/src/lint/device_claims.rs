//! Linter for the parameters of network devices in `ResourceClaim`, `ResourceClaimTemplate` and
//! `DeviceClass`.

use super::finding::Finding;
use super::judge::{Judge, key};
use crate::cni::{Error, Json, PathPart};
use crate::dra::attachments::{Attachment, refuse_taken_names};
use crate::dra::claim::{Config, Share};
use crate::dra::device::Form;
use crate::dra::parameters::Parameters;
use crate::dra::{BANDWIDTH, DRIVER, WHOLE_CLASS, quantity};
use crate::k8s::{ObjectName, text_at};
use crate::name::IfName;

/// Group of the objects, as `apiVersion` begins.
pub const GROUP: &str = "resource.k8s.io/";
/// Namespace of a claim without one.
const DEFAULT: &str = "default";
/// Link in place of the device that the scheduler will choose.
const ANY_LINK: &str = "eth1";
/// Rate in bits per second in place of the one that the scheduler will reserve.
const ANY_RATE: u64 = 1_000_000;
/// Lists of a claim and of a class.
const CONFIG: &str = "config";
/// List of a claim.
const REQUESTS: &str = "requests";

/// List of the alternatives of a request.
const ALTERNATIVES: &str = "firstAvailable";

/// Path in a document.
type Path = Vec<PathPart>;

/// Returns the faults of an object or of the objects in a list, each after the kind and name of its
/// object. Objects of other kinds have none.
pub fn objects(document: &Json) -> Vec<(String, Finding)> {
    let mut found = of_object(document, document, &Vec::new());
    if let Some(Json::Array(items)) = document.get("items") {
        for (index, item) in items.iter().enumerate() {
            let path = vec![key("items"), PathPart::Index(index)];
            found.extend(of_object(document, item, &path));
        }
    }
    found
}

fn of_object(document: &Json, object: &Json, path: &Path) -> Vec<(String, Finding)> {
    let is_known = text_at(object, "apiVersion").is_some_and(|text| text.starts_with(GROUP));
    let (kind, words): (&str, &[&str]) = match text_at(object, "kind").filter(|_| is_known) {
        Some("ResourceClaim") => ("resource-claim", &["spec", "devices"]),
        Some("ResourceClaimTemplate") => ("resource-claim-template", &["spec", "spec", "devices"]),
        Some("DeviceClass") => ("device-class", &["spec"]),
        Some(_) | None => return Vec::new(),
    };
    let inner = words.iter().try_fold(object, |json, word| json.get(word));
    let Some(inner) = inner else {
        return Vec::new();
    };
    let is_class = kind == "device-class";
    let name = name_of(object);
    let mut linter = Linter {
        judge: Judge {
            json: document,
            findings: Vec::new(),
        },
        path: below(path, words),
        configs: Vec::new(),
    };
    linter.of_configs(inner, is_class);
    if !is_class && let Err(error) = linter.of_requests(inner, &name) {
        let path = linter.path.clone();
        linter.judge.note_error(&path, &error);
    }
    let label = if is_class {
        format!("{kind} {}", name.name)
    } else {
        format!("{kind} {name}")
    };
    let findings = linter.judge.findings.into_iter();
    findings.map(|finding| (label.clone(), finding)).collect()
}

fn name_of(object: &Json) -> ObjectName {
    let metadata = object.get("metadata").unwrap_or(&Json::Null);
    let text = |key: &str| text_at(metadata, key).filter(|text| !text.is_empty());
    ObjectName {
        namespace: text("namespace").unwrap_or(DEFAULT).to_owned(),
        name: text("name").unwrap_or_default().to_owned(),
    }
}

fn below(path: &[PathPart], words: &[&str]) -> Path {
    let mut path = path.to_vec();
    path.extend(words.iter().map(|word| key(word)));
    path
}

fn item(path: &[PathPart], list: &str, index: usize) -> Path {
    let mut path = below(path, &[list]);
    path.push(PathPart::Index(index));
    path
}

/// Linter of one object.
struct Linter<'a> {
    judge: Judge<'a>,
    /// Path of the object with the lists `config` and `requests`.
    path: Path,
    /// Configurations for this driver, each with the path of its parameters.
    configs: Vec<(Config, Path)>,
}

/// A request of a claim, or an alternative of it, for a device of one of the driver's own classes.
struct Request<'a> {
    /// `<request>` or `<request>/<alternative>`.
    name: String,
    form: Form,
    /// Number of devices.
    count: u64,
    json: &'a Json,
    path: Path,
}

impl Linter<'_> {
    /// Checks each configuration on its own.
    fn of_configs(&mut self, inner: &Json, is_class: bool) {
        let Some(Json::Array(items)) = inner.get(CONFIG) else {
            return;
        };
        for (index, one) in items.iter().enumerate() {
            let path = item(&self.path, CONFIG, index);
            let config = match Config::of(one, is_class) {
                Ok(Some(config)) => config,
                Ok(None) => continue,
                Err(error) => {
                    self.judge.note_error(&path, &error);
                    continue;
                }
            };
            let path = below(&path, &["opaque", "parameters"]);
            match Parameters::parse(&config.parameters, is_class) {
                Ok(_) => self.configs.push((config, path)),
                Err(error) => self.judge.note_error(&path, &error),
            }
        }
    }

    /// Checks the requests for the driver's own classes, with the configurations for them. Another
    /// class may have parameters that complete the claim's.
    fn of_requests(&mut self, inner: &Json, claim: &ObjectName) -> Result<(), Error> {
        let mut all = Vec::new();
        let items = inner.list(REQUESTS)?.unwrap_or_default();
        for (index, request) in items.iter().enumerate() {
            all.extend(requests(request, &item(&self.path, REQUESTS, index))?);
        }
        for request in &all {
            self.of_capacity(request);
        }
        if !self.judge.findings.is_empty() {
            return Ok(());
        }
        let mut attachments: Vec<Attachment> = Vec::new();
        for request in &all {
            let attachment = self.attachment(claim, request)?;
            self.of_network(&attachment);
            let is_alternative = attachments
                .iter()
                .any(|one| one.share.main_request() == attachment.share.main_request());
            if !is_alternative {
                self.of_name(&mut attachments, &attachment, request.count);
            }
        }
        Ok(())
    }

    fn of_capacity(&mut self, request: &Request<'_>) {
        let words = ["capacity", "requests", BANDWIDTH];
        let capacity = words
            .iter()
            .try_fold(request.json, |json, word| json.get(word));
        if let Some(Err(error)) = capacity.map(quantity::of_json) {
            let path = below(&request.path, &words);
            self.judge.note_error(&path, &error);
        }
    }

    /// Returns the attachment that a request would get, on any link.
    fn attachment(&self, claim: &ObjectName, request: &Request<'_>) -> Result<Attachment, Error> {
        let configs: Vec<Config> = self.configs.iter().map(|(one, _)| one.clone()).collect();
        let parent = IfName::parse(ANY_LINK).map_err(|error| Error::internal(error.to_string()))?;
        Ok(Attachment {
            claim: claim.clone(),
            claim_uid: String::new(),
            parameters: Parameters::effective(&request.name, &configs)?,
            share: Share {
                request: request.name.clone(),
                pool: String::new(),
                device: String::new(),
                share_id: None,
                bandwidth: (request.form == Form::Shared).then_some(ANY_RATE),
            },
            parent,
            form: request.form,
        })
    }

    /// Checks that the plugins can serve the parameters. A NetworkAttachmentDefinition may be in the
    /// cluster only.
    fn of_network(&mut self, attachment: &Attachment) {
        if attachment.nad().is_some() {
            return;
        }
        let no_file = |_: &str| Err(Error::internal("no file"));
        if let Err(error) = attachment.network(&[], no_file) {
            let path = below(
                &self.path_for(&attachment.share.request, "network"),
                &["network"],
            );
            self.judge.note_error(&path, &error);
        }
    }

    /// Checks that no other attachment of the claim has the interface name.
    fn of_name(&mut self, all: &mut Vec<Attachment>, attachment: &Attachment, count: u64) {
        for _ in 0..count.min(2) {
            all.push(attachment.clone());
            if let Err(error) = refuse_taken_names(all) {
                all.pop();
                let path = self.path_for(&attachment.share.request, "interface");
                let path = below(&path, &["interface"]);
                self.judge.note_error(&path, &error);
                return;
            }
        }
    }

    /// Returns the path of the last parameters for a request that have this key.
    fn path_for(&self, request: &str, key: &str) -> Path {
        let is_it = |(config, _): &&(Config, Path)| {
            config.is_for(request) && config.parameters.get(key).is_some()
        };
        let found = self.configs.iter().rev().find(is_it);
        found.map_or_else(|| below(&self.path, &[REQUESTS]), |(_, path)| path.clone())
    }
}

/// Returns the request at a path, or its alternatives, without requests for other classes.
fn requests<'j>(json: &'j Json, path: &Path) -> Result<Vec<Request<'j>>, Error> {
    let main = json.str_or("name", "")?;
    let mut all = Vec::new();
    if let Some(exactly) = json.object("exactly")? {
        all.extend(request(
            main.to_owned(),
            exactly,
            below(path, &["exactly"]),
        )?);
    }
    let alternatives = json.list(ALTERNATIVES)?.unwrap_or_default();
    for (index, one) in alternatives.iter().enumerate() {
        let name = format!("{main}/{}", one.str_or("name", "")?);
        all.extend(request(name, one, item(path, ALTERNATIVES, index))?);
    }
    Ok(all)
}

fn request(name: String, json: &Json, path: Path) -> Result<Option<Request<'_>>, Error> {
    let form = match json.str_or("deviceClassName", "")? {
        DRIVER => Form::Shared,
        WHOLE_CLASS => Form::Whole,
        _ => return Ok(None),
    };
    Ok(Some(Request {
        name,
        form,
        count: json.u64("count")?.unwrap_or(1),
        json,
        path,
    }))
}

#[cfg(test)]
mod tests;
