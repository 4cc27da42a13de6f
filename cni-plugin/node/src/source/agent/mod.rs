//! Client of the agent's socket, without an async runtime. A call costs seven system calls: stat,
//! socket, connect, send, poll, recv, close.
//!
//! An agent that is away costs nothing. One that does not acknowledge costs 100 ms, and the calls of
//! the following second do not wait for it.

pub mod protocol;
pub mod report;

use crate::sys::private;
use braid_core::dra::claim::Claim;
use braid_core::k8s::source::SourceError;
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod, object};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};
use protocol::{
    ACKNOWLEDGED_WITHIN, ACKNOWLEDGEMENT, ASKED_WITHIN, AgentRequest, AnswerLine, END, Publication,
    SEEN_WITHIN, SOCKET, Withdrawal,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// File with the time at which the agent did not acknowledge a request.
pub const SILENT: &str = "/run/braid/agent.silent";
/// Time after [`SILENT`] was written in which no call waits for the agent.
const SILENT_FOR: Duration = Duration::from_secs(1);
/// Longest time from the acknowledgement to the end of the answer.
const ANSWERED_WITHIN: Duration = SEEN_WITHIN
    .saturating_add(ASKED_WITHIN)
    .saturating_add(Duration::from_millis(500));
/// Longest time from the acknowledgement until a status is published. Later it is owed.
const PUBLISHED_WITHIN: Duration = Duration::from_millis(100);
/// Initial size in bytes of the buffer for an answer. A pod with two networks fits in it.
const BUFFER: usize = 8 << 10;
/// Longest answer in bytes.
const MAX_ANSWER: usize = 32 << 20;

/// Client of the agent's socket.
#[derive(Debug)]
pub(super) struct Agent {
    socket: PathBuf,
    silent: PathBuf,
    /// True after the agent did not answer this call.
    is_away: bool,
}

/// Answer of the agent. Objects that it lacks are unknown to the agent.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) pod: Answered<Pod>,
    /// Networks; `None` means that the API has none of this name.
    pub(super) networks: BTreeMap<ObjectName, Option<Nad>>,
    pub(super) claim: Answered<IpamClaim>,
    /// Resource claims of the pod; `None` if the agent does not know them.
    pub(super) resource_claims: Option<Vec<Claim>>,
    is_published: bool,
    /// The reason why objects are unknown; may be empty.
    why: String,
}

/// A sent request.
#[derive(Debug)]
struct Sent {
    stream: OwnedFd,
    /// Latest time of the acknowledgement.
    deadline: Instant,
}

/// A status that the agent publishes beside the call.
#[derive(Debug)]
pub(super) struct Begun {
    sent: Sent,
    pod: ObjectName,
    is_awaited: bool,
}

/// An object in an answer.
#[derive(Debug, Default)]
pub(super) enum Answered<T> {
    /// The agent does not know.
    #[default]
    Unknown,
    /// The API has no such object.
    Absent,
    /// The object.
    Present(T),
}

impl Default for Agent {
    fn default() -> Self {
        Self::at(Path::new(SOCKET), Path::new(SILENT))
    }
}

