//! Changes of leases by calls of plugins, packets of servers, and timers.

use super::Daemon;
use super::lease::{self, Packet, ServedLease, Socket, Waiter};
use crate::ipam::dhcp::link::ContainerLink;
use crate::ipam::dhcp::store::Stored;
use crate::sys::events::now;
use braid_core::cni::{IpConfig, NetConf, Owner, Route};
use braid_core::ipam::dhcp::rpc::{ALLOCATE, RELEASE, RpcCall};
use braid_core::ipam::dhcp::session::Held;
use braid_core::ipam::dhcp::{DhcpConfig, Output};
use braid_core::name::IfName;
use std::path::Path;
use std::time::Duration;

/// Longest packet that is read, in bytes.
const MOST: usize = 4096;
/// Number of packets read from one link before other events are handled. Without this limit, a
/// container could keep the daemon busy with packets to itself.
const AT_ONCE: usize = 16;
/// Delay before a failed link lookup is repeated.
const AGAIN: Duration = Duration::from_secs(1);

impl Daemon {
    /// Handles a call of a plugin. The response is sent now, or when the lease is bound.
    pub(super) fn call(&mut self, connection: u64, call: &RpcCall) {
        let waiter = Waiter {
            connection,
            seq: call.seq,
            method: call.method.clone(),
        };
        let failed = match call.method.as_str() {
            ALLOCATE => self.allocate(call, waiter).err(),
            RELEASE => match owner_of(call) {
                Ok((owner, _)) => {
                    self.release(&owner);
                    self.answer(&waiter, Ok(None));
                    None
                }
                Err(err) => Some((waiter, err)),
            },
            other => Some((waiter, format!("rpc: can't find method {other}"))),
        };
        if let Some((waiter, err)) = failed {
            self.answer(&waiter, Err(&err));
        }
    }

