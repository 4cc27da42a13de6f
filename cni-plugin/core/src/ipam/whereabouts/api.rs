//! Whereabouts' objects, as a call reads and changes them.

use super::fence::FoundNode;
use super::journal::Journal;
use super::pods::FoundPod;
use super::pool::{CLAIM, Entry, ListedPool, Metadata, Node, Pool};
use crate::cni::Error;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An object of this name exists (409).
    Exists,
    /// A test of a change failed (422), so nothing was changed.
    Unfit,
    /// The object does not exist (404).
    Missing,
    /// Temporary, such as no answer. The request may still be carried out.
    Passing(String),
    /// Permanent until an administrator mends it, such as a missing right.
    Lasting(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("the object exists"),
            Self::Unfit => f.write_str("the object has changed"),
            Self::Missing => f.write_str("the object does not exist"),
            Self::Passing(why) | Self::Lasting(why) => f.write_str(why),
        }
    }
}

/// A reservation of an address (`OverlappingRangeIPReservation`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Name of the object.
    pub name: String,
    /// Uid of the object.
    pub uid: String,
    /// Container id, if braid made it.
    pub container_id: String,
    /// `namespace/name` of the pod, if Whereabouts made it.
    pub podref: String,
    /// Interface.
    pub ifname: String,
    /// Node and pool for which braid made it.
    pub of: Option<(String, String)>,
}

/// Annotations of a reservation with the node and the pool for which braid made it.
pub const NODE_ANNOTATION: &str = "ipam.braid.io/node";
/// See [`NODE_ANNOTATION`].
pub const POOL_ANNOTATION: &str = "ipam.braid.io/pool";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    containerid: String,
    podref: String,
    ifname: String,
}

impl From<Object> for Reserved {
    fn from(object: Object) -> Self {
        let annotation = |key: &str| object.metadata.annotations.as_ref()?.get(key).cloned();
        Self {
            of: annotation(NODE_ANNOTATION).zip(annotation(POOL_ANNOTATION)),
            name: object.metadata.name,
            uid: object.metadata.uid,
            container_id: object.spec.containerid,
            podref: object.spec.podref,
            ifname: object.spec.ifname,
        }
    }
}

impl Reserved {
    /// Parses the object.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Object>(bytes).map(Self::from)
    }

    /// Parses a list of objects.
    pub fn parse_all(bytes: &[u8]) -> serde_json::Result<Vec<Self>> {
        let objects: Vec<Object> = serde_json::from_slice(bytes)?;
        Ok(objects.into_iter().map(Self::from).collect())
    }

    /// True if it is the reservation of an entry of this node in a pool. An address that goes from one
    /// container of the node to the next keeps its reservation. That of a claim is another's, and so is
    /// that of a pool that overlaps, unless the same interface has the address there. Held addresses are
    /// of no interface.
    pub fn is_of(&self, entry: &Entry, node: &Node, pool: &str) -> bool {
        let is_holders = self.container_id == entry.holder(node);
        if let Some((of_node, of_pool)) = &self.of {
            let is_claims = entry.claim().is_some() || self.container_id.starts_with(CLAIM);
            let is_interfaces = is_holders && !entry.is_held() && self.ifname == entry.ifname;
            let is_pools = of_pool == pool && (is_holders || !is_claims);
            return *of_node == node.name && (is_pools || is_interfaces);
        }
        if self.container_id.is_empty() {
            return !entry.podref.is_empty() && self.podref == entry.podref;
        }
        is_holders
    }

    /// True if Whereabouts has made it.
    pub fn is_foreign(&self) -> bool {
        self.of.is_none() && self.container_id.is_empty()
    }

    /// True if a node has made it for an entry of a claim.
    pub fn is_of_claim(&self, entry: &Entry) -> bool {
        let node = self.container_id.strip_prefix(&*entry.id);
        entry.claim().is_some() && node.is_some_and(|node| node.starts_with('@'))
    }
}

