//! Inspection of a written image: it is read back and each of its programs must answer.

use super::content::{self, LICENSE, NAME};
use crate::build::{self, BRAID, COMPANION};
use crate::emulator;
use anyhow::{Context, Result, ensure};
use braid_testbed::oci::archive::{Archive, Variant};
use braid_testbed::{Arch, sh};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Largest image of one architecture.
const LIMIT_BYTES: usize = 20_000_000;
/// Offset of `e_machine` in an ELF header, a little-endian number of two bytes.
const MACHINE: std::ops::Range<usize> = 18..20;

/// Program that starts programs of an architecture; `None` on the architecture itself.
pub(super) struct Emulator {
    arch: Arch,
    program: Option<PathBuf>,
}

/// Returns the emulators of `archs`. Installs missing ones.
pub(super) fn emulators(archs: &[Arch]) -> Result<Vec<Emulator>> {
    let native = Arch::native()?;
    let mut emulators = Vec::new();
    for &arch in archs {
        let program = (arch != native).then(|| emulator::install(arch));
        emulators.push(Emulator {
            arch,
            program: program.transpose()?,
        });
    }
    Ok(emulators)
}

/// Returns the variants of an image for `archs`. Fails if the image has other architectures, or a
/// variant is too large or has other files, labels or another entry point.
pub(super) fn variants(archive: &Archive, archs: &[Arch]) -> Result<Vec<Variant>> {
    let names = archive.names()?;
    ensure!(names == [NAME], "the image has the names {names:?}");
    let variants = archive.variants()?;
    let found: Vec<&str> = variants
        .iter()
        .map(|variant| variant.platform.as_str())
        .collect();
    let expected: Vec<String> = archs.iter().map(|arch| platform(*arch)).collect();
    ensure!(
        found == expected,
        "the image is for {found:?} instead of {expected:?}"
    );
    for (variant, arch) in variants.iter().zip(archs) {
        check(variant, *arch).with_context(|| format!("the image for {arch}"))?;
    }
    Ok(variants)
}

fn check(variant: &Variant, arch: Arch) -> Result<()> {
    let expected = content::configuration();
    let config = &variant.config;
    ensure!(
        *config == expected,
        "the configuration is {config} instead of {expected}"
    );
    let files: Vec<&str> = variant.files.keys().map(String::as_str).collect();
    ensure!(
        files == [LICENSE, BRAID, COMPANION],
        "it has the files {files:?}"
    );
    for program in [BRAID, COMPANION] {
        let found = variant.files[program].get(MACHINE);
        let expected = machine(arch).to_le_bytes();
        ensure!(
            found == Some(&expected),
            "{program} is for the ELF machine {found:?}"
        );
    }
    let size = variant.size_bytes;
    ensure!(
        size <= LIMIT_BYTES,
        "it has {size} bytes, more than {LIMIT_BYTES}"
    );
    Ok(())
}

/// Starts the image's entry point with the CNI command VERSION, and fails if the answer has no
/// versions.
pub(super) fn answers(archive: &Archive, emulator: &Emulator) -> Result<()> {
    let arch = emulator.arch;
    let platform = platform(arch);
    let variants = archive.variants()?;
    let variant = variants.iter().find(|variant| variant.platform == platform);
    let program = variant.and_then(|variant| variant.files.get(BRAID));
    let program = program.with_context(|| format!("no {BRAID} for {platform}"))?;
    let path = build::target_dir().join(format!("image-{BRAID}-{arch}"));
    let unpack = || {
        fs::write(&path, program)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    unpack().with_context(|| format!("write {}", path.display()))?;
    let mut call = match &emulator.program {
        None => sh::cmd(&path, [""; 0]),
        Some(emulator) => sh::cmd(emulator, [&path]),
    };
    // VERSION needs no input.
    let answer = sh::read(call.env("CNI_COMMAND", "VERSION"));
    let removed = fs::remove_file(&path).with_context(|| format!("remove {}", path.display()));
    let answer = answer.with_context(|| format!("CNI VERSION of the program for {arch}"))?;
    removed?;
    let versions: Value = serde_json::from_str(&answer)
        .with_context(|| format!("parse the answer of the program for {arch}: {answer}"))?;
    let has_versions = versions["supportedVersions"]
        .as_array()
        .is_some_and(|versions| versions.contains(&json!("1.1.0")));
    ensure!(
        has_versions,
        "the program for {arch} does not support CNI 1.1.0: {answer}"
    );
    println!("{platform} answers CNI VERSION: {}", answer.trim());
    Ok(())
}

fn platform(arch: Arch) -> String {
    format!("linux/{arch}")
}

/// Returns the number of an architecture in ELF headers.
fn machine(arch: Arch) -> u16 {
    match arch {
        Arch::Amd64 => object::elf::EM_X86_64,
        Arch::Arm64 => object::elf::EM_AARCH64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an image of programs that consist of an ELF header for `machine`.
    fn image(archs: &[Arch], of: impl Fn(Arch) -> u16, size: usize) -> Result<Archive> {
        let folder = tempfile::tempdir()?;
        let mut binaries = Vec::new();
        for &arch in archs {
            let own = folder.path().join(arch.to_string());
            fs::create_dir(&own)?;
            let mut program = vec![0; size];
            program[MACHINE].copy_from_slice(&of(arch).to_le_bytes());
            for name in [BRAID, COMPANION] {
                fs::write(own.join(name), &program)?;
            }
            binaries.push((arch, own.join(BRAID)));
        }
        let out = folder.path().join("image.tar");
        content::write(&binaries, &out)?;
        Archive::open(&out)
    }

    fn refusal(archive: &Archive) -> String {
        match variants(archive, &Arch::ALL) {
            Ok(_) => "no error".into(),
            Err(err) => format!("{err:#}"),
        }
    }

    #[test]
    fn a_written_image_has_both_platforms_with_entrypoint_and_version() -> Result<()> {
        let archive = image(&Arch::ALL, machine, 1000)?;
        let mut found = Vec::new();
        for variant in variants(&archive, &Arch::ALL)? {
            let version = &variant.config["Labels"]["org.opencontainers.image.version"];
            assert_eq!(version, env!("CARGO_PKG_VERSION"));
            assert_eq!(variant.config["Entrypoint"], json!(["/braid"]));
            found.push(variant.platform);
        }
        assert_eq!(found, ["linux/amd64", "linux/arm64"]);
        Ok(())
    }

    #[test]
    fn an_image_without_an_architecture_is_refused() -> Result<()> {
        let said = refusal(&image(&[Arch::Amd64], machine, 1000)?);
        assert!(said.contains(r#"for ["linux/amd64"] instead of"#), "{said}");
        Ok(())
    }

    #[test]
    fn a_program_for_another_architecture_is_refused() -> Result<()> {
        let said = refusal(&image(&Arch::ALL, |_| machine(Arch::Amd64), 1000)?);
        assert!(
            said.contains("arm64: braid is for the ELF machine"),
            "{said}"
        );
        Ok(())
    }

    #[test]
    fn an_image_over_the_limit_is_refused() -> Result<()> {
        let said = refusal(&image(&Arch::ALL, machine, LIMIT_BYTES / 2)?);
        assert!(said.contains("more than 20000000"), "{said}");
        Ok(())
    }
}
