//! `/healthz` and `/readyz` over HTTP.

use crate::error::Error;
use crate::web::{self, Answer};
use http::{Method, StatusCode};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;

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
    tokio::spawn(web::accept(listener, move |method, path| {
        let answer = answer(&method, &path, &readiness.borrow());
        async move { answer }
    }));
    Ok(())
}

fn answer(method: &Method, path: &str, readiness: &Readiness) -> Answer {
    let (status, text) = match path {
        "/healthz" | "/readyz" if !web::is_read(method) => {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET".to_owned())
        }
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => {
            let status = match readiness.reason {
                None => StatusCode::OK,
                Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, readiness.text())
        }
        _ => (
            StatusCode::NOT_FOUND,
            "only /healthz and /readyz".to_owned(),
        ),
    };
    web::text(status, format!("{text}\n"))
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
