//! A node for a directory of plugins, and its pods. They are namespaces that end with the bench.

use crate::netlink::{self, Socket};
use anyhow::{Context, Result, anyhow};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

/// Folders of the plugins' state, empty in a new node. `/run` comes first, because the overlays for
/// the other folders are stored in it.
const STATE: [&str; 3] = ["/run", "/var/lib/cni", "/var/lib/braid"];

/// Uplink of the node, and parent of macvlan, ipvlan and vlan.
const UPLINK: &str = "eth0";
/// Link that host-device moves, and its other end.
const DEVICE: [&str; 2] = ["dev0", "far0"];
/// Link from the node to the network namespace in which the bench and the API server run, also
/// through a bridge.
pub(crate) const LAN: &str = "lan";
/// Name of the uplink's other end.
pub(crate) const OUTSIDE: &str = "outside";
// TEST-NET-1, which no configuration should use for pods.
pub(crate) const UPLINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const UPLINK_GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A network and a mount namespace with empty state directories, a separate bpffs and an uplink.
///
/// Only these descriptors hold the namespaces, so the kernel deletes everything in them when the
/// bench ends or is killed.
pub(crate) struct Node {
    mount: File,
    pub(crate) network: File,
}

/// Network namespace of a pod, mounted at a path that exists only on its node.
pub(crate) struct Pod {
    pub(crate) path: PathBuf,
    pub(crate) netns: File,
    /// Socket opened inside the namespace.
    pub(crate) socket: Socket,
}

impl Node {
    /// Creates a node with empty directories [`STATE`] and `private`.
    pub(crate) fn new(private: &[PathBuf]) -> Result<Self> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
                .context("make a mount and a network namespace (needs root)")?;
            mount(
                None::<&str>,
                "/",
                None::<&str>,
                MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                None::<&str>,
            )
            .context("make all mounts private")?;
            for dir in STATE.iter().map(Path::new).chain(outside_state(private)) {
                hide(dir)?;
            }
            fs::create_dir("/run/netns").context("create /run/netns in the node")?;
            mount_fs("sysfs", Path::new("/sys"), "")?;
            mount_fs("bpf", Path::new("/sys/fs/bpf"), "")?;
            add_uplink().with_context(|| format!("add uplink {UPLINK} to the node"))?;
            Ok(Node {
                mount: own("mnt")?,
                network: own("net")?,
            })
        })
    }

    /// Moves the calling thread into the node. The thread must end afterwards.
    pub(crate) fn enter(&self) -> Result<()> {
        // A thread that shares its root and working directory with others cannot change its mount
        // namespace.
        unshare(CloneFlags::CLONE_FS).context("leave the shared working directory")?;
        setns(&self.mount, CloneFlags::CLONE_NEWNS).context("enter the node's mount namespace")?;
        setns(&self.network, CloneFlags::CLONE_NEWNET).context("enter the node's network namespace")
    }

    /// Runs `work` in the node.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Connects the node to the calling thread's network namespace with a veth. The address is
    /// 10.99.`number`.1/24 in this namespace, and 10.99.`number`.2/16 on the node.
    pub(crate) fn link_here(&self, number: u8) -> Result<()> {
        let mut here = Socket::open()?;
        let veth = netlink::add_veth(
            &format!("node{number}"),
            None,
            LAN,
            Some(self.network.as_fd()),
        );
        let (near, far) = netlink::made(
            &here
                .run([veth])
                .with_context(|| format!("add veth node{number}"))?,
        )?;
        here.run([netlink::add_address(
            near,
            Ipv4Addr::new(10, 99, number, 1).into(),
            24,
        )])?;
        self.run(|| {
            let address = Ipv4Addr::new(10, 99, number, 2).into();
            Socket::open()?.run([netlink::set_up(far), netlink::add_address(far, address, 16)])?;
            Ok(())
        })
    }

    /// Returns the descriptors of the mount and the network namespace.
    pub(crate) fn namespaces(&self) -> [BorrowedFd<'_>; 2] {
        [self.mount.as_fd(), self.network.as_fd()]
    }

    pub(crate) fn add_pod(&self, name: &str) -> Result<Pod> {
        let path = Path::new("/run/netns").join(name);
        self.run(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::create(&path)?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &path,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )?;
            Ok(Pod {
                netns: File::open(&path)?,
                socket: Socket::open()?,
                path: path.clone(),
            })
        })
        .with_context(|| format!("add pod {}", path.display()))
    }
}

/// Runs `work` in a network namespace; sockets that it opens stay there.
pub(crate) fn in_netns<T: Send>(
    netns: &File,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    on_thread(|| {
        setns(netns, CloneFlags::CLONE_NEWNET).context("enter a network namespace")?;
        work()
    })
}

/// Runs `work` on a new thread, because namespaces belong to threads.
fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_panic| anyhow!("the thread in the node panicked"))?
}

fn own(kind: &str) -> Result<File> {
    let path = format!("/proc/thread-self/ns/{kind}");
    File::open(&path).with_context(|| format!("open {path}"))
}

fn outside_state(private: &[PathBuf]) -> impl Iterator<Item = &Path> {
    private
        .iter()
        .map(PathBuf::as_path)
        .filter(|dir| !STATE.iter().any(|state| dir.starts_with(state)))
}

/// Mounts an empty tmpfs over `dir`. If the directory does not exist, creates it in an overlay, so
/// that the host's files do not change.
fn hide(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        let parent = dir
            .ancestors()
            .find(|dir| dir.is_dir())
            .unwrap_or(Path::new("/"));
        let scratch = Path::new("/run/overlay").join(dir.to_string_lossy().replace('/', "-"));
        let (upper, work) = (scratch.join("upper"), scratch.join("work"));
        for dir in [&upper, &work] {
            fs::create_dir_all(dir)
                .with_context(|| format!("create {} in the node", dir.display()))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            parent.display(),
            upper.display(),
            work.display()
        );
        mount_fs("overlay", parent, &options)?;
        fs::create_dir_all(dir).with_context(|| format!("create {} in the node", dir.display()))?;
    }
    mount_fs("tmpfs", dir, "mode=0755")
}

fn mount_fs(kind: &str, target: &Path, options: &str) -> Result<()> {
    mount(
        Some(kind),
        target,
        Some(kind),
        MsFlags::empty(),
        Some(options),
    )
    .with_context(|| format!("mount {kind} on {} in the node", target.display()))
}

fn add_uplink() -> Result<()> {
    const LOOPBACK: u32 = 1;
    let mut socket = Socket::open()?;
    let (uplink, peer) =
        netlink::made(&socket.run([netlink::add_veth(UPLINK, None, OUTSIDE, None)])?)?;
    let (_, far) =
        netlink::made(&socket.run([netlink::add_veth(DEVICE[0], None, DEVICE[1], None)])?)?;
    socket.run([netlink::set_up(far)])?;
    socket.run([
        netlink::set_up(LOOPBACK),
        netlink::set_up(peer),
        netlink::add_address(uplink, UPLINK_ADDRESS.into(), 24),
        netlink::add_default_route(uplink, UPLINK_GATEWAY),
    ])?;
    Ok(())
}
