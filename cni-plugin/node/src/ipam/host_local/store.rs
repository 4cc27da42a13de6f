//! Files of a data directory in the reference plugin's format: a lease file for each address, a
//! round-robin mark for each range set, and one lock.

use super::index::hash;
use crate::sys::{free_space, lock};
use braid_core::cni::Owner;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Longest lease that a plugin writes, in bytes. The container id and the interface name are each
/// in an environment variable, which the kernel limits to 128 KiB (`MAX_ARG_STRLEN`). A longer file
/// was not written by a plugin.
const MAX_LEASE_BYTES: u64 = 256 << 10;

/// Returns an error if no lease can be written in `folder`.
pub fn takes_leases(folder: &Path) -> Result<(), Errno> {
    free_space::for_a_file(folder)
}

/// Content of a lease file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// `<id>\r\n<ifname>`, or only `<id>` as written by plugins before 0.8. Surrounding white space
    /// is trimmed.
    Key(String),
    /// Nothing, or bytes that no plugin writes (NUL, invalid UTF-8): the writer was killed, or the
    /// disk lost the data.
    Broken,
    /// Not readable, or not a regular file: an administrator's way to keep the address out of use.
    Other,
}

/// A lease on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFile {
    /// The leased address, which is the file's name.
    pub ip: IpAddr,
    /// The file's content.
    pub holder: Holder,
    /// Time at which the file was last written.
    pub written: SystemTime,
}

/// Returns the content of the lease file of `owner`, which is also the key for lookups. A claim has
/// no interface, so the content is only its id.
pub fn lease_key(owner: &Owner) -> String {
    if owner.ifname.is_empty() {
        return owner.container_id.trim().to_owned();
    }
    format!("{}\r\n{}", owner.container_id.trim(), owner.ifname)
}

/// A network's data directory, locked against other plugin processes until drop.
#[derive(Debug)]
pub struct Store {
    dir: File,
    path: PathBuf,
    _lock: File,
}

/// The round-robin mark of one range set: a file with the address that was assigned last.
#[derive(Debug)]
pub struct LastReserved {
    file: Option<File>,
    len: usize,
    /// The address assigned last; `None` if there is no mark or it contains no address.
    pub ip: Option<IpAddr>,
}

