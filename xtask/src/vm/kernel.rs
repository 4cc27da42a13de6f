//! Debian's kernels, which are downloaded, unpacked and kept in the cache.

use super::apt::Apt;
use anyhow::{Context, Result};
use braid_testbed::sh;
use std::fs;
use std::path::{Path, PathBuf};

/// Meta package. Each of its versions depends on the current kernel package of a Debian suite.
const META: &str = "linux-image-amd64";

/// A kernel ready to boot.
pub(crate) struct Kernel {
    /// Kernel release, as printed by `uname -r`.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// Folder `lib/modules/<release>`.
    pub(crate) modules: PathBuf,
}

/// Downloads a kernel if it is not in the cache, and returns it. `wanted` is the start of a version
/// (`6.1`), or `newest`.
pub(crate) fn fetch(wanted: &str) -> Result<Kernel> {
    let apt = Apt::open()?;
    let found = apt.show(META)?;
    let package =
        choose(&found, wanted).with_context(|| format!("no version of {META} is {wanted}"))?;
    let release = package.trim_start_matches("linux-image-");
    let dir = sh::cache().join("vm/kernels").join(release);
    if !dir.is_dir() {
        unpack(&apt, package, release, &dir)?;
    }
    Kernel::in_dir(&dir, release)
}

impl Kernel {
    fn in_dir(dir: &Path, release: &str) -> Result<Self> {
        let modules = base(dir).join("lib/modules").join(release);
        let places = [
            dir.join("boot").join(format!("vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        let image = places.into_iter().find(|path| path.is_file());
        let image = image.with_context(|| format!("no vmlinuz in {}", dir.display()))?;
        Ok(Self {
            release: release.to_owned(),
            image,
            modules,
        })
    }
}

/// Returns the folder that contains `lib/modules`: Debian 13 has it in /usr.
fn base(dir: &Path) -> PathBuf {
    let usr = dir.join("usr");
    if usr.join("lib/modules").is_dir() {
        usr
    } else {
        dir.to_owned()
    }
}

fn unpack(apt: &Apt, package: &str, release: &str, dir: &Path) -> Result<()> {
    eprintln!("downloading {package}");
    let stanza = apt.show(package)?;
    let parts = parts(&stanza, release);
    let partial = dir.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    let debs = partial.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("create {}", debs.display()))?;
    apt.download(&[&[package], &parts[..]].concat(), &debs)?;
    for deb in fs::read_dir(&debs)? {
        sh::run(
            sh::cmd("dpkg-deb", ["--extract"])
                .arg(deb?.path())
                .arg(&partial),
        )?;
    }
    fs::remove_dir_all(&debs)?;
    sh::run(
        sh::cmd("depmod", ["--basedir"])
            .arg(base(&partial))
            .arg(release),
    )?;
    // The rename comes last, so that the content of `dir` is always complete.
    fs::rename(&partial, dir).with_context(|| format!("rename to {}", dir.display()))
}

/// Returns the name of the newest kernel package with a version that starts with `wanted`, or with
/// any version if `wanted` is `newest`. `stanzas` describes the versions of the meta package.
fn choose<'a>(stanzas: &'a str, wanted: &str) -> Option<&'a str> {
    let mut newest = None;
    for stanza in stanzas.split("\n\n") {
        let Some(version) = field(stanza, "Version") else {
            continue;
        };
        let version = numbers(version);
        if wanted != "newest" && !version.starts_with(&numbers(wanted)) {
            continue;
        }
        let dependencies = dependencies(stanza);
        let package = dependencies
            .into_iter()
            .find(|name| name.starts_with("linux-image-"));
        if let Some(package) = package {
            newest = newest.max(Some((version, package)));
        }
    }
    let (_, package) = newest?;
    Some(package)
}

/// Returns the packages that a kernel package depends on. From 6.17 on, Debian splits a kernel
/// package into base, binary and modules of the same release.
fn parts<'a>(stanza: &'a str, release: &str) -> Vec<&'a str> {
    let mut parts = dependencies(stanza);
    parts.retain(|name| name.starts_with("linux-") && name.ends_with(release));
    parts
}

fn dependencies(stanza: &str) -> Vec<&str> {
    let list = field(stanza, "Depends").unwrap_or_default();
    let mut names = Vec::new();
    for item in list.split([',', '|']) {
        names.extend(item.split_whitespace().next());
    }
    names
}

fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    stanza
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns the numbers of a version, up to the first part that is not a number: 6, 12, 107 and 1
/// for `6.12.107-1`.
fn numbers(version: &str) -> Vec<u32> {
    version
        .split(['.', '-', '~', '+'])
        .map_while(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "Package: linux-image-amd64\nVersion: 7.3.4-1~bpo13+1\nDepends: linux-base-amd64 (= 1), linux-image-7.3.4+deb13-amd64 (= 1)\n\n\
                           Package: linux-image-amd64\nVersion: 6.12.107-1\nDepends: linux-image-6.12.107+deb13-amd64 (= 6.12.107-1)\n\n\
                           Package: linux-image-amd64\nVersion: 6.1.176-1\nDepends: linux-image-6.1.0-50-amd64 (= 6.1.176-1)\n";

    #[test]
    fn a_kernel_is_chosen_by_whole_numbers() {
        assert_eq!(choose(STANZAS, "6.1"), Some("linux-image-6.1.0-50-amd64"));
        assert_eq!(
            choose(STANZAS, "6.12"),
            Some("linux-image-6.12.107+deb13-amd64")
        );
        assert_eq!(
            choose(STANZAS, "newest"),
            Some("linux-image-7.3.4+deb13-amd64")
        );
        assert_eq!(choose(STANZAS, "5.10"), None);
    }

    #[test]
    fn only_packages_of_the_same_release_are_parts() {
        let stanza = "Depends: dracut | linux-initramfs-tool, linux-base (>= 4), linux-modules-7.3.4 (= 1), linux-binary-7.3.4 (= 1)\n";
        assert_eq!(
            parts(stanza, "7.3.4"),
            ["linux-modules-7.3.4", "linux-binary-7.3.4"]
        );
    }
}
