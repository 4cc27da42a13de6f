//! Netlink sockets of a call: one route socket each for the host and the container, and one
//! nf_tables socket each if needed.

pub mod link;
#[cfg(test)]
pub(crate) mod scripted;

use crate::log::Log;
use crate::store::holder;
use crate::sys::netlink::{KernelError, Message, Socket};
use crate::sys::netns::{self, NetNs};
use crate::sys::rtnl;
use crate::sys::rtnl::link::{get_by_alt_name, get_by_name};
use crate::{Cause, Context, Error};
use braid_core::kernel_numbers::LOOPBACK_IFINDEX;
use braid_core::name::{IfName, LinkName, Ns};
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::LinkRef;
use braid_core::plan::thing::host_ports::Holder;
use link::{list, parse, parse_fact};
use nix::errno::Errno;
use std::collections::BTreeMap;

/// Links that the kernel creates in each network namespace: `lo`, and those of loaded tunnel
/// modules (`net.core.fb_tunnels_only_for_init_net`).
const EVERYWHERE: [&str; 10] = [
    "lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0",
    "ip6gre0",
];

/// Kernel state and sockets of one call.
#[derive(Debug)]
pub struct Kernel {
    host: Socket,
    pod: Option<Pod>,
    nft: Option<Socket>,
    /// Cached interface indexes.
    indexes: BTreeMap<LinkRef, u32>,
    /// Cache of the containers that own host ports, by the owner's text.
    holders: BTreeMap<String, Holder>,
    /// True if the duration of each send is recorded.
    is_timed: bool,
    log: Log,
}

#[derive(Debug)]
struct Pod {
    netns: NetNs,
    /// Opened at first use, as deleting a link does not need it.
    socket: Option<Socket>,
    nft: Option<Socket>,
}

impl Pod {
    fn route(&mut self, host: &Socket) -> Result<&mut Socket, Cause> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.run(host, Socket::route)??,
        };
        Ok(self.socket.insert(socket))
    }

    fn nft(&mut self, host: &Socket) -> Result<&mut Socket, Cause> {
        let socket = match self.nft.take() {
            Some(socket) => socket,
            None => self.run(host, Socket::netfilter)??,
        };
        Ok(self.nft.insert(socket))
    }

    fn run<T>(&self, host: &Socket, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.netns.set_home(host)?;
        Ok(self.netns.run(work)?)
    }
}

impl Kernel {
    /// Opens the host's socket. `netns` is the container's namespace, if present.
    pub fn open(netns: Option<NetNs>, log: Log) -> Result<Self, Error> {
        let pod = netns.map(|netns| Pod {
            netns,
            socket: None,
            nft: None,
        });
        let host = Socket::route().doing("open a netlink socket in host")?;
        Ok(Self {
            host,
            pod,
            nft: None,
            indexes: BTreeMap::new(),
            holders: BTreeMap::new(),
            is_timed: false,
            log,
        })
    }

    /// Returns the log of the call.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Enables recording the duration of each send.
    pub fn time(&mut self) {
        self.is_timed = true;
    }

    /// True if the duration of each send is recorded.
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Returns the container that `owner` belongs to. Each owner is looked up only once.
    pub(crate) fn holder(&mut self, owner: &str) -> Holder {
        self.holders
            .entry(owner.to_owned())
            .or_insert_with(|| holder::of(owner))
            .clone()
    }

    /// Clears the cache of [`Kernel::holder`].
    pub(crate) fn forget_holders(&mut self) {
        self.holders.clear();
    }

    /// True if the container has a namespace.
    pub fn has_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// True if the container's namespace has links besides those that the kernel creates in every
    /// namespace. False if the links cannot be listed.
    pub fn has_pod_links(&mut self) -> bool {
        let Ok(links) = self.links(Ns::Pod) else {
            return false;
        };
        let is_everywhere = |name: &String| EVERYWHERE.contains(&name.as_str());
        links.iter().any(|(name, _)| !is_everywhere(name))
    }

