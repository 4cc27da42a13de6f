//! Liveness of the containers that hold addresses. Only leases whose owners are certainly gone are
//! freed.

use super::host_local::store::{Holder, LeaseFile};
use crate::sys::birth;
use braid_core::cni::Owner;
use braid_core::cni::netconf::is_identifier;
use braid_core::k8s::ipam_claim::uid_of_owner;
use nix::errno::Errno;
use nix::sys::statfs::{NSFS_MAGIC, TMPFS_MAGIC, statfs};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Folder in which libcni keeps the results of its ADDs.
pub const LIBCNI_CACHE_DIR: &str = "/var/lib/cni/results";

/// Folders that are created at a boot before the first lease: by the kernel, by the runtime, by
/// braid.
const RUN: [&str; 3] = ["/run", "/run/netns", "/run/braid"];

/// State of an owner's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Netns {
    /// The namespace exists.
    Alive,
    /// The namespace existed when the lease was written, and no longer does.
    Gone,
    /// No source knows the namespace.
    Unknown,
}

impl Netns {
    /// Returns the state as a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// Reason why a stale lease was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The file names no owner. Its writer has exited, as this process holds the lock.
    Broken,
    /// The owner's network namespace is gone.
    NetnsGone,
    /// The lease was written before the kernel started, and its owner is unknown.
    EarlierBoot,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken => "its file names no owner",
            Self::NetnsGone => "its owner's network namespace is gone",
            Self::EarlierBoot => "it was written before this boot",
        })
    }
}

/// A lease that the host's attachment records list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The leased address.
    pub ip: IpAddr,
    /// Owner of the address.
    pub owner: Owner,
    /// True if no other call is processing the owner. A call that is processing the owner may be
    /// about to delete it.
    pub is_idle: bool,
}

/// The caller's knowledge of the host's containers. It is queried only when no address is free, or
/// when the index is not sealed.
pub trait Liveness {
    /// Returns the name of the network to which the answers apply.
    fn network(&self) -> &str;

    /// Returns the state of the network namespace of `owner`, whose lease was written at `leased`.
    /// A record older than `leased` is about an earlier container of the same name, so the answer
    /// must be [`Netns::Unknown`].
    fn netns_of(&self, owner: &Owner, leased: SystemTime) -> Netns;

    /// Returns the recorded leases whose files are missing from the data directory at `path`,
    /// except those of owners that are known to be gone.
    fn recorded(&self, _path: &Path, _is_missing: &dyn Fn(IpAddr) -> bool) -> Vec<Recorded> {
        Vec::new()
    }

    /// Reads the clocks.
    fn clock(&self) -> Clock {
        Clock::read()
    }

    /// Called for each stale lease that was freed.
    fn reclaimed(&self, _lease: &LeaseFile, _why: Death) {}
}

/// Facts about time, read by [`Clock::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// `CLOCK_REALTIME`.
    pub now: SystemTime,
    /// `CLOCK_BOOTTIME`: time since the kernel started, suspended time included; `None` if it
    /// could not be read.
    pub since_boot: Option<Duration>,
    /// Creation time of `/run`, by the clock of that moment; in a container, of the oldest folder
    /// of [`RUN`] that is the node's. If none is on a tmpfs, or if a tmpfs has no creation times
    /// (before Linux 6.0), this is the time at which the kernel created `/dev/null`.
    pub run_born: Option<SystemTime>,
}

impl Clock {
    /// Largest error of the readings: `/proc/uptime` counts in 10 ms, and clocks are slewed.
    const MARGIN: Duration = Duration::from_secs(2);

    /// Reads the clocks, with two or three file accesses.
    pub fn read() -> Self {
        let since_boot = uptime();
        Self {
            now: SystemTime::now(),
            since_boot,
            run_born: RUN
                .into_iter()
                .filter_map(born)
                .min()
                .or_else(dev_null_born),
        }
    }

    /// Returns a time that is earlier than every file written during this boot, even if the clock
    /// was stepped since. Returns `None` if `since_boot` or `run_born` is unknown.
    ///
    /// The result is the earlier of two times: the creation time of `/run`, and now minus the
    /// uptime. If the clock was stepped forward, files from before the step have early times, and
    /// the creation time of `/run` is just as early. If the clock was stepped back, that creation
    /// time is too late, but now minus the uptime is early enough.
    pub fn boot_began(&self) -> Option<SystemTime> {
        let counted = self.now.checked_sub(self.since_boot?)?;
        counted.min(self.run_born?).checked_sub(Self::MARGIN)
    }
}

