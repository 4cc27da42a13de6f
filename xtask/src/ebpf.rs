//! `cargo xtask ebpf`: builds, checks or test-loads the committed eBPF object.
//!
//! A plain `cargo build` needs only stable Rust, because the built object is committed and embedded
//! in braid. A file beside the object records the source from which the object was built. It has
//! checksums in the format of sha256sum(1).

mod flat;
mod load;
mod object;
mod source;
mod toolchain;

use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use std::fs;
use toolchain::Toolchain;

/// Path of the committed object, relative to the checkout.
const OBJECT: &str = "cni-plugin/node/src/sys/bpf/braid.o";
/// A file that braid embeds, with the instructions of one program. `path` is relative to the
/// checkout, and `maps` has the program's maps in the order that braid expects.
struct Flat {
    path: &'static str,
    program: &'static str,
    maps: &'static [&'static str],
}

const FLAT: [Flat; 9] = [
    Flat {
        path: "cni-plugin/node/src/sys/bpf/connect6.insns",
        program: "connect6",
        maps: &["LOOPBACK_SOCKETS", "LOOPBACK_PORTS"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/getpeername6.insns",
        program: "getpeername6",
        maps: &["LOOPBACK_SOCKETS"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/hp_in.insns",
        program: "hp_in",
        maps: &[
            "NAT",
            "DATAGRAMS",
            "LAST",
            "HOST_PORTS",
            "BY_ADDRESS",
            "LOCAL_ADDRS",
        ],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/hp_out.insns",
        program: "hp_out",
        maps: &["NAT", "DATAGRAMS", "LAST"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/recvmsg6.insns",
        program: "recvmsg6",
        maps: &["LOOPBACK_SOCKETS"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/sendmsg6.insns",
        program: "sendmsg6",
        maps: &["LOOPBACK_SOCKETS", "LOOPBACK_PORTS"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/shape.insns",
        program: "shape",
        maps: &["SHAPES"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/shape_subnets.insns",
        program: "shape_subnets",
        maps: &["SHAPES", "SUBNETS"],
    },
    Flat {
        path: "cni-plugin/node/src/sys/bpf/xsk_bind.insns",
        program: "xsk_bind",
        maps: &["HELD", "OFFSETS"],
    },
];
/// Path of the file with checksums of [`OBJECT`] and of its source files, relative to the checkout.
const SOURCE: &str = "cni-plugin/node/src/sys/bpf/braid.o.source";

#[derive(clap::Args)]
#[group(multiple = false)]
pub(crate) struct Args {
    /// Build nothing: fail if the committed object was built from another source
    #[arg(long)]
    check: bool,
    /// Build again and compare the parts that the kernel loads with the committed object
    #[arg(long)]
    rebuild_check: bool,
    /// Load the committed object into this kernel and compare its counters with the device's (needs
    /// root)
    #[arg(long)]
    load: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args {
        Args { check: true, .. } => check(),
        Args {
            rebuild_check: true,
            ..
        } => rebuild_check(),
        Args { load: true, .. } => load::run(&committed()?),
        _ => build(),
    }
}

/// Fails if the committed object was not built from the source in this checkout.
pub(crate) fn check() -> Result<()> {
    let recorded =
        fs::read_to_string(sh::root().join(SOURCE)).with_context(|| format!("read {SOURCE}"))?;
    let differences = source::differences(&recorded, &source::checksums()?);
    if differences.is_empty() {
        for Flat {
            path,
            program,
            maps,
        } in FLAT
        {
            let loaded = fs::read(sh::root().join(path)).with_context(|| format!("read {path}"))?;
            let made = flat::instructions(&committed()?, program, maps)?;
            ensure!(loaded == made, "{path} was not extracted from {OBJECT}");
        }
        return Ok(());
    }
    bail!(
        "{OBJECT} was not built from this source: {}; run `cargo xtask ebpf`",
        differences.join(", ")
    )
}

fn build() -> Result<()> {
    let object = object::strip(&Toolchain::find_or_install()?.build()?)?;
    // bpf-linker orders the types of BTF differently in each run, which is not a reason to commit.
    if check().is_ok() && object::differing_sections(&committed()?, &object)?.is_empty() {
        eprintln!("{OBJECT}: up to date");
        return Ok(());
    }
    let path = sh::root().join(OBJECT);
    fs::write(&path, &object).with_context(|| format!("write {}", path.display()))?;
    for Flat {
        path,
        program,
        maps,
    } in FLAT
    {
        let made = flat::instructions(&object, program, maps)?;
        fs::write(sh::root().join(path), made).with_context(|| format!("write {path}"))?;
    }
    let path = sh::root().join(SOURCE);
    fs::write(&path, source::checksums()?).with_context(|| format!("write {}", path.display()))?;
    eprintln!("{OBJECT}: {} bytes", object.len());
    Ok(())
}

fn rebuild_check() -> Result<()> {
    let toolchain = Toolchain::find_or_install()?;
    let built = object::strip(&toolchain.build()?)?;
    // In the remaining part, BTF, the order of types varies between runs, and the names of core's
    // files vary between compilers.
    let differing = object::differing_sections(&committed()?, &built)?;
    if differing.is_empty() {
        eprintln!("{OBJECT}: the same code and maps as a new build");
        return Ok(());
    }
    bail!(
        "{OBJECT}: a new build differs in {}: either the object was not built from this source, or it was built by another \
         compiler than {}, which selects other instructions",
        differing.join(", "),
        toolchain.version()?
    )
}

fn committed() -> Result<Vec<u8>> {
    fs::read(sh::root().join(OBJECT)).with_context(|| format!("read {OBJECT}"))
}
