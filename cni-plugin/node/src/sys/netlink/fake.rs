//! A scripted kernel for unit tests: the expected sends in order, and the answers to each.
//!
//! Answers follow the kernel's rules. An error is always reported, an acknowledgement only with
//! `NLM_F_ACK`, and a dump ends with `NLMSG_DONE`. A send, a receive or a request that is not in
//! the script fails the test.

use super::wire::{HEADER_LEN, attr};
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A request as it was sent.
#[derive(Debug)]
pub(crate) struct SentRequest {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) body: Vec<u8>,
    seq: u32,
}

/// One expected send, and the answers to its requests. Each request succeeds unless
/// [`Exchange::refused`] names it.
#[derive(Debug)]
pub(crate) struct Exchange {
    socket: &'static str,
    requests: Vec<String>,
    refusals: BTreeMap<usize, (Errno, Option<&'static str>)>,
    shown: Vec<(u16, Vec<u8>)>,
    shown_flags: u16,
    receive_error: Option<Errno>,
    too_long: Option<Result<(), Errno>>,
}

/// Expects one send of `requests` from the socket with this name.
pub(crate) fn send(socket: &'static str, requests: &[&str]) -> Exchange {
    Exchange {
        socket,
        requests: requests.iter().copied().map(str::to_owned).collect(),
        refusals: BTreeMap::new(),
        shown: Vec::new(),
        shown_flags: 0,
        receive_error: None,
        too_long: None,
    }
}

impl Exchange {
    /// Refuses the request with index `at`.
    pub(crate) fn refused(mut self, at: usize, errno: Errno) -> Self {
        self.refusals.insert(at, (errno, None));
        self
    }

    /// Refuses the request with index `at`, with a message in the extended acknowledgement.
    pub(crate) fn refused_saying(mut self, at: usize, errno: Errno, text: &'static str) -> Self {
        self.refusals.insert(at, (errno, Some(text)));
        self
    }

    /// Answers the first request with a message.
    pub(crate) fn shows(mut self, kind: u16, body: Vec<u8>) -> Self {
        self.shown.push((kind, body));
        self
    }

    /// Marks the dump as interrupted by a change of its table.
    pub(crate) fn interrupted(mut self) -> Self {
        self.shown_flags = NLM_F_DUMP_INTR;
        self
    }

    /// Fails the first receive with `errno`. The answers can be received afterwards.
    pub(crate) fn receive_fails(mut self, errno: Errno) -> Self {
        self.receive_error = Some(errno);
        self
    }

    /// Refuses the send as too long. `growth` is the result of the attempt to enlarge the send
    /// buffer.
    pub(crate) fn too_long(mut self, growth: Result<(), Errno>) -> Self {
        self.too_long = Some(growth);
        self
    }

    /// Returns the datagrams that the kernel would put into the socket.
    fn answers(&self, requests: &[SentRequest]) -> VecDeque<Result<Vec<u8>, Errno>> {
        let mut all = VecDeque::from_iter(self.receive_error.map(Err));
        for (at, request) in requests.iter().enumerate() {
            if at == 0 {
                for (kind, body) in &self.shown {
                    all.push_back(Ok(message(*kind, self.shown_flags, request.seq, body)));
                }
            }
            if let Some((errno, text)) = self.refusals.get(&at) {
                all.push_back(Ok(refusal(request, *errno, *text)));
            } else if request.flags & NLM_F_DUMP == NLM_F_DUMP {
                all.push_back(Ok(message(NLMSG_DONE, 0, request.seq, &[0; 4])));
            } else if request.flags & NLM_F_ACK != 0 {
                let body = [&[0; 4][..], &head(request)].concat();
                all.push_back(Ok(message(NLMSG_ERROR, NLM_F_CAPPED, request.seq, &body)));
            }
        }
        all
    }
}

fn refusal(request: &SentRequest, errno: Errno, text: Option<&str>) -> Vec<u8> {
    let code = -(errno as i32);
    let mut body = [&code.to_ne_bytes()[..], &head(request)].concat();
    let mut flags = NLM_F_CAPPED;
    if let Some(text) = text {
        flags |= NLM_F_ACK_TLVS;
        attr(
            NLMSGERR_ATTR_MSG,
            &[text.as_bytes(), b"\0"].concat(),
            &mut body,
        );
    }
    message(NLMSG_ERROR, flags, request.seq, &body)
}

fn head(request: &SentRequest) -> Vec<u8> {
    let mut head = message(request.kind, request.flags, request.seq, &request.body);
    head.truncate(HEADER_LEN);
    head
}

fn message(kind: u16, flags: u16, seq: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_LEN + body.len()).expect("a message is short");
    let (kind, flags) = (kind.to_ne_bytes(), flags.to_ne_bytes());
    let head = [&len.to_ne_bytes()[..], &kind, &flags, &seq.to_ne_bytes()].concat();
    [&head, &[0; 4][..], body].concat()
}

