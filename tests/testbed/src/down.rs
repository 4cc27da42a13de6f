//! Shutdown of the cluster, also after an `up` that failed halfway.

use crate::sh;
use crate::state::{CONTROL_PLANE, Cluster, LAN, Node};
use crate::wait;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kills all processes of the cluster and removes its namespaces, cgroups, mount points and files.
/// Succeeds if there is no cluster.
pub fn run() -> Result<()> {
    let namespaces = namespaces()?;
    kill_all(&namespaces)?;
    for namespace in &namespaces {
        sh::read(&mut sh::cmd("ip", ["netns", "del", namespace]))?;
    }
    remove_cgroups();
    let cluster = Cluster::place();
    remove_mount_points(&cluster);
    match fs::remove_dir_all(cluster.dir()) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            Err(err).with_context(|| format!("remove {}", cluster.dir().display()))
        }
        _ => Ok(()),
    }
}

/// Kills all processes of a node, as a power cut does. Its kubelet would wait for each container that
/// has a cgroup and no process.
pub(crate) fn kill(node: Node) -> Result<()> {
    kill_all(&[node.netns()])?;
    remove_cgroups();
    Ok(())
}

/// True if a process runs in one of the cluster's network namespaces.
pub fn has_processes() -> Result<bool> {
    Ok(!processes(&namespaces()?, &parents())?.is_empty())
}

/// Kills all processes of the network namespaces, and waits until they have ended.
fn kill_all(namespaces: &[String]) -> Result<()> {
    let mut killed = BTreeSet::new();
    wait::until(
        "all processes of the cluster have ended",
        Duration::from_secs(30),
        || {
            let parents = parents();
            let found = processes(namespaces, &parents)?;
            if !found.is_empty() {
                let pids = found.iter().map(u32::to_string);
                // kill(1) fails if a process has ended meanwhile, which is fine.
                wait::succeeds(sh::cmd("kill", ["-KILL", "--"]).args(pids))?;
            }
            killed.extend(found);
            // A process that is exiting has left its namespaces already, so `found` may lack it.
            Ok(killed.iter().all(|pid| !parents.contains_key(pid)))
        },
    )
}

/// Lists the cluster's network namespaces.
fn namespaces() -> Result<Vec<String>> {
    let listed = sh::read(&mut sh::cmd("ip", ["netns", "list"]))?;
    let mut namespaces = Vec::new();
    for line in listed.lines() {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        if is_ours(name) {
            namespaces.push(name.to_owned());
        }
    }
    Ok(namespaces)
}

/// True if a network namespace with this name belongs to the cluster.
fn is_ours(name: &str) -> bool {
    if name == LAN || name == CONTROL_PLANE {
        return true;
    }
    let node = name.strip_prefix("braid-").unwrap_or_default();
    node.parse::<Node>().is_ok()
}

/// Returns all processes in the network namespaces and the descendants of these processes. A
/// container has separate namespaces, but its process is a child of its shim.
fn processes(namespaces: &[String], parents: &BTreeMap<u32, u32>) -> Result<Vec<u32>> {
    let mut found: Vec<u32> = Vec::new();
    for namespace in namespaces {
        let pids = sh::read(&mut sh::cmd("ip", ["netns", "pids", namespace]))?;
        for pid in pids.lines() {
            found.extend(pid.parse::<u32>().ok());
        }
    }
    Ok(with_descendants(&found, parents))
}

fn with_descendants(roots: &[u32], parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = Vec::new();
    for &pid in parents.keys() {
        let mut ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        if ancestors.any(|ancestor| roots.contains(&ancestor)) {
            found.push(pid);
        }
    }
    found
}

/// Returns the parent of each running process. Leaves out zombies, because they have ended.
fn parents() -> BTreeMap<u32, u32> {
    let mut parents = BTreeMap::new();
    for path in entries("/proc") {
        parents.extend(with_parent(&path));
    }
    parents
}

/// Returns the IDs of a process and of its parent, from the process' folder in /proc. `None` if the
/// process has ended.
fn with_parent(folder: &Path) -> Option<(u32, u32)> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // proc(5): pid (comm) state ppid …, and comm may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    Some((pid, fields.next()?.parse().ok()?))
}

/// Lists the paths in a folder; empty if the folder cannot be read.
fn entries(folder: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        paths.push(entry.path());
    }
    paths
}

/// Removes the containers' empty cgroups, in the single hierarchy of cgroup v2 or in each hierarchy
/// of v1.
fn remove_cgroups() {
    const ROOT: &str = "/sys/fs/cgroup";
    for hierarchy in entries(ROOT) {
        remove_cgroup(&hierarchy.join("k8s.io"));
    }
    remove_cgroup(&Path::new(ROOT).join("k8s.io"));
}

fn remove_cgroup(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    // The kernel refuses to remove the cgroup of another runtime, which has processes.
    let _ = fs::remove_dir(cgroup);
}

/// Removes the mount points that `up` created.
fn remove_mount_points(cluster: &Cluster) {
    let made = fs::read_to_string(cluster.dir().join("mount-points")).unwrap_or_default();
    let used = mounted();
    // The kernel allows the removal of a folder that is a mount point only in other mount
    // namespaces, and detaches those mounts.
    for path in made.lines() {
        if !used.contains(path) {
            // A mount point that is in use by now is not empty and stays.
            let _ = fs::remove_dir(Path::new(path));
        }
    }
}

/// Lists the mount points in the mount namespaces of all processes.
fn mounted() -> BTreeSet<String> {
    let mut mounted = BTreeSet::new();
    for process in entries("/proc") {
        if let Ok(table) = fs::read_to_string(process.join("mountinfo")) {
            mounted.extend(mount_points(&table));
        }
    }
    mounted
}

/// Returns the mount points in a table that has the format of `/proc/<pid>/mountinfo`.
fn mount_points(table: &str) -> Vec<String> {
    let mut points = Vec::new();
    for line in table.lines() {
        points.extend(line.split(' ').nth(4).map(str::to_owned));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_process_is_found_through_its_shim() {
        let parents = BTreeMap::from([(10, 1), (11, 10), (12, 11), (20, 1)]);
        assert_eq!(with_descendants(&[10], &parents), [10, 11, 12]);
    }

    #[test]
    fn a_mount_point_is_the_fifth_field() {
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n611 22 0:46 /bin /opt/cni/bin rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(mount_points(table), ["/", "/opt/cni/bin"]);
        assert!(mounted().contains("/proc"));
    }
}
