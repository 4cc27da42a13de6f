//! Allocation of a claim for a dry run, with links that the user names in place of the scheduler.
//! Selectors and constraints are not evaluated.
//!
//! ```text
//!  requests of a claim, classes, named links ─► `status.allocation`, as the scheduler writes it
//! ```

use super::claim::Config;
use super::device::{self, Form};
use super::message::about;
use super::nic;
use super::rate::Rate;
use super::{BANDWIDTH, DRIVER, WHOLE_CLASS, quantity};
use crate::cni::{Error, Json};
use crate::k8s::{ObjectName, text_at};
use crate::name::IfName;

/// Pool and id of an allocated share, which no plan depends on.
const ANY: &str = "example";

/// A link that the user names for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLink {
    /// Request; `None` for all requests without a link of their own.
    pub request: Option<String>,
    /// The link.
    pub link: IfName,
    /// Form in which a class of the user has it; `None` if the class decides.
    pub form: Option<Form>,
    /// Speed, if known.
    pub speed: Option<Rate>,
}

/// An allocation, and sentences about the requests that are not as in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// `status.allocation` of the claim.
    pub json: Json,
    /// Sentences for the user.
    pub notes: Vec<String>,
}

/// Allocates the devices of a claim. `devices` is its `spec.devices`. `classes` are objects of kind `DeviceClass`.
/// Requests for classes of other drivers, and for unknown classes, are left out.
pub fn allocate(
    claim: &ObjectName,
    devices: &Json,
    classes: &[&Json],
    links: &[NamedLink],
) -> Result<Allocation, Error> {
    let mut allocator = Allocator {
        classes,
        links,
        results: Vec::new(),
        configs: Vec::new(),
        notes: Vec::new(),
    };
    for json in devices.list("requests")?.unwrap_or_default() {
        let request = allocator.request(json);
        request.map_err(|error| about(claim, error))?;
    }
    for config in devices.list("config")?.unwrap_or_default() {
        allocator.configs.push(from("FromClaim", config));
    }
    let prefix = |note| format!("claim {claim}: {note}");
    Ok(Allocation {
        json: Json::object_of([(
            "devices",
            Json::object_of([
                ("results", allocator.results.into()),
                ("config", allocator.configs.into()),
            ]),
        )]),
        notes: allocator.notes.into_iter().map(prefix).collect(),
    })
}

/// A request, or the first alternative of one.
struct Request<'a> {
    /// Name in the claim.
    main: &'a str,
    /// `<request>`, or `<request>/<alternative>`.
    name: String,
    class: &'a str,
    json: &'a Json,
}

struct Allocator<'a> {
    classes: &'a [&'a Json],
    links: &'a [NamedLink],
    results: Vec<Json>,
    configs: Vec<Json>,
    notes: Vec<String>,
}

