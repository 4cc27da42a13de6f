//! What to do, as values: steps, the facts they depend on, and the text that an administrator would type.
//!
//! Nothing here reads or changes the host, so a plan can be printed, compared, recorded and undone.

pub mod advertised;
pub mod condition;
pub mod facts;
pub mod feature;
pub mod hostport;
pub mod ladder;
pub mod link;
pub mod name;
pub mod nft;
pub mod order;
pub mod redirect;
pub mod render;
pub mod request;
pub mod shaping;
pub mod step;
pub mod undo;
pub mod verify;
pub mod xsk;

pub use facts::{Facts, Need};
pub use feature::Feature;
pub use name::{IfName, Mac};
pub use step::{Ns, Step};
