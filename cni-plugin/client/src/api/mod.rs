//! The API server as a source of Kubernetes objects. No client or runtime starts before the first
//! request.
//!
//! ```text
//!  Access ─► credentials, read by each process ─► kube::Client ─────────┐
//!  Source::pod, annotate, … ─► ApiRequest (verb, object, request) ──────┴─► Session: attempts
//! ```
//!
//! A tokio runtime on the calling thread drives the requests of one call concurrently. Nothing runs
//! between calls.

mod access;
mod annotate;
mod api_request;
mod clients;
mod object;
mod session;

pub use access::Access;
pub use object::annotation as annotation_patch;

use crate::runtime;
use access::Credentials;
use api_request::{ApiRequest, ObjectKind};
use braid_core::dra::claim::Claim;
use braid_core::dra::pod_claims::PodClaims;
use braid_core::k8s::dynamic::Offered;
use braid_core::k8s::source::{Edit, Event, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod, object as parse};
use braid_node::source::client::protocol::{Exchange, ExchangeKind, Exchanged, Limits, Verb};
use clients::Clients;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use serde_json::Value;
use session::Session;
use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Maximum number of concurrent requests. With HTTP/1.1 each request needs a connection.
const CONCURRENT: usize = 8;

/// Namespace of the objects of cluster-wide IPAM, if the kubeconfig names none, as with Whereabouts.
const NAMESPACE: &str = "kube-system";

/// Client of the API server. It implements [`Source`].
pub struct Api {
    access: Access,
    limits: Limits,
    /// Limit of each method call, if it is shorter than [`Limits::call`].
    limit: Option<Duration>,
    /// Part of [`Limits::process`] that earlier method calls have used.
    spent: Duration,
    connected: Option<Connected>,
    /// False after the server reported that the account may not patch a pod's status.
    may_patch: bool,
}

/// A connection to the API server, opened by the first request.
struct Connected {
    runtime: Runtime,
    clients: Clients,
    /// Address of the server as `<host>:<port>`, for errors.
    server: String,
    /// Namespace of the objects of cluster-wide IPAM.
    namespace: String,
    /// Token and password. They are removed from every text that is shown.
    secrets: Vec<String>,
}

impl Api {
    /// Creates a client. No file is read and no request is sent yet.
    pub fn new(access: Access, limits: Limits) -> Self {
        Self {
            access,
            limits,
            limit: None,
            spent: Duration::ZERO,
            connected: None,
            may_patch: true,
        }
    }

