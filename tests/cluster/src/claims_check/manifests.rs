//! Claims and pods.

use crate::pods;
use braid_testbed::Node;
use serde_json::{Value, json};

pub(super) const APP: &str = pods::CLAIMS;
/// Name of the interface of each claim.
pub(super) const INTERFACE: &str = "data0";
/// Rate of each claim in bit/s, as the claim and as a number.
pub(super) const RATE: (&str, u32) = ("200M", 200_000_000);
const CLASS: &str = "braid.dev";
const WHOLE: &str = "whole.braid.dev";

/// Returns a request for a share of `link` with this rate.
pub(super) fn share(request: &str, link: &str, rate: &str) -> Value {
    json!({"name": request, "exactly": exactly(link, rate)})
}

/// Returns what a request with this rate on `link` asks for.
pub(super) fn exactly(link: &str, rate: &str) -> Value {
    json!({
        "deviceClassName": CLASS,
        "selectors": [on_link(link)],
        "capacity": {"requests": {"bandwidth": rate}},
    })
}

/// Returns a request for the whole of `link`.
pub(super) fn whole_of(request: &str, link: &str) -> Value {
    json!({"name": request, "exactly": {"deviceClassName": WHOLE, "selectors": [on_link(link)]}})
}

fn on_link(link: &str) -> Value {
    let expression = format!("device.attributes['braid.dev'].ifName == '{link}'");
    json!({"cel": {"expression": expression}})
}

/// Returns the configuration with these keys of an attachment.
pub(super) fn config(requests: &[&str], keys: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "braid.dev/v1alpha1", "kind": "Attachment"});
    for (key, value) in keys.as_object().into_iter().flatten() {
        parameters[key] = value.clone();
    }
    json!({"requests": requests, "opaque": {"driver": CLASS, "parameters": parameters}})
}

/// Returns the keys of a macvlan with an address that the router of the nodes' links reaches.
pub(super) fn reachable() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "198.18.1.0/24", "rangeStart": "198.18.1.33",
        "rangeEnd": "198.18.1.62"});
    json!({"interface": INTERFACE, "network": {"type": "macvlan", "ipam": ipam}})
}

/// Returns the devices of a claim: requests and configurations.
pub(super) fn devices(requests: &[Value], configs: &[Value]) -> Value {
    json!({"requests": requests, "config": configs})
}

pub(super) fn claim(name: &str, devices: &Value) -> Value {
    let mut claim = object("ResourceClaim", name);
    claim["spec"] = json!({"devices": devices});
    claim
}

pub(super) fn template(name: &str, devices: &Value) -> Value {
    let mut template = object("ResourceClaimTemplate", name);
    template["spec"] = json!({"spec": {"devices": devices}});
    template
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": APP}},
    })
}

/// Returns a pod on `node` with a claim from each template.
pub(super) fn pod(name: &str, node: Node, templates: &[&str]) -> Value {
    let claims = templates.iter().map(|template| {
        let key = "resourceClaimTemplateName";
        json!({"name": template, key: template})
    });
    with_claims(name, node, claims.collect())
}

/// Returns a pod on `node` with a claim that is there already.
pub(super) fn pod_of_claim(name: &str, node: Node, claim: &str) -> Value {
    with_claims(
        name,
        node,
        vec![json!({"name": "it", "resourceClaimName": claim})],
    )
}

fn with_claims(name: &str, node: Node, claims: Vec<Value>) -> Value {
    let mut pod = pods::on(name, APP, node, pods::spec("exec sleep 1000000"));
    let names = claims.iter().map(|claim| json!({"name": claim["name"]}));
    pod["spec"]["containers"][0]["resources"] = json!({"claims": names.collect::<Vec<_>>()});
    pod["spec"]["resourceClaims"] = claims.into();
    pod
}
