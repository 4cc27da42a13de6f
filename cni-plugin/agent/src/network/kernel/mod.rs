//! The kernel's side of traffic between nodes: reading, lookups and changes, through rtnetlink.
//!
//! ```text
//!  links      ─ the VXLAN link, its addresses, the uplink
//!  routes     ─ routes of both tables
//!  neighbours ─ neighbours and FDB entries of the VXLAN link
//!  rules      ─ rules to the table of probes
//!  lookups    ─ the kernel's route to an address
//! ```

mod links;
mod lookups;
mod neighbours;
mod routes;
mod rules;

pub use links::Uplink;

use super::changes::{Change, Command, Thing};
use super::routes::{Dev, Present, Route, State};
use super::vxlan::Name;
use crate::error::Error;
use futures_util::stream::StreamExt;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_MULTIPART,
    NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{RouteAddress, RouteProtocol};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::Handle;
use std::cell::Cell;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

/// Numbers of kernel errors.
mod errno {
    /// No such file or directory: the FDB entry or the rule does not exist.
    pub(super) const ENOENT: i32 = 2;
    /// No such process: the route does not exist.
    pub(super) const ESRCH: i32 = 3;
    /// The object exists.
    pub(super) const EEXIST: i32 = 17;
    /// No such device.
    pub(super) const ENODEV: i32 = 19;
    /// The address does not exist.
    pub(super) const EADDRNOTAVAIL: i32 = 99;
}

/// Longest wait for the kernel's answer to one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attempts to read a list that changes meanwhile.
const ATTEMPTS: usize = 4;
/// Both families of addresses.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// Families of the routes and rules that a comparison covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// Both.
    Both,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// None: the VXLAN link alone.
    Neither,
}

impl Families {
    fn list(self) -> &'static [AddressFamily] {
        match self {
            Self::Both => &FAMILIES,
            Self::V4 => &FAMILIES[..1],
            Self::V6 => &FAMILIES[1..],
            Self::Neither => &[],
        }
    }
}

/// Flags of a request that adds an object, and fails if it exists.
const ADD: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// Flags of a request that adds or replaces an object.
const REPLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// A netlink socket in the node's network namespace.
#[derive(Debug)]
pub struct Kernel {
    handle: Handle,
    /// True after a request without an answer.
    is_dead: Cell<bool>,
    /// Name of the VXLAN link, as read last.
    vxlan_name: Cell<Name>,
    /// Index of the VXLAN link, as read last.
    vxlan_index: Cell<Option<u32>>,
}

/// A request that failed.
#[derive(Debug)]
struct Failure {
    /// Number of the kernel's error; 0 if the kernel did not answer.
    errno: i32,
    why: String,
}

impl Failure {
    fn during(self, doing: impl Display) -> Error {
        Error::new(doing, self.why)
    }
}

impl Kernel {
    /// Opens the socket. A task of the current runtime serves it until the value is dropped.
    pub fn open() -> Result<Self, Error> {
        // Strict checks make the kernel honour the filter of a dump (Linux 4.20).
        let (mut connection, handle, _) = rtnetlink::new_connection_with_strict_check()
            .map_err(|err| Error::new("open a netlink socket", err))?;
        // An answer without its end means that the connection ended.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        tokio::spawn(connection);
        Ok(Self {
            handle,
            is_dead: Cell::new(false),
            vxlan_name: Cell::new(Name::default()),
            vxlan_index: Cell::new(None),
        })
    }

    /// Returns true after a request without an answer. The socket must be opened again.
    pub fn is_dead(&self) -> bool {
        self.is_dead.get()
    }

    /// Returns the index of the VXLAN link, as read last.
    pub fn vxlan_index(&self) -> Option<u32> {
        self.vxlan_index.get()
    }

    /// Reads a VXLAN link and the agent's own objects. Changes refer to this link from then on.
    pub async fn present(&self, name: Name, families: Families) -> Result<Present, Error> {
        self.vxlan_name.set(name);
        let families = families.list();
        let link = self.vxlan().await?;
        let index = link.as_ref().map(|link| link.index);
        let mut present = Present {
            name,
            state: State {
                rules: self.rules(families).await?,
                routes: self.routes(routes::OWN, families, index).await?,
                ..State::default()
            },
            ..Present::default()
        };
        if name.is_flannels() {
            for route in self.routes(RouteProtocol::Boot, families, index).await? {
                if route.dev == Dev::Vxlan {
                    present.state.routes.insert(route);
                } else {
                    present.of_flanneld.insert(route.dst);
                }
            }
        }
        if let Some(index) = index {
            present.state.addresses = self.addresses(index).await?;
            present.state.neighbours = self.neighbours(index, name).await?;
            present.state.fdb = self.fdb(index).await?;
        }
        present.link = link;
        Ok(present)
    }

