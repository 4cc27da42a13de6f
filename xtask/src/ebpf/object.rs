//! The ELF object with the eBPF programs: removal of debug information, and comparison of the
//! sections that the kernel loads.

use anyhow::{Context, Result};
use object::build::elf::{Builder, SectionData};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionIndex, elf};
use std::collections::{BTreeMap, BTreeSet};

/// Removes DWARF debug information, which is nine tenths of the object. BTF stays, because the
/// kernel and bpftool read it.
pub(super) fn strip(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object).context("read the built object")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    // LLVM stores the names of symbols and sections in one table; the builder needs two.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = elf::SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder
        .write(&mut stripped)
        .context("write the object without DWARF")?;
    Ok(stripped)
}

/// Returns the names of the loaded sections (programs, maps, licence) whose bytes or symbols differ
/// between the objects.
pub(super) fn differing_sections(one: &[u8], other: &[u8]) -> Result<Vec<String>> {
    let (one, other) = (loaded(one)?, loaded(other)?);
    let mut names: BTreeSet<&String> = one.keys().collect();
    names.extend(other.keys());
    names.retain(|name| one.get(*name) != other.get(*name));
    Ok(names.into_iter().cloned().collect())
}

/// A section as the kernel loads it: its bytes, its references to symbols, and the symbols that it
/// defines.
#[derive(PartialEq)]
struct Loaded {
    data: Vec<u8>,
    references: Vec<(u64, String)>,
    symbols: BTreeSet<(u64, String)>,
}

fn loaded(bytes: &[u8]) -> Result<BTreeMap<String, Loaded>> {
    let file = object::File::parse(bytes).context("read the object")?;
    let mut sections = BTreeMap::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else {
            continue;
        };
        if sh_flags & u64::from(elf::SHF_ALLOC) == 0 || section.size() == 0 {
            continue;
        }
        let references = section.relocations().filter_map(|(offset, relocation)| {
            let object::RelocationTarget::Symbol(index) = relocation.target() else {
                return None;
            };
            Some((
                offset,
                file.symbol_by_index(index).ok()?.name().ok()?.to_owned(),
            ))
        });
        let loaded = Loaded {
            data: section.data()?.to_vec(),
            references: references.collect(),
            symbols: symbols(&file, section.index()),
        };
        sections.insert(section.name()?.to_owned(), loaded);
    }
    Ok(sections)
}

fn symbols(file: &object::File, section: SectionIndex) -> BTreeSet<(u64, String)> {
    let mut symbols = BTreeSet::new();
    for symbol in file.symbols() {
        if symbol.section_index() == Some(section)
            && let Ok(name) = symbol.name()
        {
            symbols.insert((symbol.address(), name.to_owned()));
        }
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &[u8] = include_bytes!("../../../cni-plugin/node/src/sys/bpf/braid.o");

    #[test]
    fn the_committed_object_has_btf_and_no_dwarf() {
        let file = object::File::parse(COMMITTED).unwrap();
        assert!(
            file.section_by_name(".BTF")
                .is_some_and(|btf| btf.size() > 0)
        );
        assert!(
            file.sections()
                .all(|section| !section.name().unwrap().contains("debug"))
        );
    }

    #[test]
    fn an_object_does_not_differ_from_itself() {
        assert_eq!(
            differing_sections(COMMITTED, COMMITTED).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_changed_instruction_is_a_difference_in_its_section() {
        let file = object::File::parse(COMMITTED).unwrap();
        let (offset, _) = file
            .section_by_name("classifier")
            .unwrap()
            .file_range()
            .unwrap();
        let mut other = COMMITTED.to_vec();
        other[usize::try_from(offset).unwrap() + 1] ^= 1;
        assert_eq!(
            differing_sections(COMMITTED, &other).unwrap(),
            ["classifier"]
        );
    }
}
