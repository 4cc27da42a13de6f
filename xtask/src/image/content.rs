//! Content of the image: its files, name, entry point and labels.

use crate::build::{BRAID, COMPANION};
use anyhow::{Context, Result};
use braid_testbed::oci::{Image, Layer};
use braid_testbed::{Arch, sh};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the image in deploy/braid.yaml.
pub(super) const NAME: &str = concat!("localhost/braid:", env!("CARGO_PKG_VERSION"));
pub(super) const LICENSE: &str = "LICENSE";
/// Licences of the image's content. The eBPF programs in the binary have a separate licence.
const LICENSES: &str = concat!(env!("CARGO_PKG_LICENSE"), " AND (MIT OR GPL-2.0-only)");

/// Writes the archive of an image with the static binaries `braid` and [`COMPANION`], which are in
/// one folder for each architecture.
pub(super) fn write(binaries: &[(Arch, PathBuf)], out: &Path) -> Result<()> {
    let mut layers = Vec::new();
    for (arch, braid) in binaries {
        layers.push((*arch, layer(braid)?));
    }
    Image {
        name: NAME,
        config: configuration(),
        layers,
    }
    .write(out)
}

fn layer(braid: &Path) -> Result<Layer> {
    let mut layer = Layer::default();
    let files = [
        (BRAID, 0o755, braid.to_owned()),
        (COMPANION, 0o755, braid.with_file_name(COMPANION)),
        (LICENSE, 0o644, sh::root().join(LICENSE)),
    ];
    for (name, mode, path) in files {
        let content = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        layer.file(name, mode, &content)?;
    }
    Ok(layer)
}

/// Returns the OCI configuration: the entry point is the binary.
pub(super) fn configuration() -> Value {
    json!({"Entrypoint": [format!("/{BRAID}")], "Labels": labels()})
}

/// Returns the image's labels, which have the keys of OCI annotations. Leaves out labels without a
/// value, such as the source URL while Cargo.toml has none.
fn labels() -> Value {
    let labels = [
        ("title", "braid"),
        ("description", "CNI plugin for all networks of a pod"),
        ("licenses", LICENSES),
        ("version", env!("CARGO_PKG_VERSION")),
        ("source", env!("CARGO_PKG_REPOSITORY")),
    ];
    let known = labels.iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), json!(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_runs_the_written_image() -> Result<()> {
        let manifest = fs::read_to_string(sh::root().join("deploy/braid.yaml"))?;
        assert!(
            manifest
                .lines()
                .any(|line| line.trim() == format!("image: {NAME}")),
            "{NAME}"
        );
        Ok(())
    }
}
