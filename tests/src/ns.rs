//! A network namespace: the sandbox's host, a container, or the outside world.

use crate::arriving::PATIENCE;
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of probes of duplicate address detection. The kernel sends one per second, so the
/// detection takes 600 s. This is longer than [`PATIENCE`].
const SLOW_PROBES: &str = "600";

/// A network namespace in which tools can run.
#[derive(Debug)]
pub struct Ns {
    name: String,
    path: PathBuf,
    /// Open file of the namespace, which keeps the namespace alive. `None` if `path` is a mount of
    /// the namespace. A container's namespace then ends with the mount.
    file: Option<File>,
}

impl Ns {
    /// Returns the namespace of this thread.
    pub(crate) fn current(name: &str) -> Self {
        let file = File::open("/proc/thread-self/ns/net").expect("own network namespace");
        // Each process that opens this path gets its own namespace: the plugin is started in this
        // one.
        Self {
            name: name.to_owned(),
            path: PathBuf::from("/proc/self/ns/net"),
            file: Some(file),
        }
    }

    /// Creates a namespace, mounted at `path` as runtimes do.
    pub(crate) fn create(name: &str, path: &Path) -> Self {
        File::create_new(path).expect("mount point of a network namespace");
        let mount = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("new network namespace");
            crate::mounts::bind(Path::new("/proc/thread-self/ns/net"), path);
        };
        std::thread::scope(|scope| scope.spawn(mount).join())
            .expect("thread of a new network namespace");
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            file: None,
        }
    }

    /// Returns the name that the test gave the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace's path, for `CNI_NETNS`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in the namespace, on a separate thread. A socket that `work` opens stays in the
    /// namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let opened = self
                .file
                .as_ref()
                .map_or_else(|| File::open(&self.path), File::try_clone);
            let file = opened.expect("network namespace");
            setns(file, CloneFlags::CLONE_NEWNET).expect("enter a network namespace");
            work()
        };
        match std::thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs a command in the namespace and returns its standard output, or its standard error as
    /// `Err`. White space separates the words of the command.
    pub fn try_run(&self, command: &str) -> Result<String, String> {
        let mut words = command.split_whitespace();
        let program = words.next().expect("a command");
        let output = self.enter(|| {
            let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
            Command::new(program).args(words).env("PATH", path).output()
        });
        let output = output.map_err(|err| format!("{program}: {err}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Like [`Ns::try_run`], for a command that must succeed.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        self.try_run(command)
            .unwrap_or_else(|err| panic!("{}: {command}: {err}", self.name))
    }

    /// Returns the parsed output of a tool that prints JSON: `ip -j …`, `bridge -j …`, `nft -j …`,
    /// `tc -j …`.
    #[track_caller]
    pub fn json(&self, command: &str) -> Value {
        let text = self.run(command);
        if text.trim().is_empty() {
            return Value::Array(Vec::new());
        }
        serde_json::from_str(&text)
            .unwrap_or_else(|err| panic!("{}: {command}: {err}: {text}", self.name))
    }

    /// Returns the output of a tool that prints a JSON array.
    #[track_caller]
    pub fn list(&self, command: &str) -> Vec<Value> {
        match self.json(command) {
            Value::Array(list) => list
                .into_iter()
                .filter(|item| item.as_object().is_none_or(|o| !o.is_empty()))
                .collect(),
            other => panic!("{}: {command}: expected a list, got {other}", self.name),
        }
    }

    /// Returns a link as printed by `ip -d -j link`; `None` if it does not exist.
    pub fn link(&self, name: &str) -> Option<Value> {
        self.list("ip -d -j link")
            .into_iter()
            .find(|link| link["ifname"] == name)
    }

    /// Like [`Ns::link`], for a link that must exist.
    #[track_caller]
    pub fn the_link(&self, name: &str) -> Value {
        self.link(name)
            .unwrap_or_else(|| panic!("{}: no link {name:?}", self.name))
    }

    /// Returns the names of all links except `lo`.
    pub fn link_names(&self) -> Vec<String> {
        let links = self.list("ip -j link");
        let names = links
            .iter()
            .filter_map(|link| link["ifname"].as_str())
            .filter(|name| *name != "lo");
        names.map(str::to_owned).collect()
    }

    /// Returns the addresses of a link with their prefix lengths, sorted, without IPv6 link-local
    /// addresses.
    #[track_caller]
    pub fn addrs(&self, link: &str) -> Vec<String> {
        let links = self.list(&format!("ip -j addr show dev {link}"));
        let infos = links
            .iter()
            .filter_map(|link| link["addr_info"].as_array())
            .flatten();
        let global = infos.filter(|info| !(info["family"] == "inet6" && info["scope"] == "link"));
        let mut addrs: Vec<String> = global
            .filter_map(|info| {
                Some(format!(
                    "{}/{}",
                    info["local"].as_str()?,
                    info["prefixlen"].as_u64()?
                ))
            })
            .collect();
        addrs.sort();
        addrs
    }

    /// Extends duplicate address detection to ten minutes for links created after this call.
    /// [`Ns::assert_asks_at_once`] gives up earlier, so it fails if detection runs.
    #[track_caller]
    pub fn detect_slowly(&self) {
        self.set_sysctl("net/ipv6/conf/default/dad_transmits", SLOW_PROBES);
    }

    /// Fails if duplicate address detection runs for the link's link-local address. Call
    /// [`Ns::detect_slowly`] before the link is created.
    ///
    /// The node sends its neighbour solicitations for a forwarded packet from this address. It
    /// would give up on the packet before the detection ends. Even without detection, an address is
    /// tentative until a kernel worker has run, so this function waits.
    #[track_caller]
    pub fn assert_asks_at_once(&self, link: &str) {
        assert_eq!(
            self.sysctl(&format!("net/ipv6/conf/{link}/dad_transmits")),
            SLOW_PROBES,
            "{}: {link}",
            self.name
        );
        let is_ready = || {
            self.run(&format!("ip -6 addr show dev {link} scope link -tentative"))
                .contains("inet6")
        };
        self.wait(is_ready, || {
            self.run(&format!("ip -6 addr show dev {link}"))
        });
    }

    /// Waits until a kernel worker has set the link's `operstate` to `UP`, then returns the link.
    #[track_caller]
    pub fn noted_link(&self, name: &str) -> Value {
        let is_noted = || self.the_link(name)["operstate"] == "UP";
        self.wait(is_noted, || self.the_link(name).to_string());
        self.the_link(name)
    }

    /// Waits until each IPv6 address of the namespace has its local route, which the kernel adds
    /// after duplicate address detection. All veths of the namespace must be up.
    #[track_caller]
    pub fn await_own_addresses(&self) {
        let links = self.list("ip -j link show type veth");
        for name in links.iter().filter_map(|link| link["ifname"].as_str()) {
            self.noted_link(name);
        }
        let has_routes = || {
            let routes = self.list("ip -j -6 route show table local type local");
            let links = self.list("ip -j -6 addr show");
            let infos = links.iter().filter_map(|link| link["addr_info"].as_array());
            let mut infos = infos.flatten();
            infos.all(|info| routes.iter().any(|route| route["dst"] == info["local"]))
        };
        self.wait(has_routes, || self.run("ip -6 addr show tentative"));
    }

    /// Waits until `is_done` returns true. Fails after [`PATIENCE`], with the text of `shown`.
    #[track_caller]
    fn wait(&self, is_done: impl Fn() -> bool, shown: impl Fn() -> String) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < PATIENCE, "{}: {}", self.name, shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns all routes of a family (`-4` or `-6`), as `ip -j route` prints them. Leaves out
    /// routes that the kernel creates: the `local` table, and IPv6 link-local and multicast routes.
    pub fn routes(&self, family: &str) -> Vec<Value> {
        let all = self.list(&format!("ip -j {family} route show table all"));
        all.into_iter()
            .filter(|route| {
                route["table"] != "local"
                    && route["dst"] != "ff00::/8"
                    && route["dst"] != "fe80::/64"
            })
            .collect()
    }

    /// Returns the value of a sysctl, given its path below `/proc/sys`.
    #[track_caller]
    pub fn sysctl(&self, key: &str) -> String {
        let read = self.enter(|| std::fs::read_to_string(Path::new("/proc/sys").join(key)));
        read.unwrap_or_else(|err| panic!("{}: sysctl {key}: {err}", self.name))
            .trim()
            .to_owned()
    }

    /// Writes a sysctl, given its path below `/proc/sys`.
    #[track_caller]
    pub fn set_sysctl(&self, key: &str, value: &str) {
        let written = self.enter(|| std::fs::write(Path::new("/proc/sys").join(key), value));
        written.unwrap_or_else(|err| panic!("{}: sysctl {key}={value}: {err}", self.name));
    }
}
