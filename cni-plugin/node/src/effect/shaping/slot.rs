//! Slots of the loaded program, one for each attachment. They are assigned in `/run/braid/program`.
//!
//! Loading takes longer than the rest of shaping together, so several attachments share a program.
//! The program lives as long as one of these attachments. A slot belongs to an attachment as long
//! as a record contains the attachment, so slots need not be released.

use crate::effect::shaping::program::{Program, VERSION};
use crate::store::record;
use crate::sys::lock::wait;
use crate::sys::private;
use braid_ebpf_types::shape::SLOTS;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// File with the assigned slots. It is on tmpfs, since the program does not survive a reboot
/// either.
const PATH: &str = "/run/braid/program";
/// Length of an entry in bytes. Owners and paths below `/run/braid/attachments` are shorter.
const ENTRY: usize = 1024;

/// Header of the file: the program loaded last. After the header, the file has an entry for each
/// slot: the present or former owner, up to a zero byte. Earlier versions wrote the path of the
/// owner's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    /// Hash of the program, since another version of braid may have loaded it.
    version: u64,
    id: u32,
    /// Time of loading, in nanoseconds since boot. After a reboot, the id may belong to another
    /// program.
    load_time: u64,
    /// Slot after the one assigned last.
    next: u32,
}

/// Returns a program that shapes all packets, and a slot for the owner. The slot belongs to the
/// owner as long as a record contains the owner's attachment.
pub(crate) fn take(owner: &str) -> Result<(Program, u32), Errno> {
    take_of(Path::new(PATH), owner, record::is_owned)
}

fn take_of(
    path: &Path,
    owner: &str,
    is_owned: impl Fn(&str) -> bool,
) -> Result<(Program, u32), Errno> {
    // If the file cannot be used, the program is not shared.
    let Ok(file) = open(path) else {
        return Ok((Program::load(&[])?, 0));
    };
    if let Some(last) = read(&file)
        && last.version == VERSION
        && let Some(program) = still_there(last)
        && let Some(slot) = free(last.next, |slot| !is_somebodys(&file, slot, &is_owned))
        && write(&file, last, slot, owner).is_ok()
    {
        return Ok((program, slot));
    }
    let program = Program::load(&[])?;
    let Program { id, load_time, .. } = program;
    // If the file cannot be written, the program is not shared.
    let first = Last {
        version: VERSION,
        id,
        load_time,
        next: 0,
    };
    let _unshared = file.set_len(0).and_then(|()| write(&file, first, 0, owner));
    Ok((program, 0))
}

/// Stops sharing the loaded program, since one of its slots may still shape an attachment without a
/// record.
pub(crate) fn forget() -> io::Result<()> {
    forget_of(Path::new(PATH))
}

fn forget_of(path: &Path) -> io::Result<()> {
    match open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.set_len(0),
    }
}

/// Finds the first free slot, starting at `next`. The slots from there on were assigned longest
/// ago, so their attachments are the most likely to be deleted.
fn free(next: u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let is_free = |slot: &u32| is_free(*slot);
    let later = (next..SLOTS).find(is_free);
    later.or_else(|| (0..next.min(SLOTS)).find(is_free))
}

fn still_there(last: Last) -> Option<Program> {
    Program::loaded_then(last.id, last.load_time).ok()?
}

/// Opens the file and locks it until it is closed.
fn open(path: &Path) -> io::Result<File> {
    let file = private::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    wait(&file)?;
    Ok(file)
}

fn read(file: &File) -> Option<Last> {
    let mut bytes = [0; size_of::<[u64; 4]>()];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (numbers, _) = bytes.as_chunks();
    let [version, id, load_time, next] = numbers else {
        return None;
    };
    Some(Last {
        version: u64::from_le_bytes(*version),
        id: u64::from_le_bytes(*id).try_into().ok()?,
        load_time: u64::from_le_bytes(*load_time),
        next: u64::from_le_bytes(*next).try_into().ok()?,
    })
}

