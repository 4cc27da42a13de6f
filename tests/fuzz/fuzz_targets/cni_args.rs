//! Any text as `CNI_ARGS`: each parsed value is a part of the text and not empty.
#![no_main]

use braid_core::cni::CniArgs;
use libfuzzer_sys::fuzz_target;

const KNOWN: [&str; 3] = ["IP", "MAC", "GATEWAY"];

fuzz_target!(|text: &str| {
    let Ok(args) = CniArgs::parse(text, &KNOWN) else {
        return;
    };
    for value in KNOWN.iter().filter_map(|key| args.get(key)) {
        assert!(!value.is_empty() && text.contains(value));
    }
});
