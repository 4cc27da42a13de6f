//! kube clients: HTTP/2, with one connection for all requests, and HTTP/1.1 if HTTP/2 gets no
//! response.
//!
//! kube's own client speaks only HTTP/1.1. With HTTP/1.1 each concurrent request needs a TLS
//! handshake, which costs the server and this process a millisecond. But a server or a proxy may
//! have HTTP/2 disabled. Both clients here resolve names without tokio's thread pool; kube's own
//! client always uses the pool.

use crate::runtime::look_up;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config, Error};
use std::cell::{Cell, OnceCell};
use tower::{BoxError, ServiceBuilder, service_fn};

pub(super) struct Clients {
    config: Config,
    http2: Client,
    http1: OnceCell<Client>,
    is_http2: Cell<bool>,
}

impl Clients {
    /// Creates the clients without connecting. They spawn tasks on the current runtime.
    pub(super) fn new(config: Config) -> Result<Self, Error> {
        let http2 = client(&config, true)?;
        Ok(Self {
            config,
            http2,
            http1: OnceCell::new(),
            is_http2: Cell::new(true),
        })
    }

    /// True if the next request uses HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    /// Uses HTTP/1.1 from now on.
    pub(super) fn leave_http2(&self) {
        self.is_http2.set(false);
    }

    /// Returns the client for the next request.
    pub(super) fn current(&self) -> Result<&Client, Error> {
        if self.is_http2() {
            return Ok(&self.http2);
        }
        if self.http1.get().is_none() {
            let _ = self.http1.set(client(&self.config, false)?);
        }
        Ok(self.http1.get().unwrap_or(&self.http2))
    }
}

/// Creates a client like kube's own, but with the chosen HTTP version and another name resolver.
fn client(config: &Config, is_http2: bool) -> Result<Client, Error> {
    let resolver =
        service_fn(async |name: Name| look_up(name.as_str().to_owned()).await.map(Vec::into_iter));
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    // Nagle: the second frame of a request would wait for an ACK of the first, up to 40 ms.
    connector.set_nodelay(true);
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name
            .clone()
            .try_into()
            .map_err(|err| Error::Service(BoxError::from(err)))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let https = if is_http2 {
        https.enable_http2().wrap_connector(connector)
    } else {
        https.enable_http1().wrap_connector(connector)
    };
    let http: Http<_, Body> = Http::builder(TokioExecutor::new())
        .http2_only(is_http2)
        .build(https);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(stack, ""))
}
