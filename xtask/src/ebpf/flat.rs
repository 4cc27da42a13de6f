//! The instructions of one program as the kernel takes them, so that a plugin call reads no ELF
//! file.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};

/// Length of `struct bpf_insn`.
const INSTRUCTION: usize = 8;
/// `BPF_LD | BPF_IMM | BPF_DW`: loads 64 bits that follow in this and the next instruction.
const LOAD_64: u8 = 0x18;
/// `BPF_PSEUDO_MAP_FD` in the place of the source register: the 64 bits are a map's descriptor.
const MAP_FD: u8 = 1 << 4;

/// The instructions of `program`. Where it uses a map, the instruction is marked as the kernel
/// wants it and bears the map's place in `maps`; whoever loads it writes the map's descriptor
/// there.
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
        .with_context(|| format!("{program:?} is cut off"))?;
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
            "{program:?} refers to {name:?}, which is no map"
        );
        let place = maps.iter().position(|map| *map == name);
        let place = place.with_context(|| {
            format!("{program:?} uses map {name:?}, which braid does not give it")
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
        "{program:?} is cut off"
    );
    Ok(code)
}