    /// Limits the time of each further method call, with all attempts, to `limit` if it is shorter
    /// than that of [`Limits`].
    pub fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Runs `work` within `limit`, and connects first if there is no connection.
    fn ask<T>(
        &mut self,
        limit: Duration,
        work: impl AsyncFnOnce(&Session<'_>) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let start = Instant::now();
        let left = self.limits.process.saturating_sub(self.spent);
        if left.is_zero() {
            let why = format!(
                "request not sent: the API server has already used {:?} of this call",
                self.spent
            );
            return Err(SourceError::Passing { why });
        }
        let attempt = self.limits.attempt;
        let limit = self.limit.map_or(limit, |shorter| limit.min(shorter));
        let deadline = start + limit.min(left);
        let done = match self.connected() {
            Ok(connected) => connected.runtime.block_on(work(&Session {
                clients: &connected.clients,
                server: &connected.server,
                namespace: &connected.namespace,
                secrets: &connected.secrets,
                attempt,
                deadline: deadline.into(),
            })),
            Err(err) => Err(err),
        };
        self.spent += start.elapsed();
        done
    }

    /// Sends a request about one object. A conflict with another writer, a failed test and a missing
    /// object are answers.
    pub fn exchange(&mut self, exchange: &Exchange) -> Result<Exchanged, SourceError> {
        self.ask(self.limits.call, async |session| {
            exchanged(session, exchange).await
        })
    }

    /// Sends requests as [`Api::exchange`] does, all at the same time.
    pub fn exchange_all(
        &mut self,
        exchanges: &[Exchange],
    ) -> Result<Vec<Result<Exchanged, SourceError>>, SourceError> {
        self.ask(self.limits.call, async |session| {
            let all = exchanges.iter().map(|one| exchanged(session, one));
            Ok(join_all(all).await)
        })
    }

    fn connected(&mut self) -> Result<&Connected, SourceError> {
        let connected = match self.connected.take() {
            Some(connected) => connected,
            None => Connected::make(&self.access, self.limits.attempt)?,
        };
        Ok(self.connected.insert(connected))
    }
}

async fn exchanged(session: &Session<'_>, exchange: &Exchange) -> Result<Exchanged, SourceError> {
    if exchange.verb == Verb::List {
        return listed(session, exchange.kind).await;
    }
    let ask = ApiRequest::exchange(exchange, session.namespace)?;
    match session.answer(&ask).await {
        Ok(body) => Ok(Exchanged {
            status: 200,
            body: String::from_utf8_lossy(&body).into_owned(),
        }),
        Err((failure, attempts)) => match failure.refusal() {
            Some(status) => Ok(Exchanged {
                status,
                body: String::new(),
            }),
            None => Err(ask.failed(failure, attempts)),
        },
    }
}

async fn listed(session: &Session<'_>, kind: ExchangeKind) -> Result<Exchanged, SourceError> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let ask = ApiRequest::list_whole(kind, session.namespace, &next)?;
        let body = session.send(&ask).await?;
        let (objects, more) = object::whole(&body).map_err(|err| ask.unreadable(&err))?;
        all.extend(objects);
        if more.is_empty() {
            return Ok(Exchanged {
                status: 200,
                body: Value::Array(all).to_string(),
            });
        }
        next = more;
    }
}

impl Connected {
    fn make(access: &Access, attempt: Duration) -> Result<Self, SourceError> {
        let runtime = runtime::start().map_err(|why| SourceError::Passing { why })?;
        let Credentials {
            config,
            server,
            namespace,
            secrets,
        } = runtime.block_on(access.credentials(attempt))?;
        let clients = {
            let _inside = runtime.enter();
            Clients::new(config).map_err(|err| access.refused(&err))?
        };
        Ok(Self {
            runtime,
            clients,
            server,
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            secrets,
        })
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(connected) = self.connected.take() {
            // Dropping the runtime could wait for running work.
            connected.runtime.shutdown_background();
        }
    }
}

impl Source for Api {
    fn pod(
        &mut self,
        pod: &ObjectName,
        _uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError> {
        self.ask(self.limits.call, async |session| {
            let (pod, nads) = (pin!(get_pod(session, pod)), pin!(get_nads(session, nads)));
            match select(pod, nads).await {
                // If the pod cannot be read, the networks are not needed.
                Either::Left((pod, nads)) => Ok((pod?, nads.await?)),
                Either::Right((nads, pod)) => Ok((pod.await?, nads?)),
            }
        })
    }

    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        self.ask(self.limits.call, async |session| {
            get_nads(session, names).await
        })
    }

    fn annotate(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        edit: &Edit<'_>,
    ) -> Result<(), SourceError> {
        let may_patch = Cell::new(self.may_patch);
        let limit = self.limits.call;
        let done = self.ask(limit, async |session| {
            annotate::annotate(session, (pod, uid), edit, &may_patch).await
        });
        self.may_patch = may_patch.get();
        done
    }

    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError> {
        self.ask(self.limits.event, async |session| {
            session.send(&ApiRequest::tell(pod, uid, event)?).await?;
            Ok(())
        })
    }

    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError> {
        self.ask(self.limits.call, async |session| {
            get_claim(session, name).await
        })
    }

    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError> {
        self.ask(self.limits.call, async |session| {
            let (mut uids, mut ask) = (Vec::new(), ApiRequest::list(ObjectKind::Claim, "")?);
            loop {
                let body = session.send(&ask).await?;
                let page = object::page(&body).map_err(|err| ask.unreadable(&err))?;
                uids.extend(page.uids);
                if page.next.is_empty() {
                    return Ok(uids);
                }
                ask = ApiRequest::list(ObjectKind::Claim, &page.next)?;
            }
        })
    }

    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError> {
        self.ask(self.limits.call, async |session| {
            let ask = ApiRequest::fill(claim)?;
            let filled = match session.send(&ask).await {
                Ok(body) => parse::claim(&claim.name, &body).map_err(|err| ask.unreadable(&err))?,
                // The claim may already have braid's status, if the response was lost.
                Err(err @ SourceError::Passing { .. }) => {
                    match get_claim(session, &claim.name).await {
                        Ok(now) if now.uid != claim.uid || is_filled(&now, claim) => now,
                        Ok(_) | Err(_) => return Err(err),
                    }
                }
                Err(err) => return Err(err),
            };
            if filled.uid == claim.uid {
                Ok(())
            } else {
                Err(ask.is_another())
            }
        })
    }

