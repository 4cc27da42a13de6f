//! `/metrics` over HTTP.

use super::handle::Metrics;
use crate::web::{self, Answer};
use http::{HeaderValue, Method, StatusCode, header};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

const PATH: &str = "/metrics";
/// Pause before the address is tried again, for example because an earlier agent still has it.
const RETRY: Duration = Duration::from_secs(10);

/// Listens at `address` in a task of its own. An address that is in use costs the metrics, not the
/// node's network. `conflist` is the node's conflist.
pub(crate) fn serve(address: SocketAddr, metrics: Metrics, conflist: PathBuf) {
    tokio::spawn(async move {
        let listener = listen(address).await;
        web::accept(listener, move |method, path| {
            let (metrics, conflist) = (metrics.clone(), conflist.clone());
            async move {
                if path == PATH {
                    metrics.refresh(conflist).await;
                }
                answer(&method, &path, &metrics)
            }
        })
        .await;
    });
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut is_reported = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(err) if !is_reported => {
                tracing::warn!(%address, error = %err, "listen for scrapes of metrics");
                is_reported = true;
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics) -> Answer {
    if path != PATH {
        return web::text(StatusCode::NOT_FOUND, "only /metrics\n".to_owned());
    }
    if !web::is_read(method) {
        return web::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    let mut answer = web::text(StatusCode::OK, metrics.text());
    let kind = HeaderValue::from_static(CONTENT_TYPE);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_metrics_are_answered() {
        let metrics = Metrics::default();
        for (method, path, status) in [
            (Method::GET, "/metrics", 200),
            (Method::HEAD, "/metrics", 200),
            (Method::POST, "/metrics", 405),
            (Method::GET, "/healthz", 404),
        ] {
            let answer = answer(&method, path, &metrics);
            assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        }
    }
}
