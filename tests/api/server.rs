//! etcd and kube-apiserver for all tests of this process. They are started once, and end with the
//! process.

use braid_testbed::API_SERVER;
use braid_testbed::api_server::{ApiServer, PORT};
use braid_testbed::audit::Audit;
use braid_tests::{Sandbox, Value, json};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Instant;

/// Folder of the server's files in the server's sandbox. It is in memory, like all of the sandbox's
/// `/run`.
const HOME: &str = "/run/api-server";

pub(crate) struct Server {
    net: File,
    mnt: File,
    api: ApiServer,
    /// True if the admission policies of the manifest apply.
    pub(crate) is_guarded: bool,
    /// Certificate of the certificate authority, as PEM.
    pub(crate) authority: String,
    /// Certificate and key of the API server, as PEM.
    pub(crate) identity: [String; 2],
    /// Certificate and key of the administrator, as PEM.
    pub(crate) admin: [String; 2],
    /// Key that signs service account tokens, as PEM.
    pub(crate) token_key: String,
    /// Token of the shipped service account.
    pub(crate) token: String,
}

/// Returns the server, and starts it if no test has done so. `None` if a program is missing: `test`
/// is then reported as skipped.
pub(crate) fn get(test: &str) -> Option<&'static Server> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    started(&SERVER, test, false)
}

/// Returns another server, with the policies and the configuration of the manifest too: braid's
/// account has the rights of a real cluster. `None` like [`get`].
pub(crate) fn guarded(test: &str) -> Option<&'static Server> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    started(&SERVER, test, true)
}

/// Returns a third server like [`guarded`], for a test with objects that disturb other tests. `None`
/// like [`get`].
pub(crate) fn loaded(test: &str) -> Option<&'static Server> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    started(&SERVER, test, true)
}

fn started(
    server: &'static OnceLock<Server>,
    test: &str,
    is_guarded: bool,
) -> Option<&'static Server> {
    if let Some(why) = ApiServer::missing() {
        braid_tests::feature::tell_skip(test, &why);
        return None;
    }
    Some(server.get_or_init(|| Server::start(is_guarded)))
}

