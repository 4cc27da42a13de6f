//! Resource claims of a pod in manifest files, with their allocation: the one in the files, or else
//! links that the user names.

use crate::cli::manifests::is_named;
use braid_core::cni::{Error, Json};
use braid_core::dra::allocation::{self, Allocation, NamedLink};
use braid_core::dra::claim::{Claim, ClaimingPod};
use braid_core::dra::message::about;
use braid_core::dra::pod_claims::PodClaims;
use braid_core::k8s::{ObjectName, Pod, text_at};

/// Uid of a claim without one in the files.
const UID: &str = "example";

/// Claims of a pod that have devices of braid, in its order.
#[derive(Debug, Default)]
pub(in crate::cli) struct ClaimsOfPod {
    pub(in crate::cli) claims: Vec<Claim>,
    /// Sentences about requests that are not as in a cluster.
    pub(in crate::cli) notes: Vec<String>,
    pod: Option<PodClaims>,
}

impl ClaimsOfPod {
    /// Refuses devices for a pod in the node's network namespace.
    pub(in crate::cli) fn refuse_host_network(&self) -> Result<(), Error> {
        match (&self.pod, self.claims.first()) {
            (Some(pod), Some(claim)) => pod
                .refuse_host_network()
                .map_err(|error| about(&claim.name, error)),
            _ => Ok(()),
        }
    }
}

/// Returns the claims of `pod`. `objects` are all objects of the files.
pub(in crate::cli) fn of_pod(
    pod: &Pod,
    objects: &[Json],
    links: &[NamedLink],
) -> Result<ClaimsOfPod, Error> {
    let Some(body) = pod_body(&pod.name, objects)? else {
        return Ok(ClaimsOfPod::default());
    };
    let of_pod = PodClaims::parse(body.to_string().as_bytes())
        .map_err(|error| error.context(format_args!("pod {}", pod.name)))?;
    let classes: Vec<&Json> = objects
        .iter()
        .filter(|json| is(json, "DeviceClass"))
        .collect();
    let mut found = ClaimsOfPod::default();
    for name in &of_pod.names {
        let name = ObjectName {
            namespace: pod.name.namespace.clone(),
            name: name.clone(),
        };
        let object = claim_object(&name, &body, objects)?;
        let (object, notes) = allocated(&name, object, &classes, links)?;
        let mut claim = Claim::parse(object.to_string().as_bytes())?;
        reserve(&mut claim, pod);
        found.notes.extend(notes);
        found
            .claims
            .extend(Some(claim).filter(|claim| !claim.shares.is_empty()));
    }
    found.pod = Some(of_pod);
    Ok(found)
}

/// Returns the pod with the names of claims that are made from templates; `None` if the files do not
/// have its claims.
fn pod_body(name: &ObjectName, objects: &[Json]) -> Result<Option<Json>, Error> {
    let mut named = objects.iter().filter(|object| is_named(object, name));
    let found = named.find_map(|object| Some((object, pod_spec(object)?)));
    let Some((object, spec)) = found else {
        return Ok(None);
    };
    let mut status = object.get("status").cloned().unwrap_or(Json::Null);
    let mut created: Vec<Json> = status.list(STATUSES)?.unwrap_or_default().to_vec();
    for claim in spec.list("resourceClaims")?.unwrap_or_default() {
        let own = claim.str_or("name", "")?;
        let is_created = created.iter().any(|one| text_at(one, "name") == Some(own));
        if claim.text(TEMPLATE)?.is_some() && !is_created {
            // The API server adds a random suffix.
            let generated = format!("{}-{own}", name.name);
            created.push(Json::object_of([
                ("name", own.into()),
                (CLAIM, generated.into()),
            ]));
        }
    }
    status.set(STATUSES, created);
    let metadata = object.get("metadata").cloned().unwrap_or(Json::Null);
    let fields = [
        ("metadata", metadata),
        ("spec", spec.clone()),
        ("status", status),
    ];
    Ok(Some(Json::object_of(fields)))
}

