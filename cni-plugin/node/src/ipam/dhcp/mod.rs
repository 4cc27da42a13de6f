//! The `dhcp` IPAM. The daemon at the socket acquires leases through the container's link and
//! renews them. It may be braid's own (`crate::dhcpd`) or the reference's.
//!
//! ```text
//!  ADD, CHECK ─► call ─► daemon        DEL, GC ─► call ─► daemon
//!                                             └─► without one: store, link ─► the server
//! ```

pub mod call;
pub mod link;
pub mod store;

use super::liveness::{Netns, netns_at};
use super::{Host, Ipam, Kept};
use crate::log::Log;
use crate::sys::lock;
use braid_core::cni::{AddResult, Error, Owner};
use braid_core::ipam::Lease;
use braid_core::ipam::dhcp::Config;
use braid_core::ipam::dhcp::rpc::{ALLOCATE, Args, RELEASE};
use braid_core::ipam::dhcp::session::Held;
use braid_core::ipam::dhcp::timing::Limits;
use call::Daemon;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use store::{Store, Stored};

/// Timeout of an allocation: longer than the daemon's own default timeout.
const LEASE_PATIENCE: Duration = Duration::from_mins(4);
/// Timeout of a release, and of the wait for a daemon that is starting.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);
/// Time within which a starting daemon listens after it takes the lock, in seconds. A daemon that
/// is stopping releases the lock sooner.
const STARTING_S: u32 = 1;

impl Ipam for Config {
    fn is_through_link(&self) -> bool {
        true
    }

    fn has_ipv6(&self) -> bool {
        self.families.v6
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        self.without_ipv6()
            .map(|config| Box::new(config) as Box<dyn Ipam>)
    }

    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        let mut daemon =
            Daemon::open(&self.socket).map_err(|err| Error::internal(unreachable(&err)))?;
        let said = daemon.call(ALLOCATE, &self.args(owner, host), LEASE_PATIENCE);
        let lease =
            said.map_err(|err| Error::internal(format!("error calling {ALLOCATE}: {err}")))?;
        // The reference's daemon supports only IPv4 and ignores the requested families.
        let has = |is_v4: bool| {
            lease
                .ips
                .iter()
                .any(|ip| ip.address.addr().is_ipv4() == is_v4)
        };
        if (has(true), has(false)) != (self.families.v4, self.families.v6) {
            let socket = self.socket.display();
            return Err(Error::internal(format!(
                "{socket}: the daemon does not support the requested \"ipFamilies\""
            )));
        }
        Ok(lease)
    }

    /// Returns no addresses: they are known only after a request through the link.
    fn peek(&self, _host: Host<'_>) -> Result<Lease, Error> {
        Ok(Lease::default())
    }

    /// Checks that the daemon's lease has the addresses from ADD. The daemon acquires a lease that
    /// it no longer knows again.
    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        host: Host<'_>,
    ) -> Result<(), Error> {
        let lease = self.reserve(owner, host)?;
        let Some(prev) = prev_result else {
            return Ok(());
        };
        let is_new = |ip: &IpAddr| !prev.ips.iter().any(|given| given.address.addr() == *ip);
        match lease.ips.iter().map(|ip| ip.address.addr()).find(is_new) {
            Some(ip) => Err(Error::internal(format!(
                "the lease of interface {} is now {ip}",
                owner.ifname
            ))),
            None => Ok(()),
        }
    }

    /// Releases the lease. A daemon that is not running or does not respond must not block the
    /// container's removal, so those cases succeed.
    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let store = Store::of(&self.socket);
        let until = Instant::now() + RELEASE_PATIENCE;
        let mut is_again = false;
        loop {
            let called = Daemon::open(&self.socket)
                .map(|mut daemon| daemon.call(RELEASE, &self.args(owner, host), RELEASE_PATIENCE));
            let gone = match called {
                Ok(Ok(_)) => return Ok(Vec::new()),
                Ok(Err(err)) if is_again || Instant::now() >= until => {
                    host.log.line(format_args!(
                        "error calling {RELEASE}: {err}; the lease expires without its link"
                    ));
                    return Ok(Vec::new());
                }
                // The daemon may have stopped, and another one may have started in its place.
                Ok(Err(_)) => {
                    is_again = true;
                    continue;
                }
                Err(gone) => gone,
            };
            let failed = |err: io::Error| Error::io(format!("{gone}; lock its leases: {err}"));
            match store.try_lock().map_err(failed)? {
                store::Locked::Nothing => return Ok(Vec::new()),
                store::Locked::Held(_lock) => return self.release_alone(owner, &store, host.log),
                // A stopping daemon releases the lock immediately. A starting one listens shortly
                // after it has locked.
                store::Locked::Others(file) => match lock::wait_for(&file, STARTING_S) {
                    Ok(()) => return self.release_alone(owner, &store, host.log),
                    Err(err) if err.kind() != io::ErrorKind::TimedOut => return Err(failed(err)),
                    Err(_) if Instant::now() < until => {}
                    Err(_) => return Err(Error::because(unreachable(&gone), true)),
                },
            }
        }
    }

    fn gc(&self, kept: Kept<'_>, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let mut freed = Vec::new();
        let network = host.liveness.network();
        let is_lost = |stored: &Stored| match kept {
            Kept::Listed(valid) => !valid.contains(&stored.owner),
            Kept::NotGone => netns_at(&stored.netns) == Netns::Gone,
        };
        let of_network = |stored: &Stored| stored.owner.network == network && is_lost(stored);
        for stored in Store::of(&self.socket)
            .list()
            .into_iter()
            .filter(of_network)
        {
            self.release(&stored.owner, host)?;
            freed.extend(stored.addresses());
        }
        Ok(freed)
    }

    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        Daemon::open(&self.socket)
            .map(|_| None)
            .map_err(|err| Error::not_available(unreachable(&err)))
    }
}

