//! An isolated host for one test.

use crate::binary;
use crate::call::Call;
use crate::journal;
use crate::mounts::{bind, bind_all, tmpfs};
use crate::ns::Ns;
pub use crate::plugins::PLUGINS;
use crate::real_host::RealHost;
use crate::state::{self, State};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use std::cell::RefCell;
use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// Folder in which the network namespaces of containers are mounted.
const NAMESPACES: &str = "/run/netns";
/// Folder in which the sandbox bind-mounts the real folders before it covers them.
const COVERED: &str = "/run/.covered";
const CGROUPS: &str = "/sys/fs/cgroup";

/// An isolated host for one test. The test's thread, and every process that it starts, sees a
/// separate network, an empty `/run`, and nothing in `/var/lib/cni`, `/var/lib/braid` and
/// `/etc/cni`. A `Sandbox` dereferences to the host's namespace.
#[derive(Debug)]
pub struct Sandbox {
    host: Ns,
    pods: RefCell<Vec<Rc<Ns>>>,
    before: Before,
    real_host: RealHost,
    start: Instant,
}

/// Namespaces and working directory to which the thread returns when the sandbox is dropped.
#[derive(Debug)]
struct Before {
    net: File,
    mnt: File,
    folder: PathBuf,
}

impl Sandbox {
    /// Moves this thread into a new sandbox until the returned value is dropped.
    #[expect(
        clippy::new_without_default,
        reason = "it changes the thread, which no default should"
    )]
    pub fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests need root: they make network and mount namespaces"
        );
        // braid is built, and the reference plugins are located, before the thread enters the
        // sandbox: inside it their folders are not visible.
        let (braid, _) = (binary::braid(), binary::reference());
        assert!(
            braid.is_file(),
            "no braid at {}: set BRAID_BIN, or run the tests with cargo",
            braid.display()
        );
        let open = |path| File::open(path).expect("own namespace");
        let before = Before {
            net: open("/proc/thread-self/ns/net"),
            mnt: open("/proc/thread-self/ns/mnt"),
            folder: std::env::current_dir().expect("current folder"),
        };
        journal::record_panics();
        let (start, real_host) = (Instant::now(), RealHost::look());
        // Tests that run five hundred calls at the same time open more files than most shells
        // allow.
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
        setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many open files as there may be");
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
            .expect("new network and mount namespaces");
        cover();
        let host = Ns::current("host");
        host.run("ip link set lo up");
        // A new namespace inherits the sysctl from the machine, which may be a router.
        host.set_sysctl("net/ipv4/ip_forward", "0");
        Self {
            host,
            pods: RefCell::default(),
            before,
            real_host,
            start,
        }
    }

    /// Returns the network namespace that represents the node.
    pub fn host(&self) -> &Ns {
        &self.host
    }

    /// Creates a network namespace for a container or for the outside world. Its `lo` is down, as
    /// after a runtime has created a namespace.
    pub fn pod(&self, name: &str) -> Rc<Ns> {
        let pod = Rc::new(Ns::create(name, &Path::new(NAMESPACES).join(name)));
        self.pods.borrow_mut().push(Rc::clone(&pod));
        pod
    }

    /// Deletes a container's network namespace. Its path remains as a plain file, as `ip netns`
    /// leaves it after a crash.
    pub fn end(&self, pod: &Ns) {
        nix::mount::umount2(pod.path(), nix::mount::MntFlags::MNT_DETACH)
            .expect("namespace is mounted");
        self.pods
            .borrow_mut()
            .retain(|other| other.path() != pod.path());
    }

    /// Creates an outside world: a namespace connected to the host by a veth. `host_addr` and
    /// `its_addr` are the addresses of the two ends. The outside world has no route through the
    /// host.
    ///
    /// Both ends of the veth are named `name`. They are usable immediately, because duplicate
    /// address detection is off.
    pub fn outside(&self, name: &str, host_addr: &str, its_addr: &str) -> Rc<Ns> {
        let outside = self.pod(name);
        self.host.run(&format!(
            "ip link add {name} type veth peer name {name} netns {}",
            outside.path().display()
        ));
        for (ns, addr) in [(&self.host, host_addr), (outside.as_ref(), its_addr)] {
            ns.set_sysctl(&format!("net/ipv6/conf/{name}/accept_dad"), "0");
            ns.run(&format!("ip addr add {addr} dev {name} nodad"));
            ns.run(&format!("ip link set {name} up"));
        }
        outside.run("ip link set lo up");
        outside
    }

    /// Returns a call of `plugin` for `eth0` of `pod`; the container ID is the name of `pod`.
    pub fn call(&self, plugin: &str, pod: &Ns, conf: Value) -> Call {
        Call::new(plugin, conf)
            .container(pod.name())
            .netns(pod.path())
    }

    /// Returns everything on the host and in the containers that a call could change.
    pub fn state(&self) -> State {
        let pods = self.pods.borrow();
        State::take(std::iter::once(&self.host).chain(pods.iter().map(Rc::as_ref)))
    }

    /// Returns the remaining objects that belong to single attachments: links, rules, leases,
    /// records.
    pub fn leftovers(&self) -> Vec<String> {
        state::leftovers(&self.host)
    }

    /// Fails unless [`Sandbox::leftovers`] is empty.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.leftovers(), Vec::<String>::new(), "left behind");
    }

    /// Creates a plugin from the text of a script, in the sandbox's plugin folder.
    pub fn script(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = Path::new(PLUGINS).join(name);
        fs::write(&path, text).expect("write a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .expect("make a script executable");
    }
}