/// Splits a datagram into its requests.
fn requests(mut bytes: &[u8]) -> Vec<SentRequest> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let long = |at| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("a header"));
        let short = |at| u16::from_ne_bytes(*bytes[at..].first_chunk().expect("a header"));
        let len = long(0) as usize;
        all.push(SentRequest {
            kind: short(4),
            flags: short(6),
            body: bytes[HEADER_LEN..len].to_vec(),
            seq: long(8),
        });
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    all
}

/// Script for all sockets of one simulated kernel.
#[derive(Debug, Clone)]
pub(crate) struct Script(Rc<RefCell<ScriptState>>);

#[derive(Debug)]
struct ScriptState {
    expected: VecDeque<Exchange>,
    links: BTreeMap<(&'static str, String), u32>,
    describe: fn(&str, &SentRequest) -> String,
    /// Length of a send that was too long, and the result of enlarging the send buffer to that
    /// length.
    too_long: Option<(usize, Result<(), Errno>)>,
    unread: usize,
}

impl Script {
    /// Creates a script. It compares requests by the text that `describe` returns for them.
    pub(crate) fn new(expected: Vec<Exchange>, describe: fn(&str, &SentRequest) -> String) -> Self {
        Self(Rc::new(RefCell::new(ScriptState {
            expected: expected.into(),
            links: BTreeMap::new(),
            describe,
            too_long: None,
            unread: 0,
        })))
    }

    /// Adds the link `name`, which the socket `socket` can look up.
    pub(crate) fn link(&self, socket: &'static str, name: &str, index: u32) {
        let at = (socket, name.to_owned());
        self.0.borrow_mut().links.insert(at, index);
    }

    /// Returns the simulated kernel's end of the socket with this name.
    pub(crate) fn socket(&self, name: &'static str) -> Fake {
        Fake {
            name,
            script: self.clone(),
            inbox: RefCell::new(VecDeque::new()),
        }
    }

    /// Panics unless every expected send was made and every answer was read.
    pub(crate) fn end(&self) {
        let state = self.0.borrow();
        assert!(state.expected.is_empty(), "not sent: {:#?}", state.expected);
        assert_eq!(state.unread, 0, "answers were left unread");
    }
}

/// Simulated kernel's end of one socket.
#[derive(Debug)]
pub(crate) struct Fake {
    name: &'static str,
    script: Script,
    inbox: RefCell<VecDeque<Result<Vec<u8>, Errno>>>,
}

impl Fake {
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        let mut state = self.script.0.borrow_mut();
        let requests = requests(bytes);
        let mut described = Vec::with_capacity(requests.len());
        for request in &requests {
            described.push((state.describe)(self.name, request));
        }
        let Some(exchange) = state.expected.pop_front() else {
            panic!("unexpected send from {}: {described:#?}", self.name);
        };
        assert_eq!(
            (self.name, &described),
            (exchange.socket, &exchange.requests)
        );
        assert_eq!(
            state.unread, 0,
            "answers to an earlier send were left unread"
        );
        if let Some(growth) = exchange.too_long {
            state.too_long = Some((bytes.len(), growth));
            return Err(Errno::EMSGSIZE);
        }
        let answers = exchange.answers(&requests);
        state.unread = answers.len();
        self.inbox.borrow_mut().extend(answers);
        Ok(())
    }

    pub(super) fn set_send_buffer(&self, len: usize) -> Result<(), Errno> {
        let (needed, growth) = self
            .script
            .0
            .borrow_mut()
            .too_long
            .take()
            .expect("a long send");
        assert_eq!(len, needed);
        growth
    }

    pub(super) fn receive(&self) -> Result<Vec<u8>, Errno> {
        self.next()
            .unwrap_or_else(|| panic!("{} waits for an answer that never comes", self.name))
    }

    pub(super) fn skip(&self) -> Result<(), Errno> {
        self.next().unwrap_or(Err(Errno::EAGAIN)).map(drop)
    }

    fn next(&self) -> Option<Result<Vec<u8>, Errno>> {
        let next = self.inbox.borrow_mut().pop_front();
        if next.is_some() {
            self.script.0.borrow_mut().unread -= 1;
        }
        next
    }

    pub(super) fn index_of(&self, link: &str) -> Option<u32> {
        let at = (self.name, link.to_owned());
        self.script.0.borrow().links.get(&at).copied()
    }
}
