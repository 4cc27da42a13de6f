//! Labels of calls. Types and codes of strangers are one label, so that series are bounded.

use super::families::CODES;
use braid_core::plugins;
use braid_node::attach::chain::BRAID;
use braid_node::ipam;

/// Label of a plugin type or code that is not braid's. Strangers write types, and each would be
/// a series.
const OTHER: &str = "other";

/// Returns the label of a plugin type.
pub(super) fn type_label(plugin: &str) -> &'static str {
    let mut known = plugins::TYPES.iter().chain(ipam::TYPES).chain(&[BRAID]);
    known
        .find(|kind| **kind == plugin)
        .map_or(OTHER, |kind| kind)
}

/// Returns the label of a CNI error code.
pub(super) fn code_label(code: u32) -> &'static str {
    let text = code.to_string();
    let known = CODES.iter().find(|known| **known == text);
    known.map_or(OTHER, |known| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn types_and_codes_of_strangers_are_one_label() {
        let mut types = BTreeSet::new();
        let mut codes = BTreeSet::new();
        for number in 0..1_000 {
            types.insert(type_label(&format!("stranger-{number}")));
            codes.insert(code_label(1_000 + number));
        }
        assert_eq!((types.len(), codes.len()), (1, 1));
        for plugin in ["ptp", "host-local", "braid"] {
            assert_eq!(type_label(plugin), plugin);
        }
        assert_eq!([code_label(11), code_label(999)], ["11", "999"]);
    }
}
