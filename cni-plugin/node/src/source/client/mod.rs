//! Client of the API server and of the kubelet, in a program of its own. A call starts it only if
//! it needs an object and no agent answers. So braid has neither TLS nor an async runtime, and a
//! call that needs neither loads neither.

pub mod protocol;

use crate::sys::executable;
use braid_core::cni::Json;
use braid_core::dra::claim::Claim;
use braid_core::k8s::dynamic::{Given, Offered};
use braid_core::k8s::source::{Edit, Event, News, Severity, Source, SourceError};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod};
use protocol::{
    ARGUMENT, Asked, ClientAnswer, ClientRequest, Exchange, Exchanged, Limits, Opening, PROGRAM,
};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time beyond the limits of a request after which a client without an answer is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Source that asks the API server.
#[derive(Debug)]
pub(crate) struct Client {
    kubeconfig: PathBuf,
    limits: Limits,
    /// Limit of each further method call, if it is shorter than [`Limits::call`].
    limit: Option<Duration>,
    running: Option<Running>,
    status: Status,
}

/// State of publishing a status.
#[derive(Debug)]
enum Status {
    None,
    /// The client program publishes it, and has not answered.
    Begun,
    Ended(Result<(), SourceError>),
}

impl Client {
    /// Creates a source. Nothing is started yet.
    pub(crate) fn new(kubeconfig: PathBuf, limits: Limits) -> Self {
        Self {
            kubeconfig,
            limits,
            limit: None,
            running: None,
            status: Status::None,
        }
    }

    /// Limits the time of each further method call, with all attempts.
    pub(super) fn limit_to(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// Reads the pod within `limit` if there is one.
    pub(super) fn pod_within(
        &mut self,
        pod: &ObjectName,
        limit: Option<Duration>,
    ) -> Result<Pod, SourceError> {
        let (pod, nads) = (pod.clone(), Vec::new());
        let limit = limit.or(self.limit);
        let found = self.ask_within(limit, ClientRequest::Pod { pod, nads }, &keep);
        found.map(|(pod, _): (Pod, Vec<Nad>)| pod)
    }

    /// Sends a request about one object.
    pub(crate) fn exchange(&mut self, exchange: Exchange) -> Result<Exchanged, SourceError> {
        self.ask(ClientRequest::Exchange(exchange))
    }

    /// Sends requests about one object each, at the same time.
    pub(crate) fn exchange_all(
        &mut self,
        exchanges: Vec<Exchange>,
    ) -> Vec<Result<Exchanged, SourceError>> {
        let count = exchanges.len();
        match self.ask(ClientRequest::Exchanges(exchanges)) {
            Ok(answers) => answers,
            Err(err) => vec![Err(err); count],
        }
    }

    /// Reads these NADs in parallel, within `limit` if there is one.
    pub(super) fn nads_within(
        &mut self,
        names: &[ObjectName],
        limit: Option<Duration>,
    ) -> Result<Vec<Nad>, SourceError> {
        let limit = limit.or(self.limit);
        self.ask_within(limit, ClientRequest::Nads(names.to_vec()), &keep)
    }

    /// Removes a container's status as [`Source::withdraw`] does. Waits at most for `limit` if the
    /// status is still being published, and as long again for its removal.
    pub(super) fn withdraw_within(
        &mut self,
        limit: Duration,
        pod: &Pod,
        container_id: &str,
    ) -> Result<(), SourceError> {
        self.settle_within(limit);
        let before = self.limit.replace(limit);
        let withdrawn = self.withdraw(pod, container_id);
        self.limit = before;
        withdrawn
    }

    fn ask<T: DeserializeOwned>(&mut self, request: ClientRequest) -> Result<T, SourceError> {
        self.ask_within(self.limit, request, &keep)
    }

    fn ask_within<T: DeserializeOwned>(
        &mut self,
        limit: Option<Duration>,
        request: ClientRequest,
        value: &dyn Fn(Option<&str>) -> Option<String>,
    ) -> Result<T, SourceError> {
        self.settle();
        self.send(limit, request)?;
        self.answer(value, self.longest())
    }

    /// Sends a request, and starts the program first if it does not run.
    fn send(&mut self, limit: Option<Duration>, request: ClientRequest) -> Result<(), SourceError> {
        let running = if let Some(running) = self.running.take() {
            running
        } else {
            let program = executable::beside(PROGRAM).map_err(|err| failed("find", &err))?;
            Running::start(&program, &self.kubeconfig, self.limits)?
        };
        let running = self.running.insert(running);
        let sent = running.send(&Asked { limit, request });
        sent.map_err(|err| self.end(&err))
    }

    /// Returns the answer of the last request. Kills a program that exceeds `longest`.
    fn answer<T: DeserializeOwned>(
        &mut self,
        value: &dyn Fn(Option<&str>) -> Option<String>,
        longest: Duration,
    ) -> Result<T, SourceError> {
        let answer = match &mut self.running {
            Some(running) => running.answer(value, longest),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        answer.unwrap_or_else(|err| Err(self.end(&err)))
    }

    /// Returns the time after which a program without an answer is killed. The program itself
    /// observes the limits of a request.
    fn longest(&self) -> Duration {
        self.limits.process + GRACE
    }

    /// Ends the program after an error. Its next answer would be that of an earlier request.
    fn end(&mut self, err: &io::Error) -> SourceError {
        self.running = None;
        failed("ask", err)
    }

    /// Waits until a status is published, if it has begun.
    fn settle(&mut self) {
        self.settle_within(self.longest());
    }

    fn settle_within(&mut self, limit: Duration) {
        if matches!(self.status, Status::Begun) {
            self.status = Status::Ended(self.answer(&keep, limit));
        }
    }
}

/// Returns the devices that the kubelet on `socket` assigned to a pod.
pub(super) fn devices(socket: &Path, pod: &ObjectName) -> Result<Given, SourceError> {
    let request = ClientRequest::Devices {
        socket: socket.to_owned(),
        pod: pod.clone(),
    };
    // The kubelet needs no kubeconfig.
    Client::new(PathBuf::new(), Limits::default()).ask(request)
}

/// Keeps an annotation.
fn keep(_value: Option<&str>) -> Option<String> {
    None
}

/// A running client program. It is killed on drop.
#[derive(Debug)]
struct Running {
    process: Child,
    stream: BufReader<UnixStream>,
}

impl Running {
    fn start(program: &Path, kubeconfig: &Path, limits: Limits) -> Result<Self, SourceError> {
        let (own, other) = UnixStream::pair().map_err(|err| failed("socketpair", &err))?;
        let process = Command::new(program)
            .arg(ARGUMENT)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|err| failed(&format!("start {}", program.display()), &err))?;
        let mut running = Self {
            process,
            stream: BufReader::new(own),
        };
        let opening = Opening {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            limits,
        };
        let sent = running.send(&opening);
        sent.map_err(|err| failed("open", &err))?;
        Ok(running)
    }

    fn send<T: serde::Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    /// Returns the answer of the last request. `value` computes the new value of an annotation.
    fn answer<T: DeserializeOwned>(
        &mut self,
        value: &dyn Fn(Option<&str>) -> Option<String>,
        longest: Duration,
    ) -> io::Result<Result<T, SourceError>> {
        self.stream.get_ref().set_read_timeout(Some(longest))?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                let why = "it ended without an answer";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            match serde_json::from_str(&line)? {
                ClientAnswer::Value(now) => self.send(&value(now.as_deref()))?,
                ClientAnswer::Done(done) => return Ok(done),
            }
        }
    }
}

