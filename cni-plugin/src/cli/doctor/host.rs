//! Checks of mounts, sysctls, installed programs and writable folders. They change nothing.

use super::HIDDEN;
use super::check::{Check, CheckState};
use crate::cli::install;
use crate::cli::install::detect::{self, Folders};
use crate::cli::install::folder::Bin;
use crate::cli::install::plan::Entry;
use crate::cli::names::{COMPANION, PROGRAM};
use braid_core::ipam::host_local::config::DEFAULT_DATA_DIR;
use braid_core::plan::thing::Sysctl;
use braid_core::plan::thing::firewall::MARK;
use braid_core::plugins::meta::firewall::LEGACY;
use braid_node::apply::features;
use braid_node::store::record;
use braid_node::sys::{cgroup, firewalld, free_space, iptables, sysctl};
use braid_node::takeover::root::{Root, file_names};
use nix::sys::statfs::{self, FsType, statfs};
use std::path::Path;

/// Checks everything on the host except kernel features.
pub(super) fn checks(drop_in_names: impl Iterator<Item = &'static str>) -> Vec<Check> {
    let Folders {
        plugins,
        networks,
        why,
    } = detect::folders(&Root::new(Path::new("/")));
    vec![
        forwarding("ip_forward", Sysctl::IPV4_FORWARD),
        forwarding("ipv6 forwarding", Sysctl::IPV6_FORWARD),
        firewall(),
        mounted(
            "/run",
            // In the agent's container, only the folder of the records is the node's.
            existing(Path::new(record::ROOT)),
            "tmpfs",
            statfs::TMPFS_MAGIC,
            "records",
            "records of attachments outlive a reboot",
        ),
        mounted(
            "/sys/fs/bpf",
            Path::new("/sys/fs/bpf"),
            "bpffs",
            statfs::BPF_FS_MAGIC,
            "pinned maps",
            "maps are not shared between calls",
        ),
        cgroup2(),
        writable("records", record::ROOT),
        writable("leases", DEFAULT_DATA_DIR),
        folder("networks", &networks, &why),
        folder("plugins", &plugins, &why),
        installed(&Bin::of_node(&plugins), drop_in_names),
        lost(),
        set_aside(&networks),
    ]
}

fn check(name: &str, state: CheckState, detail: String) -> Check {
    let name = name.to_owned();
    Check {
        name,
        state,
        essential: false,
        since: "".into(),
        needed_by: "".into(),
        without_it: "".into(),
        detail,
    }
}

fn forwarding(name: &str, key: &str) -> Check {
    let detail = match sysctl::read(key) {
        Ok(Some(value)) if value == "0" => {
            "0; ptp, and bridge with a gateway, set it to 1".to_owned()
        }
        Ok(Some(value)) => value,
        Ok(None) => "the kernel has no such sysctl".to_owned(),
        Err(err) => err.to_string(),
    };
    Check {
        needed_by: "isGateway, ptp".into(),
        ..check(name, CheckState::Note, detail)
    }
}

/// Lists firewalls that may drop packets of pods, and in which the agent makes no rules.
fn firewall() -> Check {
    let mut details = Vec::new();
    match firewalld::is_there() {
        Ok(false) => {}
        Ok(true) => details
            .push("firewalld runs: add the ranges of pods to a zone that accepts them".to_owned()),
        Err(err) => details.push(err.to_string()),
    }
    for (names, is_ipv4) in LEGACY {
        // Reading another table would load it.
        for table in std::fs::read_to_string(names).unwrap_or_default().lines() {
            let forward = iptables::forward(is_ipv4, table, MARK);
            if forward.is_ok_and(|forward| forward.is_some_and(|chain| chain.dropper.is_some())) {
                let version = if is_ipv4 { "" } else { "6" };
                details.push(format!(
                    "ip{version}tables-legacy -t {table} FORWARD drops: accept the ranges of pods in it"
                ));
            }
        }
    }
    Check {
        needed_by: "pods of several nodes".into(),
        ..check("host firewall", CheckState::Note, details.join("; "))
    }
}

/// Checks the file system of `path`, which is in the folder `mount`.
fn mounted(
    mount: &str,
    path: &Path,
    name: &str,
    magic: FsType,
    needed_by: &'static str,
    without_it: &'static str,
) -> Check {
    let (state, detail) = match statfs(path) {
        Ok(stat) if stat.filesystem_type() == magic => (CheckState::Ok, String::new()),
        Ok(_) => (
            CheckState::Missing,
            format!("{} is another file system", path.display()),
        ),
        Err(errno) => (CheckState::Missing, format!("{}: {errno}", path.display())),
    };
    Check {
        needed_by: needed_by.into(),
        without_it: without_it.into(),
        ..check(&format!("{name} on {mount}"), state, detail)
    }
}

/// Checks that cgroup2 is mounted. Any mount point counts, because nodes that also mount cgroup1
/// mount cgroup2 at a different path.
fn cgroup2() -> Check {
    let (state, detail) = match cgroup::root() {
        Ok(_) => (CheckState::Ok, String::new()),
        Err(_) if features::is_in_container() => (CheckState::Note, HIDDEN.to_owned()),
        Err(_) => (CheckState::Missing, "it is not mounted".to_owned()),
    };
    let without_it = "clients on the node can't reach pods through [::1]";
    Check {
        needed_by: "portmap at [::1]".into(),
        without_it: without_it.into(),
        ..check("cgroup2", state, detail)
    }
}

