//! Prepared resource claims in `/run/braid/claims`, one file each. The agent writes them before the kubelet
//! starts the pod; a call only looks if there are any.

use super::root::Root;
use crate::sys::private;
use braid_core::dra::prepared::Prepared;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folder of the files.
pub const FOLDER: &str = "/run/braid/claims";
/// Suffix of a complete file. Its name is the claim's uid.
const SUFFIX: &str = "json";
/// File that stays for a while after a claim has ended. The kubelet may have ended it for one pod, and not
/// prepared it again for another that starts.
const ENDED: &str = "ended";

/// Folder of prepared claims. Only one process writes in it.
#[derive(Debug, Clone)]
pub struct PreparedClaims {
    folder: PathBuf,
}

impl PreparedClaims {
    /// Returns the folder below a root.
    pub fn of(root: &Root) -> Self {
        let folder = root.at(FOLDER);
        Self { folder }
    }

    /// True if a claim may be prepared. A node without claims has no folder.
    pub fn is_any(&self) -> io::Result<bool> {
        match fs::read_dir(&self.folder) {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Reads all claims. A file that can't be read is in the second list, as the uid of its claim.
    pub fn read(&self) -> io::Result<(Vec<Prepared>, Vec<String>)> {
        let (mut claims, mut damaged) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.folder) {
            Err(err) if err.kind() == ErrorKind::NotFound => return Ok((claims, damaged)),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
                continue;
            }
            let claim = fs::read(&path).map(|bytes| serde_json::from_slice(&bytes));
            if let Ok(Ok(claim)) = claim {
                claims.push(claim);
            } else {
                let uid = path.file_stem().unwrap_or_default();
                damaged.push(uid.to_string_lossy().into_owned());
            }
        }
        Ok((claims, damaged))
    }

    /// Writes a claim, in place of an earlier one with its uid.
    pub fn write(&self, prepared: &Prepared) -> io::Result<()> {
        private::make_folders(&self.folder)?;
        let path = self.path(&prepared.claim.uid);
        let temporary = path.with_extension("tmp");
        private::write(&temporary, &serde_json::to_vec(prepared)?)?;
        fs::rename(&temporary, &path)
    }

    /// Forgets the claim with this uid. Calls ask for claims until [`PreparedClaims::settle`].
    pub fn remove(&self, uid: &str) -> io::Result<()> {
        let path = self.path(uid);
        if path.exists() {
            private::write(&self.folder.join(ENDED), b"")?;
        }
        for path in [path.with_extension("tmp"), path] {
            remove_file(&path)?;
        }
        Ok(())
    }

    /// Lets calls no longer ask for claims if the last one has ended before `since`. Removes the folder then.
    pub fn settle(&self, since: SystemTime) -> io::Result<()> {
        let ended = self.folder.join(ENDED);
        match fs::metadata(&ended).and_then(|meta| meta.modified()) {
            Ok(at) if at > since => return Ok(()),
            Ok(_) => remove_file(&ended)?,
            Err(err) if err.kind() == ErrorKind::NotFound => {}
            Err(err) => return Err(err),
        }
        match fs::remove_dir(&self.folder) {
            Err(err)
                if !matches!(
                    err.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound
                ) =>
            {
                Err(err)
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(uid).with_extension(SUFFIX)
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != ErrorKind::NotFound => Err(err),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::dra::claim::Claim;
    use braid_core::k8s::ObjectName;
    use std::time::Duration;

    fn prepared(uid: &str) -> Prepared {
        Prepared {
            claim: Claim {
                name: ObjectName {
                    namespace: "web".to_owned(),
                    name: "nic".to_owned(),
                },
                uid: uid.to_owned(),
                shares: Vec::new(),
                configs: Vec::new(),
                pods: Vec::new(),
            },
            uses: Vec::new(),
        }
    }

    #[test]
    fn a_claim_is_kept_until_it_is_removed() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let claims = PreparedClaims::of(&Root::below(root.path()));
        assert!(!claims.is_any()?);
        assert_eq!(claims.read()?, (Vec::new(), Vec::new()));
        claims.write(&prepared("a"))?;
        claims.write(&prepared("a"))?;
        claims.write(&prepared("b"))?;
        claims.remove("a")?;
        assert!(claims.is_any()?);
        assert_eq!(claims.read()?, (vec![prepared("b")], Vec::new()));
        let before = SystemTime::UNIX_EPOCH;
        claims.remove("b")?;
        claims.remove("b")?;
        claims.settle(before)?;
        assert!(claims.is_any()?, "another pod may start with the claim");
        claims.settle(SystemTime::now() + Duration::from_secs(1))?;
        assert!(!claims.is_any()?);
        claims.remove("b")?;
        claims.settle(before)?;
        assert!(!root.path().join("run/braid/claims").exists());
        Ok(())
    }

    #[test]
    fn a_damaged_file_is_reported_by_its_uid() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let claims = PreparedClaims::of(&Root::below(root.path()));
        claims.write(&prepared("a"))?;
        fs::write(root.path().join("run/braid/claims/b.json"), "{")?;
        fs::write(root.path().join("run/braid/claims/c.tmp"), "{")?;
        let (whole, damaged) = claims.read()?;
        assert_eq!(
            (whole, damaged),
            (vec![prepared("a")], vec!["b".to_owned()])
        );
        assert!(claims.is_any()?);
        Ok(())
    }
}
