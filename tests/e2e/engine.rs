//! podman in a sandbox. Dropping the value ends podman's processes.

use crate::program;
use braid_tests::Sandbox;
use braid_tests::sandbox::{PLUGINS, cgroup2};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Folder that contains everything that podman writes, on the sandbox's tmpfs.
const HOME: &str = "/run/podman-home";
const CGROUPS: &str = "/sys/fs/cgroup";
const IMAGE: &str = "box";

/// podman with CNI. All its processes are in a PID namespace, which ends when this value is dropped
/// or the test ends.
pub(crate) struct Podman<'a> {
    host: &'a Sandbox,
    /// The `unshare` process. Its child is the first process of the PID namespace, and ends when
    /// its standard input is closed.
    namespace: Child,
    cgroup: PathBuf,
}

impl<'a> Podman<'a> {
    /// Starts podman without images and networks. All plugins that podman's conflists name are
    /// braid.
    pub(crate) fn start(host: &'a Sandbox) -> Self {
        program::offer_braid(&["bridge", "host-local", "tuning", "firewall", "portmap"]);
        for folder in ["net.d", "tmp", "image/bin"] {
            fs::create_dir_all(Path::new(HOME).join(folder)).expect("folder for podman");
        }
        configure();
        // A cgroup v2 hierarchy without controllers is enough to separate containers.
        match cgroup2() {
            Some(at) if at != Path::new(CGROUPS) => {
                drop(host.run(&format!("mount --bind {} {CGROUPS}", at.display())));
            }
            Some(_) => {}
            None => drop(host.run(&format!("mount -t cgroup2 cgroup2 {CGROUPS}"))),
        }
        let cgroup = Path::new(CGROUPS).join(format!("braid-e2e-{}", nix::unistd::gettid()));
        Self {
            host,
            namespace: namespace(),
            cgroup,
        }
    }

    /// True if the installed podman can use CNI. Version 5 removed CNI.
    pub(crate) fn has_cni(&self) -> bool {
        self.try_run("info --format {{.Host.NetworkBackend}}")
            .is_ok_and(|backend| backend == "cni")
    }

    /// Runs podman and returns its standard output, or its standard error as `Err`. White space
    /// separates the arguments.
    pub(crate) fn try_run(&self, args: &str) -> Result<String, String> {
        let proc = format!("/proc/{}/ns", self.namespace.id());
        let enter = format!("nsenter --pid={proc}/pid_for_children --mount={proc}/mnt");
        let env =
            format!("env HOME={HOME} TMPDIR={HOME}/tmp CONTAINERS_CONF={HOME}/containers.conf");
        let storage = format!("--root {HOME}/root --runroot {HOME}/runroot --storage-driver vfs");
        let output = self
            .host
            .try_run(&format!("{enter} {env} podman {storage} {args}"))?;
        Ok(output.trim().to_owned())
    }

    /// Runs [`Podman::try_run`] and fails if podman fails.
    #[track_caller]
    pub(crate) fn run(&self, args: &str) -> String {
        self.try_run(args)
            .unwrap_or_else(|err| panic!("podman {args}: {err}"))
    }

    /// Starts a container that sleeps for ten minutes.
    #[track_caller]
    pub(crate) fn container(&self, name: &str, network: &str) {
        let cgroup = self
            .cgroup
            .strip_prefix(CGROUPS)
            .expect("below the root")
            .display();
        // The machine's limits, because this machine's root may not be allowed to raise them to
        // podman's defaults.
        let limits = "--ulimit host --pids-limit 0";
        self.run(&format!(
            "run -d {limits} --cgroup-parent /{cgroup} --network {network} --name {name} {IMAGE} sleep 600"
        ));
    }

    /// Creates the containers' image from busybox, which needs no other file.
    pub(crate) fn import(&self) {
        let bin = Path::new(HOME).join("image/bin");
        fs::copy(
            program::find("busybox").expect("needs_programs!(\"busybox\") comes first"),
            bin.join("busybox"),
        )
        .expect("copy busybox");
        for applet in ["sleep", "ping", "nc", "ip", "true"] {
            symlink("busybox", bin.join(applet)).expect("link to busybox");
        }
        self.host
            .run(&format!("tar -C {HOME}/image -cf {HOME}/image.tar ."));
        self.run(&format!("import {HOME}/image.tar {IMAGE}"));
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        // Closing its standard input ends the namespace's first process. The kernel then ends all
        // others, and `unshare` waits for this.
        drop(self.namespace.stdin.take());
        let ended = self.namespace.wait();
        let below = fs::read_dir(&self.cgroup)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()));
        let groups = below
            .filter(|path| path.is_dir())
            .chain([self.cgroup.clone()]);
        let left: Vec<_> = groups
            .filter(|group| fs::remove_dir(group).is_err())
            .collect();
        if !std::thread::panicking() {
            assert!(
                ended.is_ok_and(|status| status.success()),
                "the process namespace broke"
            );
            assert!(left.is_empty(), "cgroups are still in use: {left:?}");
        }
    }
}

fn configure() {
    let text = format!(
        r#"[containers]
log_driver = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
image_copy_tmp_dir = "{HOME}/tmp"
lock_type = "file"
runtime = "runc"
[network]
network_backend = "cni"
cni_plugin_dirs = ["{PLUGINS}"]
network_config_dir = "{HOME}/net.d"
"#
    );
    fs::write(Path::new(HOME).join("containers.conf"), text).expect("write containers.conf");
}

/// Starts a PID namespace with a separate `/proc`. The namespace's first process adopts orphans and
/// waits until its standard input is closed.
fn namespace() -> Child {
    let init = ["bash", "-c", "echo ready; read -r; exit 0"];
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(init);
    let mut child = unshare
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start unshare");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("read from the namespace");
    assert_eq!(line, "ready\n", "the process namespace is up");
    child
}
