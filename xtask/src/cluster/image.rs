//! Container images without a container engine: an OCI archive with Debian's static busybox and its applets.

use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use tar::{Builder, EntryType, Header};

const BUSYBOX: &str = "/bin/busybox";

/// Writes the archive of the image `reference` (`localhost/busybox:1`), which runs `command` by default.
pub(crate) fn write(out: &Path, reference: &str, command: &[&str]) -> Result<()> {
    // An uncompressed layer is valid OCI, and its digest is the diff id as well.
    let layer = busybox_layer().context("write the busybox layer")?;
    let config = json!({
        "architecture": arch()?, "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    })
    .to_string()
    .into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    })
    .to_string()
    .into_bytes();
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] =
        json!({"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();

    let mut archive = Builder::new(File::create(out).with_context(|| format!("create {}", out.display()))?);
    file(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    file(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in [&config, &manifest, &layer] {
        file(&mut archive, &digest(blob).replacen("sha256:", "blobs/sha256/", 1), 0o644, blob)?;
    }
    archive.into_inner()?.flush().with_context(|| format!("write {}", out.display()))
}

fn busybox_layer() -> Result<Vec<u8>> {
    let busybox = fs::read(BUSYBOX).with_context(|| format!("read {BUSYBOX}"))?;
    // The dynamic loader's path is in the first page of an ELF file, if it needs one.
    if busybox.get(..4096).unwrap_or(&busybox).windows(8).any(|bytes| bytes == b"ld-linux") {
        bail!("{BUSYBOX} is dynamically linked: install busybox-static");
    }
    let mut layer = Builder::new(Vec::new());
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        layer.append_data(&mut header(EntryType::Directory, 0o755, 0), dir, &[][..])?;
    }
    file(&mut layer, "bin/busybox", 0o755, &busybox)?;
    file(&mut layer, "etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\n")?;
    let applets = sh::read(&mut sh::cmd(BUSYBOX, ["--list"]))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), format!("bin/{applet}"), "busybox")?;
    }
    Ok(layer.into_inner()?)
}

fn file(archive: &mut Builder<impl Write>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, content.len() as u64);
    archive.append_data(&mut header, path, content).with_context(|| format!("append {path}"))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    Sha256::digest(blob).iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// This machine's architecture in Go's words, which OCI uses.
fn arch() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image for the architecture {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_one_that_sha256sum_prints() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }
}
