//! `/healthz` and `/readyz` over HTTP.

use crate::error::Error;
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

/// State that `/readyz` reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Why the agent is not ready.
    pub reason: Reason,
    /// Conditions that need an administrator, in both cases.
    pub remarks: Vec<String>,
}

impl Readiness {
    /// Returns the body of `/readyz`: `ok` or the reason, then a line for each remark.
    fn text(&self) -> String {
        let first = self.reason.as_deref().unwrap_or("ok");
        let mut lines = vec![first];
        for remark in &self.remarks {
            if remark != first {
                lines.push(remark);
            }
        }
        lines.join("\n")
    }
}

/// Listens at `address`, and answers until the runtime ends.
pub async fn serve(
    address: SocketAddr,
    readiness: watch::Receiver<Readiness>,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|err| Error::new(format_args!("listen on {address}"), err))?;
    tokio::spawn(accept(listener, readiness));
    Ok(())
}

async fn accept(listener: TcpListener, readiness: watch::Receiver<Readiness>) {
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

async fn answer_all(stream: TcpStream, readiness: watch::Receiver<Readiness>) {
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

fn answer(method: &Method, path: &str, readiness: &Readiness) -> Response<Full<Bytes>> {
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let status = match readiness.reason {
                None => StatusCode::OK,
                Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, readiness.text())
        }
        (_, "/healthz" | "/readyz") => (StatusCode::METHOD_NOT_ALLOWED, "only GET".to_owned()),
        _ => (
            StatusCode::NOT_FOUND,
            "only /healthz and /readyz".to_owned(),
        ),
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
        let waiting = Readiness {
            reason: Some("node n1 has no pod range yet".to_owned()),
            remarks: vec!["a remark".to_owned()],
        };
        let ready = Readiness {
            reason: None,
            ..waiting.clone()
        };
        for (path, readiness, status) in [
            ("/healthz", &waiting, 200),
            ("/readyz", &waiting, 503),
            ("/readyz", &ready, 200),
            ("/metrics", &ready, 404),
        ] {
            let answer = answer(&Method::GET, path, readiness);
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
        assert_eq!(waiting.text(), "node n1 has no pod range yet\na remark");
        assert_eq!(ready.text(), "ok\na remark");
        let answer = answer(&Method::POST, "/readyz", &waiting);
        assert_eq!(answer.status().as_u16(), 405);
    }
}
