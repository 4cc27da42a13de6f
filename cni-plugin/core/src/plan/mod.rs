//! Plans as values: steps, the facts that they depend on, and the commands that an administrator
//! would type.
//!
//! No code here reads or changes the host, so a plan can be printed, compared, recorded and rolled
//! back.

pub mod fact;
pub mod facts;
pub mod feature;
pub mod order;
pub mod queue_fallback;
pub mod request;
pub mod step;
pub mod thing;
pub mod undo;

pub use facts::{Facts, Need};
pub use feature::Feature;
pub use step::Step;
pub use thing::Thing;
