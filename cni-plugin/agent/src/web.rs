//! An HTTP server for short answers: one request per connection.

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections served at a time. Others wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// Longest time in which a client sends the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Answers requests by their method and path until the runtime ends.
pub(crate) async fn accept<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(Method, String) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handler = handler.clone();
                tokio::spawn(async move {
                    answer(stream, handler).await;
                    drop(permit);
                });
            }
            Err(err) => {
                tracing::warn!(error = %err, "accept an HTTP connection");
                // For example, all descriptors are in use.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer<H, F>(stream: TcpStream, handler: H)
where
    H: Fn(Method, String) -> F,
    F: Future<Output = Answer>,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = handler(request.method().clone(), request.uri().path().to_owned());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    // A client that breaks the protocol or is slow loses its connection, nothing else.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// True if a request of this method changes nothing.
pub(crate) fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Returns an answer with this text.
pub(crate) fn text(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer
}
