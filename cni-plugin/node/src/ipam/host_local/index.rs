//! Cache of a data directory, so that ADD and DEL take the same time with one lease and with a
//! million.
//!
//! ```text
//!  <state dir>/<hash of the data directory's path>/
//!    4-0a, 6-20010db8…00   one bit per address, set if leased; one sparse file per 2^24 addresses
//!    o-<hash of a lease's content> -> 10.1.0.7,2001:db8::7   addresses with that content
//! ```
//!
//! The index is valid only while it is *sealed*: its modification time is 2^30 s before the
//! modification time of the data directory. After each change, under the lock, [`Index::seal`]
//! reads the clock in nanoseconds and sets both times. Any other change of either directory makes
//! the kernel write its own time, which breaks the seal. Such a change may come from the reference
//! plugin, an administrator, or a crash between lease and index. The next call then rebuilds the
//! index with one scan.
//! * The kernel uses the time of the last tick, so two changes within 4 ms may get the same time.
//!   The time that the seal sets is not a tick, so a change in the same tick is visible. A time
//!   read back from the kernel would hide this change.
//! * The shift of 2^30 s is for a crash. After a crash, both directories may have the time of the
//!   same tick, but their times are never 2^30 s apart.
//!
//! The index does not decide who owns an address. The lease file does: whether it can be linked,
//! and its content.

use super::store::{Holder, LeaseFile};
use base16ct::lower::encode_string;
use braid_core::ipam::host_local::allocator::Span;
use braid_core::ipam::range::to_bits;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time by which the index is older than its data directory when sealed: 2^30 s, about 34 years.
const SHIFT: Duration = Duration::from_secs(1 << 30);
/// Number of bits of an address within one file. A file covers 2^24 addresses.
const BLOCK_BITS: u32 = 24;
/// Bytes per read; one page of tmpfs.
const CHUNK_BYTES: usize = 4096;
/// Number of bits of an address within one chunk. A chunk covers 2^15 addresses.
const CHUNK_BITS: u32 = 15;
const _: () = assert!(CHUNK_BYTES * 8 == 1 << CHUNK_BITS);
/// Longest address list in a symbolic link, below `PATH_MAX`; a longer one is written as `*`.
const MAX_LIST_BYTES: usize = 4000;
const TOO_MANY: &str = "*";

/// Index of one data directory. The caller holds that directory's lock.
#[derive(Debug)]
pub struct Index {
    dir: File,
    path: PathBuf,
    chunk: Option<Chunk>,
}

/// The chunk of a bitmap that was read last. Its file stays open for a write that follows.
#[derive(Debug)]
struct Chunk {
    name: String,
    number: u64,
    file: Option<File>,
    bits: Box<[u8; CHUNK_BYTES]>,
}