fn unreachable(err: &str) -> String {
    format!("error dialing DHCP daemon: {err}")
}

trait Calls {
    fn args(&self, owner: &Owner, host: Host<'_>) -> Args;
    fn release_alone(&self, owner: &Owner, store: &Store, log: &Log) -> Result<Vec<IpAddr>, Error>;
}

impl Calls for Config {
    /// Returns the arguments of a call for `owner`.
    fn args(&self, owner: &Owner, host: Host<'_>) -> Args {
        let netns = host
            .attachment
            .and_then(|attachment| attachment.netns.as_deref());
        let netns = netns.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let mut conf = braid_core::cni::Json::clone(&self.json);
        // The network's name is the list's if there is a list. The daemon does not need prevResult.
        conf.set("name", owner.network.as_str());
        conf.remove("prevResult");
        Args {
            container_id: owner.container_id.clone(),
            netns: netns
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            ifname: owner.ifname.clone(),
            args: host
                .attachment
                .map(|attachment| attachment.args.clone())
                .unwrap_or_default(),
            stdin: conf.to_string().into_bytes(),
        }
    }

    /// Releases a lease without a daemon, with the packets that the daemon would have sent.
    fn release_alone(&self, owner: &Owner, store: &Store, log: &Log) -> Result<Vec<IpAddr>, Error> {
        let Some(stored) = store.get(owner) else {
            return Ok(Vec::new());
        };
        let mut rng = link::rng();
        if let Some((mut session, place)) = stored
            .session(false, Limits::default(), &mut rng)
            .zip(stored.place())
        {
            let outputs = session.release(&mut rng);
            if let Err(err) = place.and_then(|place| place.send_all(&outputs)) {
                let name = stored.owner.whole();
                log.line(format_args!("{name}: release the lease: {err}"));
            }
        }
        store
            .remove(owner)
            .map_err(|err| Error::io(format!("remove the lease of {}: {err}", owner.whole())))?;
        let Held { v4, v6 } = stored.held;
        let v4 = v4.map(|lease| IpAddr::from(lease.address));
        Ok(v4
            .into_iter()
            .chain(v6.map(|lease| lease.address.into()))
            .collect())
    }
}
