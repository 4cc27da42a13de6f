//! Start and end of the process, for the command line and plugin calls only. The library does not
//! depend on these modules.
//!
//! ```text
//!  start    ─ before anything else, and the end      heap   ─ memory, freed with the process
//!  priority ─ scheduling priority of a call          signal ─ Ctrl-C while cleaning up
//! ```

pub mod heap;
pub mod priority;
pub mod signal;
pub mod start;
