//! A plugin call: environment and standard input in, result or error out.

use super::{FAILURE, SUCCESS, output};
use crate::entry::{priority, start};
use braid_core::cni::request::Environment;
use braid_core::cni::{Command, Error, Version};
use braid_node::apply::host::This;
use braid_node::attach;
use braid_node::attach::chain::{BRAID, Chain};
use braid_node::source::agent::report::CallReport;
use braid_node::source::cluster::Kubernetes;
use braid_node::source::trace;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Initial size in bytes of the buffer for standard input. A typical configuration fits in it.
const INPUT_LEN: usize = 4 * 1024;

/// True once part of an answer is written. No other answer may follow, because the runtime reads
/// only one JSON document.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Answers the plugin call that the environment describes, and returns the exit status.
pub fn run(arguments: &[OsString]) -> u8 {
    let start = Instant::now();
    set_panic_answer();
    let mut call = Call {
        version: Version::NEWEST,
        command: None,
        plugin: plugin_name(arguments),
    };
    let (status, code) = match answer(&mut call) {
        Ok(()) => (SUCCESS, 0),
        Err(error) => {
            tell(&error, call.version);
            (FAILURE, error.kind.code())
        }
    };
    call.report(code, start.elapsed());
    status
}

/// Properties of a call that are known as soon as its input is read.
struct Call {
    version: Version,
    /// Verb; `None` until the environment is parsed, and for VERSION.
    command: Option<Command>,
    /// Type of the first plugin. Until the configuration is parsed, the name of the started file.
    plugin: String,
}

impl Call {
    /// Reports the finished call to the agent.
    fn report(&self, code: u32, duration: Duration) {
        if let Some(command) = self.command {
            let plugin = &self.plugin;
            let report = CallReport {
                command,
                plugin,
                code,
                duration,
            };
            report.send();
        }
    }
}

/// Writes an error to standard output for the runtime. If part of an answer is already written, or
/// if standard output fails, writes the error to standard error instead.
fn tell(error: &Error, version: Version) {
    if IS_BEGUN.load(Ordering::Relaxed) || write(&error.to_stdout(version)).is_err() {
        output::tell(format_args!("{error}"));
    }
}

/// Returns the file name that the program was started by, which selects the plugin. Returns `braid`
/// if the first argument has no file name.
pub fn plugin_name(arguments: &[OsString]) -> String {
    if let Some(path) = arguments.first()
        && let Some(name) = Path::new(path).file_name().and_then(OsStr::to_str)
    {
        return name.to_owned();
    }
    BRAID.to_owned()
}

fn answer(call: &mut Call) -> Result<(), Error> {
    let plugin_name = call.plugin.clone();
    let env = |key: &str| std::env::var_os(key).map(|value| value.to_string_lossy().into_owned());
    let Some(environment) = Environment::parse(&env)? else {
        return Ok(());
    };
    if environment.command() == Some(Command::Version) {
        return deliver(&attach::version(&plugin_name, environment.path())?);
    }
    call.command = environment.command();
    if matches!(environment.command(), Some(Command::Add | Command::Del)) {
        priority::raise();
    }
    let stdin = read_input().map_err(|err| Error::io(format!("read standard input: {err}")))?;
    let request = environment.request(&stdin, &Version::ALL)?;
    call.version = request.conf.version;
    Chain::first_type_of(&plugin_name, &request.conf).clone_into(&mut call.plugin);
    // The result is not dropped, because the process ends right after this.
    let machine = This::new(output::traced_log(trace::of_process()));
    let answered = attach::answer(request, &plugin_name, &machine, &Kubernetes, &mut deliver);
    answered.map(std::mem::forget)
}

/// Reads the configuration from standard input: usually one read for the text, and one that finds
/// the end.
fn read_input() -> nix::Result<Vec<u8>> {
    let (mut input, mut len) = (vec![0; INPUT_LEN], 0);
    loop {
        match nix::unistd::read(start::input(), &mut input[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if len == input.len() {
            input.resize(len * 2, 0);
        }
    }
    input.truncate(len);
    Ok(input)
}

fn deliver(text: &str) -> Result<(), Error> {
    write(text).map_err(|err| Error::io(format!("write the result to standard output: {err}")))
}

/// Writes the answer in one piece, so that the runtime wakes up once. Sets [`IS_BEGUN`] once part
/// of the answer is written.
fn write(text: &str) -> nix::Result<()> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match nix::unistd::write(start::output(), left) {
            Ok(len) => {
                IS_BEGUN.store(true, Ordering::Relaxed);
                left = &left[len..];
            }
            Err(Errno::EINTR) => {}
            // The pipe is non-blocking and full. Waits until the reader reads or closes it.
            Err(Errno::EAGAIN) => {
                let _ = poll(
                    &mut [PollFd::new(start::output(), PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                );
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Installs a panic hook, which prints the panic to standard error. If no part of an answer is
/// written yet, the hook also writes an error for the runtime.
fn set_panic_answer() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !IS_BEGUN.load(Ordering::Relaxed) {
            tell(
                &Error::internal(format!("this is a bug in braid: {panic}")),
                Version::NEWEST,
            );
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Environment variable of the process that panics.
    const CHILD: &str = "BRAID_TEST_PANICS";

    #[test]
    fn panic_after_the_answer_writes_no_second_document() {
        for (when, msgs, results) in [("before", 1, 0), ("behind", 0, 1)] {
            let mut child = Command::new(std::env::current_exe().expect("this program"));
            child
                .args([
                    "--exact",
                    "cli::cni::tests::panics",
                    "--ignored",
                    "--nocapture",
                ])
                .env(CHILD, when);
            let output = child.output().expect("the child runs");
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert_eq!(stdout.matches("\"msg\"").count(), msgs, "{when}: {stdout}");
            assert_eq!(
                stdout.matches("\"a result\"").count(),
                results,
                "{when}: {stdout}"
            );
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("on purpose"),
                "{when}: {output:?}"
            );
        }
    }

    #[test]
    #[ignore = "the process of the test above"]
    fn panics() {
        let Ok(when) = std::env::var(CHILD) else {
            return;
        };
        set_panic_answer();
        if when == "behind" {
            deliver("\"a result\"").expect("written");
        }
        panic!("on purpose");
    }
}
