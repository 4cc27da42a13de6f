//! etcd and kube-apiserver, started once for all tests of this process; they end with it.

use braid_tests::{Sandbox, Value, json};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};
use xtask::cluster::{API_SERVER, Pki, api_server_flags, bin};

/// In the sandbox of the server, and in memory like all of its `/run`.
const HOME: &str = "/run/api-server";
/// After this it is not up any more soon.
const PATIENCE: Duration = Duration::from_mins(1);
const PORT: u16 = 6443;

pub(crate) struct Server {
    net: File,
    mnt: File,
    /// The authority's certificate, PEM.
    pub(crate) authority: String,
    /// Certificate and key of the server itself, PEM.
    pub(crate) identity: [String; 2],
    /// The administrator's certificate and key, PEM.
    pub(crate) admin: [String; 2],
    /// The key that signs service accounts' tokens, PEM.
    pub(crate) token_key: String,
    /// A token of the shipped service account.
    pub(crate) token: String,
}

/// The server, or `None` after a line that says why `test` is skipped.
pub(crate) fn get(test: &str) -> Option<&'static Server> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Some(why) = missing() {
        braid_tests::feature::tell_skip(test, &why);
        return None;
    }
    Some(SERVER.get_or_init(Server::start))
}

fn missing() -> Option<String> {
    let has = |name: &str| {
        let path = std::env::var("PATH").unwrap_or_default();
        path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(name).is_file())
    };
    let built = |name: &&str| !bin().join(name).is_file();
    let missing = ["kube-apiserver", "kubectl"].into_iter().find(built);
    let missing = missing.or_else(|| ["etcd", "openssl", "setpriv"].into_iter().find(|name| !has(name)));
    missing.map(|name| format!("needs {name}, which `cargo xtask cluster build` builds or installs"))
}

impl Server {
    fn start() -> Self {
        let (up, when_up) = mpsc::channel();
        let keep = move || {
            let _sandbox = Sandbox::new();
            up.send(Self::make()).expect("a test waits");
            // What this thread has started ends with it, and it ends with the process.
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new().name("api-server".into()).spawn(keep).expect("a thread");
        when_up.recv().expect("the API server starts")
    }

    fn make() -> Self {
        let start = Instant::now();
        let pki = Pki::create(PathBuf::from(HOME).join("pki"), API_SERVER).expect("certificates");
        run(Command::new("ip").args(["addr", "add", &format!("{API_SERVER}/32"), "dev", "lo"]));
        let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
        fs::write(format!("{HOME}/policy"), policy.to_string()).expect("an audit policy");
        daemon("etcd", Command::new("etcd").args(["--unsafe-no-fsync", "--data-dir", &format!("{HOME}/etcd")]));
        let mut api_server = Command::new(bin().join("kube-apiserver"));
        api_server.args(api_server_flags(|file| pki.file(file), API_SERVER));
        api_server.args([format!("--audit-log-path={HOME}/audit.log"), format!("--audit-policy-file={HOME}/policy")]);
        // Its pods need no account, and nothing here would make them one.
        daemon("kube-apiserver", api_server.arg("--disable-admission-plugins=ServiceAccount"));
        let read = |name: &str| fs::read_to_string(pki.file(name)).expect("a file of the authority");
        let open = |path| File::open(path).expect("a namespace");
        let mut server = Self {
            net: open("/proc/thread-self/ns/net"),
            mnt: open("/proc/thread-self/ns/mnt"),
            authority: read("ca.crt"),
            identity: [read("apiserver.crt"), read("apiserver.key")],
            admin: [read("admin.crt"), read("admin.key")],
            token_key: read("sa.key"),
            token: String::new(),
        };
        server.set_up();
        eprintln!("API server up after {:.1} s", start.elapsed().as_secs_f64());
        server
    }

    /// What an administrator applies.
    fn set_up(&mut self) {
        let start = Instant::now();
        while !self.try_kubectl(&["get", "--raw", "/readyz"], None).status.success() {
            assert!(start.elapsed() < PATIENCE, "no API server:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().expect("deploy/");
        for file in ["crds.yaml", "rbac.yaml"] {
            self.kubectl(&["apply", "-f", &deploy.join(file).to_string_lossy()], None);
        }
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], None);
        self.token = self.create_token("braid");
    }

    fn log(&self) -> String {
        self.enter(|| {
            let log = |name: &str| fs::read_to_string(format!("{HOME}/{name}.log")).unwrap_or_default();
            ["etcd", "kube-apiserver"].map(log).join("\n")
        })
    }

    pub(crate) fn create_token(&self, account: &str) -> String {
        self.kubectl(&["create", "token", account, "-n", "kube-system"], None).trim().to_owned()
    }

    /// kubectl as administrator; what it prints.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str], input: Option<&Value>) -> String {
        let output = self.try_kubectl(args, input);
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn try_kubectl(&self, args: &[&str], input: Option<&Value>) -> Output {
        self.enter(|| {
            let mut kubectl = Command::new(bin().join("kubectl"));
            kubectl.args([
                "--kubeconfig",
                &format!("{HOME}/pki/admin.conf"),
                "--cache-dir",
                &format!("{HOME}/kubectl"),
            ]);
            kubectl.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = kubectl.spawn().expect("kubectl starts");
            let mut stdin = child.stdin.take().expect("its input");
            stdin.write_all(input.map(ToString::to_string).unwrap_or_default().as_bytes()).expect("it reads");
            drop(stdin);
            child.wait_with_output().expect("kubectl ends")
        })
    }

    /// The requests that it has seen so far.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let log = self.enter(|| fs::read_to_string(format!("{HOME}/audit.log")).expect("the audit log"));
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.enter(|| TcpStream::connect((API_SERVER, PORT)).expect("the API server listens"))
    }

    /// Does `work` in the server's network, and with its files, on a thread of its own.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            // Nobody else may have this thread's view of the files.
            unshare(CloneFlags::CLONE_FS).expect("a folder of its own");
            setns(&self.net, CloneFlags::CLONE_NEWNET).expect("enter the server's network namespace");
            setns(&self.mnt, CloneFlags::CLONE_NEWNS).expect("enter the server's mount namespace");
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).expect("what is done beside the server")
    }
}

/// Starts `command` so that it ends with this thread; its output is in `<name>.log`.
#[expect(clippy::zombie_processes, reason = "it outlives all but the process, and then has no parent to wait")]
fn daemon(name: &str, command: &mut Command) {
    let log = File::create(format!("{HOME}/{name}.log")).expect("a log");
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    tied.stdin(Stdio::null()).stdout(log.try_clone().expect("the log twice")).stderr(log);
    tied.spawn().unwrap_or_else(|err| panic!("start {name}: {err}"));
}

fn run(command: &mut Command) {
    assert!(command.status().expect("it starts").success(), "{command:?} failed");
}
