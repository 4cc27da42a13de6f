//! The attempts of one call: each under its own limit, with pauses between, until the deadline.

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

/// The first pause, which doubles; at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1600));
/// Bytes of a server's message that are passed on.
const MESSAGE_MAX: usize = 1024;

/// One call of the source.
pub(super) struct Session<'a> {
    pub(super) clients: &'a Clients,
    pub(super) server: &'a str,
    pub(super) secrets: &'a [String],
    /// Of one attempt.
    pub(super) attempt: Duration,
    pub(super) deadline: Instant,
}

/// Reason why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered so.
    Answer {
        status: u16,
        message: String,
        /// True if it is about the object, not about a path that the server does not know.
        is_object: bool,
        /// True if the object has another uid.
        is_uid: bool,
        /// For how long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// No whole answer: no connection, a cut one, or nothing in time.
    Silence { why: String },
    /// Whoever answers is no API server, or not the one of the certificate.
    Stranger { why: String },
}

/// Body in which the API server describes a failure.
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
    /// The body of the answer.
    pub(super) async fn send(&self, ask: &ApiRequest) -> Result<Vec<u8>, SourceError> {
        self.answer(ask)
            .await
            .map_err(|(failure, attempts)| ask.failed(failure, attempts))
    }

    /// The body of the answer, or the last failure and the number of attempts.
    pub(super) async fn answer(&self, ask: &ApiRequest) -> Result<Vec<u8>, (Failure, u32)> {
        let mut attempts = 0;
        loop {
            let is_http2 = self.clients.is_http2();
            let failure = match self.attempt(ask).await {
                Ok(body) => return Ok(body),
                Err(failure) => failure,
            };
            attempts += 1;
            let mut pause = failure
                .pause(attempts, clock())
                .filter(|_| !(ask.is_of_version && failure.is_conflict()));
            if is_http2 && !matches!(failure, Failure::Answer { .. }) {
                self.clients.leave_http2();
                pause = pause.or(Some(Duration::ZERO));
            }
            let pause = pause.filter(|_| ask.is_repeated);
            match pause.filter(|pause| Instant::now() + *pause < self.deadline) {
                Some(pause) => sleep(pause).await,
                None => return Err((failure, attempts)),
            }
        }
    }

    async fn attempt(&self, ask: &ApiRequest) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        let until = self.deadline.min(start + self.attempt);
        match timeout_at(until, self.exchange(ask)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Silence {
                why: format!("{} does not answer within {:?}", self.server, until - start),
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
        let said = serde_json::from_slice::<Status>(&body)
            .ok()
            .filter(|said| said.kind == "Status");
        let is_object = said
            .as_ref()
            .is_some_and(|said| !said.details.name.is_empty());
        let is_uid = said
            .iter()
            .flat_map(|said| &said.details.causes)
            .any(|cause| cause.field == "metadata.uid");
        let message = said.map_or_else(
            || String::from_utf8_lossy(&body).into_owned(),
            |said| said.message,
        );
        let message = self.presentable(&message);
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
        // rustls tells so of a certificate that it does not trust, and of what is no TLS.
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

    /// One line without credentials, which a server or a proxy could send back.
    fn presentable(&self, text: &str) -> String {
        let text = self.secrets.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret, "<redacted>")
        });
        let text: String = text
            .trim()
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        text[..text.floor_char_boundary(MESSAGE_MAX)].to_owned()
    }
}

impl Failure {
    /// True if the object is another version than the request is for.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Answer { status: 409, .. })
    }

    /// True if the account has no right to this request.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Answer { status: 403, .. })
    }

    /// True if the request does not fit the object; a `test` of a JSON Patch that fails is answered
    /// so.
    pub(super) fn is_unfit(&self) -> bool {
        matches!(self, Self::Answer { status: 422, .. })
    }

    /// Pause before the next attempt; `None` where that is in vain. Calls that fail together do not
    /// come back together: `clock` spreads them over half of the pause.
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

/// In seconds. The other form, a date, no API server sends.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
        .map(Duration::from_secs)
}

fn chain<'a>(err: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(err), |err| cause(*err))
}

fn cause<'a>(err: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // Such an error shows what it carries, and skips that as its source.
    match err
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(carried) => Some(carried),
        None => err.source(),
    }
}

/// The last of the causes: those before only say "client error".
fn innermost(err: &kube::Error) -> String {
    chain(err)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
