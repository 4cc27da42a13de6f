//! What a kernel or a machine may lack: found out by trying, never by version.

use crate::binary;
use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::process::Command;
use std::sync::OnceLock;

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Links of kind ipvlan.
    Ipvlan,
    /// Bridges that separate their ports by VLAN.
    VlanFiltering,
    /// Links of kind vlan.
    Vlan,
    /// Links of kind dummy.
    Dummy,
    /// The reference plugins.
    Reference,
}

impl Feature {
    /// Why a test that needs it can't run here; `None` where it can.
    pub fn missing(self) -> Option<String> {
        static KERNEL: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
        let run_by = "run by cargo xtask vm 6.12";
        let kernel = |at: usize, what: &str, link: &'static str| {
            let has = *KERNEL[at].get_or_init(|| can_add(link));
            (!has).then(|| format!("needs {what}, {run_by}"))
        };
        match self {
            Self::Ipvlan => kernel(0, "ipvlan", "link lo name probe type ipvlan"),
            Self::VlanFiltering => kernel(1, "bridge VLAN filtering", "name probe type bridge vlan_filtering 1"),
            Self::Vlan => kernel(2, "vlan", "link lo name probe type vlan id 5"),
            Self::Dummy => kernel(3, "dummy", "name probe type dummy"),
            Self::Reference => binary::reference()
                .is_none()
                .then(|| "needs the reference plugins in $BRAID_REFERENCE, built by cargo xtask bench".to_owned()),
        }
    }
}

/// Tries in a namespace of its own.
fn can_add(link: &str) -> bool {
    let attempt = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("new network namespace");
        // ipvlan and vlan refuse lo as their parent on a kernel that has them, so they get a bridge.
        let parent = link.contains("link lo").then(|| ip("link add parent type bridge"));
        parent.is_none_or(|made| made) && ip(&format!("link add {}", link.replace("link lo", "link parent")))
    };
    std::thread::scope(|scope| scope.spawn(attempt).join()).expect("thread of a new network namespace")
}

fn ip(args: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    Command::new("ip").args(args.split(' ')).env("PATH", path).output().is_ok_and(|output| output.status.success())
}

/// Tells that a test did not run, past the harness, which would keep it to itself.
pub fn tell_skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}
