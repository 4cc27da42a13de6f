//! Whereabouts' objects in the API server, through a call's client program or the agent's client.

use super::client::Client;
use super::client::protocol::{Exchange, ExchangeKind, Exchanged, Limits, Verb};
use braid_core::ipam::whereabouts::api::{
    Api, Entered, Failure, NODE_ANNOTATION, POOL_ANNOTATION, Reserved, Server, Servers,
};
use braid_core::ipam::whereabouts::fence::FoundNode;
use braid_core::ipam::whereabouts::pods::FoundPod;
use braid_core::ipam::whereabouts::pool::{Entry, ListedPool, Pool, slice};
use braid_core::ipam::whereabouts::programs::of_whereabouts;
use braid_core::k8s::source::{Source, SourceError};
use braid_core::k8s::{NETWORK_STATUS, ObjectName};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const VERSION: &str = "whereabouts.cni.cncf.io/v1alpha1";
/// Kinds of objects that run Whereabouts' programs.
const PROGRAMS: [(ExchangeKind, &str); 3] = [
    (ExchangeKind::DaemonSet, "DaemonSet"),
    (ExchangeKind::Deployment, "Deployment"),
    (ExchangeKind::CronJob, "CronJob"),
];

/// The API servers in kubeconfigs.
#[derive(Debug, Clone, Copy)]
pub struct Kubernetes;

impl Servers for Kubernetes {
    fn open(&self, kubeconfig: &Path, limit: Duration) -> Box<dyn Server> {
        let limits = Limits::default();
        let process = limits.process.min(limit);
        Self::open_within(kubeconfig, Limits { process, ..limits })
    }
}

impl Kubernetes {
    /// Returns the API server of a kubeconfig like [`Servers::open`], with all time limits.
    pub fn open_within(kubeconfig: &Path, limits: Limits) -> Box<dyn Server> {
        let client = Client::new(kubeconfig.to_owned(), limits);
        Box::new(Remote::new(client, ""))
    }
}

/// A client that sends requests about one object each.
pub trait Exchanges {
    /// Sends a request.
    fn exchange(&mut self, exchange: Exchange) -> Result<Exchanged, SourceError>;

    /// Sends requests, if possible at the same time.
    fn exchange_all(&mut self, exchanges: Vec<Exchange>) -> Vec<Result<Exchanged, SourceError>> {
        let all = exchanges.into_iter();
        all.map(|exchange| self.exchange(exchange)).collect()
    }
}

impl Exchanges for Client {
    fn exchange(&mut self, exchange: Exchange) -> Result<Exchanged, SourceError> {
        Self::exchange(self, exchange)
    }

    fn exchange_all(&mut self, exchanges: Vec<Exchange>) -> Vec<Result<Exchanged, SourceError>> {
        Self::exchange_all(self, exchanges)
    }
}

/// An API server.
#[derive(Debug)]
pub struct Remote<C> {
    client: C,
    /// Name of the node, which is written to reservations.
    node: String,
}

impl<C: Exchanges> Remote<C> {
    /// Returns the API server behind a client, for a node.
    pub fn new(client: C, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
        }
    }

    fn send(
        &mut self,
        verb: Verb,
        kind: ExchangeKind,
        name: &str,
        body: Option<Value>,
    ) -> Result<Exchanged, Failure> {
        let exchange = exchange(verb, kind, name, body);
        judge(self.client.exchange(exchange), verb)
    }

    fn reservations_of(&self, all: &[(String, Entry)], pool: &str) -> Vec<Exchange> {
        let all = all.iter();
        all.map(|(name, entry)| self.reservation_of(name, entry, pool))
            .collect()
    }

    fn reservation_of(&self, name: &str, entry: &Entry, pool: &str) -> Exchange {
        let annotations = json!({NODE_ANNOTATION: self.node, POOL_ANNOTATION: pool});
        let body = json!({
            "apiVersion": VERSION,
            "kind": "OverlappingRangeIPReservation",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containerid": entry.id, "podref": entry.podref, "ifname": entry.ifname},
        });
        exchange(Verb::Create, ExchangeKind::Reservation, name, Some(body))
    }

    /// Judges the answer to a deletion. One that the API server refused has either met another
    /// reservation of the name, which is not this node's, or is to be sent again.
    fn unmade(
        &mut self,
        (name, uid): (&str, &str),
        answer: Result<Exchanged, SourceError>,
    ) -> Result<(), Failure> {
        match judge(answer, Verb::Delete) {
            Err(Failure::Missing) => Ok(()),
            Err(Failure::Unfit) => match self.reservation(name)? {
                Some(found) if found.uid == uid => {
                    Err(Failure::Passing("the API server refused it".to_owned()))
                }
                _ => Ok(()),
            },
            deleted => deleted.map(drop),
        }
    }
}

