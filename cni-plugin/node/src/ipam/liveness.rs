//! Liveness of the container that holds an address. Only what is surely dead is ever taken back.

use super::host_local::store::{Holder, LeaseFile};
use crate::sys::birth;
use braid_core::cni::Owner;
use braid_core::cni::netconf::is_identifier;
use braid_core::k8s::ipam_claim::uid_of_owner;
use nix::sys::statfs::{NSFS_MAGIC, TMPFS_MAGIC, statfs};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Folder in which libcni keeps the results of its ADDs.
pub const LIBCNI_CACHE_DIR: &str = "/var/lib/cni/results";

/// State of an owner's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Netns {
    /// It is there.
    Alive,
    /// It was there when the lease was made, and is there no more.
    Gone,
    /// Nobody can tell.
    Unknown,
}

impl Netns {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// Reason why a lease was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Its file says nothing, though its writer is gone: the lock is ours.
    Broken,
    /// Its owner's network namespace is gone.
    NetnsGone,
    /// It was written before the kernel started, and nobody knows its owner.
    EarlierBoot,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken => "its file names no owner",
            Self::NetnsGone => "its owner's network namespace is gone",
            Self::EarlierBoot => "it is older than this boot",
        })
    }
}

/// A lease that the host's records know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its address.
    pub ip: IpAddr,
    /// Owner of the address.
    pub owner: Owner,
    /// No call is busy with the owner, who may be about to go otherwise.
    pub is_idle: bool,
}

/// The caller's knowledge of the host. Asked only when no address is free, or when it is in doubt
/// which are.
pub trait Liveness {
    /// The network that it knows the containers of.
    fn network(&self) -> &str;

    /// State of the namespace of `owner`, who got an address at `leased`. An answer from before
    /// that moment is about an earlier container of the same name and must be
    /// [`Netns::Unknown`].
    fn netns_of(&self, owner: &Owner, leased: SystemTime) -> Netns;

    /// The leases of the data directory at `path` that are missing there, of owners who are not
    /// known to be gone.
    fn recorded(&self, _path: &Path, _is_missing: &dyn Fn(IpAddr) -> bool) -> Vec<Recorded> {
        Vec::new()
    }

    /// The clocks.
    fn clock(&self) -> Clock {
        Clock::read()
    }

    /// Told of each lease that was taken back.
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
    /// Time at which `/run` was made, by the clock of that moment. Where that is no tmpfs, or one
    /// that does not know (before Linux 6.0), the time at which the kernel made `/dev/null`.
    pub run_born: Option<SystemTime>,
}

impl Clock {
    /// Longest error of readings: `/proc/uptime` counts in 10 ms, and clocks are slewed.
    const MARGIN: Duration = Duration::from_secs(2);

    /// Reads the clocks; two or three file accesses.
    pub fn read() -> Self {
        let uptime = fs::read_to_string("/proc/uptime").ok();
        let seconds = uptime.and_then(|t| t.split_whitespace().next()?.parse().ok());
        Self {
            now: SystemTime::now(),
            since_boot: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            run_born: born("/run").or_else(|| {
                fs::metadata("/dev/null")
                    .and_then(|meta| meta.modified())
                    .ok()
            }),
        }
    }

    /// A moment that was certainly before anything this boot wrote, by whichever clock it was
    /// written: `None` if that cannot be said.
    ///
    /// After a step of the clock forward, files keep the old, early times: the birth of `/run`,
    /// which is as early, guards them. After a step back, it is the start as counted from now
    /// that is early enough. So both must be known.
    pub fn boot_began(&self) -> Option<SystemTime> {
        let counted = self.now.checked_sub(self.since_boot?)?;
        counted.min(self.run_born?).checked_sub(Self::MARGIN)
    }
}

/// Time at which a folder was created, on a file system that is created at each boot.
fn born(path: &str) -> Option<SystemTime> {
    statfs(path)
        .ok()
        .filter(|fs| fs.filesystem_type() == TMPFS_MAGIC)?;
    birth::born(Path::new(path)).ok().flatten()
}

/// The owner that a lease of this network names; `None` for what has no `ifname`, or for a text
/// that is no plugin's.
pub fn owner_of(lease: &LeaseFile, network: &str) -> Option<Owner> {
    let Holder::Key(key) = &lease.holder else {
        return None;
    };
    let (container_id, ifname) = key.split_once("\r\n")?;
    is_identifier(container_id).then(|| Owner::new(network, container_id, ifname))
}

