//! Clients of kube: by HTTP/2, where all requests share one connection, and by HTTP/1.1 where that
//! gets no answer.
//!
//! kube's own speaks HTTP/1.1 alone: each request that is under way at the same time is a TLS
//! handshake, which costs the server and this process a millisecond. But servers and what stands
//! before them may have HTTP/2 switched off. Both look names up without tokio's pool of threads, as
//! kube's own could not.

use crate::source::runtime::look_up;
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
    /// Opens no connection yet. The clients leave tasks with the runtime that they are made in.
    pub(super) fn new(config: Config) -> Result<Self, Error> {
        let http2 = client(&config, true)?;
        Ok(Self {
            config,
            http2,
            http1: OnceCell::new(),
            is_http2: Cell::new(true),
        })
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
            let _ = self.http1.set(client(&self.config, false)?);
        }
        Ok(self.http1.get().unwrap_or(&self.http2))
    }
}

/// kube's own stack, but for the version of HTTP and the look-up of names.
fn client(config: &Config, is_http2: bool) -> Result<Client, Error> {
    let resolver =
        service_fn(async |name: Name| look_up(name.as_str().to_owned()).await.map(Vec::into_iter));
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    // A request of two frames would wait for the server to confirm the first, up to 40 ms.
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
