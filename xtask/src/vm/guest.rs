//! Boots a kernel in qemu, and runs a single command in this guest.

use super::initrd;
use super::kernel::Kernel;
use crate::test::journal;
use anyhow::{Context, Result, bail};
use braid_testbed::sh;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};

/// Environment variables of this process that are passed to the command in the guest.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "RUST_BACKTRACE", "BRAID_CACHE"];

/// Path of the tests' journal in the guest. It is in a file system that the host does not share,
/// and that sandboxes see.
const NOTES: &str = "/dev/shm/journal";

/// Limits of a guest.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) timeout_minutes: u32,
    /// Memory in GiB.
    pub(crate) memory: u32,
}

/// Boots `kernel`, runs `command` there in the current folder, and returns the command's exit code.
/// Prints each line of output after the kernel's release.
pub(crate) fn run(kernel: &Kernel, command: &[String], bounds: Bounds) -> Result<i32> {
    eprintln!("--- {}: {}", kernel.release, command.join(" "));
    let dir = sh::cache()
        .join("vm/run")
        .join(format!("{}-{}", std::process::id(), kernel.release));
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let ended = boot(kernel, command, bounds, &dir);
    fs::remove_dir_all(&dir)?;
    ended
}

fn boot(kernel: &Kernel, command: &[String], bounds: Bounds, dir: &Path) -> Result<i32> {
    let (ramdisk, code) = (dir.join("initrd"), dir.join("code"));
    initrd::write(kernel, &script(command)?, &ramdisk).context("make the initial ramdisk")?;
    let mut qemu = qemu(kernel, &ramdisk, &code, bounds)
        .spawn()
        .context("start qemu")?;
    let terminal = qemu.stdout.take().context("qemu's output")?;
    // Reads to the end, so that qemu is waited for even if a line cannot be printed.
    let shown = show(terminal, &kernel.release, &mut stdout());
    let status = qemu.wait().context("wait for qemu")?;
    shown?;
    if status.code() == Some(124) {
        bail!("ended after {} minutes", bounds.timeout_minutes);
    }
    let text = fs::read_to_string(&code).unwrap_or_default();
    let (notes, code) = text.trim().rsplit_once('\n').unwrap_or(("", text.trim()));
    journal::add_times(notes, &kernel.release)?;
    code.trim()
        .parse()
        .with_context(|| format!("the guest ended without an exit code (qemu: {status})"))
}

/// Copies `terminal` to `to` line by line, with `label` before each line.
fn show(terminal: impl Read, label: &str, to: &mut impl Write) -> Result<()> {
    let mut lines = BufReader::new(terminal).split(b'\n');
    lines.try_for_each(|line| to.write_all(&[label.as_bytes(), b" | ", &line?, b"\n"].concat()))?;
    Ok(())
}

/// Returns the shell script that runs last in the guest. It runs `command`, writes the tests'
/// journal and the exit code to the second serial line, and powers the guest off.
fn script(command: &[String]) -> Result<String> {
    let mut script = String::new();
    for name in ENVIRONMENT {
        if let Ok(value) = std::env::var(name) {
            writeln!(script, "export {name}={}", quoted(&value))?;
        }
    }
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    let dir = std::env::current_dir()?;
    writeln!(
        script,
        "export PATH=$PATH:/usr/sbin:/sbin\ncd {}",
        quoted(&dir.to_string_lossy())
    )?;
    writeln!(
        script,
        "export {}={NOTES}\n{} </dev/null\ncode=$?",
        journal::VARIABLE,
        words.join(" ")
    )?;
    writeln!(
        script,
        "[ ! -f {NOTES} ] || cat {NOTES} >/dev/ttyS1\necho $code >/dev/ttyS1"
    )?;
    // stty returns once the line has sent everything that was written.
    script += "stty -F /dev/ttyS0 -echo\nstty -F /dev/ttyS1 -echo\n/bin/busybox poweroff -f\n";
    Ok(script)
}

fn qemu(kernel: &Kernel, ramdisk: &Path, code: &Path, bounds: Bounds) -> Command {
    let mut command = Command::new("timeout");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // In the foreground, so that an interrupt from the terminal also ends the guest.
        .args([
            "--foreground",
            "--kill-after=5s",
            &format!("{}m", bounds.timeout_minutes),
            "qemu-system-x86_64",
        ])
        // Emulation instead of KVM, because a nested KVM may be present and unable to boot a
        // kernel. One thread for both processors: with parallel emulation, one may run code that
        // the other is patching (the kernel's static keys), and the guest panics.
        .args([
            "-accel",
            "tcg,thread=single",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            &format!("{}G", bounds.memory),
        ])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args([
            "-fsdev",
            "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        ])
        .args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"])
        .args([
            "-chardev",
            "stdio,id=terminal,signal=on",
            "-serial",
            "chardev:terminal",
        ])
        .args(["-serial", &format!("file:{}", code.display())])
        .args(["-append", "console=ttyS0 quiet loglevel=1 panic=-1"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(ramdisk);
    command
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_lines_are_labelled_with_their_guest() {
        let mut seen = Vec::new();
        show(&b"one\r\ntwo"[..], "6.1", &mut seen).unwrap();
        assert_eq!(seen, b"6.1 | one\r\n6.1 | two\n");
    }

    #[test]
    fn a_word_with_a_quote_stays_one_word() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
