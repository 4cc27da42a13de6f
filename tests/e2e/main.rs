//! braid under the runtimes' own code: libcni's command line and podman, which decide what a plugin
//! is really called with.

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
