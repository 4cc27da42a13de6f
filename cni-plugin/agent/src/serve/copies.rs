//! Copies of all networks on disk, for calls while agent and API are away.

use super::store::Store;
use braid_core::k8s::ObjectName;
use braid_node::source::network_cache::{FOLDER, write};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pause after a change, in which other changes arrive.
const SETTLE: Duration = Duration::from_millis(200);

/// Writes the networks after each change.
pub(super) async fn keep(store: Arc<Store>) {
    let mut changed = store.networks_changed();
    while changed.changed().await.is_ok() {
        sleep(SETTLE).await;
        changed.mark_unchanged();
        let Some(networks) = networks(&store) else {
            continue;
        };
        // fsync() waits for the disk.
        let written =
            tokio::task::spawn_blocking(move || write(Path::new(FOLDER), &networks)).await;
        if let Ok(Err(err)) = written {
            tracing::warn!(folder = FOLDER, error = %err, "write networks");
        }
    }
}

/// Returns all networks; `None` before the first complete list.
fn networks(store: &Store) -> Option<BTreeMap<ObjectName, String>> {
    let caches = store.caches();
    if !caches.networks.is_complete() {
        return None;
    }
    let mut networks = BTreeMap::new();
    for (name, entry) in caches.networks.all() {
        networks.insert(name.clone(), entry.text.clone());
    }
    Some(networks)
}