/// Returns the time since the kernel started.
fn uptime() -> Option<Duration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the time at which the kernel created `/dev/null`.
fn dev_null_born() -> Option<SystemTime> {
    fs::metadata("/dev/null").ok()?.modified().ok()
}

/// Returns the creation time of a folder if it is on a tmpfs, which is created at each boot.
fn born(path: &str) -> Option<SystemTime> {
    if statfs(path).ok()?.filesystem_type() != TMPFS_MAGIC {
        return None;
    }
    birth::born(Path::new(path)).ok().flatten()
}

/// Returns the owner that a lease of `network` names; `None` for a lease without an `ifname`, or
/// with a text that no plugin wrote.
pub fn owner_of(lease: &LeaseFile, network: &str) -> Option<Owner> {
    let Holder::Key(key) = &lease.holder else {
        return None;
    };
    let (container_id, ifname) = key.split_once("\r\n")?;
    is_identifier(container_id).then(|| Owner::new(network, container_id, ifname))
}

/// Returns the reason why a lease is certainly stale; `None` if its owner may be alive.
pub fn death_of(lease: &LeaseFile, clock: &Clock, liveness: &dyn Liveness) -> Option<Death> {
    let known = match &lease.holder {
        Holder::Broken => return Some(Death::Broken),
        Holder::Other => return None,
        // A text that does not begin with a container id is an administrator's note, which keeps
        // the address out of use. A claim outlives every container and every boot.
        Holder::Key(key)
            if !key.lines().next().is_some_and(is_identifier) || uid_of_owner(key).is_some() =>
        {
            return None;
        }
        Holder::Key(_) => owner_of(lease, liveness.network()).map_or(Netns::Unknown, |owner| {
            liveness.netns_of(&owner, lease.written)
        }),
    };
    match known {
        Netns::Alive => None,
        Netns::Gone => Some(Death::NetnsGone),
        Netns::Unknown => {
            let began = clock.boot_began()?;
            (lease.written < began).then_some(Death::EarlierBoot)
        }
    }
}

/// libcni's cache of a network's ADD results: `<dir>/<network>-<container id>-<ifname>`, JSON.
///
/// Use it only in the runtime's mount namespace. In another one, no namespace path is mounted.
#[derive(Debug, Clone)]
pub struct LibcniCache {
    /// Folder of the cache, normally [`LIBCNI_CACHE_DIR`].
    pub dir: PathBuf,
    /// The network's name.
    pub network: String,
}

impl Liveness for LibcniCache {
    fn network(&self) -> &str {
        &self.network
    }

    fn netns_of(&self, owner: &Owner, leased: SystemTime) -> Netns {
        let Some((path, written)) = self.netns_path(owner, leased) else {
            return Netns::Unknown;
        };
        let is_another = || mounted_at(&path).is_some_and(|since| since > written + Clock::MARGIN);
        let known = netns_at(&path);
        if known == Netns::Alive && is_another() {
            Netns::Gone
        } else {
            known
        }
    }
}

impl LibcniCache {
    /// Returns the netns path with which `owner` was added, and the time at which libcni wrote the
    /// cache file. libcni writes the cache file after the lease. So a cache file that is older than
    /// the lease is about an earlier ADD, and is ignored.
    fn netns_path(&self, owner: &Owner, leased: SystemTime) -> Option<(PathBuf, SystemTime)> {
        let name = format!("{}-{}-{}", self.network, owner.container_id, owner.ifname);
        if name.contains(['/', '\0']) {
            return None;
        }
        let path = self.dir.join(name);
        let written = fs::metadata(&path).ok()?.modified().ok()?;
        if written < leased {
            return None;
        }
        let record: serde_json::Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        // `a-b` + `c` and `a` + `b-c` have the same file name, so the names inside are compared.
        let says = |key: &str, value: &str| record[key].as_str() == Some(value);
        let is_ours = says("networkName", &self.network)
            && says("containerId", &owner.container_id)
            && says("ifName", &owner.ifname);
        let netns = record["netns"].as_str()?;
        if !is_ours || !netns.starts_with('/') {
            return None;
        }
        Some((PathBuf::from(netns), written))
    }
}

