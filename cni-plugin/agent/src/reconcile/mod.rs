//! Running pods: their networks follow their annotations.
//!
//! ```text
//!  pods, networks, ADDs ─► looks ─► queue: when ─► pod: compare and change, on a thread of its own
//!  records on disk, at the start and every minute ─┘
//! ```

mod pod;
pub mod queue;

use crate::cluster::objects::Entry;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::serve::store::{Look, Store};
use braid_core::k8s::{NETWORKS, ObjectName};
use queue::Queue;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};

/// Time after which all pods are compared again without a change.
const RESYNC: Duration = Duration::from_mins(1);

/// Starts the task. The receiver changes after each ADD.
pub(crate) fn start(
    store: Arc<Store>,
    looks: UnboundedReceiver<Look>,
    options: &Options,
    metrics: Metrics,
) -> watch::Receiver<()> {
    let (attached, seen) = watch::channel(());
    let task = Task {
        store,
        conflist: options.conflist.clone(),
        queue: Queue::default(),
        known: BTreeMap::new(),
        work: JoinSet::new(),
        metrics,
        attached,
    };
    tokio::spawn(task.run(looks));
    seen
}

struct Task {
    store: Arc<Store>,
    conflist: PathBuf,
    queue: Queue,
    /// Uid and selections of each pod that selects networks, as last seen.
    known: BTreeMap<ObjectName, (String, String)>,
    work: JoinSet<(ObjectName, bool)>,
    metrics: Metrics,
    attached: watch::Sender<()>,
}

impl Task {
    async fn run(mut self, mut looks: UnboundedReceiver<Look>) {
        let mut networks = self.store.networks_changed();
        let mut resync = interval(RESYNC);
        let mut is_complete = false;
        loop {
            let due = self.queue.due();
            let wake = due.map_or_else(|| Instant::now() + RESYNC, Instant::from_std);
            tokio::select! {
                look = looks.recv() => match look {
                    Some(look) => {
                        is_complete |= matches!(look, Look::All);
                        self.look(look).await;
                    }
                    None => return,
                },
                _ = networks.changed() => self.queue.hurry(Instant::now().into_std()),
                _ = resync.tick() => if is_complete {
                    self.look_at_records().await;
                },
                Some(ended) = self.work.join_next() => if let Ok((pod, has_failed)) = ended {
                    self.queue.end(&pod, has_failed, Instant::now().into_std());
                },
                () = sleep_until(wake) => {}
            }
            while let Some(pod) = self.queue.take(Instant::now().into_std()) {
                let conflist = self.conflist.clone();
                self.work.spawn_blocking(move || {
                    let has_failed = pod::compare(&pod, &conflist).is_err();
                    (pod, has_failed)
                });
            }
            self.metrics.queue_depth(self.queue.depth());
        }
    }

    /// Adds the pods that may have changed.
    async fn look(&mut self, look: Look) {
        match look {
            Look::All => {
                let all: Vec<_> = {
                    let caches = self.store.caches();
                    let all = caches.pods.all();
                    all.map(|(name, entry)| (name.clone(), selections(entry)))
                        .collect()
                };
                self.known.clear();
                for (name, selected) in all {
                    if let Some(selected) = selected {
                        self.known.insert(name.clone(), selected);
                        self.queue.add(name, Instant::now().into_std());
                    }
                }
                self.look_at_records().await;
            }
            Look::Pod(name) => {
                let selected = self.store.caches().pods.get(&name).and_then(selections);
                let known = self.known.get(&name);
                if known != selected.as_ref() {
                    match selected {
                        Some(selected) => self.known.insert(name.clone(), selected),
                        None => self.known.remove(&name),
                    };
                    self.queue.add(name, Instant::now().into_std());
                }
            }
            // The ADD may have read an older annotation. The work on the pod publishes as well.
            Look::Attached(name) => {
                self.attached.send_replace(());
                self.queue.add_unless_known(name, Instant::now().into_std());
            }
        }
    }

    /// Adds the pods with records that are not as a plain ADD leaves them.
    async fn look_at_records(&mut self) {
        let pods = spawn_blocking(pod::special).await.unwrap_or_default();
        for pod in pods {
            self.queue.add_unless_known(pod, Instant::now().into_std());
        }
    }
}

/// Returns the uid and the selections of a pod; `None` if it selects no networks.
fn selections(entry: &Entry) -> Option<(String, String)> {
    let text = entry.annotations().remove(NETWORKS)?;
    (!text.trim().is_empty()).then(|| (entry.uid.clone(), text))
}
