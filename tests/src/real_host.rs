//! The machine that the tests run on: what they could leave there if a sandbox had a hole.

use std::fs;
use std::process::Command;

/// What braid's tests could leave on the real host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RealHost {
    /// Links that braid made.
    links: Vec<String>,
    /// Tables that braid made.
    tables: Vec<String>,
    /// Entries of the folders that braid and the reference plugins write to.
    files: Vec<String>,
}

/// The folders in which something could be left.
const FOLDERS: &[&str] = &[
    "/run/braid",
    "/run/cni",
    "/run/cni-bin",
    "/run/.covered",
    "/var/lib/cni/networks",
    "/var/lib/braid/foreign",
    "/etc/cni/tuning",
];

impl RealHost {
    pub(crate) fn look() -> Self {
        let lines = |program: &str, args: &[&str]| {
            let output = Command::new(program)
                .args(args)
                .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
                .output();
            let text = output
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default();
            text.lines()
                .filter(|line| line.contains("braid ") || line.ends_with(" braid"))
                .map(str::to_owned)
                .collect()
        };
        let entries = |folder: &&str| {
            let entries = fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(Result::ok);
            entries
                .map(|entry| entry.path().display().to_string())
                .collect::<Vec<_>>()
        };
        let mut files: Vec<String> = FOLDERS.iter().flat_map(entries).collect();
        files.sort();
        Self {
            links: lines("ip", &["link"]),
            tables: lines("nft", &["list", "tables"]),
            files,
        }
    }
}
