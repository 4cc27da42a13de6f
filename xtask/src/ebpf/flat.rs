//! Extracts the instructions of a program in the kernel's format, so that a plugin call need not
//! parse an ELF file.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};

/// Length of `struct bpf_insn`, in bytes.
const INSTRUCTION: usize = 8;
/// `BPF_LD | BPF_IMM | BPF_DW`: loads the 64-bit immediate of this and the next instruction.
const LOAD_64: u8 = 0x18;
/// `BPF_PSEUDO_MAP_FD` in the source register: the immediate is a map's file descriptor.
const MAP_FD: u8 = 1 << 4;

/// Returns the instructions of `program`. An instruction that uses a map has the mark [`MAP_FD`]
/// and the map's index in `maps`. The loader replaces the index with the map's file descriptor.
pub(super) fn instructions(object: &[u8], program: &str, maps: &[&str]) -> Result<Vec<u8>> {
    let file = object::File::parse(object).context("read the object")?;
    let symbol = file
        .symbols()
        .find(|symbol| symbol.kind() == SymbolKind::Text && symbol.name() == Ok(program));
    let symbol = symbol.with_context(|| format!("the object has no program {program:?}"))?;
    let section =
        file.section_by_index(symbol.section_index().context("a program in no section")?)?;
    let (start, len) = (
        usize::try_from(symbol.address())?,
        usize::try_from(symbol.size())?,
    );
    let code = section
        .data()?
        .get(start..start + len)
        .with_context(|| format!("{program:?} is truncated"))?;
    let mut code = code.to_vec();
    let mut used = vec![false; maps.len()];
    for (offset, relocation) in section.relocations() {
        let Some(at) = usize::try_from(offset)?
            .checked_sub(start)
            .filter(|at| *at < len)
        else {
            continue;
        };
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let target = file.symbol_by_index(index)?;
        let (name, home) = (
            target.name()?,
            target
                .section_index()
                .map(|home| file.section_by_index(home))
                .transpose()?,
        );
        let is_map = home.is_some_and(|home| home.name() == Ok(".maps"));
        ensure!(
            is_map && code[at] == LOAD_64,
            "{program:?} refers to {name:?}, which is not a map"
        );
        let place = maps.iter().position(|map| *map == name);
        let place = place.with_context(|| {
            format!("{program:?} uses map {name:?}, which braid does not provide")
        })?;
        used[place] = true;
        code[at + 1] |= MAP_FD;
        code[at + 4..at + INSTRUCTION].copy_from_slice(&u32::try_from(place)?.to_ne_bytes());
    }
    ensure!(
        used.iter().all(|used| *used),
        "{program:?} does not use all of {maps:?}"
    );
    ensure!(
        code.len().is_multiple_of(INSTRUCTION),
        "{program:?} is truncated"
    );
    Ok(code)
}
