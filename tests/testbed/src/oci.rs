//! Container images as OCI archives that are reproducible byte for byte. No container engine is
//! needed.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// A container image with one layer, for this machine's architecture.
pub struct Image<'a> {
    /// Name that the image has after its import, such as `localhost/busybox:1`.
    pub name: &'a str,
    /// OCI configuration: `Entrypoint`, `Cmd`, `Env`, `Labels`.
    pub config: Value,
    /// Files of the image.
    pub layer: Layer,
}

impl Image<'_> {
    /// Writes an archive for `ctr images import` and `podman load`.
    pub fn write(self, out: &Path) -> Result<()> {
        let archive = File::create(out).with_context(|| format!("create {}", out.display()))?;
        self.write_to(archive)
            .with_context(|| format!("write {}", out.display()))
    }

    fn write_to(self, out: impl Write) -> Result<()> {
        // An uncompressed layer is valid OCI, and its digest is also the diff id.
        let layer = self.layer.0.into_inner()?;
        let config = json!({
            "architecture": arch()?, "os": "linux",
            "config": self.config,
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
        entry["annotations"] = json!({"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();

        let mut archive = Builder::new(out);
        file(
            &mut archive,
            "oci-layout",
            0o644,
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        )?;
        file(&mut archive, "index.json", 0o644, index.as_bytes())?;
        for blob in [&config, &manifest, &layer] {
            file(
                &mut archive,
                &digest(blob).replacen("sha256:", "blobs/sha256/", 1),
                0o644,
                blob,
            )?;
        }
        Ok(archive.into_inner()?.flush()?)
    }
}

/// Files of an image. Their owner is root and their time is 1970.
pub struct Layer(Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        Self(Builder::new(Vec::new()))
    }
}

impl Layer {
    /// Appends a directory.
    pub fn dir(&mut self, path: &str) -> Result<()> {
        let mut header = header(EntryType::Directory, 0o755, 0);
        self.0
            .append_data(&mut header, path, &[][..])
            .with_context(|| format!("append {path}"))
    }

    /// Appends a regular file.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        file(&mut self.0, path, mode, content)
    }

    /// Appends a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.0
            .append_link(&mut header, path, target)
            .with_context(|| format!("append {path}"))
    }
}

fn file(archive: &mut Builder<impl Write>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, content.len() as u64);
    archive
        .append_data(&mut header, path, content)
        .with_context(|| format!("append {path}"))
}

/// Returns a tar header with modification time 0, so that archives do not depend on the clock.
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

/// Returns the digest of a blob in OCI's form: `sha256:` and hexadecimal digits.
fn digest(blob: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(blob))
}

/// Returns the Go name of this machine's architecture, which OCI uses.
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

    #[test]
    fn an_archive_and_its_layer_know_no_time() -> Result<()> {
        let mut layer = Layer::default();
        layer.dir("bin")?;
        layer.file("bin/busybox", 0o755, b"")?;
        layer.link("bin/sh", "busybox")?;
        let content = layer.0.get_ref().clone();
        let mut archive = Vec::new();
        Image {
            name: "localhost/test:1",
            config: json!({}),
            layer,
        }
        .write_to(&mut archive)?;
        for bytes in [&content, &archive] {
            for entry in tar::Archive::new(&bytes[..]).entries()? {
                let header = entry?.header().clone();
                assert_eq!(header.mtime()?, 0, "{:?}", header.path());
            }
        }
        Ok(())
    }
}
