//! Pods, networks and claims for calls, over a Unix socket.
//!
//! ```text
//!  API ─► feed: a watch per kind ─► store ─┬─► answer ─► socket ─► call
//!           an object that it lacks ───────┘     │
//!                                     copies on disk, for calls without an agent
//! ```

mod answer;
mod copies;
mod feed;
mod publish;
pub(crate) mod reports;
mod resource_claims;
mod socket;
mod stale;
pub(crate) mod store;
mod turns;

use crate::cluster::networks::{ClaimObject, NetworkObject, claim_resource, network_resource};
use crate::cluster::pods::{self, PodObject};
use crate::dra::{Claims, Objects};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::watch::Watch;
use answer::Server;
use braid_node::source::agent::protocol::SOCKET;
use kube::{Api, Client};
use reports::Reports;
use std::path::Path;
use std::sync::Arc;
use store::{Look, Store};
use tokio::sync::mpsc::UnboundedSender;
use turns::Turns;

/// Listens at the socket, and answers until the runtime ends. Sends pods to compare with their
/// annotations to `looks`. Returns the caches.
pub(crate) fn start(
    client: &Client,
    options: &Options,
    looks: Option<UnboundedSender<Look>>,
    metrics: &Metrics,
    prepared: &Claims,
) -> Result<Arc<Store>, Error> {
    let listener = socket::listen(Path::new(SOCKET))
        .map_err(|err| Error::new(format_args!("listen on {SOCKET}"), err))?;
    let sees_pods = looks.is_some();
    let store = Arc::new(Store::new(looks));
    let of_node = format!("spec.nodeName={}", options.node_name);
    let pods: Api<PodObject> = Api::all_with(client.clone(), &pods::resource());
    tokio::spawn(feed::pods(Watch::new(pods, &of_node), Arc::clone(&store)));
    let networks: Api<NetworkObject> = Api::all_with(client.clone(), &network_resource());
    tokio::spawn(feed::networks(Watch::new(networks, ""), Arc::clone(&store)));
    let claims: Api<ClaimObject> = Api::all_with(client.clone(), &claim_resource());
    tokio::spawn(feed::claims(Watch::new(claims, ""), Arc::clone(&store)));
    tokio::spawn(copies::keep(Arc::clone(&store)));
    let server = Arc::new(Server {
        client: client.clone(),
        store: Arc::clone(&store),
        reports: Reports::start(client.clone(), &options.node_name),
        turns: Turns::default(),
        objects: Objects::new(client.clone(), Arc::clone(&store)),
        prepared: prepared.clone(),
    });
    if sees_pods {
        let (server, conflist) = (Arc::clone(&server), options.conflist.clone());
        tokio::spawn(stale::watch(server, conflist, metrics.clone()));
    }
    tokio::spawn(socket::accept(listener, server));
    Ok(store)
}
