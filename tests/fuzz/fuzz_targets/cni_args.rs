//! Any text in `CNI_ARGS`: what the strict reader takes, the lenient one reads alike.
#![no_main]

use braid::cni::CniArgs;
use libfuzzer_sys::fuzz_target;

const KNOWN: [&str; 3] = ["IP", "MAC", "GATEWAY"];

fuzz_target!(|text: &str| {
    let lenient = CniArgs::lenient(text);
    if let Ok(strict) = CniArgs::parse(text, &KNOWN) {
        for key in KNOWN {
            assert_eq!(strict.get(key), lenient.get(key));
        }
    }
});
