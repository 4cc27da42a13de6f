//! Documents with claims or classes of network devices, or with pods that have claims, with the lines of
//! all their values.

use super::lines::{Lines, Node};
use braid_core::cni::Json;
use braid_core::lint::device_claims::GROUP;
use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

/// Maximum nesting of a document. Each level takes several frames of the stack.
const MAX_DEPTH: usize = 64;

/// Key of the claims in a pod.
pub(in super::super) const RESOURCE_CLAIMS: &str = "resourceClaims";

/// A document.
#[derive(Debug)]
pub(in super::super) struct DeviceDocument {
    pub(in super::super) json: Json,
    pub(in super::super) lines: Lines,
}

impl DeviceDocument {
    /// Parses all documents of a text that has such objects. The error has the line and the fault.
    pub(super) fn all(text: &str) -> Result<Vec<Self>, (usize, String)> {
        if !text.contains(GROUP) && !text.contains(RESOURCE_CLAIMS) {
            return Ok(Vec::new());
        }
        let values: Vec<Spanned<Node>> = parsed(text)?;
        let jsons: Vec<Json> = parsed(text)?;
        let both = jsons.into_iter().zip(values);
        let document = |(json, values)| Self {
            json,
            lines: Lines::Values(values),
        };
        Ok(both.map(document).collect())
    }

    /// Returns the object, or the objects of a list.
    pub(in super::super) fn objects(&self) -> &[Json] {
        match self.json.get("items") {
            Some(Json::Array(items)) => items,
            Some(_) | None => std::slice::from_ref(&self.json),
        }
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, (usize, String)> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        // As in Kubernetes, `n` and `y` are names.
        strict_booleans: true,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|err| {
        let line = err.location().map_or(1, |place| place.line());
        let line = usize::try_from(line).unwrap_or(1);
        (line, err.without_snippet().to_string().replace('\n', " "))
    })
}
