//! `host-local` on real directories: assigned addresses, written files, errors.

mod claimed;
mod index;
mod interop;
mod reclaim;
mod restore;
mod scale;

use super::*;
use crate::ipam::host::NoServers;
use crate::ipam::liveness::{Clock, Netns, Recorded, owner_of};
use crate::log::Log;
use braid_core::cni::NetConf;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A sandbox: `data/` for leases, `state/` for the index, and a [`Liveness`] with configurable
/// answers.
struct Bed {
    dir: TempDir,
    netns: Netns,
    clock: Clock,
    recorded: Vec<Recorded>,
    /// Number of calls of `recorded`.
    asked: AtomicUsize,
}

impl Liveness for Bed {
    fn network(&self) -> &'static str {
        "net"
    }

    fn netns_of(&self, _owner: &Owner, _leased: SystemTime) -> Netns {
        self.netns
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn recorded(&self, _path: &Path, is_missing: &dyn Fn(IpAddr) -> bool) -> Vec<Recorded> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.recorded
            .iter()
            .filter(|one| is_missing(one.ip))
            .cloned()
            .collect()
    }
}

impl Bed {
    /// Creates a sandbox in which every namespace is unknown and the kernel started an hour ago.
    fn new() -> Self {
        let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
        let clock = Clock {
            now,
            since_boot: Some(hour),
            run_born: Some(now - hour),
        };
        let dir = TempDir::new().unwrap();
        Self {
            dir,
            netns: Netns::Unknown,
            clock,
            recorded: Vec::new(),
            asked: AtomicUsize::new(0),
        }
    }

    /// Parses a network configuration. Its `ipam` has the sandbox's data directory and the members
    /// in the text `ipam`.
    fn config(&self, ipam: &str, rest: &str) -> HostLocalConfig {
        let data_dir = self.dir.path().join("data");
        let text = format!(
            r#"{{"name":"net","cniVersion":"1.0.0",{rest}"ipam":{{"type":"host-local","dataDir":{data_dir:?},{ipam}}}}}"#
        );
        HostLocalConfig::parse(&NetConf::parse(text.as_bytes()).unwrap(), "").unwrap()
    }