impl Allocator<'_> {
    fn request(&mut self, json: &Json) -> Result<(), Error> {
        let request = Request::of(json)?;
        let Request { name, class, .. } = &request;
        let known = self.classes.iter();
        let known = known.copied().find(|json| name_of(json) == Some(*class));
        let is_own = [DRIVER, WHOLE_CLASS].contains(class);
        if !is_own && !known.is_some_and(is_of_driver) {
            let why = if known.is_some() {
                "is of another driver"
            } else {
                "is not in these files"
            };
            self.notes.push(format!(
                "request {name:?}: class {class:?} {why}; not shown"
            ));
            return Ok(());
        }
        let links = self.links_of(&request);
        let links = links.map_err(|error| error.context(format_args!("request {name:?}")))?;
        for link in links {
            let result = self.result(&request, link);
            let result = result.map_err(|error| error.context(format_args!("request {name:?}")))?;
            self.results.push(result);
        }
        let spec = known.and_then(|json| json.get("spec"));
        let spec = spec.unwrap_or(&Json::Null);
        for config in spec.list("config")?.unwrap_or_default() {
            let mut config = from("FromClass", config);
            config.set("requests", vec![Json::from(request.name.as_str())]);
            self.configs.push(config);
        }
        Ok(())
    }

    /// Returns the links of a request, one for each device.
    fn links_of(&self, request: &Request<'_>) -> Result<Vec<NamedLink>, Error> {
        let Request { main, json, .. } = request;
        if text_at(json, "allocationMode") == Some("All") {
            return Err(Error::config(
                "\"allocationMode\": \"All\": only the scheduler knows all devices",
            ));
        }
        let count = json.u64("count")?.unwrap_or(1);
        let of = |name: Option<&str>| -> Vec<NamedLink> {
            let links = self.links.iter();
            let links = links.filter(|one| one.request.as_deref() == name);
            links.cloned().collect()
        };
        let own = of(Some(main));
        let links = if own.is_empty() { of(None) } else { own };
        if u64::try_from(links.len()).is_ok_and(|found| found == count) {
            return Ok(links);
        }
        let each = if count == 1 {
            String::new()
        } else {
            format!(" {count} times, each with another link")
        };
        Err(Error::config(format!(
            "--device {main}=<link> is required{each}: the scheduler is not asked"
        )))
    }

    /// Returns the item of `results` for a link.
    fn result(&mut self, request: &Request<'_>, named: NamedLink) -> Result<Json, Error> {
        let NamedLink { link, speed, .. } = named;
        let form = match (request.class, named.form) {
            (DRIVER, Some(Form::Whole)) => {
                return Err(Error::config(format!(
                    "class {DRIVER:?} has shares of {link}, and {WHOLE_CLASS:?} all of it"
                )));
            }
            (DRIVER, _) => Form::Shared,
            (WHOLE_CLASS, _) => Form::Whole,
            (_, form) => form.unwrap_or(Form::Shared),
        };
        let mut result = Json::object_of([
            ("request", request.name.as_str().into()),
            ("driver", DRIVER.into()),
            ("pool", ANY.into()),
            ("device", device::name(&link, form).into()),
        ]);
        if form == Form::Whole {
            return Ok(result);
        }
        result.set("shareID", ANY);
        let bandwidth = request.bandwidth()?;
        match bandwidth.or(speed.map(nic::default_bandwidth)) {
            Some(Rate(rate)) => {
                let rate = rate.max(nic::MIN.0);
                result.set(
                    "consumedCapacity",
                    Json::object_of([(BANDWIDTH, rate.into())]),
                );
            }
            None => self.notes.push(format!(
                "request {:?}: the speed of {link} is not known, so its default bandwidth is not \
                 shown",
                request.name
            )),
        }
        Ok(result)
    }
}

impl<'a> Request<'a> {
    fn of(json: &'a Json) -> Result<Self, Error> {
        let main = json.str_or("name", "")?;
        let first = json.list("firstAvailable")?.unwrap_or_default().first();
        let (name, inner) = match first {
            Some(first) => (format!("{main}/{}", first.str_or("name", "")?), first),
            None => (
                main.to_owned(),
                json.object("exactly")?.unwrap_or(&Json::Null),
            ),
        };
        Ok(Self {
            main,
            name,
            class: inner.str_or("deviceClassName", "")?,
            json: inner,
        })
    }

    fn bandwidth(&self) -> Result<Option<Rate>, Error> {
        let capacity = self.json.object_in("capacity", "requests")?;
        let bandwidth = capacity.and_then(|capacity| capacity.get(BANDWIDTH));
        let bandwidth = bandwidth.map(quantity::of_json).transpose()?;
        Ok(bandwidth.map(Rate))
    }
}

/// True if a class selects devices of this driver, or has parameters for it. Its expressions are not
/// evaluated.
fn is_of_driver(class: &Json) -> bool {
    let spec = class.get("spec").unwrap_or(&Json::Null);
    let items = |key: &str| spec.list(key).ok().flatten().unwrap_or_default();
    let names_it = |selector: &Json| {
        let expression = selector
            .get("cel")
            .and_then(|cel| text_at(cel, "expression"));
        expression.is_some_and(|text| text.contains(DRIVER))
    };
    let is_for_it = |config: &Json| matches!(Config::of(config, true), Ok(Some(_)));
    items("selectors").iter().any(names_it) || items("config").iter().any(is_for_it)
}

fn name_of(object: &Json) -> Option<&str> {
    text_at(object.get("metadata")?, "name")
}

/// Returns a configuration with its source.
fn from(source: &str, config: &Json) -> Json {
    let mut config = config.clone();
    config.set("source", source);
    config
}

#[cfg(test)]
mod tests;