impl Store {
    /// Opens and locks the data directory at `path`; `None` if it does not exist.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let dir = match File::open(path) {
            Ok(dir) => dir,
            // No directory has a name that is too long for the file system.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let mode = Mode::from_bits_truncate(0o750);
        let file = File::from(openat(
            &dir,
            "lock",
            OFlag::O_RDONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC,
            mode,
        )?);
        lock::wait(&file)?;
        Ok(Some(Self {
            dir,
            path: path.to_owned(),
            _lock: file,
        }))
    }

    /// Opens and locks the data directory at `path`. Creates it and its parents (0755) if missing.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        for _ in 0..2 {
            if let Some(store) = Self::open(path)? {
                return Ok(store);
            }
            DirBuilder::new().recursive(true).mode(0o755).create(path)?;
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory's modification time: the last creation or deletion of an entry, or the
    /// time set by [`Store::set_changed`].
    pub fn changed(&self) -> io::Result<SystemTime> {
        self.dir.metadata()?.modified()
    }

    /// Sets the directory's modification time to now and returns it.
    pub fn set_changed(&self) -> io::Result<SystemTime> {
        let now = SystemTime::now();
        self.dir.set_modified(now)?;
        Ok(now)
    }

    /// Leases `ip` by a lease file with the content `key`. Returns false if `ip` is already leased.
    /// The file appears with its full content or not at all.
    pub fn create(&self, ip: IpAddr, key: &str) -> io::Result<bool> {
        let mode = Mode::from_bits_truncate(0o600);
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let mut file = match openat(&self.dir, ".", flags, mode) {
            Ok(fd) => File::from(fd),
            // EISDIR: the kernel or file system does not support O_TMPFILE.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR) => return self.create_by_name(ip, key),
            Err(e) => return Err(e.into()),
        };
        file.write_all(key.as_bytes())?;
        let name = ip.to_string();
        let linked = match linkat(&file, "", &self.dir, name.as_str(), AtFlags::AT_EMPTY_PATH) {
            // ENOENT: AT_EMPTY_PATH without CAP_DAC_READ_SEARCH (v6.12 fs/namei.c, do_linkat()).
            Err(Errno::ENOENT) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                linkat(
                    &self.dir,
                    path.as_str(),
                    &self.dir,
                    name.as_str(),
                    AtFlags::AT_SYMLINK_FOLLOW,
                )
            }
            done => done,
        };
        taken_if_there(linked)
    }

    /// Implements [`Store::create`] without `O_TMPFILE`. The file is written beside the directory,
    /// under a name that no network can have. The lock protects that name, so the next call
    /// replaces a leftover of a crash.
    fn create_by_name(&self, ip: IpAddr, key: &str) -> io::Result<bool> {
        let temporary = self.temporary();
        // Deleted, not truncated: after a crash it may still be linked as a lease.
        remove_if_there(fs::remove_file(&temporary))?;
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create_new(true), 0o600);
        options.open(&temporary)?.write_all(key.as_bytes())?;
        let linked = linkat(
            &self.dir,
            &temporary,
            &self.dir,
            ip.to_string().as_str(),
            AtFlags::empty(),
        );
        remove_if_there(fs::remove_file(&temporary))?;
        taken_if_there(linked)
    }

    /// Returns the temporary file's path. Its name is a hash of the data directory's path, since
    /// the network's name may already have the maximal length of a file name.
    fn temporary(&self) -> PathBuf {
        self.path
            .with_file_name(format!(".braid-{}", hash(self.path.as_os_str().as_bytes())))
    }

    /// Frees `ip`. A missing lease is a success.
    pub fn remove(&self, ip: IpAddr) -> io::Result<()> {
        let removed = unlinkat(
            &self.dir,
            ip.to_string().as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
        remove_if_there(removed.map_err(io::Error::from))
    }

    /// Returns the lease of `ip`; `None` if it is free.
    pub fn read(&self, ip: IpAddr) -> io::Result<Option<LeaseFile>> {
        read_lease(&self.dir, ip)
    }

    /// Returns every lease, sorted by address. This takes longer the more leases there are, so ADD
    /// and DEL do not call it on their normal path.
    pub fn scan(&self) -> io::Result<Vec<LeaseFile>> {
        scan(&self.dir, &self.path)
    }

    /// Returns the round-robin mark of range set `index`.
    pub fn last_reserved(&self, index: usize) -> io::Result<LastReserved> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = match openat(&self.dir, mark_name(index).as_str(), flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => {
                return Ok(LastReserved {
                    file: None,
                    len: 0,
                    ip: None,
                });
            }
            Err(e) => return Err(e.into()),
        };
        // One byte more than the longest address, so that a longer text does not parse as one.
        let mut text = [0; 46];
        let len = file.read_at(&mut text, 0)?;
        Ok(LastReserved {
            file: Some(file),
            len,
            ip: marked(&text[..len]),
        })
    }

    /// Sets the mark of range set `index` to `ip`, in place. After a crash, the mark may contain
    /// the new address, a mix of both addresses, or no address. The search can continue in each
    /// case.
    pub fn set_last_reserved(
        &self,
        index: usize,
        mark: LastReserved,
        ip: IpAddr,
    ) -> io::Result<()> {
        let file = if let Some(file) = mark.file {
            file
        } else {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
            File::from(openat(
                &self.dir,
                mark_name(index).as_str(),
                flags,
                Mode::from_bits_truncate(0o600),
            )?)
        };
        let text = ip.to_string();
        file.write_all_at(text.as_bytes(), 0)?;
        if mark.len > text.len() {
            file.set_len(text.len() as u64)
        } else {
            Ok(())
        }
    }
}

/// Flags for reading a file. `O_NONBLOCK`: opening a FIFO in the directory must not block while the
/// lock is held.
const READ: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK);

/// Returns the round-robin mark of range set `index` in the directory at `path`, without the lock.
pub fn read_mark(path: &Path, index: usize) -> Option<IpAddr> {
    marked(&fs::read(path.join(mark_name(index))).ok()?)
}

/// Parses the address in a round-robin mark.
fn marked(text: &[u8]) -> Option<IpAddr> {
    let ip: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(ip.to_canonical())
}

