//! Reads an OCI archive back. Each blob is found by its descriptor and must have the descriptor's
//! size and digest.

use super::{NAME_KEYS, digest, path};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Files of an OCI archive by path.
#[derive(Debug)]
pub struct Archive(BTreeMap<String, Vec<u8>>);

/// An image for one platform.
#[derive(Debug)]
pub struct Variant {
    /// Operating system and architecture, such as `linux/arm64`.
    pub platform: String,
    /// OCI configuration: `Entrypoint`, `Cmd`, `Env`, `Labels`.
    pub config: Value,
    /// Size of the manifest, the configuration and the layers.
    pub size_bytes: usize,
    /// Files by path.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    /// Reads the archive at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self(
            unpack(&bytes).with_context(|| format!("unpack {}", path.display()))?,
        ))
    }

    /// Returns the names of the archive's images.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in entries(&self.root()?)? {
            for key in NAME_KEYS {
                let name = entry["annotations"][key].as_str();
                names.push(
                    name.with_context(|| format!("index.json: no {key}"))?
                        .to_owned(),
                );
            }
        }
        names.dedup();
        Ok(names)
    }

    /// Returns the variants of all images.
    pub fn variants(&self) -> Result<Vec<Variant>> {
        let mut variants = Vec::new();
        for image in entries(&self.root()?)? {
            for entry in entries(&self.json(image)?)? {
                variants.push(self.variant(entry)?);
            }
        }
        Ok(variants)
    }

    fn variant(&self, entry: &Value) -> Result<Variant> {
        let manifest = self.json(entry)?;
        let config = self.json(&manifest["config"])?;
        let mut size_bytes = self.blob(entry)?.len() + self.blob(&manifest["config"])?.len();
        let mut files = BTreeMap::new();
        let layers = manifest["layers"]
            .as_array()
            .context("a manifest without layers")?;
        for layer in layers {
            let layer = self.blob(layer)?;
            size_bytes += layer.len();
            files.extend(unpack(layer).context("unpack a layer")?);
        }
        let platform = platform(&entry["platform"])?;
        let of_config = self::platform(&config)?;
        ensure!(
            platform == of_config,
            "the index says {platform}, and the configuration says {of_config}"
        );
        Ok(Variant {
            platform,
            config: config["config"].clone(),
            size_bytes,
            files,
        })
    }

    fn root(&self) -> Result<Value> {
        let index = self.0.get("index.json").context("no index.json")?;
        serde_json::from_slice(index).context("parse index.json")
    }

    fn json(&self, descriptor: &Value) -> Result<Value> {
        serde_json::from_slice(self.blob(descriptor)?)
            .with_context(|| format!("parse the blob of {descriptor}"))
    }

    fn blob(&self, descriptor: &Value) -> Result<&[u8]> {
        let expected = descriptor["digest"]
            .as_str()
            .context("a descriptor without digest")?;
        let content = self.0.get(&path(expected));
        let content = content.with_context(|| format!("no blob {expected}"))?;
        let found = digest(content);
        ensure!(
            found == expected,
            "the blob {expected} has the digest {found}"
        );
        ensure!(
            descriptor["size"] == content.len(),
            "the blob {expected} has {} bytes: {descriptor}",
            content.len()
        );
        Ok(content)
    }
}

/// Returns the descriptors of an index.
fn entries(index: &Value) -> Result<&Vec<Value>> {
    index["manifests"]
        .as_array()
        .with_context(|| format!("no index: {index}"))
}

/// Returns the platform of an index's entry or of a configuration.
fn platform(value: &Value) -> Result<String> {
    let field = |key| {
        value[key]
            .as_str()
            .with_context(|| format!("no {key}: {value}"))
    };
    Ok(format!("{}/{}", field("os")?, field("architecture")?))
}

/// Returns the content of each regular file of a tar archive.
fn unpack(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry
            .read_to_end(&mut content)
            .with_context(|| format!("read {path}"))?;
        files.insert(path, content);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;
    use crate::oci::{Image, Layer};
    use serde_json::json;

    fn archive() -> Result<Archive> {
        let mut layers = Vec::new();
        for arch in Arch::ALL {
            let mut layer = Layer::default();
            layer.file("program", 0o755, arch.to_string().as_bytes())?;
            layers.push((arch, layer));
        }
        let mut bytes = Vec::new();
        Image {
            name: "localhost/test:1",
            config: json!({"Entrypoint": ["/program"]}),
            layers,
        }
        .write_to(&mut bytes)?;
        Ok(Archive(unpack(&bytes)?))
    }

    #[test]
    fn each_architecture_has_its_files_under_one_name() -> Result<()> {
        let archive = archive()?;
        assert_eq!(archive.names()?, ["localhost/test:1"]);
        let mut found = Vec::new();
        for variant in archive.variants()? {
            assert_eq!(variant.config, json!({"Entrypoint": ["/program"]}));
            let program = String::from_utf8(variant.files["program"].clone())?;
            found.push((variant.platform, program));
        }
        let expected = [("linux/amd64", "amd64"), ("linux/arm64", "arm64")];
        assert_eq!(
            found,
            expected.map(|(platform, program)| (platform.into(), program.into()))
        );
        Ok(())
    }

    #[test]
    fn a_changed_blob_is_refused() -> Result<()> {
        let mut archive = archive()?;
        for (path, content) in &mut archive.0 {
            if path.starts_with("blobs/") && content.starts_with(b"program") {
                content.push(0);
            }
        }
        let error = archive.variants().expect_err("another digest");
        assert!(error.to_string().contains("has the digest"), "{error:#}");
        Ok(())
    }
}
