//! Leases of other containers, written in host-local's format before a run.

use crate::conflist::HostLocal;
use anyhow::{Context, Result, bail};
use ipnet::Ipv4Net;
use serde_json::Value;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

/// Writes `count` leases into the calling thread's file system, as if `count` containers had been
/// attached one after the other.
pub(crate) fn plant(host_local: &HostLocal<'_>, count: usize) -> Result<()> {
    let dir = &host_local.dir;
    let addresses = addresses(host_local.ipam, count)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
        .with_context(|| format!("create {}", dir.display()))?;
    let write = |name: &str, text: &str| {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("write lease {}", dir.join(name).display()))
    };
    for (at, address) in addresses.iter().enumerate() {
        // host-local ends the container ID with CR LF, and the last line has no newline.
        write(&address.to_string(), &format!("{at:064x}\r\neth0"))?;
    }
    addresses.last().map_or(Ok(()), |last| {
        write("last_reserved_ip.0", &last.to_string())
    })
}

/// Returns the first `count` addresses that host-local would reserve from its first range: in
/// order, without the gateway.
fn addresses(ipam: &Value, count: usize) -> Result<Vec<Ipv4Addr>> {
    let range = ipam.pointer("/ranges/0/0").unwrap_or(ipam);
    let text = |key: &str| range.get(key).and_then(Value::as_str);
    let subnet = text("subnet").context("host-local has no `subnet`")?;
    let net: Ipv4Net = subnet
        .parse()
        .with_context(|| format!("subnet \"{subnet}\" (leases are planted in IPv4 only)"))?;
    let (first, last) = (
        u32::from(net.network()).saturating_add(1),
        u32::from(net.broadcast()).saturating_sub(1),
    );
    let bound = |key: &str, default: u32| match text(key) {
        Some(text) => text
            .parse()
            .map(Ipv4Addr::to_bits)
            .with_context(|| format!("{key} \"{text}\"")),
        None => Ok(default),
    };
    let (start, end, gateway) = (
        bound("rangeStart", first)?,
        bound("rangeEnd", last)?,
        bound("gateway", first)?,
    );
    let free: Vec<_> = (start..=end)
        .filter(|&bits| bits != gateway)
        .take(count)
        .map(Ipv4Addr::from_bits)
        .collect();
    if free.len() < count {
        bail!(
            "range of {subnet} holds {} addresses, {count} leases are to be planted",
            free.len()
        );
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn leases_start_after_the_default_gateway() {
        let given = addresses(&json!({"ranges": [[{"subnet": "10.1.0.0/16"}]]}), 3).unwrap();
        assert_eq!(
            given,
            [[10, 1, 0, 2], [10, 1, 0, 3], [10, 1, 0, 4]].map(Ipv4Addr::from)
        );
    }

    #[test]
    fn leases_keep_to_the_range_and_step_over_its_gateway() {
        let ipam = json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.12", "gateway": "10.1.0.10"});
        assert_eq!(
            addresses(&ipam, 3).unwrap(),
            [[10, 1, 0, 9], [10, 1, 0, 11], [10, 1, 0, 12]].map(Ipv4Addr::from)
        );
        let refused = addresses(&ipam, 4).unwrap_err().to_string();
        assert_eq!(
            refused,
            "range of 10.1.0.0/24 holds 3 addresses, 4 leases are to be planted"
        );
    }

    #[test]
    fn planted_directory_equals_host_locals() {
        let tmp = tempfile::tempdir().unwrap();
        let ipam = json!({"subnet": "10.1.0.0/16"});
        let dir = tmp.path().join("lan");
        plant(
            &HostLocal {
                dir: dir.clone(),
                ipam: &ipam,
            },
            2,
        )
        .unwrap();
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["10.1.0.2", "10.1.0.3", "last_reserved_ip.0"]);
        assert_eq!(
            fs::read_to_string(dir.join("10.1.0.3")).unwrap(),
            format!("{:064x}\r\neth0", 1)
        );
        assert_eq!(
            fs::read_to_string(dir.join("last_reserved_ip.0")).unwrap(),
            "10.1.0.3"
        );
        assert_eq!(
            fs::metadata(dir.join("10.1.0.2"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }
}
