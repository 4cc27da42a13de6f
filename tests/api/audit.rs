//! Comparison of the shipped RBAC role with all requests that braid's account has sent. Each test
//! ends with this comparison.

use crate::server::Server;
use braid_testbed::audit;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Fails if braid's account has ever sent a request that its role does not allow.
pub(crate) fn assert_allowed(server: &Server) {
    let audit = server.audit();
    let more: Vec<String> = audit.asked().difference(granted(server)).cloned().collect();
    assert_eq!(more, [""; 0], "braid asks for more than its role has");
    assert_eq!(audit.forbidden(), [""; 0], "forbidden");
}

/// Returns each RBAC right that the shipped role grants, as `<verb> <group>/<resource>`.
pub(crate) fn granted(server: &Server) -> &'static BTreeSet<String> {
    static GRANTED: OnceLock<BTreeSet<String>> = OnceLock::new();
    GRANTED.get_or_init(|| {
        let role = server.kubectl(&["get", "clusterrole", "braid", "-o", "json"], None);
        audit::granted(&serde_json::from_str(&role).expect("kubectl prints JSON"))
    })
}
