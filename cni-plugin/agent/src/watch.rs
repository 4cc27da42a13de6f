//! The watch of Node objects.

use crate::cluster::index::Index;
use crate::cluster::node::{self, NodeObject};
use futures_util::stream::{BoxStream, StreamExt};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};

/// Seconds after which the server ends a watch, and the agent begins the next. A connection that
/// died silently is noticed after this time.
const TIMEOUT_SECONDS: u32 = 60;
/// Objects per page of a list.
const PAGE: u32 = 50;

/// A watch of all Nodes.
///
/// The objects of the first list arrive one by one, so that a large cluster is never in memory as a
/// whole. An older API server cannot stream a list, nor can one with an etcd that does not report
/// the progress of a watch (Debian 12's 3.4.23). It sends pages instead.
pub struct Nodes {
    api: Api<NodeObject>,
    events: BoxStream<'static, watcher::Result<Event<NodeObject>>>,
    is_paged: bool,
}

impl Nodes {
    /// Begins the watch. It sends nothing before the first call of [`Nodes::next`].
    pub fn new(client: Client) -> Self {
        let api: Api<NodeObject> = Api::all_with(client, &node::resource());
        let streamed = watcher::Config::default()
            .timeout(TIMEOUT_SECONDS)
            .streaming_lists();
        let events = watch(api.clone(), streamed).default_backoff().boxed();
        Self {
            api,
            events,
            is_paged: false,
        }
    }

    /// Waits for the next event. After an error the watch pauses, and begins with a new list if
    /// necessary; `None` never comes.
    pub async fn next(&mut self) -> Option<watcher::Result<Event<NodeObject>>> {
        let event = self.events.next().await;
        if let Some(Err(err)) = &event
            && !self.is_paged
            && is_refused(err)
        {
            tracing::info!(error = %err, "lists arrive in pages: the API server does not stream them");
            self.is_paged = true;
            let paged = watcher::Config::default()
                .timeout(TIMEOUT_SECONDS)
                .page_size(PAGE);
            self.events = watch(self.api.clone(), paged).default_backoff().boxed();
            return self.events.next().await;
        }
        event
    }
}

/// True if the API server reports that it cannot stream a list.
fn is_refused(err: &watcher::Error) -> bool {
    /// Bad Request and Unprocessable Entity of older servers, and Internal Server Error with an old
    /// etcd. Others, such as Forbidden or Too Many Requests, may pass.
    const UNABLE: [u16; 3] = [400, 422, 500];
    match err {
        watcher::Error::WatchError(status)
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            UNABLE.contains(&status.code)
        }
        watcher::Error::WatchStartFailed(_)
        | watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}

/// Updates the index. Returns true if a node differs in a field that the agent uses.
pub fn update(index: &mut Index, event: &Event<NodeObject>) -> bool {
    match event {
        Event::Init => {
            index.reset();
            false
        }
        Event::InitApply(object) => {
            index.collect(object);
            false
        }
        Event::InitDone => index.finish(),
        Event::Apply(object) => index.apply(object),
        Event::Delete(object) => index.delete(object),
    }
}
