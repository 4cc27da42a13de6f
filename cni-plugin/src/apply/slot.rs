//! Which loaded program has a slot left for one more attachment: `/run/braid/program`.
//!
//! Loading takes longer than all else of shaping together, so several attachments share a program. It lives as long as one
//! of them does. A slot belongs to an attachment as long as its record is there, so that nothing has to be given back.

use crate::sys::bpf::shape::{Program, VERSION};
use braid_ebpf_types::shape::SLOTS;
use nix::errno::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// On tmpfs: what it speaks of is gone with the kernel.
const PATH: &str = "/run/braid/program";
/// More than any text has.
const LEN: usize = 4096;

/// The program loaded last. In the file it is words that end with a zero byte, which no path has inside, and an empty word:
/// what a longer text left behind it does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Last {
    /// Another braid may have loaded another.
    version: u64,
    id: u32,
    /// The same number may be another's, after a boot.
    load_time: u64,
    /// Whose each slot is or was: an attachment's record.
    records: Vec<PathBuf>,
}

/// A program for all packets, with a slot for the attachment that `record` will show as long as it is there.
pub(super) fn take(record: &Path) -> Result<(Program, u32), Errno> {
    take_of(Path::new(PATH), record)
}

fn take_of(path: &Path, record: &Path) -> Result<(Program, u32), Errno> {
    // Where the file can't be used, nothing is shared.
    let Ok(file) = open(path) else { return Ok((Program::load(&[])?, 0)) };
    let last = read(&file).filter(|last| last.version == VERSION);
    if let Some((last, slot)) = last.and_then(|last| with(last, record, Path::exists))
        && let Some(program) = still_there(&last)
        && write(&file, &last).is_ok()
    {
        return Ok((program, slot));
    }
    let program = Program::load(&[])?;
    let Program { id, load_time, .. } = program;
    // If it can't be written, what stands there is of an older program, and as true as before.
    let _unshared = write(&file, &Last { version: VERSION, id, load_time, records: vec![record.to_owned()] });
    Ok((program, 0))
}

/// Shares the program with nobody else: an attachment that goes by its record may still be shaped by its slot.
pub(super) fn forget() -> io::Result<()> {
    forget_of(Path::new(PATH))
}

fn forget_of(path: &Path) -> io::Result<()> {
    match open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.set_len(0),
    }
}

/// The same with a slot given to `record`, and which; none where all are somebody's.
fn with(mut last: Last, record: &Path, is_there: impl Fn(&Path) -> bool) -> Option<(Last, u32)> {
    let records = &mut last.records;
    let slot = records.iter().position(|record| !is_there(record)).unwrap_or(records.len());
    match records.get_mut(slot) {
        Some(old) => record.clone_into(old),
        None if slot < SLOTS => records.push(record.to_owned()),
        None => return None,
    }
    Some((last, u32::try_from(slot).ok()?))
}

fn still_there(last: &Last) -> Option<Program> {
    Program::loaded_then(last.id, last.load_time).ok()?
}

/// Opens it, and holds it against others until it is closed.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

fn read(file: &File) -> Option<Last> {
    let mut text = [0; LEN];
    let len = file.read_at(&mut text, 0).ok()?;
    // What is cut speaks of less than there is.
    let end = text[..len].windows(2).position(|two| two == [0, 0])?;
    let mut words = text[..end].split(|byte| *byte == 0);
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (version, id, load_time) = (number()?, number()?.try_into().ok()?, number()?);
    Some(Last { version, id, load_time, records: words.map(|path| OsStr::from_bytes(path).into()).collect() })
}