impl Index {
    /// Opens the index of the data directory at `data_path`; creates it (0700) if missing.
    pub fn open(state_dir: &Path, data_path: &Path) -> io::Result<Self> {
        let path = state_dir.join(hash(data_path.as_os_str().as_bytes()));
        let dir = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&path)?;
                File::open(&path)?
            }
            opened => opened?,
        };
        Ok(Self {
            dir,
            path,
            chunk: None,
        })
    }

    /// True if the index is sealed, so it matches the lease files. `data_changed` is the data
    /// directory's modification time.
    pub fn is_sealed(&self, data_changed: SystemTime) -> io::Result<bool> {
        Ok(data_changed.checked_sub(SHIFT) == Some(self.dir.metadata()?.modified()?))
    }

    /// Seals the index: it is valid for as long as the data directory's modification time is
    /// `data_changed`.
    pub fn seal(&self, data_changed: SystemTime) -> io::Result<()> {
        self.dir
            .set_modified(data_changed.checked_sub(SHIFT).unwrap_or(data_changed))
    }

    /// Returns the first address of `span` that is not leased; `None` if all are leased.
    pub fn next_free(&mut self, span: Span, is_ipv4: bool) -> io::Result<Option<u128>> {
        let mut at = span.first;
        while at <= span.last {
            let chunk_start = at >> CHUNK_BITS << CHUNK_BITS;
            let skip = (at - chunk_start) as usize;
            if let Some(bit) = first_zero(&self.load(at, is_ipv4)?.bits, skip) {
                let free = chunk_start + bit as u128;
                return Ok((free <= span.last).then_some(free));
            }
            let Some(next) = chunk_start.checked_add(1 << CHUNK_BITS) else {
                break;
            };
            at = next;
        }
        Ok(None)
    }

    /// Records `ip` as leased or free.
    pub fn set_taken(&mut self, ip: IpAddr, taken: bool) -> io::Result<()> {
        let bit = bit_in_chunk(ip);
        let chunk = self.load(to_bits(ip), ip.is_ipv4())?;
        set_bit(&mut chunk.bits, bit, taken);
        let (byte, offset) = (
            chunk.bits[bit / 8],
            chunk.number * CHUNK_BYTES as u64 + (bit / 8) as u64,
        );
        if let Some(file) = &chunk.file {
            return file.write_all_at(&[byte], offset);
        }
        let name = chunk.name.clone();
        let file = self.create(&name)?;
        file.write_all_at(&[byte], offset)?;
        if let Some(chunk) = &mut self.chunk {
            chunk.file = Some(file);
        }
        Ok(())
    }

    /// Returns the addresses with a lease file that has the content `key`; `None` if the index has no
    /// complete list of them, because the list was too long or is damaged.
    pub fn owned_by(&self, key: &str) -> io::Result<Option<Vec<IpAddr>>> {
        match readlinkat(&self.dir, owner_name(key).as_str()) {
            Ok(list) => Ok(addresses(&list)),
            Err(Errno::ENOENT) => Ok(Some(Vec::new())),
            Err(e) => Err(e.into()),
        }
    }

    /// Records that the lease files of the addresses `ips` have the content `key`.
    pub fn set_owned_by(&self, key: &str, ips: &[IpAddr]) -> io::Result<()> {
        let name = owner_name(key);
        let list = ips
            .iter()
            .map(IpAddr::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let list = if list.len() > MAX_LIST_BYTES {
            TOO_MANY
        } else {
            &list
        };
        // The usual case, an owner's first addresses, takes one system call.
        let mut noted = if list.is_empty() {
            Err(Errno::EEXIST)
        } else {
            symlinkat(list, &self.dir, name.as_str())
        };
        if noted == Err(Errno::EEXIST) {
            noted = unlinkat(&self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir);
            if noted == Err(Errno::ENOENT) {
                noted = Ok(());
            }
            if noted.is_ok() && !list.is_empty() {
                noted = symlinkat(list, &self.dir, name.as_str());
            }
        }
        Ok(noted?)
    }

    /// Deletes all files of the index and records `leases`. Does not seal the index.
    pub fn rebuild(&mut self, leases: &[LeaseFile]) -> io::Result<()> {
        self.chunk = None;
        for entry in fs::read_dir(&self.path)? {
            fs::remove_file(entry?.path())?;
        }
        let mut chunks: BTreeMap<(String, u64), Box<[u8; CHUNK_BYTES]>> = BTreeMap::new();
        let mut owners: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for lease in leases {
            let place = place(to_bits(lease.ip), lease.ip.is_ipv4());
            let bits = chunks
                .entry(place)
                .or_insert_with(|| Box::new([0; CHUNK_BYTES]));
            set_bit(bits, bit_in_chunk(lease.ip), true);
            if let Holder::Key(key) = &lease.holder {
                owners.entry(key).or_default().push(lease.ip);
            }
        }
        for ((name, number), bits) in chunks {
            self.create(&name)?
                .write_all_at(&bits[..], number * CHUNK_BYTES as u64)?;
        }
        for (key, ips) in owners {
            self.set_owned_by(key, &ips)?;
        }
        Ok(())
    }

    /// Returns the chunk with the address `bits`. Reads the chunk unless it was the last one read.
    fn load(&mut self, bits: u128, is_ipv4: bool) -> io::Result<&mut Chunk> {
        let (name, number) = place(bits, is_ipv4);
        let chunk = match self.chunk.take() {
            Some(chunk) if chunk.name == name && chunk.number == number => chunk,
            Some(chunk) if chunk.name == name => Chunk::read(name, number, chunk.file)?,
            _ => {
                let file = match openat(
                    &self.dir,
                    name.as_str(),
                    OFlag::O_RDWR | OFlag::O_CLOEXEC,
                    Mode::empty(),
                ) {
                    Ok(fd) => Some(File::from(fd)),
                    Err(Errno::ENOENT) => None,
                    Err(e) => return Err(e.into()),
                };
                Chunk::read(name, number, file)?
            }
        };
        Ok(self.chunk.insert(chunk))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC;
        Ok(File::from(openat(
            &self.dir,
            name,
            flags,
            Mode::from_bits_truncate(0o600),
        )?))
    }
}

