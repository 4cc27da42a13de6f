//! Clients of kube: by HTTP/2, where all requests share one connection, and by HTTP/1.1 where that gets no answer.
//!
//! kube's own speaks HTTP/1.1 alone: each request that is under way at the same time is a TLS handshake, which costs the
//! server and this process a millisecond. But servers and what stands before them may have HTTP/2 switched off.

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config, Error};
use std::cell::{Cell, OnceCell};
use tower::{BoxError, ServiceBuilder};

pub(super) struct Clients {
    config: Config,
    http2: Client,
    http1: OnceCell<Client>,
    is_http2: Cell<bool>,
}

impl Clients {
    /// Opens no connection yet. The clients leave tasks with the runtime that they are made in.
    pub(super) fn new(config: Config) -> Result<Self, Error> {
        let http2 = http2(&config)?;
        Ok(Self { config, http2, http1: OnceCell::new(), is_http2: Cell::new(true) })
    }

    /// True if the next request goes by HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    /// From now on it goes by HTTP/1.1.
    pub(super) fn leave_http2(&self) {
        self.is_http2.set(false);
    }

    /// The client for the next request.
    pub(super) fn current(&self) -> Result<&Client, Error> {
        if self.is_http2() {
            return Ok(&self.http2);
        }
        if self.http1.get().is_none() {
            let _ = self.http1.set(Client::try_from(self.config.clone())?);
        }
        Ok(self.http1.get().unwrap_or(&self.http2))
    }
}

/// kube's own stack, but for the version of HTTP.
fn http2(config: &Config) -> Result<Client, Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    // A request of two frames would wait for the server to confirm the first, up to 40 ms.
    connector.set_nodelay(true);
    let mut https = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|err| Error::Service(BoxError::from(err)))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let https = https.enable_http2().wrap_connector(connector);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).http2_only(true).build(https);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(stack, ""))
}
