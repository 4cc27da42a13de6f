//! `cargo xtask image`: builds a container image with the shipped binaries. The manifests in deploy/
//! install braid on nodes from this image.

use crate::build::{self, COMPANION};
use crate::dist;
use anyhow::{Context, Result};
use braid_testbed::oci::{Image, Layer};
use braid_testbed::sh;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the image in deploy/braid.yaml.
const NAME: &str = concat!("localhost/braid:", env!("CARGO_PKG_VERSION"));
/// Licences of the image's content. The eBPF programs in the binary have a separate licence.
const LICENSES: &str = concat!(env!("CARGO_PKG_LICENSE"), " AND (MIT OR GPL-2.0-only)");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Path of the archive; target/braid-<version>.oci.tar by default
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the compiler's order of functions: a shorter build, without a trace of calls
    #[arg(long)]
    unordered: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let default =
        || build::target_dir().join(concat!("braid-", env!("CARGO_PKG_VERSION"), ".oci.tar"));
    let out = args.output.clone().unwrap_or_else(default);
    let braid = if args.unordered {
        dist::unordered()?
    } else {
        dist::braid()?
    };
    write(&braid, &out)?;
    let size = fs::metadata(&out)
        .with_context(|| format!("look at {}", out.display()))?
        .len();
    println!("{}  {NAME}  {} KiB", out.display(), size / 1024);
    Ok(())
}

/// Writes the archive of an image with the static binaries `braid` and [`COMPANION`].
fn write(braid: &Path, out: &Path) -> Result<()> {
    let mut layer = Layer::default();
    let files = [
        ("braid", 0o755, braid.to_owned()),
        (COMPANION, 0o755, braid.with_file_name(COMPANION)),
        ("LICENSE", 0o644, sh::root().join("LICENSE")),
    ];
    for (name, mode, path) in files {
        let content = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        layer.file(name, mode, &content)?;
    }
    Image {
        name: NAME,
        config: json!({"Entrypoint": ["/braid"], "Labels": labels()}),
        layer,
    }
    .write(out)
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
