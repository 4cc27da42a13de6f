//! Addresses that no other host on the container's link has.
//!
//! ```text
//!  lease ─► probes ─► no conflict: the lease
//!    ▲         └────► conflict: address refused in the journal
//!    └── another ◄────┘ (after the third, or for a requested address: code 11)
//! ```

use crate::ipam::host::Prober;
use crate::log::Log;
use braid_core::cni::{Error, Kind};
use braid_core::ipam::Lease;
use braid_core::ipam::probe::Conflict;
use std::net::IpAddr;

/// Largest number of leases that an ADD tries.
const TRIES: usize = 3;

/// The pools of a lease.
pub(super) trait Pools {
    /// True if the pools can give another address instead of this one.
    fn can_replace(&self, address: IpAddr) -> bool;

    /// Refuses an address of the lease. The node takes it after all others from now on.
    fn refuse(&mut self, address: IpAddr) -> Result<(), Error>;

    /// Reserves an address again where one was refused, and returns the lease.
    fn reserve(&mut self) -> Result<Lease, Error>;
}

/// Returns a lease without addresses of other hosts: the given one, or one of the next. After an
/// error, addresses may still be reserved.
pub(super) fn without_conflict(
    mut lease: Lease,
    prober: &dyn Prober,
    pools: &mut dyn Pools,
    log: &Log,
) -> Result<Lease, Error> {
    let mut refused: Vec<IpAddr> = Vec::new();
    let mut left = TRIES;
    loop {
        let addresses: Vec<IpAddr> = lease.ips.iter().map(|ip| ip.address.addr()).collect();
        let conflicts = prober.probe(&addresses)?;
        if conflicts.is_empty() {
            return Ok(lease);
        }
        left -= 1;
        let mut is_last = left == 0;
        for conflict in &conflicts {
            let address = conflict.address;
            // A pool without other addresses gives the same one again.
            is_last |= !pools.can_replace(address) || refused.contains(&address);
            pools.refuse(address)?;
            refused.push(address);
        }
        let text = sentence(&conflicts);
        if is_last {
            return Err(Error::new(Kind::TryAgain, text));
        }
        log.line(format_args!("{text}; another address is tried"));
        lease = pools.reserve().map_err(|err| err.context(text))?;
    }
}

fn sentence(conflicts: &[Conflict]) -> String {
    let mut texts = Vec::new();
    for Conflict { address, mac } in conflicts {
        texts.push(format!("address {address} is used by another host, {mac}"));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::IpConfig;
    use braid_core::name::Mac;
    use std::cell::Cell;
    use std::net::Ipv4Addr;
    use std::rc::Rc;

    /// Hosts with the addresses from 10.211.0.1 to this last byte.
    struct Others(u8);

    impl Prober for Others {
        fn probe(&self, addresses: &[IpAddr]) -> Result<Vec<Conflict>, Error> {
            let last = IpAddr::from([10, 211, 0, self.0]);
            let taken = addresses.iter().filter(|address| **address <= last);
            let conflict = |address: &IpAddr| Conflict {
                address: *address,
                mac: Mac([2, 0, 0, 0, 0, 9]),
            };
            Ok(taken.map(conflict).collect())
        }
    }

    /// A pool that gives out the next address, or the same one if there is no other.
    struct Pool {
        next: u8,
        has_one: bool,
        requested: Option<IpAddr>,
        refused: Vec<IpAddr>,
    }

    impl Pools for Pool {
        fn can_replace(&self, address: IpAddr) -> bool {
            self.requested != Some(address)
        }

        fn refuse(&mut self, address: IpAddr) -> Result<(), Error> {
            self.refused.push(address);
            Ok(())
        }

        fn reserve(&mut self) -> Result<Lease, Error> {
            self.next += u8::from(!self.has_one);
            Ok(lease(self.next))
        }
    }

    fn lease(last: u8) -> Lease {
        let address = IpAddr::from(Ipv4Addr::new(10, 211, 0, last));
        Lease {
            ips: vec![IpConfig {
                address: address.into(),
                gateway: None,
                interface: None,
            }],
            ..Lease::default()
        }
    }

    /// Returns the address or the error of an ADD that begins with 10.211.0.1, the number of refused
    /// addresses, and the number of lines in the log.
    fn outcome(
        taken: u8,
        has_one: bool,
        requested: Option<IpAddr>,
    ) -> (Result<String, Error>, usize, usize) {
        let lines = Rc::new(Cell::new(0));
        let counter = Rc::clone(&lines);
        let log = Log::new(move |_| counter.set(counter.get() + 1));
        let mut pool = Pool {
            next: 1,
            has_one,
            requested,
            refused: Vec::new(),
        };
        let done = without_conflict(lease(1), &Others(taken), &mut pool, &log);
        let done = done.map(|lease| lease.ips[0].address.addr().to_string());
        (done, pool.refused.len(), lines.get())
    }

    #[test]
    fn the_next_address_without_a_conflict_is_used() {
        assert_eq!(outcome(0, false, None), (Ok("10.211.0.1".to_owned()), 0, 0));
        assert_eq!(outcome(2, false, None), (Ok("10.211.0.3".to_owned()), 2, 2));
    }

    #[test]
    fn a_third_a_requested_and_an_only_address_fail_with_code_11() {
        let requested = Some(IpAddr::from([10, 211, 0, 1]));
        for (taken, has_one, requested, last, refused) in [
            (9, false, None, 3, 3),
            (9, false, requested, 1, 1),
            (9, true, None, 1, 2),
        ] {
            let (done, count, _) = outcome(taken, has_one, requested);
            let err = done.unwrap_err();
            assert_eq!((err.kind, count), (Kind::TryAgain, refused));
            let expected =
                format!("address 10.211.0.{last} is used by another host, 02:00:00:00:00:09");
            assert_eq!(err.msg, expected);
        }
    }
}
