//! Mounts of the node in the agent's container. Containers are judged and changed only by an agent
//! that sees their namespaces and what their networks hold.

use crate::error::Error;
use std::fs;

const MOUNTS: &str = "/proc/self/mountinfo";
/// Folders of the node with the namespaces of its pods. Each appears under the path by which it is
/// recorded.
const NAMESPACES: [&str; 2] = ["/run/netns", "/var/run/netns"];
/// Folders of the node with what its networks hold and may have: records, leases, eBPF maps, the DHCP
/// daemon's socket, the system bus of firewalld, device information, allowed sysctls.
const STATE: [&str; 9] = [
    "/run/braid",
    "/var/lib/braid",
    "/var/lib/cni",
    "/sys/fs/bpf",
    "/run/cni",
    "/run/dbus",
    "/run/k8s.cni.cncf.io",
    "/var/run/k8s.cni.cncf.io",
    "/etc/cni/tuning",
];

/// Returns the mounts that this container lacks. Without them, the agent changes no running pod.
pub(crate) fn missing() -> Result<Vec<String>, Error> {
    let text =
        fs::read_to_string(MOUNTS).map_err(|err| Error::new(format_args!("read {MOUNTS}"), err))?;
    Ok(missing_in(&text))
}

/// Judges the lines of `/proc/<pid>/mountinfo`.
fn missing_in(text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for folder in NAMESPACES {
        // Of several mounts over each other, the last one is seen.
        match mounts(text).filter(|mount| mount.at == folder).last() {
            None => missing.push(folder.to_owned()),
            Some(mount) if !mount.follows => {
                missing.push(format!("{folder} (without HostToContainer)"));
            }
            Some(_) => {}
        }
    }
    for folder in STATE {
        if mounts(text).all(|mount| mount.at != folder) {
            missing.push(folder.to_owned());
        }
    }
    missing
}

struct Mount<'a> {
    at: &'a str,
    /// True if later mounts of the node appear in it.
    follows: bool,
}

fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let at = fields.next()?;
        // After the options: tags of propagation, up to a dash.
        let mut tags = fields.skip(1).take_while(|tag| *tag != "-");
        let follows = tags.any(|tag| tag.starts_with("master:"));
        Some(Mount { at, follows })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_must_follow_the_node() {
        let of = |tag: &str, but: &str| {
            let mut lines = Vec::new();
            let folders = NAMESPACES.iter().chain(&STATE);
            for folder in folders.filter(|folder| **folder != but) {
                lines.push(format!(
                    "7 1 0:22 /x {folder} rw,nosuid{tag} - tmpfs tmpfs rw"
                ));
            }
            missing_in(&lines.join("\n"))
        };
        let none: [&str; 0] = [];
        assert_eq!(of(" master:7", ""), none);
        assert_eq!(of(" shared:9 master:7", ""), none);
        let blind = [
            "/run/netns (without HostToContainer)",
            "/var/run/netns (without HostToContainer)",
        ];
        assert_eq!(of("", ""), blind);
        assert_eq!(of(" shared:9", ""), blind);
        for but in NAMESPACES.iter().chain(&STATE) {
            assert_eq!(of(" master:7", but), [*but]);
        }
    }

    #[test]
    fn a_mount_over_another_counts() {
        let line = |tag: &str| format!("1 1 0:22 / /run/netns rw {tag}- tmpfs tmpfs rw\n");
        let text = line("master:1 ") + &line("");
        assert!(missing_in(&text).contains(&"/run/netns (without HostToContainer)".to_owned()));
        let text = line("") + &line("master:1 ");
        assert!(
            !missing_in(&text)
                .iter()
                .any(|one| one.starts_with("/run/netns"))
        );
    }
}
