//! Container images of the cluster's pods: Debian's static busybox and its applets.

use crate::oci::{Image, Layer};
use crate::{Arch, sh};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs;
use std::path::Path;

const BUSYBOX: &str = "/bin/busybox";

/// Writes an archive of the image `name`, such as `localhost/busybox:1`, to `out`. `command` is the
/// image's default command.
pub(crate) fn write(out: &Path, name: &str, command: &[&str]) -> Result<()> {
    let layer = busybox_layer().context("write the busybox layer")?;
    Image {
        name,
        config: json!({"Cmd": command, "Env": ["PATH=/bin"]}),
        layers: vec![(Arch::native()?, layer)],
    }
    .write(out)
}

/// Returns the files of busybox and links for its applets.
pub(crate) fn busybox_layer() -> Result<Layer> {
    let busybox = fs::read(BUSYBOX).with_context(|| format!("read {BUSYBOX}"))?;
    // A dynamically linked ELF file has the path of the dynamic loader in its first page.
    if busybox
        .get(..4096)
        .unwrap_or(&busybox)
        .windows(8)
        .any(|bytes| bytes == b"ld-linux")
    {
        bail!("{BUSYBOX} is dynamically linked: install busybox-static");
    }
    let mut layer = Layer::default();
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        layer.dir(dir)?;
    }
    layer.file("bin/busybox", 0o755, &busybox)?;
    layer.file("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\n")?;
    let applets = sh::read(&mut sh::cmd(BUSYBOX, ["--list"]))?;
    for applet in applets.lines() {
        if applet != "busybox" {
            layer.link(&format!("bin/{applet}"), "busybox")?;
        }
    }
    Ok(layer)
}
