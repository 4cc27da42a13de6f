//! Cluster-wide addresses of this node: a thread that pays the debts of calls and holds a few addresses for
//! the next pods. It has the credentials of calls, and a connection for each kubeconfig. Metrics and
//! events report the use of the pools.

use crate::events::pools::{self, PoolBook};
use crate::events::publisher::Publisher;
use crate::metrics::Metrics;
use crate::serve::store::Store;
use braid_client::api::{Access, Api};
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::api;
use braid_core::k8s::source::SourceError;
use braid_node::ipam::whereabouts::store::FOLDER;
use braid_node::ipam::whereabouts::tender::Tender;
use braid_node::source::client::protocol::{Exchange, Exchanged, Limits};
use braid_node::source::pools::{Exchanges, Remote};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest time between two rounds, in which the end is noticed too.
const PERIOD_MS: u16 = 1_000;
/// Pause after a change of a journal, in which the changes of other calls arrive.
const BATCH: Duration = Duration::from_millis(100);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(5);
/// Longest wait for the last requests. A kubelet kills the agent soon after.
const PATIENCE: Duration = Duration::from_secs(3);

/// The thread.
#[derive(Debug)]
pub(crate) struct Addresses {
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Addresses {
    /// Starts the thread.
    pub(crate) fn start(node: &str, reports: Reports) -> Self {
        let is_ending = Arc::new(AtomicBool::new(false));
        let (seen, node) = (Arc::clone(&is_ending), node.to_owned());
        let thread = thread::spawn(move || run(&node, reports, &seen));
        Self { is_ending, thread }
    }

    /// Gives back the held addresses.
    pub(crate) async fn stop(self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(move || self.thread.join());
        if tokio::time::timeout(PATIENCE, joined).await.is_err() {
            tracing::warn!("held addresses are not given back: no answer of the API server");
        }
    }
}

fn run(node: &str, mut reports: Reports, is_ending: &AtomicBool) {
    let connections = Rc::new(RefCell::new(BTreeMap::new()));
    let mut open = |kubeconfig: &Path| -> Box<dyn api::Api> {
        let connection = Connection {
            kubeconfig: kubeconfig.to_owned(),
            all: Rc::clone(&connections),
        };
        Box::new(Remote::new(connection, node))
    };
    let mut tender = Tender::new(node);
    let changes = Changes::watch();
    let mut reported = BTreeSet::new();
    while !is_ending.load(Ordering::Relaxed) {
        let errors = tender.round(&mut open);
        let failed = !errors.is_empty();
        reported = report(&errors, &reported);
        reports.report(&tender);
        if failed {
            pause(RETRY, is_ending);
        } else if changes.wait() {
            thread::sleep(BATCH);
        }
    }
    report(&tender.end(&mut open), &reported);
}

/// Reports about the use of pools.
pub(crate) struct Reports {
    metrics: Metrics,
    store: Arc<Store>,
    publisher: Publisher,
    book: PoolBook,
}

impl Reports {
    /// Starts a task that publishes events.
    pub(crate) fn start(client: &Client, metrics: &Metrics, store: &Arc<Store>) -> Self {
        Self {
            metrics: metrics.clone(),
            store: Arc::clone(store),
            publisher: Publisher::start(client.clone()),
            book: PoolBook::default(),
        }
    }

    fn report(&mut self, tender: &Tender) {
        self.metrics.pools(tender.usages().cloned().collect());
        // Without an answer of the API server, events would be lost.
        let Some(node) = tender.identity() else {
            return;
        };
        let news = self.book.news(tender.usages());
        let now = Timestamp::now();
        let mut posts = Vec::new();
        for (fault, usage) in news {
            tracing::warn!("{}", fault.note(usage));
            let caches = self.store.caches();
            posts.push(pools::post((fault, usage), &caches.networks, node, now));
        }
        self.publisher.publish(posts);
    }
}

/// Logs errors once, until they change.
fn report(errors: &[Error], before: &BTreeSet<String>) -> BTreeSet<String> {
    let errors: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    for error in errors.difference(before) {
        tracing::warn!(%error, "hold and give back addresses");
    }
    errors
}

fn pause(time: Duration, is_ending: &AtomicBool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !is_ending.load(Ordering::Relaxed) {
        thread::sleep(BATCH);
    }
}

/// Changes of journals.
struct Changes(Option<Inotify>);

impl Changes {
    /// Begins to watch the folder of the journals, which is made first. Without a watch, each round
    /// reads them.
    fn watch() -> Self {
        let begin = || -> Result<Inotify, Errno> {
            let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
            let inotify = Inotify::init(flags)?;
            inotify.add_watch(FOLDER, AddWatchFlags::IN_MOVED_TO)?;
            Ok(inotify)
        };
        let made = braid_node::sys::private::make_folders(Path::new(FOLDER));
        let begun = made.map_err(|err| err.to_string());
        let begun = begun.and_then(|()| begin().map_err(|err| err.to_string()));
        if let Err(error) = &begun {
            tracing::warn!(error, "watch {FOLDER}");
        }
        Self(begun.ok())
    }

    /// Waits for a change, at most for [`PERIOD_MS`]. Returns true if there was one.
    fn wait(&self) -> bool {
        let fds = self
            .0
            .as_ref()
            .map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.into_iter().collect();
        let is_changed = poll(&mut fds, PollTimeout::from(PERIOD_MS)).is_ok_and(|count| count > 0);
        if let Some(inotify) = self.0.as_ref().filter(|_| is_changed) {
            let _ = inotify.read_events();
        }
        is_changed
    }
}

/// Connections by kubeconfig.
type Connections = Rc<RefCell<BTreeMap<PathBuf, Api>>>;

/// The connection of a kubeconfig. After an error it is made again, with the credentials of then.
struct Connection {
    kubeconfig: PathBuf,
    all: Connections,
}

impl Connection {
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Api) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let mut all = self.all.borrow_mut();
        let limits = Limits {
            process: Duration::MAX,
            ..Limits::default()
        };
        let made = || Api::new(Access::new(self.kubeconfig.clone()), limits);
        let api = all.entry(self.kubeconfig.clone()).or_insert_with(made);
        let done = work(api);
        if done.is_err() {
            all.remove(&self.kubeconfig);
        }
        done
    }
}

impl Exchanges for Connection {
    fn exchange(&mut self, exchange: Exchange) -> Result<Exchanged, SourceError> {
        self.with(|api| api.exchange(&exchange))
    }

    fn exchange_all(&mut self, exchanges: Vec<Exchange>) -> Vec<Result<Exchanged, SourceError>> {
        match self.with(|api| api.exchange_all(&exchanges)) {
            Ok(answers) => answers,
            Err(err) => vec![Err(err); exchanges.len()],
        }
    }
}
