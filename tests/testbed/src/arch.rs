//! Processor architectures that braid is shipped for.

use anyhow::{Result, bail};
use std::fmt;

/// A processor architecture. Its text is its Go name, which OCI uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    /// `x86_64`
    Amd64,
    /// `aarch64`
    Arm64,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Returns this machine's architecture.
    pub fn native() -> Result<Self> {
        for arch in Self::ALL {
            if arch.rust() == std::env::consts::ARCH {
                return Ok(arch);
            }
        }
        bail!(
            "braid is not shipped for the architecture {:?}",
            std::env::consts::ARCH
        )
    }

    /// Returns the name in Rust's target triples.
    pub fn rust(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}