impl Deref for Sandbox {
    type Target = Ns;

    fn deref(&self) -> &Ns {
        &self.host
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let strays = strays();
        // A thread that was just joined may still share the working directory in the kernel, and
        // then setns() is refused.
        unshare(CloneFlags::CLONE_FS).expect("a folder of its own");
        setns(&self.before.mnt, CloneFlags::CLONE_NEWNS).expect("back to the mount namespace");
        setns(&self.before.net, CloneFlags::CLONE_NEWNET).expect("back to the network namespace");
        std::env::set_current_dir(&self.before.folder).expect("back to the folder");
        if !std::thread::panicking() {
            assert_eq!(
                strays,
                Vec::<String>::new(),
                "processes still run in the sandbox"
            );
            assert_eq!(
                RealHost::look(),
                self.real_host,
                "the test changed the real host"
            );
        }
        journal::time(self.start.elapsed());
    }
}

/// Returns the real host's mount point of cgroup v2, which may be mounted beside v1. `None` if
/// cgroup v2 is not mounted. Tests use this mount, because a second mount of cgroup v2 would change
/// the options of the first.
pub fn cgroup2() -> Option<PathBuf> {
    let usual = [CGROUPS, "/sys/fs/cgroup/unified"]
        .map(PathBuf::from)
        .into_iter();
    // This file exists only in cgroup2.
    usual
        .into_iter()
        .find(|path| path.join("cgroup.controllers").exists())
}

/// Covers everything that a test could change with empty mounts, which only this mount namespace
/// sees.
fn cover() {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    tmpfs(Path::new("/run"));
    cover_one("/etc", &["cni"]);
    cover_one("/var/lib", &["cni", "braid"]);
    // /sys/class/net shows the links of the namespace that mounted sysfs. The cgroups stay the real
    // host's.
    let cgroups = Path::new(COVERED).join("cgroup");
    fs::create_dir_all(&cgroups).expect("place for what is covered");
    bind_all(Path::new(CGROUPS), &cgroups);
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)
        .expect("sysfs of the new network");
    bind_all(&cgroups, Path::new(CGROUPS));
    if Path::new("/sys/fs/bpf").is_dir() {
        mount(
            Some("bpf"),
            "/sys/fs/bpf",
            Some("bpf"),
            MsFlags::empty(),
            none,
        )
        .expect("bpf file system");
    }
    for folder in [PLUGINS, NAMESPACES, "/var/lib/cni", "/etc/cni"] {
        fs::create_dir_all(folder).expect("folder of the sandbox");
    }
}

/// Covers `folder` with a tmpfs that holds a symlink to each entry of `folder`, except the entries
/// `hidden`.
fn cover_one(folder: &str, hidden: &[&str]) {
    let covered = Path::new(COVERED).join(&folder[1..]);
    fs::create_dir_all(&covered).expect("place for what is covered");
    bind(Path::new(folder), &covered);
    tmpfs(Path::new(folder));
    for entry in fs::read_dir(&covered).expect("covered folder") {
        let name = entry.expect("entry").file_name();
        if !hidden.iter().any(|hidden| name == *hidden) {
            symlink(covered.join(&name), Path::new(folder).join(&name))
                .expect("link to what is covered");
        }
    }
}

/// Returns the command lines of the processes that were started in this thread's sandbox and still
/// run.
pub fn strays() -> Vec<String> {
    let inode = |path: &Path| fs::metadata(path).map(|meta| meta.ino()).ok();
    let own = inode(Path::new("/proc/thread-self/ns/mnt")).expect("own mount namespace");
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let strays = ids.filter(|id| *id != std::process::id());
    let strays = strays.map(|id| PathBuf::from(format!("/proc/{id}")));
    let strays = strays.filter(|path| inode(&path.join("ns/mnt")) == Some(own));
    strays
        .map(|path| {
            fs::read_to_string(path.join("cmdline"))
                .unwrap_or_default()
                .replace('\0', " ")
        })
        .collect()
}