    /// Answers a call with the owner's existing lease if it is for this link, or starts to acquire
    /// a new lease.
    fn allocate(&mut self, call: &RpcCall, waiter: Waiter) -> Result<(), (Waiter, String)> {
        let (place, owner, conf) = match self.asked(call) {
            Ok(asked) => asked,
            Err(err) => return Err((waiter, err)),
        };
        if let Some(id) = self.owners.get(&owner.whole()).copied() {
            if self
                .leases
                .get(&id)
                .is_some_and(|lease| lease.stored.is_of(&place))
            {
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.waiting.push(waiter);
                }
                self.tell(id);
                return Ok(());
            }
            // The link of the existing lease may still be there under another name.
            self.release(&owner);
        }
        let config = match DhcpConfig::parse(&conf, &call.args.args) {
            Ok(config) => config,
            Err(err) => return Err((waiter, err.to_string())),
        };
        let stored = Stored {
            owner,
            netns: place.path().to_owned(),
            cookie: place.cookie,
            inode: Some(place.inode),
            index: place.link.index,
            mac: place.link.mac,
            fixed: Some(place.link.fixed.clone()),
            args: call.args.args.clone(),
            conf: String::from_utf8_lossy(&call.args.stdin).into_owned(),
            boot_id: self.boot_id.clone(),
            held: Held::default(),
            lost: Vec::new(),
        };
        let session = lease::session(&stored, &config, &self.settings, &mut self.rng);
        let mut lease = ServedLease::new(stored, session, self.settings.log.clone());
        lease.waiting.push(waiter);
        lease.report(format_args!("acquiring lease"));
        if !place.link.is_up {
            lease.set_up(&place);
        }
        let id = self.insert(lease);
        self.tick(id);
        Ok(())
    }

    /// Returns the link, the owner and the configuration of a call.
    fn asked(&self, call: &RpcCall) -> Result<(ContainerLink, Owner, NetConf), String> {
        let (owner, conf) = owner_of(call)?;
        let ifname = IfName::parse(&owner.ifname)
            .map_err(|err| format!("interface {:?}: {err}", owner.ifname))?;
        let path = self.settings.reach(Path::new(&call.args.netns));
        match ContainerLink::find(&path, &ifname) {
            Ok(Some(place)) => Ok((place, owner, conf)),
            Ok(None) => Err(format!(
                "error looking up {:?}: Link not found in {}",
                owner.ifname,
                path.display()
            )),
            Err(err) => Err(err.to_string()),
        }
    }

    pub(super) fn insert(&mut self, lease: ServedLease) -> u64 {
        self.last += 1;
        self.owners.insert(lease.name(), self.last);
        self.timers.set(self.last, lease.session.next());
        self.leases.insert(self.last, lease);
        self.last
    }

    /// Ends the lease of an owner: deletes the lease's addresses from the link, then sends releases
    /// to the servers.
    fn release(&mut self, owner: &Owner) {
        let Some(id) = self.owners.get(&owner.whole()).copied() else {
            return;
        };
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.report(format_args!("releasing lease"));
        let held = lease.session.lease().unwrap_or_default();
        if let Some(Ok(place)) = lease.stored.place() {
            let outputs = lease.session.release(&mut self.rng);
            if lease.is_told {
                held.ips
                    .iter()
                    .for_each(|ip| lease.leave(&place, ip, &held.routes));
            }
            if let Err(err) = place.send_all(&outputs) {
                lease.report(format_args!("failed to release DHCP lease: {err}"));
            }
        }
        self.answer_all(id, &Err("the lease was released".to_owned()));
        self.forget(id);
    }

    /// Deletes an ended lease and its file.
    fn forget(&mut self, id: u64) {
        let Some(lease) = self.leases.remove(&id) else {
            return;
        };
        self.owners.remove(&lease.name());
        self.timers.set(id, None);
        if let Err(err) = self.store.remove(&lease.stored.owner) {
            lease.report(format_args!("{err}"));
        }
    }

    /// Runs the due actions of a lease. Ends the lease if its link is gone.
    pub(super) fn tick(&mut self, id: u64) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        match lease.stored.place() {
            Some(Ok(place)) => {
                // Servers send to the hardware address that they know, which the link may have
                // changed.
                lease
                    .session
                    .set_broadcast(self.settings.broadcast || place.link.mac != lease.stored.mac);
                let outputs = lease.session.tick(now(), &mut self.rng);
                self.carry_out(id, outputs);
            }
            Some(Err(err)) => {
                lease.report(format_args!("{err}"));
                self.timers.set(id, Some(now() + AGAIN));
            }
            None => {
                lease.report(format_args!(
                    "interface {} no longer exists",
                    lease.stored.owner.ifname
                ));
                self.end(id);
            }
        }
    }

    fn end(&mut self, id: u64) {
        self.answer_all(id, &Err("the interface no longer exists".to_owned()));
        self.forget(id);
    }

    /// Reads packets from servers, up to [`AT_ONCE`]. Unread packets wake the daemon again.
    pub(super) fn hear(&mut self, id: u64, socket: Socket) {
        let mut buffer = [0; MOST];
        for _ in 0..AT_ONCE {
            let Some(lease) = self.leases.get_mut(&id) else {
                return;
            };
            let Some((len, from)) = lease.receive(socket, &mut buffer) else {
                return;
            };
            let packet = &buffer[..len.min(MOST)];
            let outputs = match socket {
                Socket::V4 => lease.session.take4(packet, from, now(), &mut self.rng),
                Socket::V6 => lease.session.take6(packet, now(), &mut self.rng),
            };
            self.carry_out(id, outputs);
        }
    }

    fn carry_out(&mut self, id: u64, outputs: Vec<Output>) {
        for output in outputs {
            let Some(lease) = self.leases.get_mut(&id) else {
                return;
            };
            match output {
                Output::Send4(packet) => {
                    if lease
                        .send(&self.events, id, Packet::V4(&packet.bytes, packet.to))
                        .is_err()
                    {
                        lease.session.hold4(now());
                    }
                }
                Output::Send6(message) => {
                    if lease.send(&self.events, id, Packet::V6(&message)).is_err() {
                        lease.session.hold6(now());
                    }
                }
                Output::Bound => self.bound(id),
                Output::Lost { ip, routes, why } => self.lost(id, ip.as_ref(), &routes, why),
                Output::GaveUp => {
                    lease.report(format_args!("no more tries"));
                    self.give_up(id);
                }
            }
        }
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.close_idle();
            self.timers.set(id, lease.session.next());
        }
    }

    /// Stores an acquired or renewed lease, and responds to the waiting calls.
    fn bound(&mut self, id: u64) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.keep(&self.store);
        if lease.session.is_bound() && lease.is_lost {
            lease.is_lost = false;
            lease.report(format_args!("acquired a new lease"));
            if let Some(Ok(place)) = lease.stored.place() {
                lease.arrive(&place);
            }
            lease.keep(&self.store);
        }
        self.tell(id);
    }

    fn lost(&mut self, id: u64, ip: Option<&IpConfig>, routes: &[Route], why: &str) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let address = ip
            .map(|ip| ip.address.addr().to_string())
            .unwrap_or_default();
        lease.report(format_args!("lost the lease of {address}: {why}"));
        if lease.is_told {
            lease.is_lost = true;
            if let (Some(Ok(place)), Some(ip)) = (lease.stored.place(), ip) {
                lease.leave(&place, ip, routes);
            }
        }
        lease.keep(&self.store);
    }

    /// Ends a lease that was not acquired in time. If the lease has addresses of one family, they
    /// are released.
    fn give_up(&mut self, id: u64) {
        self.answer_all(id, &Err("no more tries".to_owned()));
        self.release_by_id(id);
    }

    fn release_by_id(&mut self, id: u64) {
        if let Some(lease) = self.leases.get(&id) {
            let owner = lease.stored.owner.clone();
            self.release(&owner);
        }
    }

    /// Responds to the waiting calls, if the lease is bound.
    fn tell(&mut self, id: u64) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        if !lease.session.is_bound() {
            return;
        }
        let said = lease.session.lease();
        lease.is_told |= said.is_ok() && !lease.waiting.is_empty();
        let is_useless = said.is_err();
        self.answer_all(id, &said.map_err(str::to_owned));
        if is_useless {
            self.release_by_id(id);
        }
    }

    fn answer_all(&mut self, id: u64, said: &Result<braid_core::ipam::Lease, String>) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        for waiter in std::mem::take(&mut lease.waiting) {
            self.answer(&waiter, said.as_ref().map(Some).map_err(String::as_str));
        }
    }

    fn answer(&mut self, waiter: &Waiter, said: Result<Option<&braid_core::ipam::Lease>, &str>) {
        // A plugin that closed its connection calls again or releases the lease.
        let Some(connection) = self.connections.get_mut(&waiter.connection) else {
            return;
        };
        if connection.answer(waiter.seq, &waiter.method, said).is_err() {
            self.connections.remove(&waiter.connection);
        }
    }
}

/// Returns the owner and the configuration of a call.
fn owner_of(call: &RpcCall) -> Result<(Owner, NetConf), String> {
    let conf =
        NetConf::parse(&call.args.stdin).map_err(|err| format!("error parsing netconf: {err}"))?;
    Ok((
        Owner::new(&conf.name, &call.args.container_id, &call.args.ifname),
        conf,
    ))
}
