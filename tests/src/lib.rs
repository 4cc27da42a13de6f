//! What the tests that need a kernel stand on: worlds of their own, calls of plugins in them, tools
//! to judge by.
//!
//! ```text
//!  Sandbox ─ a host of its own: network and mount namespace, empty /run, /var/lib/{cni,braid}, /etc/cni
//!   ├─ pod("a") ─► Ns ─ a container: run tools in it, ping, connect
//!   │       Service ─ answers in a container, and says as whom it took its client
//!   ├─ call("bridge", &pod, conf) ─► Call ─ environment and stdin of one plugin call ─► Answer
//!   ├─ state() ─► State ─ everything a call could have changed, to compare
//!   └─ leftovers() ─ everything that an attachment may not leave behind
//! ```
//!
//! A sandbox ends with its value; then nothing of it may be on the real host, or the test fails.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a helper fails its test by a panic"
)]

pub mod arriving;
pub mod binary;
pub mod call;
pub mod feature;
mod journal;
mod mounts;
pub mod ns;
pub mod outcome;
mod plugins;
mod real_host;
pub mod sandbox;
pub mod service;
pub mod state;
pub mod traffic;

pub use call::{Answer, Call};
pub use feature::Feature;
pub use ns::Ns;
pub use sandbox::Sandbox;
pub use serde_json::{Value, json};
pub use service::{Service, Transport};
pub use state::State;

/// Ends the test with a line that says what it is missing, unless this kernel and machine have each
/// [`Feature`] named.
///
/// The line starts with `SKIP` and goes to standard error past the test harness, so that it is seen
/// and can be counted.
#[macro_export]
macro_rules! needs {
    ($($feature:ident),+) => {
        $(if let Some(why) = $crate::Feature::$feature.missing() {
            $crate::feature::tell_skip(&format!("{}::{}", module_path!(), $crate::function_name!()), &why);
            return;
        })+
    };
}

/// The name of the function that this is written in.
#[macro_export]
macro_rules! function_name {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        let outer = name.strip_suffix("::here").unwrap_or(name);
        outer
            .rsplit("::")
            .find(|part| *part != "{{closure}}")
            .unwrap_or(outer)
    }};
}
