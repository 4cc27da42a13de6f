//! Answers the requests of one plugin call, which started this process.

use crate::api::{Access, Api};
use crate::kubelet;
use braid_core::k8s::source::{Edit, News, Source, SourceError};
use braid_core::k8s::status::list;
use braid_node::source::client::protocol::{Asked, ClientAnswer, ClientRequest, Opening};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Answers the requests on standard input, a socket, until the call closes it.
pub fn serve() -> io::Result<()> {
    // A request that outlives its call would write a status after the pod's DEL.
    set_pdeathsig(Signal::SIGKILL)?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if has_ended(&stream)? {
        return Ok(());
    }
    let mut lines = Lines {
        stream: BufReader::new(stream),
    };
    let Some(opening) = lines.receive::<Opening>()? else {
        return Ok(());
    };
    let version = env!("CARGO_PKG_VERSION");
    if opening.version != version {
        let why = format!("{version} does not work for {}", opening.version);
        return Err(io::Error::other(why));
    }
    let mut api = Api::new(Access::new(opening.kubeconfig), opening.limits);
    while let Some(Asked { limit, request }) = lines.receive()? {
        api.set_limit(limit);
        lines.answer(request, &mut api)?;
    }
    Ok(())
}

/// True if the call has closed its end.
fn has_ended(stream: &UnixStream) -> io::Result<bool> {
    let mut ends = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut ends, PollTimeout::ZERO)?;
    Ok(ends[0]
        .revents()
        .is_some_and(|events| events.contains(PollFlags::POLLHUP)))
}

/// Messages, one line each.
struct Lines {
    stream: BufReader<UnixStream>,
}

impl Lines {
    /// Returns the next message; `None` at the end.
    fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    fn done<T: Serialize>(&mut self, done: Result<T, SourceError>) -> io::Result<()> {
        self.send(&ClientAnswer::Done(done))
    }

    fn answer(&mut self, request: ClientRequest, api: &mut Api) -> io::Result<()> {
        match request {
            ClientRequest::Pod { pod, nads } => self.done(api.pod(&pod, None, &nads)),
            ClientRequest::Nads(names) => self.done(api.nads(&names)),
            ClientRequest::Publish { pod, status } => {
                let news = News {
                    entries: &list(Some(&status)),
                    events: &[],
                    is_urgent: true,
                };
                self.done(api.publish(&pod, &news))
            }
            ClientRequest::Annotate {
                pod,
                uid,
                key,
                seen,
            } => {
                let lines = RefCell::new(&mut *self);
                let value = |now: Option<&str>| lines.borrow_mut().new_value(now);
                let edit = Edit {
                    key: &key,
                    seen: seen.as_ref(),
                    value: &value,
                };
                let done = api.annotate(&pod, &uid, &edit);
                self.done(done)
            }
            ClientRequest::Tell { pod, uid, event } => self.done(api.tell(&pod, &uid, &event)),
            ClientRequest::Claim(name) => self.done(api.claim(&name)),
            ClientRequest::ClaimUids => self.done(api.claim_uids()),
            ClientRequest::FillClaim(claim) => self.done(api.fill_claim(&claim)),
            ClientRequest::ResourceClaims { pod, uid } => {
                self.done(api.resource_claims(&pod, &uid))
            }
            ClientRequest::Offered { node, driver } => self.done(api.offered(&node, &driver)),
            ClientRequest::Exchange(exchange) => self.done(api.exchange(&exchange)),
            ClientRequest::Exchanges(exchanges) => self.done(api.exchange_all(&exchanges)),
            ClientRequest::Devices { socket, pod } => self.done(kubelet::devices(&socket, &pod)),
        }
    }

    /// Asks the call for the new value of an annotation. `None`, which keeps the value, if the call
    /// has ended.
    fn new_value(&mut self, now: Option<&str>) -> Option<String> {
        self.send(&ClientAnswer::<()>::Value(now.map(str::to_owned)))
            .ok()?;
        self.receive().ok()??
    }
}
