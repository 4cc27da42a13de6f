//! Base of the tests that need a kernel: isolated hosts, plugin calls in them, and tools to judge
//! the result.
//!
//! ```text
//!  Sandbox ─ a separate host: network and mount namespace, empty /run, /var/lib/{cni,braid}, /etc/cni
//!   ├─ pod("a") ─► Ns ─ a container: run tools in it, ping, connect
//!   │       Service ─ answers in a container, and reports its client's address
//!   ├─ call("bridge", &pod, conf) ─► Call ─ environment and stdin of one plugin call ─► Answer
//!   ├─ state() ─► State ─ everything a call could have changed, to compare
//!   └─ leftovers() ─ everything that an attachment may not leave behind
//!  page::blocks ─ examples in the book
//! ```
//!
//! A sandbox ends when it is dropped. If anything of it is left on the real host, the test fails.

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
pub mod page;
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

/// Skips the test unless this kernel and machine have each named [`Feature`].
///
/// The reason is printed on a line that starts with `SKIP`, so that it can be counted. The line
/// goes to standard error past the test harness, so that it is visible.
#[macro_export]
macro_rules! needs {
    ($($feature:ident),+) => {
        $(if let Some(why) = $crate::Feature::$feature.missing() {
            $crate::feature::tell_skip(&format!("{}::{}", module_path!(), $crate::function_name!()), &why);
            return;
        })+
    };
}

/// Name of the enclosing function.
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
