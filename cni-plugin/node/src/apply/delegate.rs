//! Foreign plugins, run by libcni's rules: lookup in `CNI_PATH`, environment, stdin and stdout.

use super::within;
use crate::Context;
use crate::log::Log;
use crate::sys::exec_busy::Writers;
use crate::sys::{executable, outputs};
use braid_core::cni::bounds::shortened;
use braid_core::cni::{Command, Error, Json, Owner};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

/// Longest wait while a plugin's file is open for writing (`ETXTBSY`). libcni tries five times,
/// with a pause of one second.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest run of a plugin, which holds the lock of its container. A kubelet gives its runtime two
/// minutes.
const LONGEST_RUN: Duration = Duration::from_secs(100);

/// Environment of a call to a foreign plugin.
#[derive(Debug, Clone)]
pub struct DelegateCall<'a> {
    /// The CNI command, such as `ADD`.
    pub command: Command,
    /// Network, container and interface of the call. Container and interface are empty for GC and
    /// STATUS.
    pub owner: &'a Owner,
    /// `CNI_NETNS`.
    pub netns: &'a str,
    /// `CNI_ARGS`.
    pub args: &'a str,
    /// `CNI_PATH`.
    pub path: &'a [PathBuf],
    /// Receiver of the plugin's standard error.
    pub log: &'a Log,
}

/// Finds the executable file of a plugin: the first regular file with the name `plugin` in the
/// folders of `path`. Fails if this file is braid itself, or if a parent process already runs the
/// plugin for `owner`.
pub fn find(plugin: &str, path: &[PathBuf], owner: &Owner) -> Result<PathBuf, Error> {
    let (file, meta) = look_up(plugin, path)?;
    is_itself(plugin, &file, &meta)
        .or_else(|| is_under_way(plugin, &file, owner))
        .map_or(Ok(file), Err)
}

/// Returns an error if running the plugin would start this program again in an endless loop. With
/// `is_begun`, an earlier call has already run the plugin for this ADD. That run shows that the
/// plugin's file was not this program, so the file is not checked again.
#[cold]
pub fn circle(plugin: &str, path: &[PathBuf], owner: &Owner, is_begun: bool) -> Option<Error> {
    let (file, meta) = look_up(plugin, path).ok()?;
    let itself = if is_begun {
        None
    } else {
        is_itself(plugin, &file, &meta)
    };
    itself.or_else(|| is_under_way(plugin, &file, owner))
}

fn look_up(plugin: &str, path: &[PathBuf]) -> Result<(PathBuf, Metadata), Error> {
    if plugin.is_empty() {
        return Err(Error::config("no plugin name provided"));
    }
    if plugin.contains('/') {
        return Err(Error::config(format!("invalid plugin name: {plugin}")));
    }
    if path.is_empty() {
        return Err(Error::env("no paths provided"));
    }
    let regular = |file: PathBuf| {
        fs::metadata(&file)
            .ok()
            .filter(Metadata::is_file)
            .map(|meta| (file, meta))
    };
    let found = path.iter().find_map(|dir| regular(dir.join(plugin)));
    found.ok_or_else(|| {
        Error::internal(format!(
            "failed to find plugin {:?} in path {}",
            shortened(plugin),
            text_of(path)
        ))
    })
}

fn is_itself(plugin: &str, file: &Path, meta: &Metadata) -> Option<Error> {
    let sentence = || {
        format!(
            "type {plugin:?}: {} is braid itself, which does not implement this type",
            file.display()
        )
    };
    executable::is_own(file, meta).then(|| Error::internal(sentence()))
}

fn is_under_way(plugin: &str, file: &Path, owner: &Owner) -> Option<Error> {
    let Owner {
        network,
        container_id,
        ifname,
    } = owner;
    let of = format!("network {network:?} container {container_id:?} interface {ifname:?}");
    let file = file.display();
    let sentence =
        || format!("type {plugin:?}: {file} called braid, which would run it again for {of}");
    within::runs(plugin, owner).then(|| Error::internal(sentence()))
}

fn text_of(path: &[PathBuf]) -> String {
    let dirs: Vec<String> = path.iter().map(|dir| dir.display().to_string()).collect();
    format!("[{}]", dirs.join(" "))
}

/// Runs `plugin` with `conf` on standard input and returns the JSON that the plugin prints;
/// `Json::Null` if it prints none. After a success, the plugin's standard error is logged. After a
/// failure without an error message, the standard error becomes part of the returned error.
pub fn run(plugin: &str, conf: &Json, call: &DelegateCall<'_>) -> Result<Json, Error> {
    let file = find(plugin, call.path, call.owner)?;
    let (within, calls) = within::variable(plugin, call.owner);
    let mut process = Process::new(&file);
    process
        .env("CNI_COMMAND", call.command.as_str())
        .env("CNI_CONTAINERID", &call.owner.container_id)
        .env("CNI_NETNS", call.netns)
        .env("CNI_IFNAME", &call.owner.ifname)
        .env("CNI_ARGS", call.args)
        .env("CNI_PATH", join(call.path))
        .env(within, calls)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child =
        start(&mut process, &file).doing(format_args!("start plugin {}", file.display()))?;
    let output =
        outputs::wait(child, conf.to_string().as_bytes(), LONGEST_RUN).doing(format_args!(
            "wait for plugin {}, at most {LONGEST_RUN:?}",
            file.display()
        ))?;
    if output.status.success() {
        call.log.output(&output.stderr);
        return answer(&file, &output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(refusal(&file, &output.stdout, said.trim()))
}

/// Starts the plugin. Waits up to [`WRITER_TIMEOUT`] while another process writes the plugin's
/// file, for example to install it.
fn start(process: &mut Process, file: &Path) -> io::Result<Child> {
    let end = Instant::now() + WRITER_TIMEOUT;
    let is_busy = |err: &io::Error| err.kind() == io::ErrorKind::ExecutableFileBusy;
    match process.spawn() {
        Err(err) if is_busy(&err) => {}
        started => return started,
    }
    let writers = Writers::watch(file)?;
    loop {
        match process.spawn() {
            Err(err)
                if is_busy(&err)
                    && writers.wait(end.saturating_duration_since(Instant::now()))? => {}
            started => return started,
        }
    }
}

fn join(path: &[PathBuf]) -> std::ffi::OsString {
    std::env::join_paths(path).unwrap_or_default()
}

fn answer(file: &Path, stdout: &[u8]) -> Result<Json, Error> {
    if stdout.trim_ascii().is_empty() {
        return Ok(Json::Null);
    }
    Json::parse(stdout, &format!("result of {}", file.display()))
}

fn refusal(file: &Path, stdout: &[u8], stderr: &str) -> Error {
    if stdout.trim_ascii().is_empty() {
        return Error::internal(format!(
            "plugin {} failed without a message: {stderr:?}",
            file.display()
        ));
    }
    Error::from_stdout(stdout).unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(stdout);
        Error::internal(format!(
            "plugin {} failed with an unreadable message: {:?}",
            file.display(),
            said.trim()
        ))
    })
}
