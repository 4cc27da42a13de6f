//! The API server's audit log: the requests of braid's account, for comparison with its role.

use crate::Cluster;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// User name of braid's service account, which deploy/braid.yaml creates.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:braid";

/// Requests of one account that the API server has answered.
#[derive(Debug)]
pub struct Audit {
    requests: Vec<Value>,
}

/// Writes the audit policy into `folder`. Returns the API server's flags for an audit log in the
/// same folder. The log has the requests of `users`, or of all users if `users` is empty.
pub(crate) fn flags(folder: &Path, users: &[&str]) -> Result<[String; 2]> {
    let rules = json!([{"level": "Metadata", "users": users}]);
    let omitted = ["RequestReceived"];
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": omitted, "rules": rules});
    let file = folder.join("audit-policy");
    fs::write(&file, policy.to_string()).with_context(|| format!("write {}", file.display()))?;
    Ok([
        format!("--audit-log-path={}", log(folder).display()),
        format!("--audit-policy-file={}", file.display()),
    ])
}

/// Path of the audit log, which has a line of JSON for each request.
pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

impl Audit {
    /// Reads the requests of braid's account from the audit log in `folder`. Skips a line that the
    /// API server has not completed yet.
    pub fn read(folder: &Path) -> Result<Self> {
        Ok(Self::of_lines(&text(folder)?, USER))
    }

    /// Reads the requests of a service account from the audit log in `folder`. `account` is its
    /// namespace and name, `<namespace>:<name>`.
    pub fn read_of(folder: &Path, account: &str) -> Result<Self> {
        Ok(Self::of_lines(
            &text(folder)?,
            &format!("system:serviceaccount:{account}"),
        ))
    }

    fn of_lines(text: &str, user: &str) -> Self {
        let mut requests = Vec::new();
        for line in text.lines() {
            if let Ok(request) = serde_json::from_str::<Value>(line)
                && request["user"]["username"] == user
            {
                requests.push(request);
            }
        }
        Self { requests }
    }

    /// Reads the requests of braid's account from the audit log of a cluster's API server.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        Self::read(&cluster.log(""))
    }

    /// Returns the audit events as the API server wrote them.
    pub fn requests(&self) -> &[Value] {
        &self.requests
    }

    /// Keeps only requests for objects in `namespace` and for objects without a namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.requests.retain(|request| {
            let object = &request["objectRef"];
            object["namespace"].is_null() || object["namespace"] == namespace
        });
        self
    }

    /// Keeps only requests with tokens that are bound to this node.
    #[must_use]
    pub fn of_node(mut self, node: &str) -> Self {
        self.requests.retain(|request| {
            let bound = &request["user"]["extra"]["authentication.kubernetes.io/node-name"];
            *bound == json!([node])
        });
        self
    }

    /// Returns the RBAC right that each request needs, as `<verb> <group>/<resource>`.
    pub fn asked(&self) -> BTreeSet<String> {
        self.requests.iter().map(right).collect()
    }

    /// Counts the completed requests by the RBAC right that each needs. A watch is complete when it
    /// ends.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.requests {
            if request["stage"] == "ResponseComplete" {
                *counts.entry(right(request)).or_default() += 1;
            }
        }
        counts
    }

    /// Returns the RBAC right of each request that a missing right or an admission policy refused,
    /// as `<verb> <group>/<resource>`.
    pub fn forbidden(&self) -> Vec<String> {
        let mut forbidden = Vec::new();
        for request in &self.requests {
            let decision = &request["annotations"]["authorization.k8s.io/decision"];
            let message = request["responseStatus"]["message"].as_str();
            let is_refused = message.is_some_and(|text| text.contains(" denied request: "));
            if decision == "forbid" || is_refused {
                forbidden.push(right(request));
            }
        }
        forbidden
    }
}

fn text(folder: &Path) -> Result<String> {
    let log = log(folder);
    fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))
}

fn right(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &request["objectRef"];
    if object["resource"].is_null() {
        return format!(
            "{} {}",
            text(&request["verb"]),
            text(&request["requestURI"])
        );
    }
    let (group, resource, below) = (
        text(&object["apiGroup"]),
        text(&object["resource"]),
        text(&object["subresource"]),
    );
    let below = if below.is_empty() {
        below
    } else {
        format!("/{below}")
    };
    format!("{} {group}/{resource}{below}", text(&request["verb"]))
}

/// Returns each RBAC right that a role grants, as `<verb> <group>/<resource>`.
pub fn granted(role: &Value) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for verb in words(&rule["verbs"]) {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    rights.insert(format!("{verb} {group}/{resource}"));
                }
            }
        }
    }
    rights
}

/// Returns the strings in an array.
fn words(array: &Value) -> Vec<&str> {
    let mut words = Vec::new();
    for word in array.as_array().into_iter().flatten() {
        words.extend(word.as_str());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_a_rule_name_a_right_in_the_same_words() {
        let object = json!({"resource": "pods", "subresource": "status", "apiVersion": "v1"});
        let forbid = json!({"authorization.k8s.io/decision": "forbid"});
        let user = json!({"username": USER});
        let log = [
            json!({"verb": "patch", "objectRef": object, "user": user}),
            json!({"verb": "get", "requestURI": "/version", "annotations": forbid, "user": user}),
            json!({"verb": "list", "objectRef": object, "user": {"username": "admin"}}),
        ];
        let bound =
            json!({"username": USER, "extra": {"authentication.kubernetes.io/node-name": ["n1"]}});
        let policy =
            json!({"message": "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"});
        let denied =
            json!({"verb": "patch", "objectRef": object, "user": bound, "responseStatus": policy});
        let of_node = Audit::of_lines(&[&log[0], &denied].map(Value::to_string).join("\n"), USER);
        assert_eq!(of_node.of_node("n1").forbidden(), ["patch /pods/status"]);
        let mut audit = Audit::of_lines(&log.map(|line| line.to_string()).join("\n"), USER);
        assert_eq!(
            audit.asked(),
            BTreeSet::from(["patch /pods/status".to_owned(), "get /version".to_owned()])
        );
        assert_eq!(audit.forbidden(), ["get /version"]);
        let role = json!({"rules": [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]});
        assert_eq!(
            granted(&role),
            BTreeSet::from(["patch /pods/status".to_owned()])
        );
        audit.requests[0]["objectRef"]["namespace"] = json!("other");
        assert_eq!(
            audit.within("web").asked(),
            BTreeSet::from(["get /version".to_owned()])
        );
    }
}
