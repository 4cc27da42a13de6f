//! Downloads from Debian's archive with apt. It uses separate lists and state, so the machine's apt
//! is not changed.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SUITES: &str = "bookworm trixie trixie-backports";
/// Age after which the package lists are fetched again.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// An apt configuration with its own lists and state in the cache.
pub(crate) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Writes the configuration, and fetches the package lists if they are missing or older than
    /// [`MAX_AGE`].
    pub(crate) fn open() -> Result<Self> {
        let apt = Self {
            dir: sh::cache().join("vm/apt"),
        };
        for dir in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(apt.dir.join(dir))?;
        }
        let dir = apt.dir.display();
        let sources = format!(
            "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: {SUITES}\nComponents: main\nArchitectures: amd64\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
        let config = format!(
            "Dir::Etc::sourcelist \"{dir}/debian.sources\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State::lists \"{dir}/lists\";\nDir::State::status \"{dir}/status\";\nDir::Cache \"{dir}\";\n\
             Acquire::Languages \"none\";\nAPT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\n"
        );
        for (file, text) in [
            ("debian.sources", sources.as_str()),
            ("apt.conf", &config),
            ("status", ""),
        ] {
            fs::write(apt.dir.join(file), text).with_context(|| format!("write {dir}/{file}"))?;
        }
        if !apt.has_lists() {
            sh::run(&mut apt.command("apt-get", &["update", "-qq"]))?;
            fs::write(apt.dir.join("updated"), "")?;
        }
        Ok(apt)
    }

    /// Returns the output of `apt-cache show`: a stanza for each version of `package`.
    pub(crate) fn show(&self, package: &str) -> Result<String> {
        sh::read(&mut self.command("apt-cache", &["show", package]))
    }

    /// Downloads `packages` into `dir`.
    pub(crate) fn download(&self, packages: &[&str], dir: &std::path::Path) -> Result<()> {
        sh::run(
            self.command("apt-get", &["download", "-qq"])
                .args(packages)
                .current_dir(dir),
        )
    }

    fn has_lists(&self) -> bool {
        let updated =
            fs::metadata(self.dir.join("updated")).and_then(|metadata| metadata.modified());
        updated.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < MAX_AGE))
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = sh::cmd(program, args);
        command.env("APT_CONFIG", self.dir.join("apt.conf"));
        command
    }
}