    /// Returns the container's namespace; `None` if it has none.
    pub fn netns(&self) -> Option<&NetNs> {
        self.pod.as_ref().map(|pod| &pod.netns)
    }

    /// Returns the container's namespace if this process is in it.
    pub fn own_netns(&self) -> Result<Option<&NetNs>, Error> {
        let Some(Pod { netns, .. }) = &self.pod else {
            return Ok(None);
        };
        netns.set_home(&self.host)?;
        Ok(netns.is_own()?.then_some(netns))
    }

    /// Returns the cookie of the container's namespace, unique since boot. Returns `None` if the
    /// container has no namespace, if the namespace cannot be entered, or before Linux 5.14.
    pub fn pod_cookie(&mut self) -> Option<u64> {
        netns::cookie_of(self.route(Ns::Pod).ok()?).ok()
    }

    /// Returns the id of the host's namespace within the container's namespace (nsid); `None` if no
    /// id is assigned yet.
    pub fn host_seen_from_pod(&mut self) -> Result<Option<i32>, Cause> {
        let home = netns::of_socket(&self.host).doing("open the host's network namespace")?;
        let answer = self
            .route(Ns::Pod)?
            .get(rtnl::GETNSID, |out| rtnl::nsid::get(&home, out))?;
        Ok(rtnl::nsid::parse(&answer.body))
    }

    /// Returns the id of the container's namespace within the host's namespace (nsid); `None` if no
    /// id is assigned yet.
    pub fn pod_seen_from_host(&mut self) -> Result<Option<i32>, Cause> {
        let Pod { netns, .. } = self.pod.as_ref().ok_or(Errno::ENOENT)?;
        let answer = self
            .host
            .get(rtnl::GETNSID, |out| rtnl::nsid::get(netns, out))?;
        Ok(rtnl::nsid::parse(&answer.body))
    }

    /// Continues as if the container had no namespace.
    pub fn leave_pod(&mut self) {
        self.pod = None;
        self.indexes.retain(|at, _| at.ns != Ns::Pod);
    }

    /// Returns the host's route socket.
    pub fn host(&mut self) -> &mut Socket {
        &mut self.host
    }

    /// Returns the route socket of a namespace. Fails with `ENOENT` if the container has none.
    pub fn route(&mut self, ns: Ns) -> Result<&mut Socket, Cause> {
        match ns {
            Ns::Host => Ok(&mut self.host),
            Ns::Pod => self.pod.as_mut().ok_or(Errno::ENOENT)?.route(&self.host),
        }
    }

    /// Sends a dump request of the route family and returns the replies.
    pub(crate) fn dump(
        &mut self,
        ns: Ns,
        kind: u16,
        body: impl Fn(&mut Vec<u8>),
    ) -> Result<Vec<Message>, Cause> {
        Ok(self.route(ns)?.dump(kind, body)?)
    }

    /// Lists the links of a namespace with their names.
    pub(crate) fn links(&mut self, ns: Ns) -> Result<Vec<(String, LinkFact)>, Cause> {
        Ok(list(self.route(ns)?)?)
    }

    /// Returns the host's nf_tables socket, opened at first use.
    pub fn nft(&mut self) -> Result<&mut Socket, KernelError> {
        let socket = match self.nft.take() {
            Some(socket) => socket,
            None => Socket::netfilter()?,
        };
        Ok(self.nft.insert(socket))
    }

    /// Returns the nf_tables socket of a namespace. It stays open until the end of the call, since
    /// closing it after a transaction that deleted objects waits for a grace period. The link
    /// deletions before the end wait for several grace periods anyway.
    pub fn nft_of(&mut self, ns: Ns) -> Result<&mut Socket, Cause> {
        match ns {
            Ns::Host => Ok(self.nft()?),
            Ns::Pod => self.pod.as_mut().ok_or(Errno::ENOENT)?.nft(&self.host),
        }
    }

