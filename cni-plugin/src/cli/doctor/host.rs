//! Checks of mounts, switches, installed programs and writable folders. Only looked at: nothing is made.

use super::{Check, State};
use crate::cli::conf::CONF_DIR;
use crate::cli::install::{DEFAULT_BIN_DIR, PROGRAM};
use braid_core::ipam::host_local::config::DEFAULT_DATA_DIR;
use braid_core::plan::thing::Sysctl;
use braid_node::store::record;
use braid_node::sys::{cgroup, room, sysctl};
use nix::sys::statfs::{self, FsType, statfs};
use std::path::Path;

/// Everything about the host that is no feature of the kernel.
pub(super) fn checks(drop_in_names: impl Iterator<Item = &'static str>) -> Vec<Check> {
    vec![
        forwarding("ip_forward", Sysctl::IPV4_FORWARD),
        forwarding("ipv6 forwarding", Sysctl::IPV6_FORWARD),
        mounted("/run", "tmpfs", statfs::TMPFS_MAGIC, "records", "records of attachments outlive a reboot"),
        mounted("/sys/fs/bpf", "bpffs", statfs::BPF_FS_MAGIC, "pinned maps", "no map is shared between calls"),
        cgroup2(),
        writable("records", record::ROOT),
        writable("leases", DEFAULT_DATA_DIR),
        folder("networks", CONF_DIR),
        folder("plugins", DEFAULT_BIN_DIR),
        installed(Path::new(DEFAULT_BIN_DIR), drop_in_names),
    ]
}

fn check(name: &str, state: State, detail: String) -> Check {
    let name = name.to_owned();
    Check { name, state, essential: false, since: "", needed_by: "", without_it: "", detail }
}

fn forwarding(name: &str, key: &str) -> Check {
    let detail = match sysctl::read(key) {
        Ok(Some(value)) if value == "0" => "0; gateways of bridge and ptp set it to 1".to_owned(),
        Ok(Some(value)) => value,
        Ok(None) => "the kernel has no such sysctl".to_owned(),
        Err(err) => err.to_string(),
    };
    Check { needed_by: "isGateway, ptp", ..check(name, State::Note, detail) }
}

fn mounted(path: &str, name: &str, magic: FsType, needed_by: &'static str, without_it: &'static str) -> Check {
    let (state, detail) = match statfs(path) {
        Ok(stat) if stat.filesystem_type() == magic => (State::Ok, String::new()),
        Ok(_) => (State::Missing, format!("{path} is another file system")),
        Err(errno) => (State::Missing, format!("{path}: {errno}")),
    };
    Check { needed_by, without_it, ..check(&format!("{name} on {path}"), state, detail) }
}

/// Wherever it is: beside the hierarchies of cgroup1 it has a folder of its own.
fn cgroup2() -> Check {
    let (state, detail) = match cgroup::root() {
        Ok(_) => (State::Ok, String::new()),
        Err(_) => (State::Missing, "it is mounted nowhere".to_owned()),
    };
    let without_it = "the node's own clients reach no pod by [::1]";
    Check { needed_by: "portmap at [::1]", without_it, ..check("cgroup2", state, detail) }
}

/// Checks that `path`, or the folder that it would be made in, can be written.
fn writable(what: &str, path: &str) -> Check {
    let path = Path::new(path);
    let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(path);
    let (state, detail) = match room::for_a_file(existing) {
        Ok(()) => (State::Ok, String::new()),
        Err(errno) => (State::Missing, format!("write to {}: {errno}", existing.display())),
    };
    let name = format!("{what} in {}", path.display());
    Check { essential: true, needed_by: "every attachment", without_it: "no attachment", ..check(&name, state, detail) }
}

fn folder(what: &str, path: &str) -> Check {
    let there = Path::new(path).is_dir();
    let state = if there { State::Ok } else { State::Missing };
    Check {
        needed_by: "runtimes",
        without_it: "not made yet",
        ..check(&format!("{what} in {path}"), state, String::new())
    }
}

/// Under which names runtimes find this program.
fn installed(folder: &Path, names: impl Iterator<Item = &'static str>) -> Check {
    let program = folder.join(PROGRAM).canonicalize().ok();
    let is_ours = |name: &str| program.is_some() && folder.join(name).canonicalize().ok() == program;
    let (ours, others): (Vec<&str>, Vec<&str>) = names.partition(|name| is_ours(name));
    let others: Vec<&str> = others.into_iter().filter(|name| folder.join(name).exists()).collect();
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let detail = format!("braid: {}; other programs: {}", list(&ours), list(&others));
    let state = if program.is_some() { State::Ok } else { State::Missing };
    Check { needed_by: "runtimes", without_it: "see braid install", ..check("drop-in names", state, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_braid_and_of_others_are_told_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in [PROGRAM, "ptp"] {
            std::fs::write(dir.path().join(name), name).expect("a file");
        }
        symlink(PROGRAM, dir.path().join("bridge")).expect("a link");
        let check = installed(dir.path(), ["bridge", "ptp", "tuning"].into_iter());
        assert_eq!((check.state, check.detail.as_str()), (State::Ok, "braid: bridge; other programs: ptp"));
    }
}