/// Kills the program, which may work on a request that was given up. A program that cannot be killed
/// ends with the call, and is not waited for: it waits for the call.
impl Drop for Running {
    fn drop(&mut self) {
        if self.process.kill().is_ok() {
            let _ = self.process.wait();
        }
    }
}

/// Returns the error of an operation on the client program. It is temporary, as an installation may
/// be replacing the program.
fn failed(doing: &str, err: &io::Error) -> SourceError {
    SourceError::Passing {
        why: format!("client of the API server: {doing}: {err}"),
    }
}

impl Source for Client {
    fn pod(
        &mut self,
        pod: &ObjectName,
        _uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError> {
        let request = ClientRequest::Pod {
            pod: pod.clone(),
            nads: nads.to_vec(),
        };
        self.ask(request)
    }

    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError> {
        self.nads_within(names, None)
    }

    fn annotate(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        edit: &Edit<'_>,
    ) -> Result<(), SourceError> {
        let request = ClientRequest::Annotate {
            pod: pod.clone(),
            uid: uid.to_owned(),
            key: edit.key.to_owned(),
            seen: edit.seen.cloned(),
        };
        self.ask_within(self.limit, request, edit.value)
    }

    fn begin(&mut self, pod: &Pod, entries: &[Json]) -> bool {
        self.settle();
        let request = ClientRequest::Publish {
            pod: pod.clone(),
            status: Json::Array(entries.to_vec()).to_string(),
        };
        self.status = match self.send(self.limit, request) {
            Ok(()) => Status::Begun,
            Err(err) => Status::Ended(Err(err)),
        };
        true
    }

    fn publish(&mut self, pod: &Pod, news: &News<'_>) -> Result<(), SourceError> {
        if matches!(self.status, Status::None) {
            self.begin(pod, news.entries);
        }
        self.settle();
        for event in news.events {
            // The status has failed in the same way.
            if event.severity == Severity::Warning {
                let _ = self.tell(&pod.name, &pod.uid, event);
            }
        }
        match mem::replace(&mut self.status, Status::None) {
            Status::Ended(published) => published,
            Status::None | Status::Begun => Ok(()),
        }
    }

    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError> {
        let request = ClientRequest::Tell {
            pod: pod.clone(),
            uid: uid.to_owned(),
            event: event.clone(),
        };
        self.ask(request)
    }

    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError> {
        self.ask(ClientRequest::Claim(name.clone()))
    }

    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError> {
        self.ask(ClientRequest::ClaimUids)
    }

    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError> {
        self.ask(ClientRequest::FillClaim(claim.clone()))
    }

    fn resource_claims(&mut self, pod: &ObjectName, uid: &str) -> Result<Vec<Claim>, SourceError> {
        self.ask(ClientRequest::ResourceClaims {
            pod: pod.clone(),
            uid: uid.to_owned(),
        })
    }

    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError> {
        let request = ClientRequest::Offered {
            node: node.to_owned(),
            driver: driver.to_owned(),
        };
        self.ask(request)
    }
}

#[cfg(test)]
mod tests;
