//! Preview of the next reservation, without the lock, the index or any change of the store.

use super::leases::read_leases;
use super::store::{self, LeaseFile};
use super::{requests, resolv};
use crate::ipam::host::Host;
use crate::ipam::liveness::death_of;
use braid_core::cni::{Error, IpConfig};
use braid_core::ipam::Lease;
use braid_core::ipam::host_local::HostLocalConfig;
use braid_core::ipam::host_local::allocator::spans;
use braid_core::ipam::range::{RangeSet, from_bits};
use std::collections::HashSet;
use std::net::IpAddr;

/// Returns the lease that a new owner would get now. Another call may take the address meanwhile.
pub fn peek(config: &HostLocalConfig, host: Host<'_>) -> Result<Lease, Error> {
    let leases = read_leases(&config.path())?;
    let dns = resolv::dns(config)?;
    let is_missing = |ip| !leases.iter().any(|lease| lease.ip == ip);
    let recorded = host.liveness.recorded(&config.path(), &is_missing);
    let recorded: Vec<IpAddr> = recorded.into_iter().map(|one| one.ip).collect();
    let mut requested = config.requested.clone();
    let mut ips = Vec::new();
    for (number, set) in config.ranges.iter().enumerate() {
        let asked = requests::take_request(&mut requested, set);
        let last = store::read_mark(&config.path(), number);
        let free = free_in(set, asked, last, &leases, &recorded, host);
        let ip = free.map_err(|e| requests::in_set(number, e))?;
        if let Some(range) = set.range_for(ip) {
            ips.push(IpConfig {
                address: range.with_prefix(ip),
                gateway: range.gateway(),
                interface: None,
            });
        }
    }
    requests::refuse_rest(&requested)?;
    Ok(Lease {
        ips,
        routes: config.routes.clone(),
        dns,
    })
}

/// Returns the requested address, or the next free address. If no address is free, returns the next
/// address with a stale lease. Fails with the same errors as ADD.
fn free_in(
    set: &RangeSet,
    asked: Option<IpAddr>,
    last: Option<IpAddr>,
    leases: &[LeaseFile],
    recorded: &[IpAddr],
    host: Host<'_>,
) -> Result<IpAddr, Error> {
    if let Some(ip) = asked {
        requests::refuse_gateway(set, ip)?;
    }
    let mut held: HashSet<IpAddr> = recorded.iter().copied().collect();
    for lease in leases {
        held.insert(lease.ip);
    }
    if let Some(ip) = first_free(set, asked, last, &held) {
        return Ok(ip);
    }
    let clock = host.liveness.clock();
    for lease in leases {
        let is_in_set = set.range_for(lease.ip).is_some();
        if is_in_set && death_of(lease, &clock, host.liveness).is_some() {
            held.remove(&lease.ip);
        }
    }
    first_free(set, asked, last, &held).ok_or_else(|| match asked {
        Some(ip) => requests::leased(set, ip),
        None => Error::no_free_address(requests::exhausted(set)),
    })
}

fn first_free(
    set: &RangeSet,
    asked: Option<IpAddr>,
    last: Option<IpAddr>,
    held: &HashSet<IpAddr>,
) -> Option<IpAddr> {
    if let Some(ip) = asked {
        return (!held.contains(&ip)).then_some(ip);
    }
    for span in spans(set, last) {
        for bits in span.first..=span.last {
            let ip = from_bits(bits, set.is_ipv4());
            if !held.contains(&ip) {
                return Some(ip);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Ipam;
    use crate::ipam::host::NoServers;
    use crate::ipam::liveness::{Liveness, Netns};
    use crate::log::Log;
    use braid_core::cni::{NetConf, Owner};
    use std::time::SystemTime;

    struct AllAlive;

    impl Liveness for AllAlive {
        fn network(&self) -> &'static str {
            "n"
        }

        fn netns_of(&self, _owner: &Owner, _leased: SystemTime) -> Netns {
            Netns::Alive
        }
    }

    #[test]
    fn peek_shows_the_next_reservation_and_changes_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data");
        let text = format!(
            r#"{{"name":"n","ipam":{{"type":"host-local","dataDir":{:?},"subnet":"10.1.0.0/29"}}}}"#,
            data.display().to_string()
        );
        let conf = NetConf::parse(text.as_bytes()).expect("a configuration");
        let ipam = HostLocalConfig::parse(&conf, "").expect("parsed");
        let host = Host {
            state_dir: &dir.path().join("state"),
            liveness: &AllAlive,
            attachment: None,
            prober: None,
            servers: &NoServers,
            log: &Log::new(|_| {}),
        };
        let first = ipam.peek(host).expect("an address");
        assert!(!data.exists(), "peeking made the store");
        for number in 0..5 {
            let seen = ipam.peek(host).expect("an address");
            assert_eq!(seen, ipam.peek(host).expect("the same address"));
            let owner = Owner::new("n", &format!("c{number}"), "eth0");
            assert_eq!(seen, ipam.reserve(&owner, host).expect("an address"));
            assert_eq!(number == 0, seen == first);
        }
        let owner = Owner::new("n", "c5", "eth0");
        assert_eq!(
            ipam.peek(host).expect_err("none is left").msg,
            ipam.reserve(&owner, host).expect_err("none is left").msg
        );
    }

    #[test]
    fn peek_refuses_the_requests_that_add_refuses() {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host {
            state_dir: &dir.path().join("state"),
            liveness: &AllAlive,
            attachment: None,
            prober: None,
            servers: &NoServers,
            log: &Log::new(|_| {}),
        };
        let config = |ip: &str| {
            let text = format!(
                r#"{{"name":"n","runtimeConfig":{{"ips":["{ip}"]}},"ipam":{{"type":"host-local","dataDir":{:?},"subnet":"10.1.0.0/29"}}}}"#,
                dir.path().join("data").display().to_string()
            );
            let conf = NetConf::parse(text.as_bytes()).expect("a configuration");
            HostLocalConfig::parse(&conf, "").expect("parsed")
        };
        let owner = Owner::new("n", "c", "eth0");
        config("10.1.0.4").reserve(&owner, host).expect("free");
        for (ip, refused) in [
            ("10.1.0.1", "is subnet's gateway"),
            ("10.1.0.4", "is not available"),
            ("10.9.9.9", "failed to allocate all requested IPs"),
        ] {
            let owner = Owner::new("n", "other", "eth0");
            let error = config(ip).reserve(&owner, host).expect_err("refused");
            assert!(error.msg.contains(refused), "{error}");
            assert_eq!(config(ip).peek(host), Err(error));
        }
    }
}
