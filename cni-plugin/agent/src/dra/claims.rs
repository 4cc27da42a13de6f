//! Prepared claims of this node, in files. One at a time is decided and written, so that two claims do not
//! both get the last bandwidth of a link.
//!
//! A file goes only when the kubelet says that it needs the claim no longer, and never by age or by a look
//! at the API: the kubelet prepares a claim once, and its pod may start at any time after that. It keeps
//! its own list over restarts, and repeats a request without an answer. A reboot empties the folder.

use super::fault::{Fault, Part};
use braid_core::dra::claim::Claim;
use braid_core::dra::prepared::Prepared;
use braid_node::store::prepared::PreparedClaims;
use braid_node::store::root::Root;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Time after the end of a claim in which another pod may start with it, without a preparation.
const ENDED_FOR: Duration = Duration::from_mins(2);

/// The prepared claims. A clone is the same claims.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    files: PreparedClaims,
    /// Claims in the files; `None` before they were read. The holder of the lock decides and writes.
    stored: Arc<Mutex<Option<Stored>>>,
}

/// Claims, and the uids of claims with a damaged file.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    pub(super) whole: Vec<Prepared>,
    pub(super) damaged: Vec<String>,
}

impl Stored {
    fn forget(&mut self, uid: &str) {
        self.whole.retain(|one| one.claim.uid != uid);
        self.damaged.retain(|damaged| damaged != uid);
    }
}

impl Claims {
    pub(crate) fn of(root: &Root) -> Self {
        Self {
            files: PreparedClaims::of(root),
            stored: Arc::default(),
        }
    }

    /// Writes the claim that `decide` returns for the prepared ones.
    pub(super) async fn prepare(
        &self,
        decide: impl FnOnce(&[Prepared]) -> Result<Prepared, Fault> + Send + 'static,
    ) -> Result<Prepared, Fault> {
        self.alone(move |files, stored| {
            let prepared = decide(&stored.whole)?;
            let written = files.write(&prepared);
            written.map_err(|err| failed("write", &err))?;
            stored.forget(&prepared.claim.uid);
            stored.whole.push(prepared.clone());
            Ok(prepared)
        })
        .await
    }

    /// Gives a claim to another pod. Returns false if the prepared claim has other devices or parameters,
    /// or if there is none.
    pub(super) async fn hand_over(&self, claim: Claim) -> Result<bool, Fault> {
        self.alone(move |files, stored| {
            let is_same = |one: &&mut Prepared| {
                let before = &one.claim;
                let uses_same =
                    (&before.shares, &before.configs) == (&claim.shares, &claim.configs);
                before.uid == claim.uid && uses_same
            };
            let Some(one) = stored.whole.iter_mut().find(is_same) else {
                return Ok(false);
            };
            let next = Prepared {
                uses: one.uses.clone(),
                claim,
            };
            files.write(&next).map_err(|err| failed("write", &err))?;
            *one = next;
            Ok(true)
        })
        .await
    }

    /// Forgets a claim.
    pub(super) async fn remove(&self, uid: String) -> Result<(), Fault> {
        self.alone(move |files, stored| {
            let removed = files.remove(&uid);
            removed.map_err(|err| failed("remove", &err))?;
            stored.forget(&uid);
            Ok(())
        })
        .await
    }

    /// Lets these claims use no links, unless they were prepared anew. Their files stay until the kubelet
    /// ends them.
    pub(super) async fn release(&self, ended: Vec<Claim>) -> Result<(), Fault> {
        self.alone(move |files, stored| {
            for one in &mut stored.whole {
                if ended.contains(&one.claim) {
                    one.uses.clear();
                    files.write(one).map_err(|err| failed("write", &err))?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Lets calls no longer ask for claims, if none was prepared for a while.
    pub(super) async fn settle(&self) -> Result<(), Fault> {
        self.alone(|files, _| {
            let since = SystemTime::now() - ENDED_FOR;
            files.settle(since).map_err(|err| failed("settle", &err))
        })
        .await
    }

    /// Returns the claims that are prepared for the pod with this uid. The allocation of a claim does not
    /// change while it is reserved for a pod.
    pub(crate) async fn of_pod(&self, pod: String) -> Vec<Claim> {
        let found = self.alone(move |_, stored| {
            let claims = stored.whole.iter().map(|one| &one.claim);
            let of_pod = claims.filter(|claim| claim.pods.first().is_some_and(|it| it.uid == pod));
            Ok(of_pod.cloned().collect())
        });
        found.await.unwrap_or_default()
    }

    /// Shows all claims in turn with their changes.
    pub(super) async fn show(
        &self,
        show: impl FnOnce(&[Prepared]) + Send + 'static,
    ) -> Result<(), Fault> {
        self.alone(move |_, stored| {
            show(&stored.whole);
            Ok(())
        })
        .await
    }

    /// Returns all claims.
    pub(super) async fn read(&self) -> Result<Stored, Fault> {
        self.alone(|_, stored| Ok(stored.clone())).await
    }

    /// Does blocking work in turn. It ends even if its caller no longer waits.
    async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PreparedClaims, &mut Stored) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut turn = Arc::clone(&self.stored).lock_owned().await;
        let files = self.files.clone();
        let work = spawn_blocking(move || {
            let stored = match turn.take() {
                Some(stored) => stored,
                None => read(&files)?,
            };
            work(&files, turn.insert(stored))
        });
        let done = work.await;
        done.unwrap_or_else(|err| Err(Fault::passing(Part::Node, err)))
    }
}

fn read(files: &PreparedClaims) -> Result<Stored, Fault> {
    let (whole, damaged) = files.read().map_err(|err| failed("read", &err))?;
    Ok(Stored { whole, damaged })
}

fn failed(doing: &str, err: &io::Error) -> Fault {
    Fault::passing(
        Part::Node,
        format_args!("{doing} the prepared claims of the node: {err}"),
    )
}