fn write(file: &File, last: &Last) -> io::Result<()> {
    let Last { version, id, load_time, records } = last;
    let mut text = format!("{version}\0{id}\0{load_time}\0").into_bytes();
    for record in records {
        text.extend(record.as_os_str().as_bytes());
        text.push(0);
    }
    text.push(0);
    if text.len() > LEN {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.write_all_at(&text, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn paths(dir: &Path, count: usize) -> Vec<PathBuf> {
        let paths = (0..count).map(|number| dir.join(format!("{number}.json")));
        paths.inspect(|path| fs::write(path, "").expect("written")).collect()
    }

    #[test]
    fn a_program_is_shared_by_as_many_as_it_has_slots_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        let records = paths(dir.path(), SLOTS + 1);
        let mut taken: Vec<_> = records.iter().map(|record| take_of(&path, record).expect("a program")).collect();
        let (last, slot) = taken.pop().expect("one more than there are slots");
        assert_eq!(slot, 0);
        assert_ne!(last.id, taken[0].0.id);
        assert!(taken.iter().all(|(program, _)| program.id == taken[0].0.id));
        assert!((0..).zip(&taken).all(|(expected, (_, slot))| *slot == expected));
    }

    #[test]
    fn a_slot_is_free_when_its_record_is_gone() {
        let last = Last { version: VERSION, id: 1, load_time: 2, records: ["a", "b"].map(PathBuf::from).to_vec() };
        let given = |last: Last, gone: &str| with(last, Path::new("c"), |record| record != Path::new(gone));
        let (reused, slot) = given(last.clone(), "a").expect("a slot");
        assert_eq!((reused.records, slot), (["c", "b"].map(PathBuf::from).to_vec(), 0));
        let (more, slot) = given(last.clone(), "").expect("a slot");
        assert_eq!((more.records.len(), slot), (3, 2));
        let full = Last { records: vec![PathBuf::from("a"); SLOTS], ..last };
        assert_eq!(given(full.clone(), ""), None);
        assert_eq!(given(full, "a").map(|(_, slot)| slot), Some(0));
    }

    #[test]
    fn a_forgotten_program_is_shared_with_nobody_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        let records = paths(dir.path(), 2);
        let (first, _) = take_of(&path, &records[0]).expect("a program");
        forget_of(&path).expect("forgotten");
        let (second, slot) = take_of(&path, &records[1]).expect("a program");
        assert_eq!((first.id == second.id, slot), (false, 0));
        forget_of(&dir.path().join("missing/program")).expect("nothing to forget");
    }

    #[test]
    fn a_text_is_read_up_to_its_end_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = open(&dir.path().join("program")).expect("a file");
        let records: Vec<PathBuf> = ["/run/a", "/run/b"].map(PathBuf::from).to_vec();
        let long = Last { version: VERSION, id: 1, load_time: 2, records };
        write(&file, &long).expect("written");
        assert_eq!(read(&file).as_ref(), Some(&long));
        let short = Last { records: long.records[..1].to_vec(), ..long };
        write(&file, &short).expect("written");
        assert_eq!(read(&file).as_ref(), Some(&short));
        let end = format!("{VERSION}\x001\x002\0/run/a\0").len() as u64;
        for len in 0..=end {
            file.set_len(len).expect("cut");
            assert_eq!(read(&file), None, "{len} bytes");
        }
    }

    #[test]
    fn a_program_that_is_gone_or_unknown_is_not_shared() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("program");
        let record = paths(dir.path(), 1).remove(0);
        let slot = |path: &Path| take_of(path, &record).expect("a program").1;
        assert_eq!((slot(&path), slot(&path)), (0, 0));
        let cut = format!("{VERSION}|");
        let too_large = format!("{VERSION}|{}|3|", u64::MAX);
        for damage in ["", "1", "1|2|3|a|", &cut, &too_large, &"[".repeat(LEN * 2)].map(|text| text.replace('|', "\0"))
        {
            let whole = format!("{damage:\0<LEN$}");
            for text in [&damage, &whole] {
                fs::write(&path, text).expect("written");
                assert_eq!(slot(&path), 0, "{damage:?}");
            }
        }
        assert_eq!(slot(&dir.path().join("missing/program")), 0);
    }
}