impl Server {
    fn start(is_guarded: bool) -> Self {
        let (up, when_up) = mpsc::channel();
        let keep = move || {
            let _sandbox = Sandbox::new();
            up.send(Self::make(is_guarded)).expect("a test waits");
            // etcd and the API server end with the thread that started them, and this thread ends
            // with the test process.
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new()
            .name("api-server".into())
            .spawn(keep)
            .expect("a thread");
        when_up.recv().expect("the API server starts")
    }

    fn make(is_guarded: bool) -> Self {
        let start = Instant::now();
        let api = ApiServer::start(Path::new(HOME)).unwrap_or_else(|err| panic!("{err:#}"));
        if is_guarded {
            api.apply("policy, configuration")
                .unwrap_or_else(|err| panic!("{err:#}"));
        }
        let read = |name: &str| fs::read_to_string(api.pki(name)).expect("a file of the authority");
        let open = |path| File::open(path).expect("a namespace");
        let server = Self {
            net: open("/proc/thread-self/ns/net"),
            mnt: open("/proc/thread-self/ns/mnt"),
            authority: read("ca.crt"),
            identity: [read("apiserver.crt"), read("apiserver.key")],
            admin: [read("admin.crt"), read("admin.key")],
            token_key: read("sa.key"),
            token: api.create_token("braid").expect("a token"),
            api,
            is_guarded,
        };
        eprintln!("API server up after {:.1} s", start.elapsed().as_secs_f64());
        server
    }

    pub(crate) fn create_token(&self, account: &str) -> String {
        self.enter(|| self.api.create_token(account))
            .expect("a token")
    }

    /// Requests a token of an account in `kube-system` that is bound to an object of this kind and
    /// name.
    pub(crate) fn bound_token(&self, account: &str, kind: &str, name: &str) -> String {
        let bound = [
            &format!("--bound-object-kind={kind}")[..],
            &format!("--bound-object-name={name}"),
        ];
        let create = ["create", "token", account, "-n", "kube-system"];
        let token = self.kubectl(&[&create[..], &bound].concat(), None);
        token.trim().to_owned()
    }

    /// Creates the agent's pod on a node, and returns its token, as the `DaemonSet` and the kubelet
    /// do.
    pub(crate) fn agent_token(&self, node: &str) -> String {
        let name = format!("braid-{node}");
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"nodeName": node, "serviceAccountName": "braid", "containers": [{"name": "c", "image": "none"}]},
        });
        self.kubectl(&["create", "-f", "-"], Some(&pod));
        self.bound_token("braid", "Pod", &name)
    }

    /// Runs kubectl as administrator and returns its output. Fails if kubectl fails.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str], input: Option<&Value>) -> String {
        self.enter(|| self.api.kubectl(args, input))
            .unwrap_or_else(|err| panic!("{err:#}"))
    }

    /// Runs kubectl as administrator and returns its output, even if kubectl fails.
    pub(crate) fn try_kubectl(&self, args: &[&str], input: Option<&Value>) -> Output {
        self.enter(|| self.api.try_kubectl(args, input))
            .expect("kubectl runs")
    }

    /// Starts openssl as a client that connects its input and output to the API server.
    pub(crate) fn client(&self, more: &[&str], output: Stdio) -> Child {
        self.enter(|| {
            let mut client = Command::new("openssl");
            client
                .args([
                    "s_client",
                    "-noservername",
                    "-verify_quiet",
                    "-verify_return_error",
                ])
                .args(["-connect", &format!("{API_SERVER}:{PORT}"), "-CAfile"])
                .arg(self.api.pki("ca.crt"))
                .args(more)
                .stdin(Stdio::piped())
                .stdout(output)
                .spawn()
                .expect("openssl starts")
        })
    }

    /// Sends one request with a token. Returns status and body of the answer. kubectl would send
    /// others before it.
    pub(crate) fn request(
        &self,
        token: &str,
        [method, path, kind]: [&str; 3],
        body: &Value,
    ) -> (u16, String) {
        let body = body.to_string();
        let head = [
            format!("{method} {path} HTTP/1.0"),
            format!("Authorization: Bearer {token}"),
            format!("Content-Type: application/{kind}"),
            format!("Content-Length: {}", body.len()),
        ];
        let text = format!("{}\r\n\r\n{body}", head.join("\r\n"));
        let mut client = self.client(&["-quiet"], Stdio::piped());
        let mut stdin = client.stdin.take().expect("its input");
        stdin.write_all(text.as_bytes()).expect("it reads");
        let output = client.wait_with_output().expect("openssl ends");
        let answer = String::from_utf8(output.stdout).expect("an answer is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Returns the requests that braid's account has sent so far.
    pub(crate) fn audit(&self) -> Audit {
        self.enter(|| self.api.audit()).expect("the audit log")
    }

    /// Returns the requests that another service account, `<namespace>:<name>`, has sent so far.
    pub(crate) fn audit_of(&self, account: &str) -> Audit {
        self.enter(|| Audit::read_of(Path::new(HOME), account))
            .expect("the audit log")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.enter(|| TcpStream::connect((API_SERVER, PORT)).expect("the API server listens"))
    }

    /// Runs `work` in the server's network and mount namespaces, on a separate thread.
    fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            // setns() requires that no other thread shares this thread's root and working
            // directory.
            unshare(CloneFlags::CLONE_FS).expect("a folder of its own");
            setns(&self.net, CloneFlags::CLONE_NEWNET)
                .expect("enter the server's network namespace");
            setns(&self.mnt, CloneFlags::CLONE_NEWNS).expect("enter the server's mount namespace");
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .expect("what is done beside the server")
    }
}
