//! Attempts of a request. Each attempt has a timeout. A failed attempt is repeated after a pause,
//! until the deadline.

use super::api_request::{ApiRequest, is_passing};
use super::clients::Clients;
use braid_core::k8s::source::SourceError;
use http::{HeaderMap, header};
use kube::client::Body;
use serde::Deserialize;
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// First pause between attempts, and longest pause. The pause doubles with each attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1600));
/// Longest part of a server's message in errors, in bytes.
const MESSAGE_MAX: usize = 1024;

/// Client, address and time limits for the requests of one method call of the source.
pub(super) struct Session<'a> {
    pub(super) clients: &'a Clients,
    pub(super) server: &'a str,
    /// Namespace of the objects of cluster-wide IPAM.
    pub(super) namespace: &'a str,
    pub(super) secrets: &'a [String],
    /// Timeout of one attempt.
    pub(super) attempt: Duration,
    pub(super) deadline: Instant,
}

/// Reason why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server returned an error.
    Answer {
        status: u16,
        message: String,
        /// True if the response is about the object, not about an unknown path.
        is_object: bool,
        /// True if the object does not have the required uid.
        is_uid: bool,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// No complete response: no connection, a broken one, or a timeout.
    Silence { why: String },
    /// The peer does not speak TLS, or its certificate is not trusted.
    Stranger { why: String },
}

/// Body of an error response: the Kubernetes object `Status`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    message: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    name: String,
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    field: String,
}

impl Session<'_> {
    /// Sends a request, with retries, and returns the response body.
    pub(super) async fn send(&self, ask: &ApiRequest) -> Result<Vec<u8>, SourceError> {
        self.answer(ask)
            .await
            .map_err(|(failure, attempts)| ask.failed(failure, attempts))
    }

    /// Sends a request, with retries, and returns the response body. The error is the last failure,
    /// with the number of attempts.
    pub(super) async fn answer(&self, ask: &ApiRequest) -> Result<Vec<u8>, (Failure, u32)> {
        let mut attempts = 0;
        loop {
            let is_http2 = self.clients.is_http2();
            let failure = match self.attempt(ask).await {
                Ok(body) => return Ok(body),
                Err(failure) => failure,
            };
            attempts += 1;
            let mut pause = failure.pause(attempts, clock());
            // A retry of a creation would fail in the same way.
            if (ask.is_of_version || ask.is_creation()) && failure.is_conflict() {
                pause = None;
            }
            if is_http2 && !matches!(failure, Failure::Answer { .. }) {
                self.clients.leave_http2();
                pause = pause.or(Some(Duration::ZERO));
            }
            match pause {
                Some(pause) if ask.is_repeated && Instant::now() + pause < self.deadline => {
                    sleep(pause).await;
                }
                Some(_) | None => return Err((failure, attempts)),
            }
        }
    }

    async fn attempt(&self, ask: &ApiRequest) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        let until = self.deadline.min(start + self.attempt);
        match timeout_at(until, self.exchange(ask)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Silence {
                why: format!("{} did not respond within {:?}", self.server, until - start),
            }),
        }
    }

    async fn exchange(&self, ask: &ApiRequest) -> Result<Vec<u8>, Failure> {
        let client = self
            .clients
            .current()
            .map_err(|err| self.unanswered(&err))?;
        let answer = client.send(ask.request.clone().map(Body::from)).await;
        let answer = answer.map_err(|err| self.unanswered(&err))?;
        let (status, retry_after) = (answer.status(), retry_after(answer.headers()));
        let body = answer
            .into_body()
            .collect_bytes()
            .await
            .map_err(|err| self.unanswered(&err))?;
        if status.is_success() {
            return Ok(body.into());
        }
        let said = match serde_json::from_slice::<Status>(&body) {
            Ok(said) if said.kind == "Status" => said,
            Ok(_) | Err(_) => Status {
                message: String::from_utf8_lossy(&body).into_owned(),
                ..Status::default()
            },
        };
        let Details { name, causes } = &said.details;
        let is_object = !name.is_empty();
        let is_uid = causes.iter().any(|cause| cause.field == "metadata.uid");
        let message = self.presentable(&said.message);
        Err(Failure::Answer {
            status: status.as_u16(),
            message,
            is_object,
            is_uid,
            retry_after,
        })
    }

    fn unanswered(&self, err: &kube::Error) -> Failure {
        let why = self.presentable(&format!("{}: {}", self.server, innermost(err)));
        // rustls reports an untrusted certificate, and a peer without TLS, as InvalidData.
        let is_stranger = |err: &(dyn Error + 'static)| {
            err.downcast_ref::<std::io::Error>()
                .is_some_and(|err| err.kind() == ErrorKind::InvalidData)
        };
        if chain(err).any(is_stranger) {
            Failure::Stranger { why }
        } else {
            Failure::Silence { why }
        }
    }

    /// Returns `text` as one line and without secrets, which a server or a proxy could echo.
    fn presentable(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets {
            text = text.replace(secret, "<redacted>");
        }
        let text = text.trim().replace(char::is_control, " ");
        text[..text.floor_char_boundary(MESSAGE_MAX)].to_owned()
    }
}

impl Failure {
    /// True if the object has changed since the version in the request (409).
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Answer { status: 409, .. })
    }

    /// Returns the status of a refusal that says how the object is: missing (404; an unknown kind is an
    /// error), in conflict (409), or unfit for a test (422).
    pub(super) fn refusal(&self) -> Option<u16> {
        match self {
            Self::Answer {
                status: 404,
                is_object: true,
                ..
            } => Some(404),
            Self::Answer {
                status: status @ (409 | 422),
                ..
            } => Some(*status),
            Self::Answer { .. } | Self::Silence { .. } | Self::Stranger { .. } => None,
        }
    }

    /// True if the account may not send this request (403).
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Answer { status: 403, .. })
    }

    /// True if the request does not match the object. A failed `test` of a JSON Patch returns 422.
    pub(super) fn is_unfit(&self) -> bool {
        matches!(self, Self::Answer { status: 422, .. })
    }

    /// Returns the pause before the next attempt, or `None` if a retry cannot succeed. The pause
    /// doubles with each attempt, up to a maximum. `clock` adds jitter to the second half of the
    /// pause, so that calls that fail together do not retry together. A longer `Retry-After` takes
    /// precedence.
    fn pause(&self, attempts: u32, clock: u32) -> Option<Duration> {
        let (first, longest) = PAUSES;
        let pause = first
            .saturating_mul(1 << attempts.saturating_sub(1).min(16))
            .min(longest);
        let pause = pause / 2 + pause / 2 * (clock % 1000) / 1000;
        match self {
            Self::Answer { is_uid: true, .. } | Self::Stranger { .. } => None,
            Self::Answer {
                status,
                retry_after,
                ..
            } => is_passing(*status).then(|| retry_after.unwrap_or_default().max(pause)),
            Self::Silence { .. } => Some(pause),
        }
    }
}

fn clock() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .subsec_micros()
}

/// Parses `Retry-After` in seconds. The API server does not send the other form, a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(value.parse().ok()?))
}

fn chain<'a>(err: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(err), |err| cause(*err))
}

fn cause<'a>(err: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // io::Error displays its inner error, and skips it in source().
    match err
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(carried) => Some(carried),
        None => err.source(),
    }
}

/// Returns the text of the innermost cause. The outer causes say only "client error".
fn innermost(err: &kube::Error) -> String {
    chain(err)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
