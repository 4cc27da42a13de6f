//! The plugin's two sockets, and the requests on them.

use super::messages::PluginInfo;
use super::service::{self, Driver, VERSIONS};
use super::sockets::bind;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Kind of the plugin, as the kubelet names it.
const KIND: &str = "DRAPlugin";

/// End of the name of the registration socket. Go's gRPC client sends the path of the socket as the authority
/// of each request, with `%2F` for `/`. `%` is allowed only before an `@` (RFC 3986 section 3.2), and hyper refuses
/// other requests. For the driver's socket the kubelet sends `localhost`.
const REGISTRATION: &str = "@reg.sock";

/// State of the registration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Registration {
    /// The kubelet has not asked yet.
    #[default]
    Pending,
    /// The kubelet sends claims.
    Registered,
    /// The kubelet refuses the plugin, with this reason.
    Refused(String),
}

/// A running plugin. It ends when dropped, and its registration socket with it.
#[derive(Debug)]
pub struct Plugin {
    registration: watch::Receiver<Registration>,
    socket: PathBuf,
    _tasks: JoinSet<()>,
}

impl Plugin {
    /// Starts a plugin with the name of its driver in the kubelet's folder. The driver's socket is there
    /// before the kubelet learns of it.
    pub fn start<D: Driver>(kubelet: &Path, name: &str, driver: D) -> io::Result<Self> {
        let endpoint = kubelet.join("plugins").join(name).join("dra.sock");
        let socket = kubelet
            .join("plugins_registry")
            .join(format!("{name}{REGISTRATION}"));
        let claims = bind(&endpoint)?;
        let registry = bind(&socket)?;
        let (change, registration) = watch::channel(Registration::Pending);
        let told = move |told: Result<(), String>| {
            change.send_replace(match told {
                Ok(()) => Registration::Registered,
                Err(why) => Registration::Refused(why),
            });
        };
        let told: Arc<dyn Fn(Result<(), String>) + Send + Sync> = Arc::new(told);
        let info = PluginInfo {
            kind: KIND.to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        };
        let driver = Arc::new(driver);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(claims, move |request| {
            service::driver(Arc::clone(&driver), request)
        }));
        tasks.spawn(serve(registry, move |request| {
            service::registration(info.clone(), Arc::clone(&told), request)
        }));
        Ok(Self {
            registration,
            socket,
            _tasks: tasks,
        })
    }

    /// Returns the state of the registration, and its changes.
    pub fn registration(&self) -> watch::Receiver<Registration> {
        self.registration.clone()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // The kubelet then no longer sends claims. After a kill it learns from the closed connection.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Serves HTTP/2 on each connection.
async fn serve<F, A>(listener: UnixListener, answer: F)
where
    F: Fn(http::Request<hyper::body::Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<http::Response<tonic::body::Body>, std::convert::Infallible>>
        + Send
        + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service_fn(answer.clone()));
                    connections.spawn(async move {
                        if let Err(err) = connection.await {
                            tracing::debug!(error = %err, "a connection of the kubelet ended");
                        }
                    });
                }
                Err(err) => tracing::warn!(error = %err, "accept a connection of the kubelet"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
