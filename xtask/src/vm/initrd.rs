//! The initial ramdisk of a guest: busybox, the modules that reach the host's files, and the steps from there.

use super::cpio::Cpio;
use super::kernel::Kernel;
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Modules that the guest needs before it sees the host's files; each may be built in instead.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// The ramdisk in which `command`, a shell script, runs as root over the host's files, which it can't change.
pub(crate) fn build(kernel: &Kernel, command: &str) -> Result<Vec<u8>> {
    let dep = kernel.modules.join("modules.dep");
    let dep = fs::read_to_string(&dep).with_context(|| format!("read {}", dep.display()))?;
    let modules = load_order(&dep, &MODULES);
    let mut ramdisk = Cpio::default();
    for dir in ["bin", "dev", "host", "modules", "proc", "root", "sys", "upper"] {
        ramdisk.dir(dir);
    }
    ramdisk.file("bin/busybox", &fs::read("/bin/busybox").context("read /bin/busybox")?);
    let mut insmod = String::new();
    for (index, path) in modules.iter().enumerate() {
        ramdisk.file(&format!("modules/{index}.ko"), &module(&kernel.modules.join(path))?);
        writeln!(insmod, "insmod /modules/{index}.ko")?;
    }
    ramdisk.file("init", init(kernel, &insmod).as_bytes());
    ramdisk.file("command", command.as_bytes());
    Ok(ramdisk.finish())
}

fn init(kernel: &Kernel, insmod: &str) -> String {
    let (release, modules) = (&kernel.release, kernel.modules.display());
    format!(
        "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
stty -F /dev/ttyS0 -onlcr
stty -F /dev/ttyS1 raw
{insmod}
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host
mount -t tmpfs tmpfs /upper
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work overlay /root
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
cd /root
mount -t tmpfs run run
mkdir -p dev/pts dev/shm lib/modules
mount -t devpts devpts dev/pts
mount -t tmpfs shm dev/shm
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t bpf bpf sys/fs/bpf
mount -t tracefs tracefs sys/kernel/tracing
rm -rf lib/modules/{release}
ln -s {modules} lib/modules/{release}
cp /command run/command
ifconfig lo up
exec switch_root /root /bin/sh /run/command
"
    )
}

/// The files of `wanted` and of what they depend on, each after what it needs, from the text of a modules.dep.
fn load_order<'a>(dep: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let mut order = Vec::new();
    for name in wanted {
        let line = dep.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| is_module(path, name));
        let Some((path, needs)) = line else { continue }; // built in
        // depmod(8) lists what is needed nearest first.
        for path in needs.split_whitespace().rev().chain([path]) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    order
}

fn is_module(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.split_once(".ko").is_some_and(|(stem, _)| stem.replace('-', "_") == name)
}

/// A module's own bytes; busybox loads no compressed ones.
fn module(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => fs::read(path).with_context(|| format!("read {}", path.display())),
        Some("xz") => {
            let out = Command::new("xz").arg("-dc").arg(path).output().context("start xz")?;
            if !out.status.success() {
                bail!("unpack {}: {}", path.display(), out.status);
            }
            Ok(out.stdout)
        }
        _ => bail!("{}: neither .ko nor .ko.xz", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_after_what_it_needs_and_once() {
        let dep = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                   kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\nkernel/fs/netfs/netfs.ko.xz:\n";
        assert_eq!(
            load_order(dep, &["built_in", "9pnet_virtio", "9p"]),
            [
                "kernel/net/9p/9pnet.ko.xz",
                "kernel/net/9p/9pnet_virtio.ko.xz",
                "kernel/fs/netfs/netfs.ko.xz",
                "kernel/fs/9p/9p.ko.xz"
            ]
        );
    }
}