    fn resource_claims(&mut self, pod: &ObjectName, uid: &str) -> Result<Vec<Claim>, SourceError> {
        self.ask(self.limits.call, async |session| {
            get_resource_claims(session, pod, uid).await
        })
    }

    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError> {
        self.ask(self.limits.call, async |session| {
            let (mut all, mut ask) = (Vec::new(), ApiRequest::slices(node, driver, "")?);
            loop {
                let body = session.send(&ask).await?;
                let (offered, next) = object::offered(&body).map_err(|err| ask.unreadable(&err))?;
                all.extend(offered);
                if next.is_empty() {
                    return Ok(all);
                }
                ask = ApiRequest::slices(node, driver, &next)?;
            }
        })
    }
}

async fn get_pod(session: &Session<'_>, name: &ObjectName) -> Result<Pod, SourceError> {
    let ask = ApiRequest::get(ObjectKind::Pod, name)?;
    let body = session.send(&ask).await?;
    parse::pod(name, &body).map_err(|err| ask.unreadable(&err))
}

async fn get_claim(session: &Session<'_>, name: &ObjectName) -> Result<IpamClaim, SourceError> {
    let ask = ApiRequest::get(ObjectKind::Claim, name)?;
    let body = session.send(&ask).await?;
    parse::claim(name, &body).map_err(|err| ask.unreadable(&err))
}

async fn get_resource_claims(
    session: &Session<'_>,
    pod: &ObjectName,
    uid: &str,
) -> Result<Vec<Claim>, SourceError> {
    let ask = ApiRequest::of_pod(pod, uid)?;
    let body = session.send(&ask).await?;
    let claims = PodClaims::parse(&body).map_err(|err| ask.refused(&err))?;
    if claims.uid != uid {
        return Err(ask.is_another());
    }
    let each = claims.names.into_iter().map(async |name: String| {
        let name = ObjectName {
            namespace: pod.namespace.clone(),
            name,
        };
        let ask = ApiRequest::get(ObjectKind::ResourceClaim, &name)?;
        let body = session.send(&ask).await?;
        Claim::parse(&body).map_err(|err| ask.refused(&err))
    });
    let mut claims: Vec<Claim> = iter(each).buffered(CONCURRENT).try_collect().await?;
    claims.retain(|claim| !claim.shares.is_empty());
    Ok(claims)
}

/// True if the claim `now` has the status of `wanted`. A CRD without `ownerPod` drops that field.
fn is_filled(now: &IpamClaim, wanted: &IpamClaim) -> bool {
    now.ips == wanted.ips && (now.owner_pod.is_none() || now.owner_pod == wanted.owner_pod)
}

async fn get_nads(session: &Session<'_>, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
    let each = names.iter().map(async |name: &ObjectName| {
        let ask = ApiRequest::get(ObjectKind::Nad, name)?;
        match session.send(&ask).await {
            Ok(body) => {
                let nad = parse::nad(name, &body).map_err(|err| ask.unreadable(&err))?;
                Ok(Some(nad))
            }
            Err(SourceError::NotFound { .. }) => Ok(None),
            Err(err) => Err(err),
        }
    });
    let found: Vec<Option<Nad>> = iter(each).buffered(CONCURRENT).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
