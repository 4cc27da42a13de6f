//! Updates a pod's annotation, but only if the annotation has not changed since it was read.
//!
//! ```text
//!  PATCH: test uid, value; add ─► 422: GET, retry ─► 403: GET, PUT pod to /status ─► 409: retry
//! ```

use super::api_request::ApiRequest;
use super::session::Session;
use super::{get_pod, object};
use braid_core::k8s::ObjectName;
use braid_core::k8s::source::{Edit, SourceError};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Largest number of attempts. Each retry follows a change by another writer.
const ATTEMPTS: usize = 8;

/// Updates an annotation of the pod with this uid. Sets `may_patch` to false if the account may not
/// patch, like the account of Multus, which has only `update`.
pub(super) async fn annotate(
    session: &Session<'_>,
    (pod, uid): (&ObjectName, &str),
    edit: &Edit<'_>,
    may_patch: &Cell<bool>,
) -> Result<(), SourceError> {
    if !may_patch.get() {
        return put(session, (pod, uid), edit).await;
    }
    let mut present = edit.seen.map(Cow::Borrowed);
    let mut refused: Option<SourceError> = None;
    for _ in 0..ATTEMPTS {
        let known = match present.take() {
            Some(known) => known,
            None => Cow::Owned(read(session, pod, uid).await?),
        };
        let now = known.get(edit.key).map(String::as_str);
        // The annotation may already have braid's value, if the response to an earlier attempt was
        // lost.
        let Some(value) = change(edit, now) else {
            return Ok(());
        };
        let ask = ApiRequest::annotate(pod, uid, (edit.key, &value), &known)?;
        let Err((failure, attempts)) = session.answer(&ask).await else {
            return Ok(());
        };
        if failure.is_forbidden() {
            may_patch.set(false);
            return put(session, (pod, uid), edit).await;
        }
        let is_unfit = failure.is_unfit();
        let err = ask.failed(failure, attempts);
        if !is_unfit {
            return Err(err);
        }
        let read = read(session, pod, uid).await?;
        if read.get(edit.key) == known.get(edit.key) && read.is_empty() == known.is_empty() {
            // The `test` of the patch did not fail, so the server rejects the value itself.
            return Err(err);
        }
        (present, refused) = (Some(Cow::Owned(read)), Some(err));
    }
    Err(refused.unwrap_or_else(|| busy(pod)))
}

/// Returns the annotation's new value; `None` if the edit keeps the present value.
fn change(edit: &Edit<'_>, now: Option<&str>) -> Option<String> {
    let value = (edit.value)(now)?;
    if now == Some(value.as_str()) {
        return None;
    }
    Some(value)
}

/// Returns the pod's annotations. Fails if the pod has another uid.
async fn read(
    session: &Session<'_>,
    name: &ObjectName,
    uid: &str,
) -> Result<BTreeMap<String, String>, SourceError> {
    let pod = get_pod(session, name).await?;
    if pod.uid == uid {
        Ok(pod.annotations)
    } else {
        Err(ApiRequest::of_pod(name, uid)?.is_another())
    }
}

/// Reads the whole pod, changes the annotation, and writes the pod back unless its version has
/// changed. All other fields are written back as they were read.
async fn put(
    session: &Session<'_>,
    (pod, uid): (&ObjectName, &str),
    edit: &Edit<'_>,
) -> Result<(), SourceError> {
    let get = ApiRequest::of_pod(pod, uid)?;
    for _ in 0..ATTEMPTS {
        let body = session.send(&get).await?;
        let mut object: Value =
            serde_json::from_slice(&body).map_err(|err| get.unreadable(&err))?;
        if object::uid(&object) != uid {
            return Err(get.is_another());
        }
        let place = object::annotation_of(&mut object, edit.key);
        let Some(value) = change(edit, place.as_str()) else {
            return Ok(());
        };
        *place = value.into();
        let ask = ApiRequest::put(pod, uid, &object)?;
        match session.answer(&ask).await {
            Ok(_) => return Ok(()),
            Err((failure, _)) if failure.is_conflict() => {}
            Err((failure, attempts)) => return Err(ask.failed(failure, attempts)),
        }
    }
    Err(busy(pod))
}

fn busy(pod: &ObjectName) -> SourceError {
    SourceError::Passing {
        why: format!(
            "update pod {pod}: another writer changed it during each of {ATTEMPTS} attempts"
        ),
    }
}