/// Returns `path`, or if it does not exist, the folder that would contain it.
fn existing(path: &Path) -> &Path {
    let mut folders = path.ancestors();
    folders.find(|folder| folder.exists()).unwrap_or(path)
}

/// Checks that `path` can be written. If `path` does not exist, checks the folder that would
/// contain it.
fn writable(what: &str, path: &str) -> Check {
    let path = Path::new(path);
    let existing = existing(path);
    let (state, detail) = match free_space::for_a_file(existing) {
        Ok(()) => (CheckState::Ok, String::new()),
        Err(errno) => (
            CheckState::Missing,
            format!("write to {}: {errno}", existing.display()),
        ),
    };
    let name = format!("{what} in {}", path.display());
    Check {
        essential: true,
        needed_by: "every attachment".into(),
        without_it: "no attachment".into(),
        ..check(&name, state, detail)
    }
}

fn folder(what: &str, path: &Path, why: &str) -> Check {
    let state = if path.is_dir() {
        CheckState::Ok
    } else {
        CheckState::Missing
    };
    let name = format!("{what} in {}", path.display());
    Check {
        needed_by: "runtimes".into(),
        without_it: "not created yet".into(),
        ..check(&name, state, why.to_owned())
    }
}

/// Checks the names under which runtimes find this program.
fn installed(bin: &Bin, names: impl Iterator<Item = &'static str>) -> Check {
    let entry = |name: &str| bin.entry(name).unwrap_or(Entry::None);
    let has_program = bin.has(PROGRAM);
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let entry = entry(name);
        if has_program && entry.is_own() {
            ours.push(name);
        } else if entry != Entry::None {
            others.push(name);
        }
    }
    let list = |names: &[&str]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(" ")
        }
    };
    let mut detail = format!("braid: {}; other programs: {}", list(&ours), list(&others));
    let is_alone = has_program && !bin.has(COMPANION);
    if is_alone {
        detail = format!("{detail}; {COMPANION} is missing, which asks the API server");
    }
    let state = if has_program && !is_alone {
        CheckState::Ok
    } else {
        CheckState::Missing
    };
    Check {
        needed_by: "runtimes".into(),
        without_it: "see braid install".into(),
        ..check("drop-in names", state, detail)
    }
}

/// Checks if another installer has taken names of this program since the installation.
fn lost() -> Check {
    let (state, detail) = match install::lost_names() {
        Ok(None) => (CheckState::Ok, String::new()),
        Ok(Some(sentence)) => (CheckState::Missing, sentence),
        Err(err) => (CheckState::Unknown, err.to_string()),
    };
    let without_it = "the other plugin attaches pods again";
    Check {
        needed_by: "runtimes".into(),
        without_it: without_it.into(),
        ..check("names kept", state, detail)
    }
}

/// Checks for configurations that Cilium has renamed. With its default setting `cni.exclusive`,
/// Cilium renames all configurations of other programs.
fn set_aside(folder: &Path) -> Check {
    const END: &str = ".cilium_bak";
    let mut names = file_names(folder);
    names.retain(|name| name.ends_with(END));
    names.sort_unstable();
    let state = if names.is_empty() {
        CheckState::Ok
    } else {
        CheckState::Missing
    };
    let detail = if names.is_empty() {
        String::new()
    } else {
        format!(
            "set cni.exclusive=false in Cilium, and rename {}",
            names.join(" ")
        )
    };
    let without_it = "only Cilium attaches pods";
    Check {
        needed_by: "runtimes".into(),
        without_it: without_it.into(),
        ..check("configurations kept", state, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_braid_and_of_others_are_distinguished() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in [PROGRAM, "ptp"] {
            std::fs::write(dir.path().join(name), name).expect("a file");
        }
        symlink(PROGRAM, dir.path().join("bridge")).expect("a link");
        let script = format!("#!{}\n", dir.path().join(PROGRAM).display());
        std::fs::write(dir.path().join("vlan"), script).expect("a script");
        let found = || {
            let names = ["bridge", "ptp", "tuning", "vlan"].into_iter();
            let check = installed(&Bin::of_node(dir.path()), names);
            (check.state, check.detail)
        };
        let detail = "braid: bridge vlan; other programs: ptp";
        let alone = format!("{detail}; braid-agent is missing, which asks the API server");
        assert_eq!(found(), (CheckState::Missing, alone));
        std::fs::write(dir.path().join(COMPANION), "").expect("a file");
        assert_eq!(found(), (CheckState::Ok, detail.to_owned()));
    }

    #[test]
    fn configurations_renamed_by_cilium_are_listed() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("05-cilium.conflist"), "").expect("a file");
        assert_eq!(set_aside(dir.path()).state, CheckState::Ok);
        std::fs::write(dir.path().join("00-braid.conflist.cilium_bak"), "").expect("a file");
        let check = set_aside(dir.path());
        let expected = "set cni.exclusive=false in Cilium, and rename 00-braid.conflist.cilium_bak";
        assert_eq!(
            (check.state, check.detail.as_str()),
            (CheckState::Missing, expected)
        );
    }
}