impl Agent {
    fn at(socket: &Path, silent: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            silent: silent.to_owned(),
            is_away: false,
        }
    }

    /// Asks for a pod and its networks. `None` if the agent does not answer.
    pub(super) fn objects(
        &mut self,
        pod: &ObjectName,
        uid: &str,
        networks: &[ObjectName],
    ) -> Option<Answer> {
        let request = AgentRequest::Objects {
            pod: pod.clone(),
            uid: uid.to_owned(),
            networks: networks.to_vec(),
        };
        self.answer(&request, pod)
    }

    /// Asks for networks. `None` if the agent does not answer.
    pub(super) fn networks(&mut self, networks: &[ObjectName]) -> Option<Answer> {
        let first = networks.first()?;
        self.answer(&AgentRequest::Networks(networks.to_vec()), first)
    }

    /// Asks for a claim. `None` if the agent does not answer.
    pub(super) fn claim(&mut self, claim: &ObjectName) -> Option<Answer> {
        self.answer(&AgentRequest::Claim(claim.clone()), claim)
    }

    /// Asks for the resource claims of a pod. `None` if the agent does not answer.
    pub(super) fn resource_claims(&mut self, pod: &ObjectName, uid: &str) -> Option<Answer> {
        let request = AgentRequest::ResourceClaims {
            pod: pod.clone(),
            uid: uid.to_owned(),
        };
        self.answer(&request, pod)
    }

    /// Sends a status to the agent, which publishes it beside the call. `None` if there is no agent.
    pub(super) fn begin(&mut self, publication: Publication) -> Option<Begun> {
        let (pod, is_awaited) = (publication.pod.clone(), publication.is_awaited);
        let sent = self.send(&AgentRequest::Publish(publication))?;
        Some(Begun {
            sent,
            pod,
            is_awaited,
        })
    }

    /// Waits until the agent has published the status; if the call does not wait for that, until it
    /// has acknowledged the request. `None` if the agent does not answer; the caller then publishes
    /// the status.
    pub(super) fn finish(&mut self, begun: Begun) -> Option<Result<(), SourceError>> {
        let Begun {
            sent,
            pod,
            is_awaited,
        } = begun;
        let reader = self.acknowledged(sent)?;
        if !is_awaited {
            return Some(Ok(()));
        }
        let doing = format!("publish the status of pod {pod}");
        written(reader.rest(PUBLISHED_WITHIN)?, &pod, &doing)
    }

    /// Lets the agent publish a status and events, and waits as with [`Agent::finish`]. `None` if the
    /// agent does not answer; the caller then publishes them.
    pub(super) fn publish(&mut self, publication: Publication) -> Option<Result<(), SourceError>> {
        let begun = self.begin(publication)?;
        self.finish(begun)
    }

    /// Lets the agent publish events behind the call. Does not wait for an acknowledgement.
    pub(super) fn report(&mut self, publication: Publication) {
        let _ = self.send(&AgentRequest::Publish(publication));
    }

    /// Lets the agent remove the status of a failed ADD. `None` if the agent does not answer.
    pub(super) fn withdraw(&mut self, withdrawal: Withdrawal) -> Option<Result<(), SourceError>> {
        let pod = withdrawal.pod.clone();
        let doing = format!("withdraw the status of pod {pod}");
        let text = self.ask(&AgentRequest::Withdraw(withdrawal), PUBLISHED_WITHIN)?;
        written(text, &pod, &doing)
    }

    fn answer(&mut self, request: &AgentRequest, object: &ObjectName) -> Option<Answer> {
        if let Ok(text) = self.ask(request, ANSWERED_WITHIN)? {
            return Answer::parse(&text, object);
        }
        self.set_silent();
        None
    }

    /// Sends a request and returns the answer without acknowledgement and end. `None` if there is no
    /// agent, or if it does not acknowledge; an error if the answer is not complete within `limit`
    /// after the acknowledgement.
    fn ask(&mut self, request: &AgentRequest, limit: Duration) -> Option<Result<String, String>> {
        let sent = self.send(request)?;
        self.acknowledged(sent)?.rest(limit)
    }

    /// Sends a request. `None` if there is no agent.
    fn send(&mut self, request: &AgentRequest) -> Option<Sent> {
        if self.is_away || self.was_silent() {
            return None;
        }
        let line = request.line()?;
        let Ok(stream) = self.connect() else {
            self.is_away = true;
            return None;
        };
        let deadline = Instant::now() + ACKNOWLEDGED_WITHIN;
        match transmit(&stream, line.as_bytes(), deadline) {
            Ok(()) => Some(Sent { stream, deadline }),
            Err(err) => self.unanswered(err),
        }
    }

    /// Waits for the acknowledgement of a request. `None` if there is none.
    fn acknowledged(&mut self, Sent { stream, deadline }: Sent) -> Option<Reader> {
        let mut reader = Reader::new(stream);
        while reader.bytes.len() < ACKNOWLEDGEMENT.len() {
            if let Err(err) = reader.more(deadline) {
                return self.unanswered(err);
            }
        }
        // Anything else is not the agent.
        let is_acknowledged = reader.bytes.starts_with(ACKNOWLEDGEMENT.as_bytes());
        is_acknowledged.then_some(reader)
    }

    /// Remembers that the agent is silent. An agent that ended or serves too many calls closes the
    /// connection instead.
    fn unanswered<T>(&mut self, err: Errno) -> Option<T> {
        if err == Errno::ETIMEDOUT {
            self.set_silent();
        }
        None
    }

    /// Connects without waiting. A stopped agent with a full queue refuses with EAGAIN.
    fn connect(&mut self) -> nix::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        let connected = connect(stream.as_raw_fd(), &UnixAddr::new(&self.socket)?);
        if connected == Err(Errno::EAGAIN) {
            self.set_silent();
        }
        connected.map(|()| stream)
    }

    /// True if the agent did not acknowledge a request within the last second.
    fn was_silent(&self) -> bool {
        let written = fs::metadata(&self.silent).and_then(|meta| meta.modified());
        // A time in the future is from before a step of the clock.
        let since = written.map(|written| SystemTime::now().duration_since(written));
        matches!(since, Ok(Ok(since)) if since < SILENT_FOR)
    }

    fn set_silent(&mut self) {
        self.is_away = true;
        // Without this file the next call waits too.
        let _ = private::write(&self.silent, b"");
    }
}

