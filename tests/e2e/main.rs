//! braid under real runtimes: cnitool, which is libcni's command-line program, and podman.

#![expect(clippy::expect_used, reason = "a test fails by a panic")]

mod cnitool;
mod engine;
mod firewalld;
mod gc;
mod handover;
mod podman;
mod program;
mod takeover;
mod verbs;
