//! The start and the end of the process, for the faces alone: the library below them does not know
//! whose process it is in.
//!
//! ```text
//!  start    ─ before anything else, and the end      heap   ─ memory that goes with the process
//!  priority ─ how soon the scheduler lets a call run signal ─ Ctrl-C while cleaning up
//! ```

pub mod heap;
pub mod priority;
pub mod signal;
pub mod start;
