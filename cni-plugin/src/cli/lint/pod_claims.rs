//! Faults of a pod's resource claims together, if its files have all of them.

use crate::cli::manifests::RESOURCE_CLAIMS;
use crate::cli::pod::claims;
use braid_core::cni::{Error, FaultPlace, Json};
use braid_core::dra::allocation::NamedLink;
use braid_core::dra::attachments::{Attachment, of_claims, refuse_taken_names};
use braid_core::dra::device;
use braid_core::k8s::Pod;
use braid_core::lint::{Finding, Level};
use braid_core::name::IfName;

/// Link in place of the device that the scheduler will choose.
const ANY_LINK: &str = "eth1";

/// Returns the fault of the claims of a pod. A claim with a fault of its own is not judged again.
pub(super) fn of_pod(pod: &Pod, objects: &[Json]) -> Option<Finding> {
    let link = IfName::parse(ANY_LINK).ok()?;
    let links = [NamedLink {
        request: None,
        link: link.clone(),
        form: None,
        speed: None,
    }];
    let found = claims::of_pod(pod, objects, &links).ok()?;
    if let Err(error) = found.refuse_host_network() {
        return Some(finding(&error));
    }
    let attachments = of_claims(&found.claims, |share| {
        let (link, form) = device::link(&share.device, [&link])?;
        Some((link.clone(), form))
    });
    let attachments = attachments.ok()?;
    let same_claim = |a: &Attachment, b: &Attachment| a.claim == b.claim;
    let mut each = attachments.chunk_by(same_claim);
    if each.any(|of_claim| refuse_taken_names(of_claim).is_err()) {
        return None;
    }
    refuse_taken_names(&attachments)
        .err()
        .map(|error| finding(&error))
}

fn finding(error: &Error) -> Finding {
    Finding {
        level: Level::Error,
        place: FaultPlace::Path(Vec::new()),
        key: RESOURCE_CLAIMS.to_owned(),
        value: String::new(),
        what: error.to_string(),
    }
}
