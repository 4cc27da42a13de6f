//! Execution of other programs. Each error names the command.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}

/// Returns the folder of downloads and builds that outlive the checkout: `$BRAID_CACHE`, else
/// `~/.cache/braid`.
pub(crate) fn cache() -> PathBuf {
    std::env::var_os("BRAID_CACHE").map_or_else(
        || {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()))
                .join(".cache/braid")
        },
        PathBuf::from,
    )
}

/// Returns a command that runs in the checkout's root.
pub(crate) fn cmd<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Returns another verb of this program.
pub(crate) fn xtask<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    Ok(cmd(
        std::env::current_exe().context("find this program")?,
        args,
    ))
}

/// Runs `command` and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Runs `command` and returns its standard output.
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
        let [said, told] =
            [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text).trim().to_owned());
        bail!("{command:?}: {}: {said}{told}", out.status);
    }
    fed.transpose()
        .with_context(|| format!("write to {command:?}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs ip(8) with arguments separated by blanks.
pub(crate) fn ip(args: &str) -> Result<()> {
    read(&mut cmd("ip", args.split(' '))).map(drop)
}

/// Installs the Debian packages of missing programs; `needs` lists program and package.
pub(crate) fn apt(needs: &[(&str, &str)]) -> Result<()> {
    const INSTALL: &[&str] = &["install", "-y", "-qq", "--no-install-recommends"];
    let missing: Vec<&str> = needs
        .iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Serialized, because apt fails instead of waiting for Debian's own lock.
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

/// True if the program is in the search path, or in an administrator's.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|dir| Path::new(dir).join(program).is_file())
}

/// Returns a number that differs between commits, so that each commit tries other crash points; 0
/// outside a checkout.
pub(crate) fn commit_number() -> u64 {
    let commit = read(&mut cmd("git", ["rev-parse", "HEAD"])).unwrap_or_default();
    commit
        .get(..8)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}
