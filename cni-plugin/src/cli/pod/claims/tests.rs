use super::*;
use crate::cli::manifests;
use braid_core::name::IfName;

const PARAMETERS: &str = "{apiVersion: braid.dev/v1alpha1, kind: Attachment, interface: data0}";

/// Returns the claims of the only pod in a manifest, with the link `eth1` for all requests.
fn found(manifest: &str) -> Result<ClaimsOfPod, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    std::fs::write(&path, manifest).expect("a file");
    let (objects, all) = manifests::read(&[path]).expect("manifests");
    let link = NamedLink {
        request: None,
        link: IfName::parse("eth1").expect("a name"),
        form: None,
        speed: None,
    };
    let found = of_pod(&objects.pods[0], &all, &[link]).map_err(|error| error.msg)?;
    let allowed = found.refuse_host_network();
    allowed.map(|()| found).map_err(|error| error.msg)
}

fn pod(claims: &str, more: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: web, namespace: shop}}\nspec: {{resourceClaims: [{claims}]{more}}}\n"
    )
}

/// Returns a claim, or a template with one, for 1 Gbit/s. `more` are further lines.
fn object(kind: &str, name: &str, more: &str) -> String {
    let request =
        "{name: nic, exactly: {deviceClassName: braid.dev, capacity: {requests: {bandwidth: 1G}}}}";
    let config = format!("{{opaque: {{driver: braid.dev, parameters: {PARAMETERS}}}}}");
    let spec = format!("{{devices: {{requests: [{request}], config: [{config}]}}}}");
    let spec = if kind == "ResourceClaim" {
        spec
    } else {
        format!("{{spec: {spec}}}")
    };
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n{more}"
    )
}

fn shown(found: &ClaimsOfPod) -> Vec<String> {
    let mut shown = Vec::new();
    for claim in &found.claims {
        let devices = claim.shares.iter().map(|share| share.device.as_str());
        let pods = claim
            .pods
            .iter()
            .map(|pod| format!("{}/{}", pod.name, pod.uid));
        let (devices, pods) = (devices.collect::<Vec<_>>(), pods.collect::<Vec<_>>());
        shown.push(format!("{} {devices:?} {pods:?}", claim.name));
    }
    shown
}

const TEMPLATE: &str = "{name: t, resourceClaimTemplateName: fast}";
const NAMED: &str = "{name: n, resourceClaimName: vm-7}";

#[test]
fn claims_of_a_pod_have_its_order_and_are_reserved_for_it() {
    let text = pod(&format!("{TEMPLATE}, {NAMED}"), "")
        + &object("ResourceClaim", "vm-7", "")
        + &object("ResourceClaimTemplate", "fast", "");
    let expected = [
        r#"shop/web-t ["eth1"] ["web/"]"#,
        r#"shop/vm-7 ["eth1"] ["web/"]"#,
    ];
    let claims = found(&text).expect("claims");
    assert_eq!(shown(&claims), expected);
    assert_eq!(claims.claims[0].shares[0].bandwidth, Some(1_000_000_000));
    let workload = text.replacen("kind: Pod", "kind: Deployment", 1);
    let workload = workload.replacen("spec: {resource", "spec: {template: {spec: {resource", 1);
    let workload = workload.replacen("vm-7}]}", "vm-7}]}}}", 1);
    assert_eq!(shown(&found(&workload).expect("claims")), expected);
    assert_eq!(shown(&found(&pod("", "")).expect("none")), [""; 0]);
}

#[test]
fn the_allocation_of_the_files_precedes_named_links() {
    let share = "{request: nic, driver: braid.dev, pool: n1, device: eth2, consumedCapacity: {bandwidth: 2G}}";
    let status = |pod: &str| {
        let reserved = format!("[{{resource: pods, name: {pod}, uid: u}}]");
        format!(
            "status: {{allocation: {{devices: {{results: [{share}]}}}}, reservedFor: {reserved}}}\n"
        )
    };
    let text =
        |pod_name: &str| pod(NAMED, "") + &object("ResourceClaim", "vm-7", &status(pod_name));
    let own = found(&text("web")).expect("claims");
    assert_eq!(shown(&own), [r#"shop/vm-7 ["eth2"] ["web/"]"#]);
    assert_eq!(own.claims[0].shares[0].bandwidth, Some(2_000_000_000));
    // ADD refuses the second pod of a claim.
    let other = found(&text("old")).expect("claims");
    assert_eq!(shown(&other), [r#"shop/vm-7 ["eth2"] ["old/u"]"#]);
}

#[test]
fn a_claim_that_is_not_in_the_files_is_an_error() {
    for (text, message) in [
        (
            pod(NAMED, ""),
            "claim shop/vm-7: there is no such ResourceClaim in these files",
        ),
        (
            pod(TEMPLATE, ""),
            "claim shop/web-t: there is no ResourceClaimTemplate shop/fast in these files",
        ),
        (
            pod(NAMED, ", hostNetwork: true") + &object("ResourceClaim", "vm-7", ""),
            "claim shop/vm-7: the pod has hostNetwork, so it can't have network devices of claims",
        ),
    ] {
        assert_eq!(found(&text).expect_err("an error"), message);
    }
}
