//! flannel's own manifest and the images that it names, for checks on a cluster.

use crate::oci::{Image, Layer};
use crate::state::Cluster;
use crate::{Arch, chart, image, sh, tools, up};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Namespace of flannel's objects.
pub const NAMESPACE: &str = "kube-flannel";
/// Programs that flanneld starts: a path, and the name of a symbolic link to it in the image.
const TOOLS: [(&str, &[&str]); 2] = [
    (
        "/usr/sbin/xtables-nft-multi",
        &[
            "iptables",
            "iptables-save",
            "iptables-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
        ],
    ),
    ("/usr/sbin/nft", &[]),
];

/// Returns the objects of `Documentation/kube-flannel.yml` with `net_conf` as the configuration of
/// flanneld. The version of the CNI configuration is that of the plugin in [`load_images`].
pub fn manifest(net_conf: &Value) -> Result<Vec<Value>> {
    let path = tools::flannel_module()?.join("Documentation/kube-flannel.yml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut objects = chart::objects(&text)?;
    let maps = objects
        .iter_mut()
        .filter(|object| object["kind"] == "ConfigMap");
    for map in maps {
        let list = map["data"]["cni-conf.json"].as_str().unwrap_or_default();
        let mut list: Value = serde_json::from_str(list).context("parse flannel's list")?;
        list["cniVersion"] = "0.3.1".into();
        map["data"] = json!({
            "cni-conf.json": list.to_string(),
            "net-conf.json": net_conf.to_string(),
        });
    }
    Ok(objects)
}

/// Writes the images that the objects of [`manifest`] name, and imports them into each node. The
/// programs are flanneld and its installer; the plugin is the last one of the reference plugins,
/// because the module of flannel's newer plugin is not public.
pub fn load_images(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let pods = objects
        .iter()
        .find(|object| object["kind"] == "DaemonSet")
        .context("flannel's manifest has no DaemonSet")?;
    let pods = &pods["spec"]["template"]["spec"];
    let installed = pods["initContainers"].as_array().into_iter().flatten();
    let started = pods["containers"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = installed
        .chain(started)
        .filter_map(|container| container["image"].as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    ensure!(names.len() == 2, "flannel's manifest has images {names:?}");
    for name in names {
        let archive = cluster.dir().join("flannel.tar");
        let layer = if name.contains("cni-plugin") {
            plugin_layer()
        } else {
            daemon_layer()
        };
        Image {
            name,
            config: json!({"Env": ["PATH=/bin:/usr/sbin", "XTABLES_LIBDIR=/xtables"]}),
            layers: vec![(Arch::native()?, layer?)],
        }
        .write(&archive)?;
        up::load(cluster, &archive)?;
    }
    Ok(())
}

fn plugin_layer() -> Result<Layer> {
    let mut layer = image::busybox_layer()?;
    append(&mut layer, &tools::reference()?.join("flannel"), "flannel")?;
    Ok(layer)
}

fn daemon_layer() -> Result<Layer> {
    sh::apt(&[("iptables", "iptables"), ("nft", "nftables")])?;
    let mut layer = image::busybox_layer()?;
    let flanneld = tools::flanneld()?;
    append(&mut layer, &flanneld, "opt/bin/flanneld")?;
    let installer = flanneld.with_file_name(tools::INSTALLER);
    append(&mut layer, &installer, "opt/bin/install-conf")?;
    let mut libraries = Vec::new();
    for (program, names) in TOOLS {
        let program = Path::new(program);
        append(&mut layer, program, inner(program)?)?;
        for name in names {
            let target = program.file_name().context("a name")?.to_string_lossy();
            layer.link(&format!("usr/sbin/{name}"), &target)?;
        }
        libraries.extend(libraries_of(&sh::read(&mut sh::cmd("ldd", [program]))?));
    }
    libraries.sort_unstable();
    libraries.dedup();
    for library in &libraries {
        append(&mut layer, library, inner(library)?)?;
    }
    let xtables = libraries.iter().find(|path| is_xtables(path));
    let extensions = xtables.context("iptables has no libxtables")?;
    let extensions = extensions.with_file_name("xtables");
    let entries = fs::read_dir(&extensions);
    for entry in entries.with_context(|| format!("list {}", extensions.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        append(&mut layer, &path, &format!("xtables/{name}"))?;
    }
    Ok(layer)
}

fn is_xtables(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libxtables.so")
}

/// Appends a program or library of this machine. Follows symbolic links.
fn append(layer: &mut Layer, from: &Path, to: &str) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    layer.file(to, 0o755, &content)
}

/// Returns a path of this machine as one relative to the root of an image.
fn inner(path: &Path) -> Result<&str> {
    let inner = path.strip_prefix("/").ok().and_then(Path::to_str);
    inner.with_context(|| format!("{} is not an absolute path in UTF-8", path.display()))
}

/// Returns the paths of shared libraries in the output of ldd(1).
fn libraries_of(text: &str) -> Vec<PathBuf> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        libraries.extend(path.map(PathBuf::from));
    }
    libraries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_absolute_paths_that_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007ffb8d9fe000)\n\
                    \tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007ffb8d92f000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007ffb8da00000)\n";
        assert_eq!(
            libraries_of(text),
            [
                "/lib/x86_64-linux-gnu/libmnl.so.0",
                "/lib64/ld-linux-x86-64.so.2"
            ]
            .map(PathBuf::from)
        );
    }
}