/// Answers to the requests that enter addresses into a pool.
#[derive(Debug)]
pub struct Entered {
    /// Uid of each reservation.
    pub reserved: Vec<Result<String, Failure>>,
    /// The pool after its change.
    pub changed: Result<Pool, Failure>,
}

/// Whereabouts' objects in the API. Each call is one request.
pub trait Api {
    /// Reads a pool; `None` if it does not exist.
    fn pool(&mut self, name: &str) -> Result<Option<Pool>, Failure>;

    /// Creates a pool without entries.
    fn create_pool(&mut self, name: &str, range: IpNet) -> Result<Pool, Failure>;

    /// Changes a pool by a JSON Patch, and returns the pool after it.
    fn change_pool(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure>;

    /// Creates a reservation for an entry of a pool, and returns its uid.
    fn reserve(&mut self, name: &str, entry: &Entry, pool: &str) -> Result<String, Failure>;

    /// Creates reservations as [`Api::reserve`] does, if possible at the same time.
    fn reserve_all(&mut self, all: &[(String, Entry)], pool: &str) -> Vec<Result<String, Failure>> {
        let all = all.iter();
        all.map(|(name, entry)| self.reserve(name, entry, pool))
            .collect()
    }

    /// Creates reservations as [`Api::reserve`] does and changes the pool as [`Api::change_pool`] does, if
    /// possible at the same time. Each may be carried out without the others.
    fn enter(&mut self, all: &[(String, Entry)], pool: &str, patch: &Value) -> Entered {
        Entered {
            reserved: self.reserve_all(all, pool),
            changed: self.change_pool(pool, patch),
        }
    }

    /// Reads a reservation; `None` if it does not exist.
    fn reservation(&mut self, name: &str) -> Result<Option<Reserved>, Failure>;

    /// Reads all reservations.
    fn reservations(&mut self) -> Result<Vec<Reserved>, Failure>;

    /// Deletes the reservation with this uid. One that does not exist is a success.
    fn unreserve(&mut self, name: &str, uid: &str) -> Result<(), Failure>;

    /// Deletes reservations as [`Api::unreserve`] does, if possible at the same time.
    fn unreserve_all(&mut self, all: &[(String, String)]) -> Vec<Result<(), Failure>> {
        let all = all.iter();
        all.map(|(name, uid)| self.unreserve(name, uid)).collect()
    }

    /// Reads a Node; `None` if it does not exist.
    fn node(&mut self, name: &str) -> Result<Option<FoundNode>, Failure>;
}

/// An API server.
pub trait Server: Api {
    /// Returns the name of the node on which a pod is.
    fn node_of(&mut self, namespace: &str, pod: &str) -> Result<String, Failure>;

    /// Reads all pools, by name.
    fn pools(&mut self) -> Result<Vec<ListedPool>, Failure>;

    /// Reads the slice of a node in a `NodeSlicePool`; `None` if it has none.
    fn slice(&mut self, pool: &str, node: &str) -> Result<Option<IpNet>, Failure>;

    /// Reads all pods of the cluster.
    fn pods(&mut self) -> Result<Vec<FoundPod>, Failure>;

    /// Returns the `DaemonSets`, Deployments and `CronJobs` of Whereabouts, in all namespaces.
    fn programs(&mut self) -> Result<Vec<String>, Failure>;

    /// Sets the name of the node, which reservations name.
    fn act_for(&mut self, node: &str);
}

/// The API servers in kubeconfigs.
pub trait Servers {
    /// Returns the API server of a kubeconfig, for requests that together take no longer than `limit`.
    /// No request is sent yet.
    fn open(&self, kubeconfig: &Path, limit: Duration) -> Box<dyn Server>;
}

/// The journal of a pool.
pub trait Store {
    /// Reads the journal, or takes an empty one, and replaces it by its changed state. Nothing else
    /// changes it meanwhile. Returns the new state.
    fn update(&mut self, change: &mut dyn FnMut(&mut Journal)) -> Result<Journal, Error>;
}
