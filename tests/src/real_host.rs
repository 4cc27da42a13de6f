//! State of the real host that a leaking sandbox could change.

use std::fs;
use std::process::Command;

/// Objects on the real host that braid's tests could leave behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RealHost {
    /// Links created by braid.
    links: Vec<String>,
    /// Tables created by braid.
    tables: Vec<String>,
    /// Entries of the folders in which braid and the reference plugins write.
    files: Vec<String>,
}

/// Folders in which a test could leave files.
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