/// Returns every lease in the directory at `path`, sorted, without the lock. Returns none if the
/// directory is missing.
pub fn read_leases(path: &Path) -> io::Result<Vec<LeaseFile>> {
    match File::open(path) {
        Ok(dir) => scan(&dir, path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Returns every leased address in the data directory at `path`, from the names of the files.
pub fn leased(path: &Path) -> io::Result<Vec<IpAddr>> {
    match fs::read_dir(path) {
        Ok(entries) => addresses(entries),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Returns the addresses that are names of lease files, in the spelling that plugins write.
fn addresses(entries: fs::ReadDir) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else {
            continue;
        };
        let Ok(ip) = name.parse::<IpAddr>() else {
            continue;
        };
        if ip.to_string() == name && ip.to_canonical() == ip {
            addresses.push(ip);
        }
    }
    Ok(addresses)
}

fn scan(dir: &File, path: &Path) -> io::Result<Vec<LeaseFile>> {
    let mut leases = Vec::new();
    for ip in addresses(fs::read_dir(path)?)? {
        leases.extend(read_lease(dir, ip)?);
    }
    leases.sort_unstable_by_key(|lease| lease.ip);
    Ok(leases)
}

fn read_lease(dir: &File, ip: IpAddr) -> io::Result<Option<LeaseFile>> {
    let file = match openat(dir, ip.to_string().as_str(), READ, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT) => return Ok(None),
        Err(_) => {
            return Ok(Some(LeaseFile {
                ip,
                holder: Holder::Other,
                written: SystemTime::now(),
            }));
        }
    };
    let meta = file.metadata()?;
    let written = meta.modified()?;
    let mut content = Vec::new();
    let readable = meta.is_file()
        && meta.len() <= MAX_LEASE_BYTES
        && file.take(MAX_LEASE_BYTES).read_to_end(&mut content).is_ok();
    let holder = if readable {
        holder(&content)
    } else {
        Holder::Other
    };
    Ok(Some(LeaseFile {
        ip,
        holder,
        written,
    }))
}

/// Parses a lease file's content.
fn holder(content: &[u8]) -> Holder {
    match std::str::from_utf8(content).map(str::trim) {
        Ok("") | Err(_) => Holder::Broken,
        Ok(text) if text.contains('\0') => Holder::Broken,
        Ok(text) => Holder::Key(text.to_owned()),
    }
}

fn mark_name(index: usize) -> String {
    format!("last_reserved_ip.{index}")
}

fn taken_if_there(linked: nix::Result<()>) -> io::Result<bool> {
    match linked {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn remove_if_there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    fn store() -> (TempDir, Store) {
        let dir = TempDir::new().unwrap();
        let store = Store::open_or_create(&dir.path().join("data/net")).unwrap();
        (dir, store)
    }

    #[test]
    fn lease_is_the_same_without_o_tmpfile() {
        let (dir, store) = store();
        // A crash left the temporary name, still linked as a lease.
        fs::write(dir.path().join("data/net/10.1.2.9"), "c9\r\neth0").unwrap();
        fs::hard_link(dir.path().join("data/net/10.1.2.9"), store.temporary()).unwrap();
        assert!(store.create_by_name(IP, "c1\r\neth0").unwrap());
        assert!(!store.create_by_name(IP, "c2\r\neth0").unwrap());
        let lease = store.read(IP).unwrap().unwrap();
        assert_eq!(lease.holder, Holder::Key("c1\r\neth0".to_owned()));
        let mode = fs::metadata(dir.path().join("data/net/10.1.2.3"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(
            fs::read_to_string(dir.path().join("data/net/10.1.2.9")).unwrap(),
            "c9\r\neth0"
        );
        assert!(!store.temporary().exists());
    }

    #[test]
    fn lock_excludes_a_second_store_until_drop() {
        let (dir, store) = store();
        let lock = File::open(dir.path().join("data/net/lock")).unwrap();
        assert!(matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)));
        drop(store);
        // A child that another test forks now also holds the lock, until its `exec`.
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn mark_of_any_length_is_replaced_and_garbage_is_none() {
        let (dir, store) = store();
        let file = dir.path().join("data/net/last_reserved_ip.0");
        assert_eq!(store.last_reserved(0).unwrap().ip, None);
        for old in [
            "10.1.2.3",
            "2001:db8:1234:5678:9abc:def0:1234:5678",
            "",
            "10.1.2.300",
            "10.1.2.3\n",
            "\u{fffd}",
        ] {
            fs::write(&file, old).unwrap();
            let mark = store.last_reserved(0).unwrap();
            assert_eq!(mark.ip, old.parse().ok(), "{old:?}");
            store.set_last_reserved(0, mark, IP).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "10.1.2.3");
        }
        fs::write(&file, "x".repeat(1000)).unwrap();
        let mark = store.last_reserved(0).unwrap();
        store.set_last_reserved(0, mark, IP).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "10.1.2.3");
    }

    #[test]
    fn lease_content_is_parsed_to_its_holder() {
        for (content, expected) in [
            ("c1\r\neth0", Holder::Key("c1\r\neth0".to_owned())),
            (" c1\n", Holder::Key("c1".to_owned())),
            ("", Holder::Broken),
            (" \r\n", Holder::Broken),
            ("c1\0", Holder::Broken),
        ] {
            assert_eq!(holder(content.as_bytes()), expected, "{content:?}");
        }
        assert_eq!(holder(b"c1\xff"), Holder::Broken);
    }

    #[test]
    fn special_files_are_foreign_leases_and_do_not_block() {
        let (dir, store) = store();
        let path = dir.path().join("data/net");
        fs::create_dir(path.join("10.1.2.3")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join("10.1.2.4")).unwrap();
        nix::unistd::mkfifo(&path.join("10.1.2.5"), Mode::from_bits_truncate(0o600)).unwrap();
        let leases = store.scan().unwrap();
        assert_eq!(leases.len(), 3);
        assert!(
            leases.iter().all(|lease| lease.holder == Holder::Other),
            "{leases:?}"
        );
        assert!(!store.create(IP, "c1\r\neth0").unwrap());
    }
}
