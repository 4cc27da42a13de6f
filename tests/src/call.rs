//! A plugin call as a runtime makes it.

use crate::{binary, plugins};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Environment and standard input of a plugin call. The methods named after CNI verbs run it.
#[derive(Debug, Clone)]
pub struct Call {
    plugin: String,
    is_reference: bool,
    /// Path of the file to start; `None` for the file of `plugin` in the sandbox's plugin folder.
    file: Option<PathBuf>,
    /// Program and arguments that run the plugin, such as `strace -f`. Empty to run the plugin
    /// directly.
    under: Vec<String>,
    stdin: Vec<u8>,
    conf: Value,
    env: Vec<(&'static str, OsString)>,
}

/// Output of a plugin call.
#[derive(Debug)]
pub struct Answer {
    /// Exit code; 128 plus the signal's number if a signal ended the plugin.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The CNI error that a plugin printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Error code of the CNI specification.
    pub code: u64,
    /// The error's `msg`.
    pub msg: String,
    /// The error's `details`, often empty.
    pub details: String,
}

impl Call {
    /// Returns a call of `plugin` with `conf` for `eth0`; the container ID is set later.
    pub fn new(plugin: &str, conf: Value) -> Self {
        let (under, stdin, env) = (Vec::new(), Vec::new(), Vec::new());
        let call = Self {
            plugin: plugin.to_owned(),
            is_reference: false,
            file: None,
            under,
            stdin,
            conf,
            env,
        };
        call.env("CNI_IFNAME", "eth0")
    }

    /// Calls the reference plugin instead of braid.
    #[must_use]
    pub fn reference(mut self) -> Self {
        self.is_reference = true;
        self
    }

    /// Calls another plugin.
    #[must_use]
    pub fn plugin(self, plugin: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            ..self
        }
    }

    /// Starts the plugin from the file at this path. The file's folder becomes `CNI_PATH`.
    #[must_use]
    pub fn by(mut self, file: &str) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Runs the plugin through another command, such as `strace -f`. White space separates its
    /// words.
    #[must_use]
    pub fn under(mut self, command: &str) -> Self {
        self.under = command.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Sets or replaces an environment variable; `None` removes it.
    #[must_use]
    pub fn env<'a>(mut self, key: &'static str, value: impl Into<Option<&'a str>>) -> Self {
        self.env.retain(|(other, _)| *other != key);
        self.env.extend(
            value
                .into()
                .map(|value| (key, OsString::from_vec(value.as_bytes().to_vec()))),
        );
        self
    }

    /// Sets `CNI_CONTAINERID`.
    #[must_use]
    pub fn container(self, id: &str) -> Self {
        self.env("CNI_CONTAINERID", id)
    }

    /// Sets `CNI_NETNS`.
    #[must_use]
    pub fn netns(self, path: &Path) -> Self {
        let path = path.to_string_lossy().into_owned();
        self.env("CNI_NETNS", path.as_str())
    }

    /// Sets `CNI_IFNAME`.
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// Sets `CNI_ARGS`.
    #[must_use]
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// Replaces the configuration.
    #[must_use]
    pub fn conf(mut self, conf: Value) -> Self {
        self.conf = conf;
        self
    }

