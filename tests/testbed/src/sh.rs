//! Commands that run other programs. Each error names its command.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the root of the checkout.
pub fn root() -> PathBuf {
    let mut ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    ancestors.nth(2).unwrap_or(Path::new("")).to_owned()
}

/// Returns the folder for downloads and builds that outlive the checkout: `$BRAID_CACHE`, or
/// `~/.cache/braid`.
pub fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("BRAID_CACHE") {
        return cache.into();
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    Path::new(&home).join(".cache/braid")
}

/// Returns a command that runs in the checkout's root folder.
pub fn cmd<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs `command` until it ends. Returns an error if the command fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Runs a `command` that downloads, like [`run`], and again if it fails: a proxy may fail once.
pub(crate) fn fetch(command: &mut Command) -> Result<()> {
    run(command).or_else(|_| run(command))
}

/// Runs `command` and returns its standard output. If the command fails, the error contains the
/// command's standard error.
pub fn read(command: &mut Command) -> Result<String> {
    let out = command
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("start {command:?}"))?;
    if !out.status.success() {
        bail!(
            "{command:?}: {}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs `command` with `input` as its standard input, and returns its standard output.
pub fn feed(command: &mut Command, input: &[u8]) -> Result<String> {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    // A program that does not read its input reports the reason on standard error.
    let fed = child.stdin.take().map(|mut stdin| stdin.write_all(input));
    let out = child
        .wait_with_output()
        .with_context(|| format!("wait for {command:?}"))?;
    if !out.status.success() {
        let output = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!(
            "{command:?}: {}: {}{}",
            out.status,
            output.trim(),
            errors.trim()
        );
    }
    fed.transpose()
        .with_context(|| format!("write to {command:?}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs ip(8) with the arguments in `args`, which are separated by blanks.
pub fn ip(args: &str) -> Result<()> {
    read(&mut cmd("ip", args.split(' ')))?;
    Ok(())
}

/// Installs the Debian packages of missing programs. Each entry of `needs` is a program and its
/// package.
pub fn apt(needs: &[(&str, &str)]) -> Result<()> {
    const INSTALL: &[&str] = &["install", "-y", "-qq", "--no-install-recommends"];
    let mut missing = Vec::new();
    for (program, package) in needs {
        if !on_path(program) {
            missing.push(*package);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    // One installation at a time: apt fails on its own lock and does not wait.
    fs::create_dir_all(cache())?;
    let lock = File::create(cache().join("apt.lock")).context("create a lock for apt")?;
    lock.lock().context("wait for another installation")?;
    eprintln!("installing {}", missing.join(" "));
    let install = |args: &[&str]| {
        run(cmd("apt-get", args)
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null()))
    };
    // The package lists of a new machine may be missing or old, so the second try updates them.
    install(INSTALL).or_else(|_| {
        run(&mut cmd("apt-get", ["update", "-qq"]))?;
        install(INSTALL)
    })
}

/// Returns true if the program is in the search path, /usr/sbin or /sbin.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let is_in = |dir: &str| Path::new(dir).join(program).is_file();
    path.split(':').any(is_in) || is_in("/usr/sbin") || is_in("/sbin")
}
