//! Initial ramdisk of a guest: busybox, the kernel modules for access to the host's files, and the
//! start script.

use super::kernel::Kernel;
use anyhow::{Context, Result};
use braid_testbed::sh;
use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Kernel modules that the guest needs to access the host's files. Also tun, because the guest has
/// no udev that would create its device file. A kernel may have any of them built in.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "tun"];

/// Writes a ramdisk to `ramdisk`. In it, the shell script `command` runs as root on a read-only
/// view of the host's files. A folder with the content of the ramdisk stays beside it.
pub(crate) fn write(kernel: &Kernel, command: &str, ramdisk: &Path) -> Result<()> {
    let tree = ramdisk.with_extension("files");
    for dir in [
        "bin", "dev", "host", "modules", "proc", "root", "sys", "upper",
    ] {
        fs::create_dir_all(tree.join(dir))
            .with_context(|| format!("create {dir} in {}", tree.display()))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox")).context("copy /bin/busybox")?;
    let mut insmod = String::new();
    for (index, path) in load_order(kernel)?.iter().enumerate() {
        // busybox cannot load a compressed module; xz copies uncompressed input.
        let module = File::create(tree.join(format!("modules/{index}.ko")))?;
        sh::run(sh::cmd("xz", ["--decompress", "--stdout", "--force", path]).stdout(module))?;
        writeln!(insmod, "insmod /modules/{index}.ko")?;
    }
    for (name, text) in [("init", &*init(kernel, &insmod)), ("command", command)] {
        fs::write(tree.join(name), text)?;
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o755))?;
    }
    let archive = File::create(ramdisk).with_context(|| format!("create {}", ramdisk.display()))?;
    sh::run(
        sh::cmd("sh", ["-c", "find . | busybox cpio -o -H newc --quiet"])
            .current_dir(tree)
            .stdout(archive),
    )
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

/// Returns the paths of the modules and their dependencies. Each path occurs once, after its
/// dependencies.
fn load_order(kernel: &Kernel) -> Result<Vec<String>> {
    let base = kernel
        .modules
        .ancestors()
        .nth(3)
        .context("modules outside lib/modules")?;
    let mut modprobe = sh::cmd(
        "modprobe",
        [
            "--all",
            "--show-depends",
            "--set-version",
            &kernel.release,
            "--dirname",
        ],
    );
    let shown = sh::read(modprobe.arg(base).args(MODULES))?;
    let mut order = Vec::<String>::new();
    for path in shown
        .lines()
        .filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next())
    {
        if order.iter().all(|other| other != path) {
            order.push(path.to_owned());
        }
    }
    Ok(order)
}