fn judge(answer: Result<Exchanged, SourceError>, verb: Verb) -> Result<Exchanged, Failure> {
    let answer = answer.map_err(of_source)?;
    match (answer.status, verb) {
        (404, _) => Err(Failure::Missing),
        (409, Verb::Create) => Err(Failure::Exists),
        // A patch or a deletion that does not fit the object.
        (409 | 422, _) => Err(Failure::Unfit),
        _ => Ok(answer),
    }
}

fn made(answer: Result<Exchanged, SourceError>) -> Result<String, Failure> {
    let answer = judge(answer, Verb::Create)?;
    reserved(&answer).map(|reserved| reserved.uid)
}

fn deletion(name: &str, uid: &str) -> Exchange {
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    });
    exchange(Verb::Delete, ExchangeKind::Reservation, name, Some(body))
}

fn change(pool: &str, patch: &Value) -> Exchange {
    exchange(Verb::Patch, ExchangeKind::Pool, pool, Some(patch.clone()))
}

fn exchange(verb: Verb, kind: ExchangeKind, name: &str, body: Option<Value>) -> Exchange {
    let name = name.to_owned();
    Exchange {
        verb,
        kind,
        name,
        body,
    }
}

/// Returns the pool in the answer to a change.
fn changed(answer: Result<Exchanged, SourceError>) -> Result<Pool, Failure> {
    pool(&judge(answer, Verb::Patch)?)
}

impl Server for Remote<Client> {
    fn node_of(&mut self, namespace: &str, pod: &str) -> Result<String, Failure> {
        let name = ObjectName {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
        };
        let found = self.client.pod(&name, None, &[]).map_err(of_source)?;
        Ok(found.0.node)
    }

    fn pools(&mut self) -> Result<Vec<ListedPool>, Failure> {
        let answer = self.send(Verb::List, ExchangeKind::Pool, "", None)?;
        let all = ListedPool::parse_all(answer.body.as_bytes());
        all.map_err(|err| unreadable(&err))
    }

    fn slice(&mut self, pool: &str, node: &str) -> Result<Option<IpNet>, Failure> {
        let answer = self.send(Verb::Get, ExchangeKind::SlicePool, pool, None);
        let parse = |answer: Exchanged| slice(answer.body.as_bytes(), node);
        let parsed = found(answer)?.map(parse).transpose();
        parsed.map(Option::flatten).map_err(|err| unreadable(&err))
    }

    fn pods(&mut self) -> Result<Vec<FoundPod>, Failure> {
        let answer = self.send(Verb::List, ExchangeKind::Pod, "", None)?;
        let all = FoundPod::parse_all(answer.body.as_bytes(), NETWORK_STATUS);
        all.map_err(|err| unreadable(&err))
    }

    fn programs(&mut self) -> Result<Vec<String>, Failure> {
        let mut all = Vec::new();
        for (kind, name) in PROGRAMS {
            let answer = self.send(Verb::List, kind, "", None)?;
            let found = of_whereabouts(name, answer.body.as_bytes());
            all.extend(found.map_err(|err| unreadable(&err))?);
        }
        Ok(all)
    }

    fn act_for(&mut self, node: &str) {
        node.clone_into(&mut self.node);
    }
}

fn of_source(err: SourceError) -> Failure {
    match err {
        SourceError::Passing { why } => Failure::Passing(why),
        SourceError::Lasting { why } => Failure::Lasting(why),
        // The kind is missing: an administrator has to apply it.
        SourceError::NotFound { what } => Failure::Lasting(format!("{what} does not exist")),
    }
}

fn reserved(answer: &Exchanged) -> Result<Reserved, Failure> {
    Reserved::parse(answer.body.as_bytes()).map_err(|err| unreadable(&err))
}

fn pool(answer: &Exchanged) -> Result<Pool, Failure> {
    Pool::parse(answer.body.as_bytes()).map_err(|err| unreadable(&err))
}

fn unreadable(err: &serde_json::Error) -> Failure {
    Failure::Lasting(format!("can't parse the response: line {}", err.line()))
}

fn found<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Missing) => Ok(None),
        answer => answer.map(Some),
    }
}