impl Chunk {
    fn read(name: String, number: u64, file: Option<File>) -> io::Result<Self> {
        let mut bits = Box::new([0; CHUNK_BYTES]);
        if let Some(file) = &file {
            // Bytes past the end of a sparse file stay zero: free.
            let _bytes = file.read_at(&mut bits[..], number * CHUNK_BYTES as u64)?;
        }
        Ok(Self {
            name,
            number,
            file,
            bits,
        })
    }
}

/// Returns the name of the bitmap file for an address, and the number of the address's chunk in
/// that file.
fn place(bits: u128, is_ipv4: bool) -> (String, u64) {
    let block = bits >> BLOCK_BITS;
    let name = if is_ipv4 {
        format!("4-{block:02x}")
    } else {
        format!("6-{block:026x}")
    };
    let number = (bits >> CHUNK_BITS) & ((1 << (BLOCK_BITS - CHUNK_BITS)) - 1);
    (name, number as u64)
}

fn bit_in_chunk(ip: IpAddr) -> usize {
    (to_bits(ip) & ((1 << CHUNK_BITS) - 1)) as usize
}

fn set_bit(bits: &mut [u8; CHUNK_BYTES], bit: usize, taken: bool) {
    let mask = 1 << (bit % 8);
    if taken {
        bits[bit / 8] |= mask;
    } else {
        bits[bit / 8] &= !mask;
    }
}

/// Returns the index of the first zero bit at or after `from`; `None` if all of these bits are set.
fn first_zero(bits: &[u8; CHUNK_BYTES], from: usize) -> Option<usize> {
    let below = (1_u8 << (from % 8)) - 1;
    let byte = bits[from / 8] | below;
    if byte != u8::MAX {
        return Some(from / 8 * 8 + byte.trailing_ones() as usize);
    }
    let rest = from / 8 + 1;
    let index = rest + bits[rest..].iter().position(|&b| b != u8::MAX)?;
    Some(index * 8 + bits[index].trailing_ones() as usize)
}

/// Parses an owner's list of addresses; `None` if the text is not a complete list.
fn addresses(list: &OsStr) -> Option<Vec<IpAddr>> {
    let mut ips = Vec::new();
    for ip in list.to_str()?.split(',') {
        ips.push(ip.parse().ok()?);
    }
    Some(ips)
}

fn owner_name(key: &str) -> String {
    format!("o-{}", hash(key.as_bytes()))
}

/// Returns 128 bits of SHA-256 in hex, so a container id cannot be chosen to collide with another.
pub(crate) fn hash(bytes: &[u8]) -> String {
    encode_string(&Sha256::digest(bytes)[..16])
}
