//! A watch of objects of one kind.

use futures_util::stream::{BoxStream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::time::Duration;
use tokio::time::Instant;

/// Seconds after which the server ends a watch, and the agent begins the next. A connection that
/// died silently is noticed after this time.
pub(crate) const TIMEOUT_SECONDS: u32 = 60;
/// Objects per page of a list.
const PAGE: u32 = 50;
/// First pause after an error.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after an error. The agent is ready within 15 s after the API server is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause if the server does not have the kind.
const PAUSE_WITHOUT_KIND: Duration = Duration::from_mins(1);

/// A watch of objects of one kind.
///
/// The objects of the first list arrive one by one, so that a large cluster is never in memory as a
/// whole. An older API server cannot stream a list, nor can one with an etcd that does not report
/// the progress of a watch (Debian 12's 3.4.23). It sends pages instead.
pub struct Watch<K> {
    api: Api<K>,
    /// Selector of the objects; empty for all.
    fields: String,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    is_paged: bool,
    /// Time before which the server is not asked.
    asleep_until: Option<Instant>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Begins the watch of the objects that these fields select, or of all objects. It sends nothing
    /// before the first call of [`Watch::next`].
    pub fn new(api: Api<K>, fields: &str) -> Self {
        let events = begin(&api, fields, false);
        Self {
            api,
            fields: fields.to_owned(),
            events,
            is_paged: false,
            asleep_until: None,
        }
    }

    /// Waits for the next event. After an error the watch pauses, and begins with a new list if
    /// necessary; `None` never comes.
    pub async fn next(&mut self) -> Option<watcher::Result<Event<K>>> {
        if let Some(until) = self.asleep_until {
            tokio::time::sleep_until(until).await;
            self.asleep_until = None;
        }
        let event = self.events.next().await;
        let Some(Err(err)) = &event else {
            return event;
        };
        if !self.is_paged && is_refused(err) {
            tracing::info!(error = %err, "lists arrive in pages: the API server does not stream them");
            self.is_paged = true;
            self.events = begin(&self.api, &self.fields, true);
            return self.events.next().await;
        }
        if status(err) == Some(404) {
            self.asleep_until = Some(Instant::now() + PAUSE_WITHOUT_KIND);
        }
        event
    }
}

fn begin<K>(
    api: &Api<K>,
    fields: &str,
    is_paged: bool,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default().timeout(TIMEOUT_SECONDS);
    if !fields.is_empty() {
        config = config.fields(fields);
    }
    config = if is_paged {
        config.page_size(PAGE)
    } else {
        config.streaming_lists()
    };
    watch(api.clone(), config)
        .backoff(Pauses::default())
        .boxed()
}

/// Returns the status with which the API server refused a list or watch; `None` if it is another
/// error.
pub fn status(err: &watcher::Error) -> Option<u16> {
    match err {
        watcher::Error::WatchError(status)
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(status.code),
        watcher::Error::WatchStartFailed(_)
        | watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// True if the API server reports that it cannot stream a list.
fn is_refused(err: &watcher::Error) -> bool {
    /// Bad Request and Unprocessable Entity of older servers, and Internal Server Error with an old
    /// etcd. Others, such as Forbidden or Too Many Requests, may pass.
    const UNABLE: [u16; 3] = [400, 422, 500];
    status(err).is_some_and(|code| UNABLE.contains(&code))
}

/// Pauses after errors: each twice the one before, with up to a tenth more, so that the agents of a
/// cluster do not come back at the same time.
#[derive(Debug, Default)]
struct Pauses {
    last: Option<Duration>,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.last.map_or(FIRST_PAUSE, |last| last * 2);
        let pause = pause.min(LONGEST_PAUSE);
        self.last = Some(pause);
        let random = u32::try_from(RandomState::new().hash_one(0) % 100).unwrap_or_default();
        Some(pause + pause / 1000 * random)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds_and_begin_again_after_a_success() {
        let mut pauses = Pauses::default();
        for expected in [1, 2, 4, 5, 5] {
            let pause = pauses.next().expect("a pause");
            let expected = Duration::from_secs(expected);
            assert!(
                pause >= expected && pause <= expected * 11 / 10,
                "{pause:?}"
            );
        }
        pauses.reset();
        assert!(pauses.next().expect("a pause") < Duration::from_secs(2));
    }
}