/// Writes the owner of `slot` first, then the next slot. A call that is killed in between only
/// wastes the slot.
fn write(file: &File, last: Last, slot: u32, owner: &str) -> io::Result<()> {
    if owner.is_empty() || owner.len() >= ENTRY {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.write_all_at(&[owner.as_bytes(), &[0]].concat(), entry_at(slot))?;
    let numbers = [
        last.version,
        last.id.into(),
        last.load_time,
        u64::from(slot) + 1,
    ];
    file.write_all_at(&numbers.map(u64::to_le_bytes).concat(), 0)
}

/// True if the slot was assigned to an attachment that still has a record.
fn is_somebodys(file: &File, slot: u32, is_owned: impl Fn(&str) -> bool) -> bool {
    let mut entry = [0; ENTRY];
    let Ok(len) = file.read_at(&mut entry, entry_at(slot)) else {
        return true;
    };
    let mut texts = entry[..len].split(|byte| *byte == 0);
    match str::from_utf8(texts.next().unwrap_or_default()) {
        // An entry beyond the end of the file reads as empty as well: the slot was never assigned.
        Ok("") => false,
        Ok(path) if path.starts_with('/') => Path::new(path).exists(),
        Ok(owner) => is_owned(owner),
        Err(_) => true,
    }
}

fn entry_at(slot: u32) -> u64 {
    ENTRY as u64 * (u64::from(slot) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs;
    use std::path::PathBuf;

    /// A node for a test: the owners with an attachment, and the file of slots at `path`.
    struct Node {
        dir: tempfile::TempDir,
        path: PathBuf,
        owners: RefCell<Vec<String>>,
    }

    impl Node {
        fn take(&self, owner: u32) -> Result<(Program, u32), Errno> {
            self.take_at(&self.path, &owner.to_string())
        }

        fn take_at(&self, path: &Path, owner: &str) -> Result<(Program, u32), Errno> {
            take_of(path, owner, |owner| {
                self.owners.borrow().iter().any(|there| there == owner)
            })
        }

        fn detach(&self, owner: u32) {
            self.owners
                .borrow_mut()
                .retain(|there| *there != owner.to_string());
        }
    }

    fn node(owners: u32) -> Node {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        Node {
            dir,
            path,
            owners: RefCell::new((0..owners).map(|owner| owner.to_string()).collect()),
        }
    }

    #[test]
    fn program_is_shared_until_its_slots_are_assigned() {
        let node = node(SLOTS + 1);
        let (first, slot) = node.take(0).expect("a program");
        assert_eq!(slot, 0);
        for owner in 1..SLOTS {
            let (program, slot) = node.take(owner).expect("a program");
            assert_eq!((program.id, slot), (first.id, owner));
        }
        let (last, slot) = node.take(SLOTS).expect("a program");
        assert_eq!(slot, 0);
        assert_ne!(last.id, first.id);
    }

    #[test]
    fn unused_slots_are_assigned_before_slots_of_gone_owners() {
        let node = node(SLOTS + 4);
        let (first, _) = node.take(0).expect("a program");
        let take = |owner| {
            let (program, slot) = node.take(owner).expect("a program");
            (program.id == first.id, slot)
        };
        assert_eq!(take(1), (true, 1));
        node.detach(0);
        assert!((2..SLOTS).all(|owner| take(owner) == (true, owner)));
        assert_eq!(take(SLOTS), (true, 0));
        node.detach(5);
        node.detach(3);
        assert_eq!([SLOTS + 1, SLOTS + 2].map(take), [(true, 3), (true, 5)]);
        assert_eq!(take(SLOTS + 3), (false, 0));
    }

    #[test]
    fn each_slot_is_tried_once_starting_at_next() {
        for next in [0, 1, SLOTS - 1, SLOTS, u32::MAX] {
            let looked_at = RefCell::new(Vec::new());
            let none = free(next, |slot| {
                looked_at.borrow_mut().push(slot);
                false
            });
            let mut looked_at = looked_at.into_inner();
            assert_eq!(
                (none, looked_at[0]),
                (None, if next < SLOTS { next } else { 0 })
            );
            looked_at.sort_unstable();
            assert_eq!(looked_at, (0..SLOTS).collect::<Vec<_>>());
        }
    }

    #[test]
    fn call_killed_between_its_writes_wastes_the_slot() {
        let node = node(2);
        let (first, _) = node.take(0).expect("a program");
        let file = open(&node.path).expect("a file");
        let before = read(&file);
        file.write_all_at(b"1\0", entry_at(1)).expect("written");
        drop(file);
        let next = node.take(0).map(|(program, slot)| (program.id, slot));
        assert_eq!(next, Ok((first.id, 2)));
        assert_eq!(before.map(|last| last.next), Some(1));
    }

    #[test]
    fn forgotten_program_is_no_longer_shared() {
        let node = node(2);
        let (first, _) = node.take(0).expect("a program");
        forget_of(&node.path).expect("forgotten");
        let (second, slot) = node.take(1).expect("a program");
        assert_eq!((first.id == second.id, slot), (false, 0));
        forget_of(&node.dir.path().join("missing/program")).expect("nothing to forget");
    }

    #[test]
    fn owner_that_does_not_fit_an_entry_is_not_written() {
        let node = node(1);
        let (first, _) = node.take(0).expect("a program");
        for nobody in [String::new(), "a".repeat(ENTRY)] {
            let (alone, slot) = node.take_at(&node.path, &nobody).expect("a program");
            assert_eq!((first.id == alone.id, slot), (false, 0));
            let (after, slot) = node.take(0).expect("a program");
            assert_eq!((alone.id == after.id, slot), (false, 0));
        }
    }

    #[test]
    fn slot_of_an_earlier_version_belongs_to_the_record_at_its_path() {
        let node = node(1);
        let (first, _) = node.take(0).expect("a program");
        let file = open(&node.path).expect("a file");
        let record = node.dir.path().join("record.json");
        fs::write(&record, "").expect("written");
        let entry = format!("{}\0", record.display());
        for slot in 0..SLOTS {
            file.write_all_at(entry.as_bytes(), entry_at(slot))
                .expect("written");
        }
        drop(file);
        let (alone, _) = node.take(0).expect("a program");
        assert_ne!(alone.id, first.id);
        let file = open(&node.path).expect("a file");
        file.write_all_at(entry.as_bytes(), entry_at(1))
            .expect("written");
        drop(file);
        fs::remove_file(&record).expect("it was there");
        assert_eq!(
            node.take(0).map(|(program, slot)| (program.id, slot)),
            Ok((alone.id, 1))
        );
    }

    #[test]
    fn unloaded_or_unknown_program_is_not_shared() {
        let node = node(1);
        let slot = |path: &Path| node.take_at(path, "0").expect("a program").1;
        assert_eq!((slot(&node.path), slot(&node.path)), (0, 0));
        let (kept, _) = node.take(0).expect("a program");
        let whole = fs::read(&node.path).expect("a file");
        let damaged = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] ^= byte;
            bytes
        };
        // Damage to the version, the id (also beyond all ids), and the time of loading.
        let mut damages = [0, 8, 13, 16].map(|at| damaged(at, 1)).to_vec();
        damages.extend([Vec::new(), whole[..31].to_vec(), b"[".repeat(64 * ENTRY)]);
        for damage in damages {
            fs::write(&node.path, &damage).expect("written");
            let (program, slot) = node.take(0).expect("a program");
            assert_eq!((program.id == kept.id, slot), (false, 0), "{damage:?}");
        }
        fs::write(&node.path, damaged(31, 1)).expect("written");
        assert_eq!(slot(&node.path), 0, "a next slot beyond all");
        assert_eq!(slot(&node.dir.path().join("missing/program")), 0);
    }
}
