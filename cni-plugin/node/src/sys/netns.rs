//! Network namespaces: opening by path, comparing, and running code inside.

#![expect(
    unsafe_code,
    reason = "the ioctl for a socket's namespace has no safe wrapper"
)]

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Magic number of nsfs (`NSFS_MAGIC`, include/uapi/linux/magic.h).
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// Namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// An open network namespace.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
    /// Namespace to which [`NetNs::run`] returns, if set by [`NetNs::set_home`].
    home: OnceCell<File>,
}

/// Reason why a path is not a usable network namespace.
#[derive(Debug)]
pub enum NetNsError {
    /// The path does not exist, or is a plain file, such as a leftover mount point of a namespace.
    Gone(PathBuf),
    /// The namespace cannot be opened or entered.
    Io {
        /// Action that failed.
        op: &'static str,
        /// Path of the namespace.
        path: PathBuf,
        /// Error from the kernel.
        source: io::Error,
    },
}

impl fmt::Display for NetNsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(path) => write!(f, "network namespace {} does not exist", path.display()),
            Self::Io { op, path, source } => {
                write!(f, "{op} network namespace {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for NetNsError {}

impl NetNs {
    /// Opens the namespace at `path`.
    pub fn open(path: &Path) -> Result<Self, NetNsError> {
        let fail = |op, source| NetNsError::Io {
            op,
            path: path.to_owned(),
            source,
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(err)
                if matches!(
                    err.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(NetNsError::Gone(path.to_owned()));
            }
            Err(err) => return Err(fail("open", err)),
        };
        let stat = fstatfs(&file).map_err(|errno| fail("inspect", errno.into()))?;
        if stat.filesystem_type() == FsType(NSFS_MAGIC.into()) {
            Ok(Self {
                file,
                path: path.to_owned(),
                home: OnceCell::new(),
            })
        } else {
            Err(NetNsError::Gone(path.to_owned()))
        }
    }

    /// Opens the namespace of this thread.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open(Path::new(OWN))
    }

    /// Creates an empty namespace. It is deleted when the value is dropped and nothing inside it is
    /// open.
    pub fn throw_away() -> Result<Self, NetNsError> {
        born_inside(Self::current)
    }

    /// Creates an empty namespace and mounts it at `path`, like `ip netns add`. Missing parent
    /// folders are created.
    pub fn make_at(path: &Path) -> Result<Self, NetNsError> {
        let fail = |op, source| NetNsError::Io {
            op,
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path.parent().unwrap_or(path))
            .map_err(|err| fail("create a folder for", err))?;
        File::create_new(path).map_err(|err| fail("create a mount point for", err))?;
        let mounted = born_inside(|| {
            let mounted = mount(
                Some(OWN),
                path,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            );
            mounted.map_err(|errno| fail("mount", errno.into()))
        });
        mounted.and_then(|()| Self::open(path)).inspect_err(|_| {
            let _ = Self::remove_at(path);
        })
    }

    /// Unmounts and deletes a namespace from [`NetNs::make_at`]. A missing namespace is a success.
    pub fn remove_at(path: &Path) -> Result<(), NetNsError> {
        let fail = |op, source| NetNsError::Io {
            op,
            path: path.to_owned(),
            source,
        };
        match umount2(path, MntFlags::MNT_DETACH) {
            // EINVAL: the path is a plain file without a mount.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(fail("unmount", errno.into())),
        }
        match std::fs::remove_file(path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(fail("remove", err)),
            _ => Ok(()),
        }
    }

    /// Returns the path at which the namespace was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the inode of the namespace; 0 if unknown. The kernel may reuse the number after the
    /// namespace is deleted.
    pub fn inode(&self) -> u64 {
        self.file.metadata().map_or(0, |of| of.ino())
    }

    /// Sets the namespace to which [`NetNs::run`] returns: the one in which `socket` was opened.
    /// This namespace must be the thread's present namespace. If the namespace is not set, each run
    /// opens a socket to find it, which takes longer.
    pub fn set_home(&self, socket: &impl AsFd) -> Result<(), NetNsError> {
        if self.home.get().is_none() {
            let _ = self.home.set(of_socket(socket).map_err(at_home("open"))?);
        }
        Ok(())
    }

    /// True if this namespace is the one to which [`NetNs::run`] returns.
    pub fn is_own(&self) -> Result<bool, NetNsError> {
        let fail = |source| NetNsError::Io {
            op: "inspect",
            path: self.path.clone(),
            source,
        };
        let this = self.file.metadata().map_err(fail)?;
        let own = self
            .with_home(File::metadata)?
            .map_err(at_home("inspect"))?;
        Ok((this.dev(), this.ino()) == (own.dev(), own.ino()))
    }

    /// Runs `work` in the namespace. Then the thread returns to the namespace from
    /// [`NetNs::set_home`], or if none is set, to its former one. It also returns if `work` panics.
    ///
    /// The calling thread itself enters the namespace, since a separate thread costs 25 more system
    /// calls. If the thread cannot return, the process aborts. Otherwise the thread would do the
    /// host's work in a container.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, NetNsError> {
        let fail = |errno: Errno| NetNsError::Io {
            op: "enter",
            path: self.path.clone(),
            source: errno.into(),
        };
        self.with_home(|home| {
            setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(fail)?;
            let _home = Home(home);
            Ok(work())
        })?
    }

    fn with_home<T>(&self, work: impl FnOnce(&File) -> T) -> Result<T, NetNsError> {
        if let Some(home) = self.home.get() {
            return Ok(work(home));
        }
        let home = UnixDatagram::unbound().and_then(|socket| of_socket(&socket));
        Ok(work(&home.map_err(at_home("open"))?))
    }
}

