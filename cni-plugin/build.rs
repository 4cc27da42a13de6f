//! Hands the linker the list of functions that plugin calls run, which lie side by side then.
//!
//! The kernel maps a program's code page by page as it is reached, with all that lies around: a call that finds its
//! functions spread over the whole binary pays for mapping all of it, a tenth of an ADD.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=order.ld");
    // What is shipped. A developer's linker may be one that does not know the command `INSERT`.
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", concat!(env!("CARGO_MANIFEST_DIR"), "/order.ld"));
        // Code and constants in one piece: to start a program, the kernel maps piece by piece.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,noseparate-code");
    }
}
