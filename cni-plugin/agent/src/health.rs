//! `/healthz` and `/readyz` over HTTP.

use crate::Error;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections served at a time. Others wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// Longest time in which a client sends the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Why the agent is not ready; `None` if it is.
pub type Reason = Option<String>;

/// Listens at `address`, and answers until the runtime ends.
pub async fn serve(address: SocketAddr, readiness: watch::Receiver<Reason>) -> Result<(), Error> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|err| Error::new(format_args!("listen on {address}"), err))?;
    tokio::spawn(accept(listener, readiness));
    Ok(())
}

async fn accept(listener: TcpListener, readiness: watch::Receiver<Reason>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let readiness = readiness.clone();
                tokio::spawn(async move {
                    answer_all(stream, readiness).await;
                    drop(permit);
                });
            }
            Err(err) => {
                tracing::warn!(error = %err, "accept a connection for health");
                // For example, all descriptors are in use.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer_all(stream: TcpStream, readiness: watch::Receiver<Reason>) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &readiness.borrow());
        async move { Ok::<_, Infallible>(answer) }
    });
    // A client that breaks the protocol or is slow loses its connection, nothing else.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(method: &Method, path: &str, reason: &Reason) -> Response<Full<Bytes>> {
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok"),
        (&Method::GET | &Method::HEAD, "/readyz") => match reason {
            None => (StatusCode::OK, "ok"),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason.as_str()),
        },
        (_, "/healthz" | "/readyz") => (StatusCode::METHOD_NOT_ALLOWED, "only GET"),
        _ => (StatusCode::NOT_FOUND, "only /healthz and /readyz"),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_has_the_reason_and_health_does_not_depend_on_it() {
        let reason = Some("node n1 has no pod range yet".to_owned());
        for (path, reason, status) in [
            ("/healthz", &reason, 200),
            ("/readyz", &reason, 503),
            ("/readyz", &None, 200),
            ("/metrics", &None, 404),
        ] {
            let answer = answer(&Method::GET, path, reason);
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
        let answer = answer(&Method::POST, "/readyz", &None);
        assert_eq!(answer.status().as_u16(), 405);
    }
}
