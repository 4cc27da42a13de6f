//! The file of this program, and other files that start the program: links, copies, and one-line
//! scripts.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Path of this program, even if its file was replaced meanwhile.
pub const OWN: &str = "/proc/self/exe";
/// Maximum length in bytes of a script's first line, including the newline. The kernel reads no
/// more (`BINPRM_BUF_SIZE`).
const MAX_FIRST_LINE: usize = 256;

/// Builds a one-line script that starts the program at `path` under the script's name. `None` if
/// the kernel could not parse this line.
pub fn script(path: &Path) -> Option<Vec<u8>> {
    let text = [b"#!", path.as_os_str().as_bytes(), b"\n"].concat();
    (text.len() <= MAX_FIRST_LINE && interpreter(&text).as_deref() == Some(path)).then_some(text)
}

/// Returns the absolute path in a script's first line. `None` if an argument follows the path.
fn interpreter(script: &[u8]) -> Option<PathBuf> {
    let line = script
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?
        .trim_ascii();
    let is_path = line.first() == Some(&b'/') && !line.iter().any(|byte| b" \t\0".contains(byte));
    is_path.then(|| PathBuf::from(OsStr::from_bytes(line)))
}

/// Returns the path of the file `name` in the folder of this program.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    Ok(fs::read_link(OWN)?.with_file_name(name))
}

/// Returns the program that the script at `file` starts; `None` for any other file. Reads no more
/// than the kernel does.
pub fn interpreter_of(file: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::with_capacity(MAX_FIRST_LINE);
    File::open(file)?
        .take(MAX_FIRST_LINE as u64)
        .read_to_end(&mut head)?;
    Ok(interpreter(&head))
}

/// True if a file is this program, a copy of it, or a script that starts it. Reads only the first
/// line of a file, or the whole file if its length is the same as this program's.
pub fn is_own(file: &Path, meta: &Metadata) -> bool {
    let Ok(own) = fs::metadata(OWN) else {
        return false;
    };
    if is_program(&own, file, meta) {
        return true;
    }
    let Ok(Some(program)) = interpreter_of(file) else {
        return false;
    };
    fs::metadata(&program).is_ok_and(|meta| is_program(&own, &program, &meta))
}

fn is_program(own: &Metadata, file: &Path, meta: &Metadata) -> bool {
    let is_same = (own.dev(), own.ino()) == (meta.dev(), meta.ino());
    is_same
        || own.len() == meta.len()
            && matches!((fs::read(OWN), fs::read(file)), (Ok(own), Ok(its)) if own == its)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_copies_and_scripts_are_this_program() {
        let dir = tempfile::tempdir().expect("a folder");
        let path_of = |name: &str| dir.path().join(name);
        symlink(OWN, path_of("link")).expect("linked");
        let mut bytes = fs::read(OWN).expect("read");
        fs::write(path_of("copy"), &bytes).expect("written");
        let scripts = [
            ("script", path_of("copy")),
            ("link-script", path_of("link")),
            ("other-script", "/bin/sh".into()),
        ];
        for (name, program) in scripts {
            fs::write(path_of(name), script(&program).expect("a script")).expect("written");
        }
        fs::write(
            path_of("longer"),
            [
                &script(&path_of("copy")).expect("a script")[..],
                b"exit 1\n",
            ]
            .concat(),
        )
        .expect("written");
        fs::write(
            path_of("gone"),
            script(&path_of("nothing")).expect("a script"),
        )
        .expect("written");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(path_of("other"), &bytes).expect("written");
        let is_own =
            |name: &str| is_own(&path_of(name), &fs::metadata(path_of(name)).expect("there"));
        let own = ["link", "copy", "script", "link-script", "longer"];
        assert_eq!(own.map(is_own), [true; 5]);
        assert_eq!(["other", "other-script", "gone"].map(is_own), [false; 3]);
    }

    #[test]
    fn script_has_one_path_that_fits_the_first_line() {
        assert_eq!(
            script(Path::new("/opt/cni/bin/braid")).as_deref(),
            Some(&b"#!/opt/cni/bin/braid\n"[..])
        );
        let path_of_len = |len: usize| format!("/{}", "x".repeat(len - 1));
        assert!(script(Path::new(&path_of_len(253))).is_some());
        for path in [
            "opt/braid",
            "",
            "/with blank/braid",
            "/with\ttab/braid",
            "/with\nend/braid",
            &path_of_len(254),
        ] {
            assert_eq!(script(Path::new(path)), None, "{path}");
        }
        for (text, path) in [
            ("#! /bin/sh \n", Some("/bin/sh")),
            ("#!/bin/sh", Some("/bin/sh")),
            ("#!/bin/sh -e\n", None),
            ("#!\n/bin/sh\n", None),
            ("/bin/sh\n", None),
            ("\x7fELF", None),
            ("", None),
        ] {
            assert_eq!(
                interpreter(text.as_bytes()),
                path.map(PathBuf::from),
                "{text:?}"
            );
        }
    }
}
