//! The client of the API server, with a limit for everything that waits.

use crate::error::Error;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use std::time::Duration;
use tower::timeout::TimeoutLayer;

/// Longest time until a connection with TLS is open.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time from a request to the head of its answer. The body of a watch has none.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest silence in a connection that is in use. The server ends each watch before, see
/// [`crate::watch::TIMEOUT_SECONDS`].
const SILENCE: Duration = Duration::from_secs(70);

/// Returns a client that gives up a server that accepts and never answers.
pub(crate) fn client(mut config: Config) -> Result<Client, Error> {
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(ANSWER);
    config.read_timeout = Some(SILENCE);
    // The time in which a connection was not in use does not count.
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config)
        .map_err(|err| Error::new("prepare the client of the API", err))?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER)).build())
}
