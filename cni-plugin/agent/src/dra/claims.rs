//! Prepared claims of this node, in files. One at a time is decided and written, so that two claims do not
//! both get the last bandwidth of a link.
//!
//! A file goes only when the kubelet says that it needs the claim no longer, and never by age or by a look
//! at the API: the kubelet prepares a claim once, and its pod may start at any time after that. It keeps
//! its own list over restarts, and repeats what was not acknowledged. A reboot empties the folder.

use super::fault::{Fault, Part};
use braid_core::dra::prepared::Prepared;
use braid_node::store::prepared::PreparedClaims;
use braid_node::store::root::Root;
use std::io;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// The prepared claims. A clone is the same claims.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    files: PreparedClaims,
    turn: Arc<Mutex<()>>,
}

impl Claims {
    pub(super) fn of(root: &Root) -> Self {
        Self {
            files: PreparedClaims::of(root),
            turn: Arc::default(),
        }
    }

    /// Writes the claim that `decide` returns for the prepared ones.
    pub(super) async fn prepare(
        &self,
        decide: impl FnOnce(&[Prepared]) -> Result<Prepared, Fault> + Send + 'static,
    ) -> Result<Prepared, Fault> {
        self.alone(move |files| {
            let (known, _) = files.read().map_err(|err| failed("read", &err))?;
            let prepared = decide(&known)?;
            let written = files.write(&prepared);
            written.map_err(|err| failed("write", &err))?;
            Ok(prepared)
        })
        .await
    }

    /// Forgets a claim.
    pub(super) async fn remove(&self, uid: String) -> Result<(), Fault> {
        let remove = move |files: &PreparedClaims| files.remove(&uid);
        self.alone(move |files| remove(files).map_err(|err| failed("remove", &err)))
            .await
    }

    /// Returns all claims, and the uids of those whose file is damaged.
    pub(super) async fn read(&self) -> Result<(Vec<Prepared>, Vec<String>), Fault> {
        self.alone(|files| files.read().map_err(|err| failed("read", &err)))
            .await
    }

    /// Does blocking work in turn. It ends even if its caller no longer waits.
    async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PreparedClaims) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let files = self.files.clone();
        let work = spawn_blocking(move || {
            let done = work(&files);
            drop(turn);
            done
        });
        let done = work.await;
        done.unwrap_or_else(|err| Err(Fault::passing(Part::Node, err)))
    }
}

fn failed(doing: &str, err: &io::Error) -> Fault {
    Fault::passing(
        Part::Node,
        format_args!("{doing} the prepared claims of the node: {err}"),
    )
}
