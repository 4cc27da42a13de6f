//! The client of the API server, with a limit for everything that waits.

use crate::error::Error;
use crate::metrics::Metrics;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use std::time::Duration;
use tower::timeout::TimeoutLayer;
use tower::util::MapResultLayer;

/// Longest time until a connection with TLS is open.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time from a request to the head of its answer. The body of a watch has none.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest silence in a connection that is in use. The server ends each watch before, see
/// [`crate::watch::TIMEOUT_SECONDS`].
const SILENCE: Duration = Duration::from_secs(70);

/// Returns a client that gives up a server that accepts and never answers. It counts failures in
/// `metrics`.
pub(crate) fn client(mut config: Config, metrics: &Metrics) -> Result<Client, Error> {
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(ANSWER);
    config.read_timeout = Some(SILENCE);
    // The time in which a connection was not in use does not count.
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config)
        .map_err(|err| Error::new("prepare the client of the API", err))?;
    let metrics = metrics.clone();
    let count = MapResultLayer::new(move |answer: Result<Response<_>, _>| {
        if answer
            .as_ref()
            .map_or(true, |answer| is_failure(answer.status()))
        {
            metrics.api_error();
        }
        // The body of a watch breaks later.
        let metrics = metrics.clone();
        answer.map(|answer| {
            answer.map(|body| {
                BodyExt::map_err(body, move |err| {
                    metrics.api_error();
                    err
                })
            })
        })
    });
    let builder = builder.with_layer(&TimeoutLayer::new(ANSWER));
    Ok(builder.with_layer(&count).build())
}

/// True if the API refused or failed a request. A missing object, and an object that has changed
/// meanwhile, are ordinary answers.
fn is_failure(status: StatusCode) -> bool {
    const ORDINARY: [StatusCode; 4] = [
        StatusCode::NOT_FOUND,
        StatusCode::CONFLICT,
        StatusCode::GONE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    (status.is_client_error() || status.is_server_error()) && !ORDINARY.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_absent_or_has_changed_is_no_failure() {
        let is_failure = |code| is_failure(StatusCode::from_u16(code).expect("a status"));
        for code in [200, 201, 404, 409, 410, 422] {
            assert!(!is_failure(code), "{code}");
        }
        for code in [401, 403, 429, 500, 503] {
            assert!(is_failure(code), "{code}");
        }
    }
}