    /// Sets one key of the configuration.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.conf[key] = value.into();
        self
    }

    /// Puts the result of an ADD into the configuration, as a runtime does for CHECK and DEL.
    #[must_use]
    pub fn prev(self, result: &Value) -> Self {
        self.with("prevResult", result.clone())
    }

    /// Sets the bytes for standard input instead of the configuration.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Runs ADD.
    pub fn add(&self) -> Answer {
        self.run("ADD")
    }

    /// Runs DEL.
    pub fn del(&self) -> Answer {
        self.run("DEL")
    }

    /// Runs CHECK with the result of the ADD as `prevResult`.
    pub fn check(&self, result: &Value) -> Answer {
        self.clone().prev(result).run("CHECK")
    }

    /// Runs GC. `valid` lists the container ID and the interface of each attachment to keep.
    pub fn gc(&self, valid: &[(&str, &str)]) -> Answer {
        let valid: Vec<Value> = valid
            .iter()
            .map(|(id, ifname)| json!({"containerID": id, "ifname": ifname}))
            .collect();
        self.clone()
            .with("cni.dev/valid-attachments", valid)
            .run("GC")
    }

    /// Runs STATUS.
    pub fn status(&self) -> Answer {
        self.run("STATUS")
    }

    /// Runs the given verb.
    #[track_caller]
    pub fn run(&self, command: &str) -> Answer {
        self.clone().env("CNI_COMMAND", command).run_as_is()
    }

    /// Runs the call with `CNI_PATH` and the variables that were set, and no other variables.
    #[track_caller]
    pub fn run_as_is(&self) -> Answer {
        let (program, path) = self.program();
        let mut words = self
            .under
            .iter()
            .map(OsString::from)
            .chain([program.clone().into_os_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .env("CNI_PATH", path);
        for (key, value) in &self.env {
            if value.is_empty() {
                command.env_remove(key)
            } else {
                command.env(key, value)
            };
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = started(&mut command)
            .unwrap_or_else(|err| panic!("start {}: {err}", program.display()));
        let own = self.conf.to_string().into_bytes();
        let input = if self.stdin.is_empty() {
            own
        } else {
            self.stdin.clone()
        };
        let mut stdin = child.stdin.take().expect("a pipe");
        // A call with an invalid environment ends before it reads its input.
        let feed = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("the plugin's output");
        feed.join().expect("the thread that writes");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status).unwrap_or(0);
        let code = output.status.code().unwrap_or(128 + signal);
        Answer {
            code,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    fn program(&self) -> (PathBuf, PathBuf) {
        if self.is_reference {
            let folder =
                binary::reference().expect("the reference plugins: needs!(Reference) comes first");
            return (folder.join(&self.plugin), folder.to_owned());
        }
        if let Some(file) = &self.file {
            return (
                file.clone(),
                file.parent().unwrap_or(Path::new("/")).to_owned(),
            );
        }
        (
            plugins::install(&self.plugin),
            PathBuf::from(plugins::PLUGINS),
        )
    }
}

impl Answer {
    /// Returns the result that the call printed. Fails if the call failed.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert_eq!(
            self.code, 0,
            "the call failed: {}\n{}",
            self.stdout, self.stderr
        );
        serde_json::from_str(&self.stdout).unwrap_or_else(|err| panic!("{err}: {}", self.stdout))
    }

    /// Fails unless the call succeeded and printed nothing. Verbs other than ADD and VERSION print
    /// nothing.
    #[track_caller]
    pub fn ok(&self) {
        assert_eq!(
            (self.code, self.stdout.as_str()),
            (0, ""),
            "{}",
            self.stderr
        );
    }

    /// Returns the error that the call printed. Fails unless the call failed.
    #[track_caller]
    pub fn error(&self) -> Refusal {
        assert_eq!(
            self.code, 1,
            "exit code of a failure; stdout {:?}, stderr {:?}",
            self.stdout, self.stderr
        );
        let json: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|err| panic!("{err}: {:?}", self.stdout));
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Refusal {
            code: json["code"].as_u64().expect("a code"),
            msg: text("msg"),
            details: text("details"),
        }
    }

    /// Fails unless the call failed with this error code, and its error text contains each of
    /// `words`.
    #[track_caller]
    pub fn refused(&self, code: u64, words: &[&str]) {
        let error = self.error();
        assert_eq!(error.code, code, "{error:?}");
        let text = format!("{} {}", error.msg, error.details);
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text:?}");
        }
    }
}

/// Starts a program, even if the test has just written its file. Retries on ETXTBSY: another thread
/// may have forked a process during the write. That process holds the file open for writing until
/// it calls exec.
fn started(command: &mut Command) -> io::Result<Child> {
    loop {
        match command.spawn() {
            Err(err) if err.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
            started => return started,
        }
    }
}
