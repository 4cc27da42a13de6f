//! The plugin's two sockets, and the requests on them.

use super::messages::PluginInfo;
use super::service::{self, Driver, VERSIONS};
use super::sockets::{Sockets, bind};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Kind of the plugin, as the kubelet names it.
const KIND: &str = "DRAPlugin";

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

/// A running plugin. It ends when dropped, and its sockets with it.
#[derive(Debug)]
pub struct Plugin {
    registration: watch::Receiver<Registration>,
    sockets: Sockets,
    _tasks: JoinSet<()>,
}

impl Plugin {
    /// Starts a plugin with the name of its driver in the kubelet's folder. The driver's socket is there
    /// before the kubelet learns of it.
    pub fn start<D: Driver>(kubelet: &Path, name: &str, driver: D) -> io::Result<Self> {
        let sockets = Sockets::new(kubelet, name, SystemTime::now());
        let claims = bind(&sockets.driver)?;
        let registry = bind(&sockets.registration)?;
        let (change, registration) = watch::channel(Registration::Pending);
        let own = sockets.clone();
        let told = move |told: Result<(), String>| {
            change.send_replace(match told {
                Ok(()) => {
                    own.remove_earlier();
                    Registration::Registered
                }
                Err(why) => Registration::Refused(why),
            });
        };
        let told: Arc<dyn Fn(Result<(), String>) + Send + Sync> = Arc::new(told);
        let info = PluginInfo {
            kind: KIND.to_owned(),
            name: name.to_owned(),
            endpoint: sockets.driver.display().to_string(),
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
            sockets,
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
        self.sockets.remove();
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