/// Keys of a pod.
const STATUSES: &str = "resourceClaimStatuses";
const CLAIM: &str = "resourceClaimName";
const TEMPLATE: &str = "resourceClaimTemplateName";

/// Returns the specification of a pod, or of the pods of a workload.
fn pod_spec(object: &Json) -> Option<&Json> {
    let spec = object.get("spec")?;
    if is(object, "Pod") {
        return Some(spec);
    }
    let template = match spec.get("jobTemplate") {
        Some(job) => job.get("spec")?.get("template"),
        None => spec.get("template"),
    };
    template?.get("spec")
}

/// Returns a claim of the pod, from the files or from its template.
fn claim_object(name: &ObjectName, pod: &Json, objects: &[Json]) -> Result<Json, Error> {
    let object = |kind: &str, name: &ObjectName| {
        let mut objects = objects.iter();
        objects.find(|object| is(object, kind) && is_named(object, name))
    };
    if let Some(claim) = object("ResourceClaim", name) {
        return Ok(claim.clone());
    }
    let template = template_of(&name.name, pod)?;
    let Some(template) = template else {
        let sentence = "there is no such ResourceClaim in these files";
        return Err(about(name, Error::config(sentence)));
    };
    let template = ObjectName {
        namespace: name.namespace.clone(),
        name: template.to_owned(),
    };
    let Some(found) = object("ResourceClaimTemplate", &template) else {
        let sentence = format!("there is no ResourceClaimTemplate {template} in these files");
        return Err(about(name, Error::config(sentence)));
    };
    let spec = found.object_in("spec", "spec")?.unwrap_or(&Json::Null);
    Ok(Json::object_of([("spec", spec.clone())]))
}

/// Returns the name of the template that a claim of the pod is made from, if any.
fn template_of<'j>(claim: &str, pod: &'j Json) -> Result<Option<&'j str>, Error> {
    let created = pod.get("status").unwrap_or(&Json::Null).list(STATUSES)?;
    let mut created = created.unwrap_or_default().iter();
    let Some(created) = created.find(|one| text_at(one, CLAIM) == Some(claim)) else {
        return Ok(None);
    };
    let own = text_at(created, "name");
    let claims = pod
        .get("spec")
        .unwrap_or(&Json::Null)
        .list("resourceClaims")?;
    let mut claims = claims.unwrap_or_default().iter();
    let of_pod = claims.find(|claim| text_at(claim, "name") == own);
    Ok(of_pod.and_then(|claim| text_at(claim, TEMPLATE)))
}

/// Returns a claim with its name and an allocation, and sentences about that.
fn allocated(
    name: &ObjectName,
    mut object: Json,
    classes: &[&Json],
    links: &[NamedLink],
) -> Result<(Json, Vec<String>), Error> {
    let mut metadata = object.get("metadata").cloned().unwrap_or(Json::Null);
    metadata.set("namespace", name.namespace.as_str());
    metadata.set("name", name.name.as_str());
    if metadata.text("uid")?.is_none() {
        metadata.set("uid", UID);
    }
    object.set("metadata", metadata);
    if object.object_in("status", "allocation")?.is_some() {
        return Ok((object, Vec::new()));
    }
    let devices = object.object_in("spec", "devices")?.unwrap_or(&Json::Null);
    let Allocation { json, notes } = allocation::allocate(name, devices, classes, links)?;
    object.set("status", Json::object_of([("allocation", json)]));
    Ok((object, notes))
}

/// Reserves a claim for the pod, as the scheduler does, unless it is reserved for another one.
fn reserve(claim: &mut Claim, pod: &Pod) {
    match claim.pods.first_mut() {
        // The manifest of a pod has no uid.
        Some(first) if first.name == pod.name.name && pod.uid.is_empty() => first.uid.clear(),
        Some(_) => {}
        None => claim.pods.push(ClaimingPod {
            name: pod.name.name.clone(),
            uid: pod.uid.clone(),
        }),
    }
}

fn is(object: &Json, kind: &str) -> bool {
    text_at(object, "kind") == Some(kind)
}

#[cfg(test)]
mod tests;
