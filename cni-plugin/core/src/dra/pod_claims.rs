//! Claims of a pod, by name.

use crate::cni::bounds::shortened;
use crate::cni::{Error, Json, Kind};
use crate::k8s::names;
use std::collections::BTreeSet;

/// Maximum number of claims of a pod.
const MAX_CLAIMS: usize = 256;

/// A pod, with the fields that its attachments by claims depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaims {
    /// `metadata.uid`.
    pub uid: String,
    /// True if the pod is in the node's network namespace.
    pub is_host_network: bool,
    /// Names of its claims, each once, in the order of `spec.resourceClaims`, then the claim that the
    /// scheduler made for extended resources.
    pub names: Vec<String>,
}

impl PodClaims {
    /// Parses a pod. Fails with a temporary error if a claim of a template has not been created.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let json = Json::parse(body, "Pod")?;
        let part = |key: &str| Ok::<_, Error>(json.object(key)?.unwrap_or(&Json::Null));
        let (metadata, spec, status) = (part("metadata")?, part("spec")?, part("status")?);
        let found = spec.list("resourceClaims")?.map_or(0, <[Json]>::len);
        if found > MAX_CLAIMS {
            return Err(Error::decode(format!(
                "{found} claims, more than {MAX_CLAIMS}"
            )));
        }
        let created = status.list("resourceClaimStatuses")?.unwrap_or_default();
        let names = spec.each_object("resourceClaims", |claim| name_of(claim, created))?;
        let mut names: Vec<String> = names.into_iter().flatten().collect();
        if let Some(extended) = status.object("extendedResourceClaimStatus")? {
            names.extend(extended.text("resourceClaimName")?.map(str::to_owned));
        }
        // Two items of `resourceClaims` may name one claim, each for other containers.
        let mut known = BTreeSet::new();
        names.retain(|name| known.insert(name.clone()));
        if let Some(name) = names.iter().find(|name| !names::is_object(name)) {
            let name = shortened(name);
            return Err(Error::decode(format!(
                "claim {name:?}: not the name of an object"
            )));
        }
        Ok(Self {
            uid: metadata.string("uid")?,
            is_host_network: spec.bool_or("hostNetwork", false)?,
            names,
        })
    }

    /// Refuses a pod in the node's network namespace, which gets no interface.
    pub fn refuse_host_network(&self) -> Result<(), Error> {
        if self.is_host_network {
            return Err(Error::config(
                "the pod has hostNetwork, so it can't have network devices of claims",
            ));
        }
        Ok(())
    }
}

/// Returns the name of a claim, from the pod or from its status; `None` if the claim is not needed.
/// `created` are the claims of templates.
fn name_of(claim: &Json, created: &[Json]) -> Result<Option<String>, Error> {
    if let Some(name) = claim.text("resourceClaimName")? {
        return Ok(Some(name.to_owned()));
    }
    let own = claim.str_or("name", "")?;
    for status in created {
        if status.str("name")? == Some(own) {
            return Ok(status.text("resourceClaimName")?.map(str::to_owned));
        }
    }
    let template = shortened(claim.str_or("resourceClaimTemplateName", "")?);
    Err(Error::new(
        Kind::TryAgain,
        format!(
            "claim {:?} of the pod: no ResourceClaim has been created from template {template:?} \
             yet",
            shortened(own)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(spec: &str, status: &str) -> Result<PodClaims, Error> {
        let text =
            format!(r#"{{"metadata":{{"uid":"u"}},"spec":{{{spec}}},"status":{{{status}}}}}"#);
        PodClaims::parse(text.as_bytes())
    }

    #[test]
    fn claims_have_the_order_of_the_pod() {
        let spec = r#""resourceClaims":[{"name":"t","resourceClaimTemplateName":"x"},
            {"name":"direct","resourceClaimName":"a"},{"name":"none","resourceClaimTemplateName":"y"}]"#;
        let status = r#""resourceClaimStatuses":[{"name":"none"},{"name":"t","resourceClaimName":"p-t-1"}],
            "extendedResourceClaimStatus":{"resourceClaimName":"p-ext"}"#;
        let pod = parsed(spec, status).expect("a pod");
        assert_eq!(pod.names, ["p-t-1", "a", "p-ext"]);
        assert_eq!((pod.uid.as_str(), pod.is_host_network), ("u", false));
        assert_eq!(pod.refuse_host_network(), Ok(()));
        assert_eq!(parsed("", "").expect("a pod").names, [""; 0]);
    }

    #[test]
    fn claim_that_a_pod_names_twice_is_one_claim() {
        let spec = r#""resourceClaims":[{"name":"x","resourceClaimName":"b"},{"name":"y","resourceClaimName":"a"},
            {"name":"z","resourceClaimName":"b"}]"#;
        let status = r#""extendedResourceClaimStatus":{"resourceClaimName":"a"}"#;
        assert_eq!(parsed(spec, status).expect("a pod").names, ["b", "a"]);
    }

    #[test]
    fn template_without_a_claim_is_a_temporary_error() {
        let spec = r#""resourceClaims":[{"name":"t","resourceClaimTemplateName":"x"}]"#;
        for status in [
            "",
            r#""resourceClaimStatuses":[{"name":"u","resourceClaimName":"a"}]"#,
        ] {
            let error = parsed(spec, status).expect_err("no claim");
            assert_eq!(error.kind, Kind::TryAgain);
            assert_eq!(
                error.msg,
                r#"resourceClaims[0]: claim "t" of the pod: no ResourceClaim has been created from template "x" yet"#
            );
        }
    }

    #[test]
    fn pod_that_cannot_have_claims_is_refused() {
        let pod = parsed(r#""hostNetwork":true"#, "").expect("a pod");
        assert!(pod.refuse_host_network().is_err());
        let named = r#""resourceClaims":[{"name":"t","resourceClaimName":"../x"}]"#;
        assert!(parsed(named, "").is_err());
        let many = format!(r#""resourceClaims":[{}{{}}]"#, "{},".repeat(256));
        assert!(parsed(&many, "").is_err());
    }
}