fn at_home(op: &'static str) -> impl Fn(io::Error) -> NetNsError {
    move |source| NetNsError::Io {
        op,
        path: OWN.into(),
        source,
    }
}

/// Opens the namespace in which `socket` was created. This is faster than opening a path in /proc:
/// the kernel would first create all folders of that path for this short-lived process.
pub fn of_socket(socket: &impl AsFd) -> io::Result<File> {
    const SIOCGSKNS: libc::Ioctl = 0x894c;
    // SAFETY: the request takes no argument, and `socket` is open.
    let fd = Errno::result(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSKNS) })?;
    // SAFETY: the kernel has just created the descriptor for this call, so no other code owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Returns the cookie of this thread's namespace (Linux 5.14). A cookie is unique since boot and
/// readable in eBPF.
pub fn cookie() -> Result<u64, Errno> {
    let socket = UnixDatagram::unbound()
        .map_err(|err| err.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    cookie_of(&socket)
}

/// Returns the cookie of the namespace in which `socket` was opened.
pub fn cookie_of(socket: &impl AsFd) -> Result<u64, Errno> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let (mut cookie, mut len) = (0_u64, 8);
    let socket = socket.as_fd().as_raw_fd();
    let place = (&raw mut cookie).cast();
    // SAFETY: `socket` is open, and the kernel writes no more than the eight bytes that `len` says.
    let answer = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            place,
            &raw mut len,
        )
    };
    Errno::result(answer)?;
    Ok(cookie)
}

/// Returns to the former namespace when dropped.
struct Home<'a>(&'a File);

impl Drop for Home<'_> {
    fn drop(&mut self) {
        if let Err(errno) = setns(self.0, CloneFlags::CLONE_NEWNET) {
            // The build profiles abort on a panic, so no thread continues in a container's
            // namespace.
            panic!("return from a container's network namespace: {errno}");
        }
    }
}

/// Runs `work` in a new namespace, on a thread that is created for it and ends after it.
fn born_inside<T: Send>(
    work: impl FnOnce() -> Result<T, NetNsError> + Send,
) -> Result<T, NetNsError> {
    let fail = |source| NetNsError::Io {
        op: "unshare",
        path: PathBuf::from(OWN),
        source,
    };
    std::thread::scope(|scope| {
        let inside = std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn_scoped(scope, || {
                unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| fail(errno.into()))?;
                work()
            });
        match inside.map_err(fail)?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

impl AsRawFd for NetNs {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_and_plain_file_are_both_gone() {
        let dir = tempfile::tempdir().expect("a folder");
        let plain = dir.path().join("left-over");
        std::fs::write(&plain, "").expect("a file");
        for path in [plain.as_path(), &dir.path().join("missing")] {
            assert!(
                matches!(NetNs::open(path), Err(NetNsError::Gone(_))),
                "{path:?}"
            );
        }
    }

    #[test]
    fn thread_returns_even_if_the_work_panics() {
        let before = NetNs::current().unwrap();
        let elsewhere = NetNs::throw_away().expect("a namespace (needs root)");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            elsewhere.run(|| {
                assert!(!before.is_own().unwrap());
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        assert!(before.is_own().unwrap());
    }

    #[test]
    fn each_namespace_has_another_cookie() {
        let here = cookie().expect("Linux 5.14");
        assert_eq!(cookie(), Ok(here));
        let elsewhere = NetNs::throw_away().expect("a namespace (needs root)");
        assert_ne!(elsewhere.run(cookie).expect("there and back"), Ok(here));
    }

    #[test]
    fn only_the_current_namespace_is_own() {
        assert!(NetNs::current().expect("here").is_own().expect("identity"));
        let elsewhere = NetNs::throw_away().expect("a namespace (needs root)");
        assert!(!elsewhere.is_own().expect("identity"));
    }
}