/// Returns the state of the network namespace that was mounted at `path`. It is unknown without the
/// folder of `path`, as in a container that does not see the node's namespaces.
pub fn netns_at(path: &Path) -> Netns {
    match statfs(path) {
        Ok(fs) if fs.filesystem_type() == NSFS_MAGIC => Netns::Alive,
        // A process's namespace may outlive the process if a sibling process is in it.
        _ if path.starts_with("/proc") => Netns::Unknown,
        // Runtimes and `ip netns` leave the file behind after the unmount.
        Ok(_) => Netns::Gone,
        Err(Errno::ENOENT) if path.parent().is_some_and(Path::is_dir) => Netns::Gone,
        Err(_) => Netns::Unknown,
    }
}

/// Returns the creation time of the network namespace that is mounted at `path`. The kernel creates
/// the nsfs inode on first use, and a mount keeps it. Behind a symlink, as in /proc, the inode may
/// be new for each reader, so `None` is returned for a symlink.
fn mounted_at(path: &Path) -> Option<SystemTime> {
    let meta = fs::symlink_metadata(path).ok()?;
    if meta.is_file() {
        meta.modified().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::UNIX_EPOCH;
    use tempfile::TempDir;

    const DAY: u64 = 86_400;
    const YEAR: u64 = 365 * DAY;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn clock(now: u64, since_boot: u64, run_born: u64) -> Clock {
        Clock {
            now: at(now),
            since_boot: Some(Duration::from_secs(since_boot)),
            run_born: Some(at(run_born)),
        }
    }

    fn lease(content: &str, written: u64) -> LeaseFile {
        let holder = if content.is_empty() {
            Holder::Broken
        } else {
            Holder::Key(content.to_owned())
        };
        LeaseFile {
            ip: Ipv4Addr::LOCALHOST.into(),
            holder,
            written: at(written),
        }
    }

    /// Reports the same state for every owner.
    struct All(Netns);

    impl Liveness for All {
        fn network(&self) -> &'static str {
            "n"
        }

        fn netns_of(&self, _owner: &Owner, _leased: SystemTime) -> Netns {
            self.0
        }
    }

    /// True if a lease written at `written` seconds counts as written before this boot.
    fn is_old(written: u64, clock: Clock) -> bool {
        death_of(&lease("c1\r\neth0", written), &clock, &All(Netns::Unknown))
            == Some(Death::EarlierBoot)
    }

    #[test]
    fn a_lease_is_old_if_it_was_written_before_this_boot() {
        let clock = clock(56 * YEAR, 10 * DAY, 56 * YEAR - 10 * DAY);
        assert!(is_old(56 * YEAR - 11 * DAY, clock));
        assert!(!is_old(56 * YEAR - 9 * DAY, clock));
        assert!(
            !is_old(56 * YEAR - 10 * DAY, clock),
            "the very second of the boot"
        );
    }

    #[test]
    fn clock_stepped_forward_keeps_leases_of_this_boot() {
        // A node without an RTC boots in 1970, assigns addresses, then synchronizes its clock.
        let clock = clock(56 * YEAR, 600, 5);
        assert!(!is_old(60, clock), "written before the step");
        assert!(!is_old(56 * YEAR - 10, clock), "written after it");
        assert!(
            !is_old(55 * YEAR, clock),
            "of an earlier boot, but who could tell"
        );
    }

    #[test]
    fn clock_stepped_back_keeps_leases_of_this_boot() {
        // A node with a clock four years fast boots, assigns addresses, then synchronizes its
        // clock.
        let clock = clock(56 * YEAR, 600, 60 * YEAR - 10);
        assert!(!is_old(60 * YEAR, clock), "written before the step");
        assert!(!is_old(56 * YEAR - 300, clock), "written after it");
        assert!(is_old(56 * YEAR - DAY, clock), "an earlier boot's");
    }

    #[test]
    fn no_lease_is_old_without_uptime_and_run_birth_time() {
        let known = clock(10 * DAY, DAY, 9 * DAY);
        assert!(is_old(8 * DAY, known));
        assert!(!is_old(
            8 * DAY,
            Clock {
                run_born: None,
                ..known
            }
        ));
        assert!(!is_old(
            8 * DAY,
            Clock {
                since_boot: None,
                ..known
            }
        ));
    }

    #[test]
    fn this_machine_booted_in_the_past() {
        let clock = Clock::read();
        assert!(clock.since_boot.unwrap() > Duration::ZERO);
        assert!(clock.boot_began().unwrap() < clock.now);
    }

    #[test]
    fn netns_state_overrides_lease_age() {
        let clock = clock(10 * DAY, DAY, 9 * DAY);
        let death = |written, netns| death_of(&lease("c1\r\neth0", written), &clock, &All(netns));
        assert_eq!(death(DAY, Netns::Alive), None);
        assert_eq!(death(10 * DAY, Netns::Gone), Some(Death::NetnsGone));
        assert_eq!(death(10 * DAY, Netns::Unknown), None);
    }

    #[test]
    fn only_leases_written_by_plugins_are_checked_for_liveness() {
        let clock = clock(10 * DAY, DAY, 9 * DAY);
        let death = |content: &str| death_of(&lease(content, DAY), &clock, &All(Netns::Gone));
        assert_eq!(death(""), Some(Death::Broken));
        assert_eq!(death("c1\r\neth0"), Some(Death::NetnsGone));
        assert_eq!(
            death("c1"),
            Some(Death::EarlierBoot),
            "the id alone names no interface to ask about"
        );
        assert_eq!(death("kept for the printer"), None);
        assert_eq!(death("../x\r\neth0"), None);
        let other = LeaseFile {
            holder: Holder::Other,
            ..lease("x", DAY)
        };
        assert_eq!(death_of(&other, &clock, &All(Netns::Gone)), None);
    }

    #[test]
    fn a_namespace_is_alive_while_it_is_mounted() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("left-over");
        fs::write(&file, "").unwrap();
        assert_eq!(netns_at(Path::new("/proc/self/ns/net")), Netns::Alive);
        assert_eq!(netns_at(&file), Netns::Gone);
        assert_eq!(netns_at(&dir.path().join("x")), Netns::Gone);
        assert_eq!(netns_at(&file.join("x")), Netns::Unknown);
        assert_eq!(netns_at(Path::new("/nonexistent/ns")), Netns::Unknown);
        assert_eq!(netns_at(Path::new("/proc/0/ns/net")), Netns::Unknown);
    }

    #[test]
    fn libcni_cache_gives_the_netns_path() {
        let dir = TempDir::new().unwrap();
        let cache = LibcniCache {
            dir: dir.path().to_owned(),
            network: "n-a".to_owned(),
        };
        let write = |id: &str, netns: &str| {
            let text = format!(
                r#"{{"kind":"cniCacheV1","containerId":"{id}","ifName":"eth0","networkName":"n-a","netns":"{netns}"}}"#
            );
            fs::write(dir.path().join("n-a-c1-eth0"), text).unwrap();
        };
        let ask = |leased: SystemTime| cache.netns_of(&Owner::new("n-a", "c1", "eth0"), leased);
        let (before, after) = (at(0), SystemTime::now() + Duration::from_mins(1));
        assert_eq!(ask(before), Netns::Unknown, "no record");
        let gone = dir.path().join("ns");
        write("c1", &gone.to_string_lossy());
        assert_eq!(ask(before), Netns::Gone);
        assert_eq!(ask(after), Netns::Unknown, "a record from before the lease");
        write("c1", "/proc/self/ns/net");
        assert_eq!(ask(before), Netns::Alive);
        for (id, netns) in [("c2", "/nonexistent/ns"), ("c1", ""), ("c1", "relative")] {
            write(id, netns);
            assert_eq!(ask(before), Netns::Unknown, "{id} {netns:?}");
        }
        fs::write(dir.path().join("n-a-c1-eth0"), "{").unwrap();
        assert_eq!(ask(before), Netns::Unknown, "a broken record");
        let hostile = Owner::new("n-a", "../../x", "eth0");
        assert_eq!(cache.netns_of(&hostile, before), Netns::Unknown);
    }
}
