//! Logs of the agent's pods, as the kubelet keeps them.

use super::report::Report;
use braid_node::takeover::root::file_names;
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::SystemTime;

/// Folder with a folder `<namespace>_<name>_<uid>` for each pod.
pub(super) const FOLDER: &str = "/var/log/pods";
/// Start of the folders of the agent's pods: namespace and `DaemonSet` of deploy/braid.yaml.
const POD: &str = "kube-system_braid-";
/// Containers of these pods. Another pod with such a name has other containers.
const CONTAINERS: [&str; 2] = ["agent", "install"];
/// The end of a log that is read, and the sum over all logs, in bytes.
const MOST: u64 = 1 << 20;
const MOST_OF_ALL: u64 = 16 << 20;

/// A log file.
struct Log {
    /// `<pod>/<container>/<file>`.
    name: String,
    written: SystemTime,
}

/// Adds the newest logs.
pub(super) fn add<W: Write>(folder: &Path, report: &mut Report<W>) -> io::Result<()> {
    let mut logs = match find(folder) {
        Ok(logs) => logs,
        Err(err) => {
            report.error(format_args!("logs: {}: {err}", folder.display()));
            return Ok(());
        }
    };
    if logs.is_empty() {
        report.error(format_args!(
            "logs: {} has none of the agent",
            folder.display()
        ));
    }
    logs.sort_by_key(|log| Reverse(log.written));
    let mut left = MOST_OF_ALL;
    for Log { name, .. } in &logs {
        let read = tail(&folder.join(name), MOST.min(left));
        if let Ok(bytes) = &read {
            left = left.saturating_sub(bytes.len() as u64);
        }
        report.part(&format!("logs/{name}"), read)?;
    }
    Ok(())
}

fn find(folder: &Path) -> io::Result<Vec<Log>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(pod) = entry?.file_name().into_string() else {
            continue;
        };
        if !pod.starts_with(POD) {
            continue;
        }
        for container in CONTAINERS {
            for file in file_names(&folder.join(&pod).join(container)) {
                let name = format!("{pod}/{container}/{file}");
                let meta = fs::metadata(folder.join(&name));
                if let Ok(meta) = meta
                    && meta.is_file()
                    && Path::new(&file).extension() == Some("log".as_ref())
                {
                    let written = meta.modified()?;
                    logs.push(Log { name, written });
                }
            }
        }
    }
    Ok(logs)
}

/// Reads the end of a file.
fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_of_the_agents_containers_are_found() {
        let dir = tempfile::tempdir().expect("a folder");
        for file in [
            "kube-system_braid-x7k2p_uid/agent/0.log",
            "kube-system_braid-x7k2p_uid/agent/1.log",
            "kube-system_braid-x7k2p_uid/agent/0.log.20261129-100000.gz",
            "kube-system_braid-x7k2p_uid/install/0.log",
            "default_braid-demo_uid/web/0.log",
            "default_web_uid/agent/0.log",
        ] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, "log").expect("a log");
        }
        let found = find(dir.path()).expect("logs");
        let mut names: Vec<String> = found.into_iter().map(|log| log.name).collect();
        names.sort_unstable();
        let expected = ["agent/0.log", "agent/1.log", "install/0.log"];
        assert_eq!(
            names,
            expected.map(|name| format!("kube-system_braid-x7k2p_uid/{name}"))
        );
    }

    #[test]
    fn the_end_of_a_long_log_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "0123456789").expect("a log");
        assert_eq!(tail(file.path(), 4).expect("read"), b"6789");
        assert_eq!(tail(file.path(), 40).expect("read"), b"0123456789");
    }
}
