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
use crate::k8s::nad::is_on_disk;
use crate::k8s::{Nad, ObjectName, text_at};
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

/// Objects that claims name, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// `DeviceClass`es.
    pub classes: &'a [&'a Json],
    /// `NetworkAttachmentDefinition`s.
    pub nads: &'a [&'a Nad],
}

/// Returns the faults of an object or of the objects in a list, each after the kind and name of its
/// object. Objects of other kinds have none.
pub fn objects(document: &Json, known: Known<'_>) -> Vec<(String, Finding)> {
    let mut found = of_object(document, document, &Vec::new(), known);
    if let Some(Json::Array(items)) = document.get("items") {
        for (index, item) in items.iter().enumerate() {
            let path = vec![key("items"), PathPart::Index(index)];
            found.extend(of_object(document, item, &path, known));
        }
    }
    found
}

/// True for a `DeviceClass`.
pub fn is_class(object: &Json) -> bool {
    text_at(object, "kind") == Some("DeviceClass")
}

fn of_object(
    document: &Json,
    object: &Json,
    path: &Path,
    known: Known<'_>,
) -> Vec<(String, Finding)> {
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
        known,
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
    known: Known<'a>,
}

/// A request of a claim, or an alternative of it, for a device of one of the driver's own classes or of
/// a known class.
struct Request<'a> {
    /// `<request>` or `<request>/<alternative>`.
    name: String,
    /// Form of the device; `None` for a class whose expressions decide.
    form: Option<Form>,
    /// Configurations of the class for this driver.
    of_class: Vec<Config>,
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

    /// Checks the requests for the driver's own classes and for known ones, with the configurations for
    /// them. An unknown class may have parameters that complete the claim's.
    fn of_requests(&mut self, inner: &Json, claim: &ObjectName) -> Result<(), Error> {
        let mut all = Vec::new();
        let items = inner.list(REQUESTS)?.unwrap_or_default();
        for (index, request) in items.iter().enumerate() {
            let path = item(&self.path, REQUESTS, index);
            all.extend(requests(request, &path, self.known.classes)?);
        }
        for request in &all {
            self.of_capacity(request);
        }
        if !self.judge.findings.is_empty() {
            return Ok(());
        }
        let mut attachments: Vec<Attachment> = Vec::new();
        for request in &all {
            let form = request.form.unwrap_or(Form::Shared);
            let attachment = self.attachment(claim, request, form)?;
            if let Err(error) = self.check_network(&attachment)
                // Only the scheduler knows the form.
                && (request.form.is_some()
                    || self.check_network(&self.attachment(claim, request, Form::Whole)?).is_err())
            {
                self.note_network(&attachment, &error);
            }
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
    fn attachment(
        &self,
        claim: &ObjectName,
        request: &Request<'_>,
        form: Form,
    ) -> Result<Attachment, Error> {
        let mut configs = request.of_class.clone();
        configs.extend(self.configs.iter().map(|(one, _)| one.clone()));
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
                bandwidth: (form == Form::Shared).then_some(ANY_RATE),
            },
            parent,
            form,
        })
    }

    /// Checks that the plugins can serve the parameters. A NetworkAttachmentDefinition may be in the
    /// cluster only, and its configuration in a file of the node.
    fn check_network(&self, attachment: &Attachment) -> Result<(), Error> {
        let nads: Vec<Nad> = match attachment.nad() {
            None => Vec::new(),
            Some(name) => {
                let mut nads = self.known.nads.iter();
                match nads.find(|nad| nad.name == name && !is_on_disk(nad)) {
                    Some(nad) => vec![Nad::clone(nad)],
                    None => return Ok(()),
                }
            }
        };
        let no_file = |_: &str| Err(Error::internal("no file"));
        attachment.network(&nads, no_file).map(|_| ())
    }

    fn note_network(&mut self, attachment: &Attachment, error: &Error) {
        let key = if attachment.nad().is_some() {
            "nad"
        } else {
            "network"
        };
        let path = self.path_for(&attachment.share.request, key);
        self.judge.note_error(&below(&path, &[key]), error);
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
fn requests<'j>(json: &'j Json, path: &Path, classes: &[&Json]) -> Result<Vec<Request<'j>>, Error> {
    let main = json.str_or("name", "")?;
    let mut all = Vec::new();
    if let Some(exactly) = json.object("exactly")? {
        all.extend(request(
            main.to_owned(),
            exactly,
            below(path, &["exactly"]),
            classes,
        )?);
    }
    let alternatives = json.list(ALTERNATIVES)?.unwrap_or_default();
    for (index, one) in alternatives.iter().enumerate() {
        let name = format!("{main}/{}", one.str_or("name", "")?);
        let path = item(path, ALTERNATIVES, index);
        all.extend(request(name, one, path, classes)?);
    }
    Ok(all)
}

fn request<'j>(
    name: String,
    json: &'j Json,
    path: Path,
    classes: &[&Json],
) -> Result<Option<Request<'j>>, Error> {
    let class = json.str_or("deviceClassName", "")?;
    let known = classes.iter().find(|json| name_of(json).name == class);
    let form = match class {
        DRIVER => Some(Form::Shared),
        WHOLE_CLASS => Some(Form::Whole),
        _ => None,
    };
    let of_class = known.map(|json| configs_of(json)).unwrap_or_default();
    // A class without parameters for this driver may be of another one.
    if form.is_none() && of_class.is_empty() {
        return Ok(None);
    }
    Ok(Some(Request {
        name,
        form,
        of_class,
        count: json.u64("count")?.unwrap_or(1),
        json,
        path,
    }))
}

/// Returns the configurations of a class for this driver; empty if one has a fault, which the class
/// reports.
fn configs_of(class: &Json) -> Vec<Config> {
    let spec = class.get("spec").unwrap_or(&Json::Null);
    let items = spec.list(CONFIG).ok().flatten().unwrap_or_default();
    let mut configs = Vec::new();
    for item in items {
        match Config::of(item, true) {
            Ok(None) => {}
            Ok(Some(config)) if Parameters::parse(&config.parameters, true).is_ok() => {
                configs.push(config);
            }
            Ok(Some(_)) | Err(_) => return Vec::new(),
        }
    }
    configs
}

#[cfg(test)]
mod tests;