/// Returns the result of a change of the pod's status from the agent's answer. `None` if that is no
/// answer.
fn written(
    text: Result<String, String>,
    pod: &ObjectName,
    doing: &str,
) -> Option<Result<(), SourceError>> {
    let failed = |why: &str| {
        let why = format!("{doing}: agent: {why}");
        Err(SourceError::Passing { why })
    };
    let answer = match text {
        Ok(text) => Answer::parse(&text, pod)?,
        Err(why) => return Some(failed(&why)),
    };
    Some(match answer {
        Answer {
            pod: Answered::Absent,
            ..
        } => Err(SourceError::NotFound {
            what: format!("pod {pod}"),
        }),
        Answer { is_published, .. } if is_published => Ok(()),
        Answer { why, .. } => failed(&why),
    })
}

/// Sends all bytes.
fn transmit(stream: &OwnedFd, mut bytes: &[u8], deadline: Instant) -> nix::Result<()> {
    while !bytes.is_empty() {
        match send(stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(stream, PollFlags::POLLOUT, deadline)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Waits for an event of the socket. Fails with `ETIMEDOUT` at the deadline, unless the event has
/// come before.
fn wait(stream: &OwnedFd, event: PollFlags, deadline: Instant) -> nix::Result<()> {
    loop {
        let mut left = deadline.saturating_duration_since(Instant::now());
        let is_last = left.is_zero();
        if !is_last {
            // Rounded up, or the last millisecond would be spent in a busy loop.
            left = left.saturating_add(Duration::from_millis(1));
        }
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(stream.as_fd(), event)], limit) {
            Ok(0) if is_last => return Err(Errno::ETIMEDOUT),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// Reads an answer.
struct Reader {
    stream: OwnedFd,
    bytes: Vec<u8>,
}

impl Reader {
    fn new(stream: OwnedFd) -> Self {
        let bytes = Vec::with_capacity(BUFFER);
        Self { stream, bytes }
    }

    /// Returns the rest of the answer, without its end. An error if it is not complete within
    /// `limit`; `None` if the connection ends before.
    fn rest(mut self, limit: Duration) -> Option<Result<String, String>> {
        let deadline = Instant::now() + limit;
        while !self.is_complete() {
            match self.more(deadline) {
                Ok(()) => {}
                Err(Errno::ETIMEDOUT) => return Some(Err(format!("no answer within {limit:?}"))),
                Err(_) => return None,
            }
        }
        let answer = &self.bytes[ACKNOWLEDGEMENT.len()..self.bytes.len() - END.len()];
        String::from_utf8(answer.to_vec()).ok().map(Ok)
    }

    /// Waits for bytes and adds them. The end of the stream is an error.
    fn more(&mut self, deadline: Instant) -> nix::Result<()> {
        wait(&self.stream, PollFlags::POLLIN, deadline)?;
        let len = self.bytes.len();
        if len >= MAX_ANSWER {
            return Err(Errno::EMSGSIZE);
        }
        self.bytes.resize(self.bytes.capacity().max(len * 2), 0);
        let read = recv(
            self.stream.as_raw_fd(),
            &mut self.bytes[len..],
            MsgFlags::empty(),
        );
        self.bytes.truncate(len + read.unwrap_or_default());
        match read {
            Ok(0) => Err(Errno::ECONNRESET),
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn is_complete(&self) -> bool {
        // JSON on one line does not end with this line.
        let answer = &self.bytes[ACKNOWLEDGEMENT.len()..];
        answer == END.as_bytes() || answer.ends_with(format!("\n{END}").as_bytes())
    }
}

impl Answer {
    /// Parses the lines of an answer about `object`, a pod or a claim. `None` if a line is not as it
    /// should be.
    fn parse(text: &str, object: &ObjectName) -> Option<Self> {
        let mut answer = Self::default();
        for line in text.lines() {
            match AnswerLine::parse(line)? {
                AnswerLine::Pod(json) => {
                    answer.pod = Answered::Present(object::pod(object, json.as_bytes()).ok()?);
                }
                AnswerLine::NoPod => answer.pod = Answered::Absent,
                AnswerLine::Network(name, json) => {
                    // The API path reports an object that cannot be parsed.
                    let nad = object::nad(&name, json.as_bytes()).ok()?;
                    answer.networks.insert(name, Some(nad));
                }
                AnswerLine::NoNetwork(name) => {
                    answer.networks.insert(name, None);
                }
                AnswerLine::Claim(json) => {
                    let claim = object::claim(object, json.as_bytes()).ok()?;
                    answer.claim = Answered::Present(claim);
                }
                AnswerLine::NoClaim => answer.claim = Answered::Absent,
                AnswerLine::ResourceClaims(json) => {
                    answer.resource_claims = Some(serde_json::from_str(json).ok()?);
                }
                AnswerLine::Published => answer.is_published = true,
                AnswerLine::Unknown(why) => why.clone_into(&mut answer.why),
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
