//! The rights that are shipped, held against what braid's account has asked of the API server: each
//! test ends with that.

use crate::server::Server;
use braid_testbed::audit;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Fails where braid's account has ever asked for what its role does not allow.
pub(crate) fn assert_allowed(server: &Server) {
    let audit = server.audit();
    let more: Vec<String> = audit.asked().difference(granted(server)).cloned().collect();
    assert_eq!(more, [""; 0], "braid asks for more than its role has");
    assert_eq!(audit.forbidden(), [""; 0], "forbidden");
}

/// `<verb> <group>/<resource>` of all that the shipped role allows.
pub(crate) fn granted(server: &Server) -> &'static BTreeSet<String> {
    static GRANTED: OnceLock<BTreeSet<String>> = OnceLock::new();
    GRANTED.get_or_init(|| {
        let role = server.kubectl(&["get", "clusterrole", "braid", "-o", "json"], None);
        audit::granted(&serde_json::from_str(&role).expect("kubectl prints JSON"))
    })
}
