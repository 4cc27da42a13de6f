//! One network namespace: the sandbox's host, a container, or the world outside.

use crate::arriving::PATIENCE;
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A network namespace that tools can be run in.
#[derive(Debug)]
pub struct Ns {
    name: String,
    path: PathBuf,
    /// Held open only where the path is not its own: a container's namespace ends with its mount.
    file: Option<File>,
}

impl Ns {
    /// The namespace of this thread.
    pub(crate) fn current(name: &str) -> Self {
        let file = File::open("/proc/thread-self/ns/net").expect("own network namespace");
        // Whoever is handed this path finds itself: the plugin is started in this namespace.
        Self {
            name: name.to_owned(),
            path: PathBuf::from("/proc/self/ns/net"),
            file: Some(file),
        }
    }

    /// A new namespace, mounted at `path` as runtimes do.
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

    /// What it is called in the test.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, as in `CNI_NETNS`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in it, on a thread of its own. A socket opened there stays in the namespace.
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

    /// Runs a command in it, words separated by white space, and returns what it printed; `Err` has
    /// what it complained.
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

    /// [`Ns::try_run`] of a command that must succeed.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        self.try_run(command)
            .unwrap_or_else(|err| panic!("{}: {command}: {err}", self.name))
    }

    /// The answer of a tool that prints JSON: `ip -j …`, `bridge -j …`, `nft -j …`, `tc -j …`.
    #[track_caller]
    pub fn json(&self, command: &str) -> Value {
        let text = self.run(command);
        if text.trim().is_empty() {
            return Value::Array(Vec::new());
        }
        serde_json::from_str(&text)
            .unwrap_or_else(|err| panic!("{}: {command}: {err}: {text}", self.name))
    }

    /// [`Ns::json`] as a list.
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

    /// One link as `ip -d -j link` shows it; `None` where it does not exist.
    pub fn link(&self, name: &str) -> Option<Value> {
        self.list("ip -d -j link")
            .into_iter()
            .find(|link| link["ifname"] == name)
    }

    /// [`Ns::link`] of a link that must be there.
    #[track_caller]
    pub fn the_link(&self, name: &str) -> Value {
        self.link(name)
            .unwrap_or_else(|| panic!("{}: no link {name:?}", self.name))
    }

    /// Names of all links but `lo`.
    pub fn link_names(&self) -> Vec<String> {
        let links = self.list("ip -j link");
        let names = links
            .iter()
            .filter_map(|link| link["ifname"].as_str())
            .filter(|name| *name != "lo");
        names.map(str::to_owned).collect()
    }

    /// Addresses of a link with their prefix, sorted, without the link-local ones that the kernel
    /// gives by itself.
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

    /// Has the kernel ask for half a minute whether an address of a link made from now on is a
    /// duplicate, so that [`Ns::assert_asks_at_once`] can not take a busy machine for such a
    /// question.
    #[track_caller]
    pub fn detect_slowly(&self) {
        self.set_sysctl("net/ipv6/conf/default/dad_transmits", "30");
    }

    /// Fails where it is asked on the link whether its link-local address is a duplicate, after
    /// [`Ns::detect_slowly`]. For a packet that it forwards the node asks for a container from
    /// that address, and gives up before the answer would be known. Even an address that nobody
    /// is asked about is tentative until the kernel's worker has been there.
    #[track_caller]
    pub fn assert_asks_at_once(&self, link: &str) {
        assert_eq!(
            self.sysctl(&format!("net/ipv6/conf/{link}/dad_transmits")),
            "30",
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

    /// [`Ns::the_link`] of a link that is up, when the kernel's worker has noted that in its
    /// `operstate`.
    #[track_caller]
    pub fn noted_link(&self, name: &str) -> Value {
        let is_noted = || self.the_link(name)["operstate"] == "UP";
        self.wait(is_noted, || self.the_link(name).to_string());
        self.the_link(name)
    }

    /// Waits until the kernel knows that no other host has the IPv6 addresses, and has made their
    /// local routes.
    #[track_caller]
    pub fn await_own_addresses(&self) {
        let shown = || self.run("ip -6 addr show tentative");
        self.wait(|| shown().is_empty(), shown);
    }

    /// Waits until a worker of the kernel has done its part.
    #[track_caller]
    fn wait(&self, is_done: impl Fn() -> bool, shown: impl Fn() -> String) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < PATIENCE, "{}: {}", self.name, shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All routes of one family (`-4` or `-6`), as `ip -j route` shows them, without those that the
    /// kernel makes by itself: the `local` table and those of IPv6's link-local and multicast
    /// addresses.
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

    /// The value of a sysctl, by its path below `/proc/sys`.
    #[track_caller]
    pub fn sysctl(&self, key: &str) -> String {
        let read = self.enter(|| std::fs::read_to_string(Path::new("/proc/sys").join(key)));
        read.unwrap_or_else(|err| panic!("{}: sysctl {key}: {err}", self.name))
            .trim()
            .to_owned()
    }

    /// Writes a sysctl.
    #[track_caller]
    pub fn set_sysctl(&self, key: &str, value: &str) {
        let written = self.enter(|| std::fs::write(Path::new("/proc/sys").join(key), value));
        written.unwrap_or_else(|err| panic!("{}: sysctl {key}={value}: {err}", self.name));
    }
}