    /// Returns the change with the VXLAN link to which it refers.
    pub fn command<'a>(&self, change: &'a Change) -> Command<'a> {
        Command {
            change,
            link: self.vxlan_name.get(),
        }
    }

    /// Carries out a change. Returns false if another program has the object that is to be added.
    pub async fn change(&self, change: &Change) -> Result<bool, Error> {
        let command = self.command(change);
        let (flags, thing) = match change {
            Change::Add(thing) => (Some(ADD), thing),
            Change::Replace(thing) => (Some(REPLACE), thing),
            Change::Delete(thing) => (None, thing),
            Change::Create(_)
            | Change::SetMac(_)
            | Change::SetMtu(_)
            | Change::SetUp
            | Change::DeleteLink => return self.change_link(command).await.map(|()| true),
            Change::HandOver(route) => return self.hand_over(command, route).await.map(|()| true),
        };
        let request = self.request_of(command, thing, flags.is_some())?;
        let done = self.exchange(request, NLM_F_ACK | flags.unwrap_or_default());
        match (change, done.await) {
            (Change::Add(_), Err(failure)) if failure.errno == errno::EEXIST => Ok(false),
            // The kernel deleted the object with its link, or another program deleted it.
            (Change::Delete(_), Err(failure)) if is_gone(failure.errno) => Ok(true),
            (_, Err(failure)) => Err(failure.during(command)),
            (_, Ok(_)) => Ok(true),
        }
    }

    /// Replaces the agent's route by an equal one of flanneld's protocol number.
    async fn hand_over(&self, command: Command<'_>, route: &Route) -> Result<(), Error> {
        let mut message = routes::message(route, self.vxlan_index.get().unwrap_or_default())?;
        message.header.protocol = RouteProtocol::Boot;
        let request = RouteNetlinkMessage::NewRoute(message);
        match self.exchange(request, NLM_F_ACK | REPLACE).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.during(command)),
        }
    }

    /// Returns the message that adds or deletes the object.
    fn request_of(
        &self,
        command: Command<'_>,
        thing: &Thing,
        is_added: bool,
    ) -> Result<RouteNetlinkMessage, Error> {
        use RouteNetlinkMessage as Message;
        let needs_link = match thing {
            Thing::Rule(_) => false,
            Thing::Route(route) => route.dev == Dev::Vxlan,
            Thing::Address(_) | Thing::Fdb(_) | Thing::Neighbour(_) => true,
        };
        let index = match self.vxlan_index.get() {
            Some(index) => index,
            None if needs_link => {
                let why = format!("there is no link {}", command.link);
                return Err(Error::new(command, why));
            }
            None => 0,
        };
        Ok(match (thing, is_added) {
            (Thing::Rule(rule), true) => Message::NewRule(rules::message(rule)),
            (Thing::Rule(rule), false) => Message::DelRule(rules::message(rule)),
            (Thing::Route(route), true) => Message::NewRoute(routes::message(route, index)?),
            (Thing::Route(route), false) => {
                let mut message = routes::message(route, index)?;
                if command.link.is_flannels() && route.dev == Dev::Vxlan {
                    // The kernel deletes a route of any protocol, also flanneld's.
                    message.header.protocol = RouteProtocol::Unspec;
                }
                Message::DelRoute(message)
            }
            (Thing::Address(it), true) => Message::NewAddress(links::address(*it, index)),
            (Thing::Address(it), false) => Message::DelAddress(links::address(*it, index)),
            (Thing::Fdb(it), true) => Message::NewNeighbour(neighbours::entry(it, index)),
            (Thing::Fdb(it), false) => Message::DelNeighbour(neighbours::entry(it, index)),
            (Thing::Neighbour(it), true) => Message::NewNeighbour(neighbours::message(it, index)),
            (Thing::Neighbour(it), false) => Message::DelNeighbour(neighbours::message(it, index)),
        })
    }

    /// Lists objects. The kernel marks a list during which an object changed; it is read again.
    async fn list(
        &self,
        what: &str,
        request: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let doing = format!("list {what}");
        for _ in 0..ATTEMPTS {
            let answer = self.exchange(request.clone(), NLM_F_DUMP).await;
            let answer = answer.map_err(|failure| failure.during(&doing))?;
            if !answer.is_interrupted {
                return Ok(answer.messages);
            }
        }
        Err(Error::new(doing, "it changes all the time"))
    }

    /// Sends a request and collects the answer.
    async fn exchange(&self, request: RouteNetlinkMessage, flags: u16) -> Result<Answer, Failure> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | flags;
        match tokio::time::timeout(PATIENCE, self.collect(message)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.died(format_args!("no answer of the kernel in {PATIENCE:?}"))),
        }
    }

    async fn collect(
        &self,
        message: NetlinkMessage<RouteNetlinkMessage>,
    ) -> Result<Answer, Failure> {
        let mut handle = self.handle.clone();
        let mut answers = handle.request(message).map_err(|err| self.died(err))?;
        let mut answer = Answer::default();
        let mut is_complete = false;
        while let Some(message) = answers.next().await {
            let flags = message.header.flags;
            answer.is_interrupted |= flags & NLM_F_DUMP_INTR != 0;
            if let NetlinkPayload::InnerMessage(inner) = message.payload {
                answer.messages.push(inner);
                is_complete |= flags & NLM_F_MULTIPART == 0;
            } else if let NetlinkPayload::Error(err) = message.payload {
                if err.code.is_some() {
                    return Err(Failure {
                        errno: -err.raw_code(),
                        why: err.to_io().to_string(),
                    });
                }
                is_complete = true;
            } else if let NetlinkPayload::Done(_) = message.payload {
                is_complete = true;
            } else {
                return Err(self.died("messages were lost"));
            }
        }
        if is_complete {
            Ok(answer)
        } else {
            Err(self.died("the netlink socket ended"))
        }
    }

    /// Marks the socket as dead.
    fn died(&self, why: impl Display) -> Failure {
        self.is_dead.set(true);
        Failure {
            errno: 0,
            why: why.to_string(),
        }
    }
}

/// The kernel's answer to a request.
#[derive(Debug, Default)]
struct Answer {
    messages: Vec<RouteNetlinkMessage>,
    is_interrupted: bool,
}

fn is_gone(errno: i32) -> bool {
    use errno::{EADDRNOTAVAIL, ENODEV, ENOENT, ESRCH};
    [ESRCH, ENODEV, ENOENT, EADDRNOTAVAIL].contains(&errno)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(address) = address {
        Some(IpAddr::V4(*address))
    } else if let RouteAddress::Inet6(address) = address {
        Some(IpAddr::V6(*address))
    } else {
        None
    }
}

fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