impl<C: Exchanges> Api for Remote<C> {
    fn pool(&mut self, name: &str) -> Result<Option<Pool>, Failure> {
        let answer = self.send(Verb::Get, ExchangeKind::Pool, name, None);
        found(answer)?.as_ref().map(pool).transpose()
    }

    fn create_pool(&mut self, name: &str, range: IpNet) -> Result<Pool, Failure> {
        let body = json!({
            "apiVersion": VERSION,
            "kind": "IPPool",
            "metadata": {"name": name},
            "spec": {"range": range, "allocations": {}},
        });
        pool(&self.send(Verb::Create, ExchangeKind::Pool, name, Some(body))?)
    }

    fn change_pool(&mut self, name: &str, patch: &Value) -> Result<Pool, Failure> {
        changed(self.client.exchange(change(name, patch)))
    }

    fn reserve(&mut self, name: &str, entry: &Entry, pool: &str) -> Result<String, Failure> {
        let exchange = self.reservation_of(name, entry, pool);
        made(self.client.exchange(exchange))
    }

    fn reserve_all(&mut self, all: &[(String, Entry)], pool: &str) -> Vec<Result<String, Failure>> {
        let answers = self.client.exchange_all(self.reservations_of(all, pool));
        answers.into_iter().map(made).collect()
    }

    fn enter(&mut self, all: &[(String, Entry)], pool: &str, patch: &Value) -> Entered {
        let mut exchanges = self.reservations_of(all, pool);
        exchanges.push(change(pool, patch));
        let mut answers = self.client.exchange_all(exchanges);
        let last = answers.pop();
        let silence = || Failure::Passing("no answer".to_owned());
        Entered {
            reserved: answers.into_iter().map(made).collect(),
            changed: last.map_or_else(|| Err(silence()), changed),
        }
    }

    fn reservation(&mut self, name: &str) -> Result<Option<Reserved>, Failure> {
        let answer = self.send(Verb::Get, ExchangeKind::Reservation, name, None);
        found(answer)?.as_ref().map(reserved).transpose()
    }

    fn reservations(&mut self) -> Result<Vec<Reserved>, Failure> {
        let answer = self.send(Verb::List, ExchangeKind::Reservation, "", None)?;
        let all = Reserved::parse_all(answer.body.as_bytes());
        all.map_err(|err| unreadable(&err))
    }

    fn unreserve(&mut self, name: &str, uid: &str) -> Result<(), Failure> {
        let answer = self.client.exchange(deletion(name, uid));
        self.unmade((name, uid), answer)
    }

    fn unreserve_all(&mut self, all: &[(String, String)]) -> Vec<Result<(), Failure>> {
        let exchanges = all.iter().map(|(name, uid)| deletion(name, uid)).collect();
        let answers = self.client.exchange_all(exchanges);
        let answers = all.iter().zip(answers);
        answers
            .map(|((name, uid), answer)| self.unmade((name, uid), answer))
            .collect()
    }

    fn node(&mut self, name: &str) -> Result<Option<FoundNode>, Failure> {
        let answer = self.send(Verb::Get, ExchangeKind::Node, name, None);
        let parse = |answer: Exchanged| FoundNode::parse(answer.body.as_bytes());
        let parsed = found(answer)?.map(parse).transpose();
        parsed.map_err(|err| unreadable(&err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with these statuses and bodies, in order.
    struct Answers(Vec<(u16, &'static str)>);

    impl Exchanges for Answers {
        fn exchange(&mut self, _: Exchange) -> Result<Exchanged, SourceError> {
            let (status, body) = self.0.remove(0);
            let body = body.to_owned();
            Ok(Exchanged { status, body })
        }
    }

    #[test]
    fn a_refused_deletion_is_due_while_the_reservation_exists() {
        let object = r#"{"metadata": {"name": "r", "uid": "mine"}, "spec": {"containerid": "c"}}"#;
        let refused = Failure::Passing("the API server refused it".to_owned());
        for (answers, uid, expected) in [
            (vec![(200, "")], "mine", Ok(())),
            (vec![(404, "")], "mine", Ok(())),
            (vec![(409, ""), (404, "")], "mine", Ok(())),
            (vec![(409, ""), (200, object)], "mine", Err(refused.clone())),
            (vec![(409, ""), (200, object)], "other", Ok(())),
        ] {
            let mut api = Remote::new(Answers(answers.clone()), "n1");
            assert_eq!(api.unreserve("r", uid), expected, "{answers:?}");
            let mut api = Remote::new(Answers(answers), "n1");
            let all = [("r".to_owned(), uid.to_owned())];
            assert_eq!(api.unreserve_all(&all), [expected]);
        }
    }
}
