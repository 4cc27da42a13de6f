//! Comparison of the shipped RBAC roles with all requests that braid's account has sent. Each test
//! ends with this comparison.

use crate::server::Server;
use braid_testbed::audit;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Fails if braid's account has ever sent a request that its roles do not allow.
pub(crate) fn assert_allowed(server: &Server) {
    let audit = server.audit();
    let more: Vec<String> = audit.asked().difference(granted(server)).cloned().collect();
    assert_eq!(more, [""; 0], "braid asks for more than its roles have");
    assert_eq!(audit.forbidden(), [""; 0], "forbidden");
}

/// Returns each RBAC right that the shipped roles grant, as `<verb> <group>/<resource>`.
pub(crate) fn granted(server: &Server) -> &'static BTreeSet<String> {
    static GRANTED: OnceLock<BTreeSet<String>> = OnceLock::new();
    GRANTED.get_or_init(|| {
        let mut rights = BTreeSet::new();
        for role in ["clusterrole/braid", "role/braid"] {
            let arguments = ["get", role, "-n", "kube-system", "-o", "json"];
            let role = server.kubectl(&arguments, None);
            let role = serde_json::from_str(&role).expect("kubectl prints JSON");
            rights.extend(audit::granted(&role));
        }
        rights
    })
}
