//! A DHCP server, the daemon of the IPAM `dhcp`, and other programs that end with their test.

use braid_tests::arriving::PATIENCE;
use braid_tests::{Ns, Sandbox, json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of the daemon's socket.
pub(super) const SOCKET: &str = "/run/cni/dhcp.sock";

/// A program that is killed on drop.
pub(super) struct Program(pub(super) Child);

impl Program {
    /// Starts the program in a namespace. Its standard output and standard error go to the file
    /// `log`.
    #[track_caller]
    pub(super) fn start(ns: &Ns, program: &Path, args: &[&str], log: &Path) -> Self {
        let said = fs::File::create(log).expect("a log");
        let both = said.try_clone().expect("the same log");
        let spawn = || {
            Command::new(program)
                .args(args)
                .stdin(Stdio::null())
                .stdout(said)
                .stderr(both)
                .spawn()
        };
        Self(
            ns.enter(spawn)
                .unwrap_or_else(|err| panic!("start {}: {err}", program.display())),
        )
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a process id"));
        kill(pid, signal).expect("the program runs");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A dnsmasq that leases addresses on a link of its namespace.
pub(super) struct Server {
    _program: Program,
    pub(super) leases: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts a server on `link` with the address range 10.3.0.10-10.3.0.99 and the dnsmasq options
    /// `more`.
    pub(super) fn start(ns: &Ns, link: &str, more: &[&str]) -> Self {
        Self::with_range(ns, link, "10.3.0.10,10.3.0.99,255.255.0.0,2m", more)
    }

    /// Starts a server on `link` with this address range and the dnsmasq options `more`.
    #[track_caller]
    pub(super) fn with_range(ns: &Ns, link: &str, range: &str, more: &[&str]) -> Self {
        let folder = PathBuf::from("/run/dnsmasq");
        fs::create_dir_all(&folder).expect("a folder");
        let (leases, log) = (folder.join("leases"), folder.join("log"));
        let _none = fs::remove_file(&leases);
        let (interface, range) = (
            format!("--interface={link}"),
            format!("--dhcp-range={range}"),
        );
        let file = format!("--dhcp-leasefile={}", leases.display());
        let mut args = vec![
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-hosts",
            "--no-resolv",
            "--port=0",
        ];
        args.extend([
            "--user=root",
            "--group=root",
            "--pid-file=",
            "--no-ping",
            "--log-dhcp",
            "--log-facility=-",
            "--dhcp-authoritative",
        ]);
        args.extend([interface.as_str(), &range, &file]);
        args.extend(more);
        let program = Program::start(ns, Path::new("/usr/sbin/dnsmasq"), &args, &log);
        let server = Self {
            _program: program,
            leases,
            log,
        };
        until("dnsmasq serves", || {
            ns.run("ss -Hlnu").contains(":67 ").then_some(())
        });
        server
    }

    /// Returns the leases in the server's file, each with expiry, hardware address or IAID, and
    /// address.
    pub(super) fn leases(&self) -> Vec<(u64, String, String)> {
        let text = fs::read_to_string(&self.leases).unwrap_or_default();
        // The server may be writing the last line.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let lines = whole.lines().filter(|line| !line.starts_with("duid"));
        let word = |line: &str, at: usize| line.split(' ').nth(at).unwrap_or_default().to_owned();
        lines
            .map(|line| {
                (
                    word(line, 0).parse().unwrap_or_default(),
                    word(line, 1),
                    word(line, 2),
                )
            })
            .collect()
    }

    /// Waits until the server's file has `count` leases, and returns them. The server answers
    /// before it writes the file, and truncates the file first.
    #[track_caller]
    pub(super) fn await_leases(&self, count: usize) -> Vec<(u64, String, String)> {
        until("all leases are in the file", || {
            Some(self.leases()).filter(|leases| leases.len() == count)
        })
    }

    /// Waits until `expected` is the only leased address.
    #[track_caller]
    pub(super) fn await_address(&self, expected: &str) {
        until("the address is leased", || {
            (self.addresses() == [expected]).then_some(())
        });
    }

    /// Waits until the server's only lease has been renewed.
    #[track_caller]
    pub(super) fn await_renewed(&self) {
        let expiry = || self.await_leases(1)[0].0;
        let before = expiry();
        until("the lease is prolonged", || {
            (expiry() > before).then_some(())
        });
    }

    /// Returns the leased addresses.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.leases()
            .into_iter()
            .map(|(.., address)| address)
            .collect()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until no address is leased.
    #[track_caller]
    pub(super) fn await_free(&self) {
        until("all leases are released", || {
            self.leases().is_empty().then_some(())
        });
    }
}

/// Starts the DHCP daemon under test.
pub(super) fn daemon(host: &Sandbox, flags: &[&str]) -> Program {
    // This call installs the plugin name `dhcp`, by which the daemon is started.
    drop(host.call("dhcp", host.host(), json!({})).run("VERSION"));
    start(host, Path::new("/run/cni-bin/dhcp"), flags)
}

#[track_caller]
pub(super) fn start(host: &Sandbox, program: &Path, flags: &[&str]) -> Program {
    let args = [&["daemon"], flags].concat();
    let program = Program::start(host.host(), program, &args, Path::new("/run/dhcp.log"));
    until("the daemon serves", || UnixStream::connect(SOCKET).ok());
    program
}

/// Returns the daemon's log so far.
pub(super) fn said() -> String {
    fs::read_to_string("/run/dhcp.log").unwrap_or_default()
}

/// Calls `look` until it returns a value, and returns this value. Fails after a minute.
#[track_caller]
pub(super) fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}\n{}",
            said()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
