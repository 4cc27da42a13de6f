//! Container images as OCI archives that are reproducible byte for byte. No container engine is
//! needed.
//!
//! ```text
//!  index.json ─ name ─► index ─┬─ linux/amd64 ─► manifest ─► configuration, layer
//!                              └─ linux/arm64 ─► manifest ─► configuration, layer
//! ```

pub mod archive;

use crate::Arch;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tar::{Builder, EntryType, Header};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Annotations with the image's name: the key that containerd reads, and OCI's.
const NAME_KEYS: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// A container image with one layer for each architecture.
pub struct Image<'a> {
    /// Name that the image has after its import, such as `localhost/busybox:1`.
    pub name: &'a str,
    /// OCI configuration: `Entrypoint`, `Cmd`, `Env`, `Labels`.
    pub config: Value,
    /// Files of the image.
    pub layers: Vec<(Arch, Layer)>,
}

impl Image<'_> {
    /// Writes an archive for `ctr images import` and `podman load`.
    pub fn write(self, out: &Path) -> Result<()> {
        let archive = File::create(out).with_context(|| format!("create {}", out.display()))?;
        self.write_to(archive)
            .with_context(|| format!("write {}", out.display()))
    }

    fn write_to(self, out: impl Write) -> Result<()> {
        let mut blobs = Vec::new();
        let mut manifests = Vec::new();
        for (arch, layer) in self.layers {
            let mut entry = manifest(arch, &self.config, layer, &mut blobs)?;
            entry["platform"] = json!({"architecture": arch.to_string(), "os": "linux"});
            manifests.push(entry);
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let mut entry = blob(INDEX, index.to_string().into_bytes(), &mut blobs);
        // Importers read one image per entry of index.json, so the architectures are a level below.
        entry["annotations"] = NAME_KEYS
            .map(|key| (key, json!(self.name)))
            .into_iter()
            .collect();
        let root = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});

        let mut archive = Builder::new(out);
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#;
        file(&mut archive, "oci-layout", 0o644, layout)?;
        file(
            &mut archive,
            "index.json",
            0o644,
            root.to_string().as_bytes(),
        )?;
        for (path, content) in &blobs {
            file(&mut archive, path, 0o644, content)?;
        }
        Ok(archive.into_inner()?.flush()?)
    }
}

/// Blobs of an archive with their paths.
type Blobs = Vec<(String, Vec<u8>)>;

/// Appends the manifest, the configuration and the layer of an architecture to `blobs`. Returns the
/// manifest's descriptor.
fn manifest(arch: Arch, config: &Value, layer: Layer, blobs: &mut Blobs) -> Result<Value> {
    // An uncompressed layer is valid OCI, and its digest is also the diff id.
    let layer = blob(LAYER, layer.0.into_inner()?, blobs);
    let config = json!({
        "architecture": arch.to_string(), "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(CONFIG, config.to_string().into_bytes(), blobs);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": config, "layers": [layer],
    });
    Ok(blob(MANIFEST, manifest.to_string().into_bytes(), blobs))
}

/// Appends a blob and returns its descriptor.
fn blob(media_type: &str, content: Vec<u8>, blobs: &mut Blobs) -> Value {
    let digest = digest(&content);
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
    blobs.push((path(&digest), content));
    descriptor
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

/// Returns the digest of a blob in OCI's form: `sha256:` and hexadecimal digits.
fn digest(blob: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(blob))
}

/// Returns the path of a blob in an archive.
fn path(digest: &str) -> String {
    digest.replacen("sha256:", "blobs/sha256/", 1)
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
    fn an_archive_and_its_layers_know_no_time() -> Result<()> {
        let mut layer = Layer::default();
        layer.dir("bin")?;
        layer.file("bin/busybox", 0o755, b"")?;
        layer.link("bin/sh", "busybox")?;
        let content = layer.0.get_ref().clone();
        let mut archive = Vec::new();
        Image {
            name: "localhost/test:1",
            config: json!({}),
            layers: vec![(Arch::Amd64, layer)],
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