/// Reason why a lease is surely dead; `None` where it may be alive.
pub fn death_of(lease: &LeaseFile, clock: &Clock, liveness: &dyn Liveness) -> Option<Death> {
    let known = match &lease.holder {
        Holder::Broken => return Some(Death::Broken),
        Holder::Other => return None,
        // An administrator's note that keeps an address out of use is no container id. A claim
        // outlives every container, and every boot.
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
        Netns::Unknown => clock
            .boot_began()
            .filter(|&began| lease.written < began)
            .map(|_| Death::EarlierBoot),
    }
}

/// libcni's own record of a network's ADDs: `<dir>/<network>-<container id>-<ifname>`, JSON.
///
/// It must be asked in the runtime's mount namespace: in another one every namespace path looks
/// dead.
#[derive(Debug, Clone)]
pub struct LibcniCache {
    /// Normally [`LIBCNI_CACHE_DIR`].
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
    /// The path that `owner` was added with, and when that was written, if the record is about that
    /// ADD: it is written after the lease.
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
        // `a-b` + `c` and `a` + `b-c` share a file name, so the names inside decide.
        let says = |key: &str, value: &str| record.get(key).and_then(|v| v.as_str()) == Some(value);
        let is_ours = says("networkName", &self.network)
            && says("containerId", &owner.container_id)
            && says("ifName", &owner.ifname);
        let netns = record
            .get("netns")?
            .as_str()
            .filter(|n| is_ours && n.starts_with('/'))?;
        Some((PathBuf::from(netns), written))
    }
}

/// State of the network namespace that was mounted at `path`.
pub fn netns_at(path: &Path) -> Netns {
    match statfs(path) {
        Ok(fs) if fs.filesystem_type() == NSFS_MAGIC => Netns::Alive,
        // The namespace of a process may outlive the process, held by its siblings.
        _ if path.starts_with("/proc") => Netns::Unknown,
        // A file that lost its mount is what `ip netns` and runtimes leave behind.
        Ok(_) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => Netns::Gone,
        Err(_) => Netns::Unknown,
    }
}

/// Time at which the network namespace that is mounted at `path` was made. The kernel makes the
/// inode with the namespace's first use, and a mount keeps it; behind a link, as those of /proc
/// are, it may be made anew for each who looks.
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

    /// Says the same of everybody.
    struct All(Netns);

    impl Liveness for All {
        fn network(&self) -> &'static str {
            "n"
        }

        fn netns_of(&self, _owner: &Owner, _leased: SystemTime) -> Netns {
            self.0
        }
    }

    /// True if a lease written at that second counts as one of an earlier boot.
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
    fn a_clock_stepped_forward_makes_no_lease_of_this_boot_old() {
        // A node without a clock starts in 1970, gives out addresses, and then learns the time.
        let clock = clock(56 * YEAR, 600, 5);
        assert!(!is_old(60, clock), "written before the step");
        assert!(!is_old(56 * YEAR - 10, clock), "written after it");
        assert!(
            !is_old(55 * YEAR, clock),
            "of an earlier boot, but who could tell"
        );
    }

    #[test]
    fn a_clock_stepped_back_makes_no_lease_of_this_boot_old() {
        // A node whose clock is four years fast starts, gives out addresses, and then learns the
        // time.
        let clock = clock(56 * YEAR, 600, 60 * YEAR - 10);
        assert!(!is_old(60 * YEAR, clock), "written before the step");
        assert!(!is_old(56 * YEAR - 300, clock), "written after it");
        assert!(is_old(56 * YEAR - DAY, clock), "an earlier boot's");
    }

    #[test]
    fn unless_both_facts_are_known_nothing_is_old() {
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
    fn the_clocks_of_this_machine_say_that_it_started_in_the_past() {
        let clock = Clock::read();
        assert!(clock.since_boot.unwrap() > Duration::ZERO);
        assert!(clock.boot_began().unwrap() < clock.now);
    }

    #[test]
    fn what_is_known_of_the_namespace_outweighs_age_in_both_directions() {
        let clock = clock(10 * DAY, DAY, 9 * DAY);
        let death = |written, netns| death_of(&lease("c1\r\neth0", written), &clock, &All(netns));
        assert_eq!(death(DAY, Netns::Alive), None);
        assert_eq!(death(10 * DAY, Netns::Gone), Some(Death::NetnsGone));
        assert_eq!(death(10 * DAY, Netns::Unknown), None);
    }

    #[test]
    fn only_leases_of_plugins_are_asked_about() {
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
        assert_eq!(netns_at(&file.join("x")), Netns::Gone);
        assert_eq!(netns_at(Path::new("/nonexistent/ns")), Netns::Gone);
        assert_eq!(netns_at(Path::new("/proc/0/ns/net")), Netns::Unknown);
    }

    #[test]
    fn libcnis_record_tells_where_the_namespace_was() {
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
        write("c1", "/nonexistent/ns");
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