    /// Runs `work` in a namespace.
    pub fn run_in<T>(&self, ns: Ns, work: impl FnOnce() -> T) -> Result<T, Error> {
        match (ns, &self.pod) {
            (Ns::Host, _) => Ok(work()),
            (Ns::Pod, Some(pod)) => pod.run(&self.host, work),
            (Ns::Pod, None) => Err(Error::new(
                "enter the container's network namespace",
                Errno::ENOENT,
            )),
        }
    }

    /// Opens a route socket in a namespace and joins a multicast group.
    pub fn listen(&self, ns: Ns, group: u32) -> Result<Socket, Error> {
        let open = || {
            let socket = Socket::route()?;
            socket.join(group)?;
            Ok::<_, KernelError>(socket)
        };
        self.run_in(ns, open)?
            .doing(format_args!("listen to rtnetlink group {group}"))
    }

    /// Returns a link; `None` if it does not exist.
    pub fn link(&mut self, at: &LinkRef) -> Result<Option<LinkFact>, Cause> {
        let socket = self.route(at.ns)?;
        if at.ns == Ns::Pod && socket.index_of(at.name.as_str()) == Ok(None) {
            return Ok(None);
        }
        let fact = match socket.get(rtnl::GETLINK, |out| get_by_name(&at.name, out)) {
            Err(err) if err.errno == Errno::ENODEV => None,
            answer => parse_fact(&answer?.body),
        };
        if let Some(fact) = &fact {
            self.learn(at.clone(), fact.index);
        }
        Ok(fact)
    }

    /// Looks up a link by name or alternative name, and returns it with its primary name. Returns
    /// `None` if it does not exist.
    pub fn named_link(
        &mut self,
        ns: Ns,
        name: &LinkName,
    ) -> Result<Option<(IfName, LinkFact)>, Cause> {
        let short = name.short();
        let socket = self.route(ns)?;
        if ns == Ns::Pod
            && let Some(short) = &short
            && socket.index_of(short.as_str()) == Ok(None)
        {
            return Ok(None);
        }
        // A name that fits into IFLA_IFNAME finds a link by its primary name or an alternative
        // name.
        let answer = socket.get(rtnl::GETLINK, |out| match &short {
            Some(short) => get_by_name(short, out),
            None => get_by_alt_name(name, out),
        });
        let answer = match answer {
            // Linux before 5.5 knows no names longer than IFLA_IFNAME.
            Err(err)
                if err.errno == Errno::ENODEV || short.is_none() && err.errno == Errno::EINVAL =>
            {
                return Ok(None);
            }
            answer => answer?,
        };
        let Some((own, fact)) = parse(&answer.body) else {
            return Ok(None);
        };
        let Ok(name) = IfName::parse(&own) else {
            return Ok(None);
        };
        let at = LinkRef { ns, name };
        self.learn(at.clone(), fact.index);
        Ok(Some((at.name, fact)))
    }

    /// Caches a link's index.
    pub fn learn(&mut self, at: LinkRef, index: u32) {
        self.indexes.insert(at, index);
    }

    /// Removes a deleted link from the cache.
    pub fn forget(&mut self, at: &LinkRef) {
        self.indexes.remove(at);
    }

    /// Returns a link's index, looked up only once.
    pub fn index(&mut self, at: &LinkRef) -> Result<u32, Cause> {
        if at.name.as_str() == "lo" {
            return Ok(LOOPBACK_IFINDEX);
        }
        if let Some(index) = self.indexes.get(at) {
            return Ok(*index);
        }
        let index = self
            .route(at.ns)?
            .index_of(at.name.as_str())?
            .ok_or(Errno::ENODEV)?;
        self.learn(at.clone(), index);
        Ok(index)
    }

    /// True if the link's index is cached, so that [`Kernel::index`] needs no lookup.
    pub fn knows(&self, at: &LinkRef) -> bool {
        at.name.as_str() == "lo" || self.indexes.contains_key(at)
    }
}