    fn small(&self) -> HostLocalConfig {
        self.config(r#""subnet":"10.1.2.0/29""#, "")
    }

    fn add(&self, config: &HostLocalConfig, id: &str) -> Result<String, String> {
        self.add_if(config, id, "eth0")
    }

    /// Returns the addresses from an ADD, separated by spaces, or the error text.
    fn add_if(&self, config: &HostLocalConfig, id: &str, ifname: &str) -> Result<String, String> {
        let state = self.dir.path().join("state");
        let lease = config.reserve(
            &owner(id, ifname),
            Host {
                state_dir: &state,
                liveness: self,
                attachment: None,
                prober: None,
                servers: &NoServers,
                log: &Log::new(|_| {}),
            },
        );
        addresses_of(lease)
    }

    fn del(&self, config: &HostLocalConfig, id: &str) -> Vec<String> {
        let state = self.dir.path().join("state");
        let freed = config
            .release(
                &owner(id, "eth0"),
                Host {
                    state_dir: &state,
                    liveness: self,
                    attachment: None,
                    prober: None,
                    servers: &NoServers,
                    log: &Log::new(|_| {}),
                },
            )
            .unwrap();
        freed.iter().map(IpAddr::to_string).collect()
    }

    fn run<T>(&self, verb: impl FnOnce(Host<'_>) -> T) -> T {
        verb(Host {
            state_dir: &self.dir.path().join("state"),
            liveness: self,
            attachment: None,
            prober: None,
            servers: &NoServers,
            log: &Log::new(|_| {}),
        })
    }

    fn write(&self, name: &str, content: &str) {
        let dir = self.dir.path().join("data/net");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("data/net").join(name)).ok()
    }

    /// Returns the names of the files in the data directory, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("data/net")).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Returns the addresses of a lease, separated by spaces, or the error text.
fn addresses_of(lease: Result<Lease, Error>) -> Result<String, String> {
    let ips = lease.map_err(|e| e.to_string())?.ips;
    let texts: Vec<String> = ips.iter().map(|ip| ip.address.to_string()).collect();
    Ok(texts.join(" "))
}

fn owner(id: &str, ifname: &str) -> Owner {
    Owner::new("net", id, ifname)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands beside Err in comparisons"
)]
fn ok(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

const FULL: &str =
    "failed to allocate for range 0: no IP addresses available in range set: 10.1.2.1-10.1.2.6";

#[test]
fn a_reservation_writes_what_the_reference_plugin_writes_and_nothing_else() {
    let bed = Bed::new();
    let config = bed.config(
        r#""ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/64"}]]"#,
        "",
    );
    assert_eq!(bed.add(&config, " c1 "), ok("10.1.2.2/24 2001:db8:1::2/64"));
    assert_eq!(
        bed.names(),
        [
            "10.1.2.2",
            "2001:db8:1::2",
            "last_reserved_ip.0",
            "last_reserved_ip.1",
            "lock"
        ]
    );
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("c1\r\neth0"));
    assert_eq!(bed.read("last_reserved_ip.0").as_deref(), Some("10.1.2.2"));
    assert_eq!(
        bed.read("last_reserved_ip.1").as_deref(),
        Some("2001:db8:1::2")
    );
    let mode = |name: &str| {
        fs::metadata(bed.dir.path().join("data/net").join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!(
        (
            mode("10.1.2.2"),
            mode("last_reserved_ip.0"),
            mode("lock"),
            mode(".")
        ),
        (0o600, 0o600, 0o750, 0o755)
    );
}

#[test]
fn the_lease_has_gateway_routes_and_dns() {
    let bed = Bed::new();
    let resolv = bed.dir.path().join("resolv.conf");
    fs::write(&resolv, "nameserver 192.0.2.3\n").unwrap();
    let config = bed.config(
        &format!(
            r#""subnet":"10.1.2.0/24","gateway":"10.1.2.9","routes":[{{"dst":"0.0.0.0/0"}}],"resolvConf":{resolv:?}"#
        ),
        "",
    );
    let lease = bed
        .run(|host| config.reserve(&owner("c1", "eth0"), host))
        .unwrap();
    assert_eq!(
        (lease.ips[0].gateway, lease.ips.len()),
        (Some("10.1.2.9".parse().unwrap()), 1)
    );
    assert_eq!(
        (lease.routes, lease.dns.nameservers),
        (config.routes, vec!["192.0.2.3".to_owned()])
    );
}

#[test]
fn unreadable_resolv_conf_fails_before_anything_is_created() {
    let bed = Bed::new();
    let config = bed.config(r#""subnet":"10.1.2.0/24","resolvConf":"/nonexistent""#, "");
    assert!(
        bed.add(&config, "c1")
            .unwrap_err()
            .starts_with("read resolvConf /nonexistent: ")
    );
    assert!(!bed.dir.path().join("data").exists());
}

#[test]
fn slash_29_serves_five_and_then_reports_that_it_is_full() {
    let bed = Bed::new();
    let config = bed.small();
    for (id, ip) in [("a", 2), ("b", 3), ("c", 4), ("d", 5), ("e", 6)] {
        assert_eq!(bed.add(&config, id), Ok(format!("10.1.2.{ip}/29")));
    }
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
    assert_eq!(bed.del(&config, "c"), ["10.1.2.4"]);
    assert_eq!(bed.add(&config, "f"), ok("10.1.2.4/29"));
}

#[test]
fn a_freed_address_is_the_last_one_to_be_used_again() {
    let bed = Bed::new();
    let config = bed.small();
    for ip in [2, 3, 4, 5, 6, 2, 3] {
        assert_eq!(bed.add(&config, "c"), Ok(format!("10.1.2.{ip}/29")));
        assert_eq!(bed.del(&config, "c"), [format!("10.1.2.{ip}")]);
    }
}

#[test]
fn second_add_for_the_same_owner_is_refused_and_another_ifname_is_another_owner() {
    let bed = Bed::new();
    let config = bed.small();
    assert_eq!(bed.add(&config, "c1"), ok("10.1.2.2/29"));
    let refused = "failed to allocate for range 0: 10.1.2.2 has been allocated to c1, duplicate allocation is not allowed";
    assert_eq!(bed.add(&config, "c1"), Err(refused.to_owned()));
    assert_eq!(bed.add_if(&config, "c1", "eth1"), ok("10.1.2.3/29"));
    assert_eq!(bed.del(&config, "c1"), ["10.1.2.2"]);
    assert_eq!(bed.read("10.1.2.3").as_deref(), Some("c1\r\neth1"));
}

#[test]
fn releasing_without_a_lease_is_success() {
    let bed = Bed::new();
    let config = bed.small();
    assert_eq!(bed.del(&config, "c1"), Vec::<String>::new());
    assert!(!bed.dir.path().join("data").exists(), "and makes nothing");
    assert_eq!(bed.add(&config, "c1"), ok("10.1.2.2/29"));
    assert_eq!(bed.del(&config, "c2"), Vec::<String>::new());
    assert_eq!(bed.del(&config, "c1"), ["10.1.2.2"]);
    assert_eq!(bed.del(&config, "c1"), Vec::<String>::new());
}

#[test]
fn leases_with_only_an_id_block_a_second_add_and_are_released() {
    let bed = Bed::new();
    let config = bed.small();
    bed.write("10.1.2.4", "c1\n");
    let refused = "10.1.2.4 has been allocated to c1, duplicate allocation is not allowed";
    assert_eq!(
        bed.add(&config, "c1"),
        Err(format!("failed to allocate for range 0: {refused}"))
    );
    assert_eq!(
        bed.run(|host| config.check(&owner("c1", "eth0"), None, host)),
        Ok(())
    );
    assert_eq!(bed.del(&config, "c1"), ["10.1.2.4"]);
    assert_eq!(bed.read("10.1.2.4"), None);
}

#[test]
fn bare_id_is_looked_up_only_if_no_full_key_matches() {
    let bed = Bed::new();
    let config = bed.small();
    assert_eq!(bed.add(&config, "c1"), ok("10.1.2.2/29"));
    bed.write("10.1.2.4", "c1");
    assert_eq!(bed.del(&config, "c1"), ["10.1.2.2"]);
    assert_eq!(bed.del(&config, "c1"), ["10.1.2.4"]);
}

#[test]
fn requested_addresses_are_taken_from_their_own_sets() {
    let bed = Bed::new();
    let ranges = r#""ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.4.0/24"}],[{"subnet":"2001:db8:1::/64"}]]"#;
    let asked = |ips: &str| bed.config(ranges, &format!(r#""runtimeConfig":{{"ips":[{ips}]}},"#));
    let config = asked(r#""10.1.4.7/24","2001:db8:1::99""#);
    assert_eq!(bed.add(&config, "c1"), ok("10.1.4.7/24 2001:db8:1::99/64"));
    assert_eq!(
        bed.read("last_reserved_ip.1").as_deref(),
        Some("2001:db8:1::99")
    );
    let error = bed.add(&config, "c2").unwrap_err();
    let sets = "10.1.2.1-10.1.2.254,10.1.4.1-10.1.4.254";
    let taken = format!(
        "failed to allocate for range 0: requested IP address 10.1.4.7 is not available in range set {sets}"
    );
    assert_eq!(error, taken);
    let gateway = "failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway";
    assert_eq!(
        bed.add(&asked(r#""10.1.2.1""#), "c2"),
        Err(gateway.to_owned())
    );
}

#[test]
fn unassigned_requested_addresses_fail_the_whole_call() {
    let bed = Bed::new();
    let config = bed.config(
        r#""subnet":"10.1.2.0/24""#,
        r#""args":{"cni":{"ips":["10.1.2.5","10.1.2.6","10.9.9.9"]}},"#,
    );
    let error = "failed to allocate all requested IPs: 10.1.2.6 10.9.9.9";
    assert_eq!(bed.add(&config, "c1"), Err(error.to_owned()));
    assert_eq!(bed.names(), ["last_reserved_ip.0", "lock"]);
}

#[test]
fn failing_set_releases_only_what_the_call_reserved() {
    let bed = Bed::new();
    let both = bed.config(
        r#""ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"10.1.3.0/30"}]]"#,
        "",
    );
    let second = bed.config(r#""subnet":"10.1.3.0/30""#, "");
    assert_eq!(bed.add(&second, "other"), ok("10.1.3.2/30"));
    let error =
        "failed to allocate for range 1: no IP addresses available in range set: 10.1.3.1-10.1.3.2";
    assert_eq!(bed.add(&both, "c1"), Err(error.to_owned()));
    assert_eq!(bed.names(), ["10.1.3.2", "last_reserved_ip.0", "lock"]);
    assert_eq!(bed.del(&both, "c1"), Vec::<String>::new());
    assert_eq!(bed.del(&second, "other"), ["10.1.3.2"]);
    assert_eq!(
        bed.add(&both, "c1"),
        ok("10.1.2.3/29 10.1.3.2/30"),
        "the round-robin mark moved, as the reference's does"
    );
}

#[test]
fn check_requires_an_address_of_the_owner() {
    let bed = Bed::new();
    let config = bed.small();
    let check = |id: &str| {
        bed.run(|host| config.check(&owner(id, "eth0"), None, host))
            .map_err(|e| e.msg)
    };
    let missing = Err("host-local: Failed to find address added by container c1".to_owned());
    assert_eq!(check("c1"), missing);
    bed.add(&config, "c1").unwrap();
    assert_eq!(check("c1"), Ok(()));
    bed.del(&config, "c1");
    assert_eq!(check("c1"), missing);
}

#[test]
fn gc_keeps_valid_owners_and_foreign_leases() {
    let bed = Bed::new();
    let config = bed.small();
    for id in ["a", "b"] {
        bed.add(&config, id).unwrap();
    }
    bed.write("10.1.2.4", "old");
    bed.write("10.1.2.5", "");
    bed.write("10.1.2.6", "kept for the printer");
    bed.write("10.9.9.9", "gone\r\neth0");
    let valid = [owner("a", "eth0"), owner("b", "eth1")];
    let freed = bed
        .run(|host| config.gc(Kept::Listed(&valid), host))
        .unwrap();
    let mut freed: Vec<String> = freed.iter().map(IpAddr::to_string).collect();
    freed.sort();
    assert_eq!(freed, ["10.1.2.3", "10.1.2.4", "10.1.2.5", "10.9.9.9"]);
    assert_eq!(
        bed.names(),
        ["10.1.2.2", "10.1.2.6", "last_reserved_ip.0", "lock"]
    );
    assert_eq!(
        bed.run(|host| config.gc(Kept::Listed(&valid), host)),
        Ok(Vec::new())
    );
}

#[test]
fn status_reports_a_full_range_and_fails_if_unwritable() {
    let bed = Bed::new();
    let config = bed.config(r#""subnet":"10.1.2.0/30""#, "");
    let status = |config: &HostLocalConfig| bed.run(|host| config.status(host));
    assert_eq!(status(&config), Ok(None), "before the first ADD");
    assert!(!bed.dir.path().join("data").exists(), "and makes nothing");
    bed.add(&config, "c1").unwrap();
    assert_eq!(
        status(&config),
        Ok(Some(
            "no IP addresses available in range set: 10.1.2.1-10.1.2.2".to_owned()
        ))
    );
    bed.write("10.1.2.2", "");
    assert_eq!(
        status(&config),
        Ok(None),
        "an ADD would take the dead lease back"
    );
    let config = HostLocalConfig {
        data_dir: "/dev/null".into(),
        ..config
    };
    let refused = status(&config).unwrap_err();
    assert_eq!(refused.kind, braid_core::cni::Kind::NotAvailable);
    assert_eq!(refused.msg, "write to /dev/null: EACCES: Permission denied");
}

#[test]
fn read_leases_lists_addresses_and_no_other_file() {
    let bed = Bed::new();
    let config = bed.small();
    assert_eq!(read_leases(&config.path()), Ok(Vec::new()));
    bed.add(&config, "c1").unwrap();
    bed.write("010.1.2.3", "x");
    bed.write("notes", "x");
    let leases = read_leases(&config.path()).unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!(owner_of(&leases[0], "net"), Some(owner("c1", "eth0")));
}
