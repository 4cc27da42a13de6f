//! The `dhcp` IPAM. A daemon acquires leases through the container's link and renews them. The
//! daemon is reached through a socket. It is either braid's daemon (`crate::dhcpd`) or the
//! reference plugin's.
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
use braid_core::ipam::dhcp::DhcpConfig;
use braid_core::ipam::dhcp::rpc::{ALLOCATE, Args, RELEASE};
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
/// Longest time in seconds from the moment when a starting daemon takes the lock until it listens.
/// A daemon that is stopping releases the lock within this time.
const STARTING_S: u32 = 1;

impl Ipam for DhcpConfig {
    fn is_through_link(&self) -> bool {
        true
    }

    fn has_ipv6(&self) -> bool {
        self.families.v6
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        let config = self.without_ipv6()?;
        Some(Box::new(config))
    }

    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        let mut daemon =
            Daemon::open(&self.socket).map_err(|err| Error::internal(unreachable(&err)))?;
        let said = daemon.call(ALLOCATE, &self.args(owner, host), LEASE_PATIENCE);
        let lease =
            said.map_err(|err| Error::internal(format!("error calling {ALLOCATE}: {err}")))?;
        // The reference plugin's daemon supports only IPv4 and ignores the requested families.
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

    /// Checks that the daemon's lease has the addresses from ADD. If the daemon no longer knows the
    /// lease, it acquires the lease again.
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
        for ip in &lease.ips {
            let addr = ip.address.addr();
            if !prev.ips.iter().any(|given| given.address.addr() == addr) {
                return Err(Error::internal(format!(
                    "the lease of interface {} is now {addr}",
                    owner.ifname
                )));
            }
        }
        Ok(())
    }

    /// Releases the lease. A daemon that is not running or does not respond must not block the
    /// container's removal, so those cases are a success.
    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let store = Store::of(&self.socket);
        let until = Instant::now() + RELEASE_PATIENCE;
        let mut is_again = false;
        loop {
            let gone = match Daemon::open(&self.socket) {
                Err(gone) => gone,
                Ok(mut daemon) => {
                    let called = daemon.call(RELEASE, &self.args(owner, host), RELEASE_PATIENCE);
                    let Err(err) = called else {
                        return Ok(Vec::new());
                    };
                    if is_again || Instant::now() >= until {
                        host.log.line(format_args!(
                            "error calling {RELEASE}: {err}; the lease expires without its link"
                        ));
                        return Ok(Vec::new());
                    }
                    // The daemon may have stopped, and another one may have started in its place.
                    is_again = true;
                    continue;
                }
            };
            let failed = |err: io::Error| Error::io(format!("{gone}; lock its leases: {err}"));
            match store.try_lock().map_err(failed)? {
                store::Locked::Nothing => return Ok(Vec::new()),
                store::Locked::Held(_lock) => return self.release_alone(owner, &store, host.log),
                // A daemon that stops releases the lock immediately. A daemon that starts listens
                // shortly after it has taken the lock.
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
        for stored in Store::of(&self.socket).list() {
            if stored.owner.network != network || !is_lost(&stored) {
                continue;
            }
            self.release(&stored.owner, host)?;
            freed.extend(stored.addresses());
        }
        Ok(freed)
    }

    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        match Daemon::open(&self.socket) {
            Ok(_) => Ok(None),
            Err(err) => Err(Error::not_available(unreachable(&err))),
        }
    }
}

fn unreachable(err: &str) -> String {
    format!("error dialing DHCP daemon: {err}")
}

trait Calls {
    fn args(&self, owner: &Owner, host: Host<'_>) -> Args;
    fn release_alone(&self, owner: &Owner, store: &Store, log: &Log) -> Result<Vec<IpAddr>, Error>;
}

impl Calls for DhcpConfig {
    /// Returns the arguments of a call to the daemon for `owner`.
    fn args(&self, owner: &Owner, host: Host<'_>) -> Args {
        let (mut netns, mut args) = (String::new(), String::new());
        if let Some(attachment) = host.attachment {
            args.clone_from(&attachment.args);
            if let Some(path) = &attachment.netns {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                netns = path.display().to_string();
            }
        }
        let mut conf = braid_core::cni::Json::clone(&self.json);
        // In a configuration list, the network's name is the list's name. The daemon does not need
        // prevResult.
        conf.set("name", owner.network.as_str());
        conf.remove("prevResult");
        Args {
            container_id: owner.container_id.clone(),
            netns,
            ifname: owner.ifname.clone(),
            args,
            stdin: conf.to_string().into_bytes(),
        }
    }

    /// Releases a lease without a daemon, with the packets that the daemon would have sent.
    fn release_alone(&self, owner: &Owner, store: &Store, log: &Log) -> Result<Vec<IpAddr>, Error> {
        let Some(stored) = store.get(owner) else {
            return Ok(Vec::new());
        };
        let mut rng = link::rng();
        let session = stored.session(false, Limits::default(), &mut rng);
        if let (Some(mut session), Some(place)) = (session, stored.place()) {
            let outputs = session.release(&mut rng);
            if let Err(err) = place.and_then(|place| place.send_all(&outputs)) {
                let name = stored.owner.whole();
                log.line(format_args!("{name}: release the lease: {err}"));
            }
        }
        store
            .remove(owner)
            .map_err(|err| Error::io(format!("remove the lease of {}: {err}", owner.whole())))?;
        Ok(stored.addresses())
    }
}
