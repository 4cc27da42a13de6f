//! The rights that are shipped, held against what the API server has seen: each test ends with that.

use crate::server::Server;
use braid_tests::Value;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// braid's account.
const ACCOUNT: &str = "system:serviceaccount:kube-system:braid";

/// Requests of braid's account so far, in any test, that are of this namespace or of none; of all namespaces without one.
pub(crate) fn asked(server: &Server, namespace: Option<&str>) -> BTreeSet<String> {
    let of = |event: &&Value| {
        let of = event["objectRef"]["namespace"].as_str();
        namespace.is_none() || of.is_none() || of == namespace
    };
    server.audit().iter().filter(|event| event["user"]["username"] == ACCOUNT).filter(of).map(right).collect()
}

/// Fails where braid's account has ever asked for what its role does not allow.
pub(crate) fn assert_allowed(server: &Server) {
    let more: Vec<String> = asked(server, None).difference(granted(server)).cloned().collect();
    assert_eq!(more, [""; 0], "braid asks for more than its role has");
    let log = server.audit();
    let is_forbidden = |event: &&Value| {
        event["user"]["username"] == ACCOUNT && event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    };
    assert_eq!(log.iter().filter(is_forbidden).map(right).collect::<Vec<_>>(), [""; 0], "forbidden");
}

/// `<verb> <group>/<resource>` of a request.
fn right(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    if object["resource"].is_null() {
        return format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
    }
    let (group, resource, below) = (text(&object["apiGroup"]), text(&object["resource"]), text(&object["subresource"]));
    let below = if below.is_empty() { below } else { format!("/{below}") };
    format!("{} {group}/{resource}{below}", text(&event["verb"]))
}

/// The same of all that the shipped role allows.
pub(crate) fn granted(server: &Server) -> &'static BTreeSet<String> {
    static GRANTED: OnceLock<BTreeSet<String>> = OnceLock::new();
    GRANTED.get_or_init(|| {
        let role = server.kubectl(&["get", "clusterrole", "braid", "-o", "json"], None);
        rights(&serde_json::from_str(&role).expect("kubectl prints JSON"))
    })
}

fn rights(role: &Value) -> BTreeSet<String> {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for verb in list(&rule["verbs"]) {
            for group in list(&rule["apiGroups"]) {
                rights.extend(list(&rule["resources"]).iter().map(|resource| format!("{verb} {group}/{resource}")));
            }
        }
    }
    rights
}
