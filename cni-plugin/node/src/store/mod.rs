//! State that braid keeps on the node: records of attachments, prepared claims, and locks. `holder`
//! finds the container that owns a kernel object.

pub mod holder;
pub(crate) mod lock;
pub mod prepared;
pub mod record;
pub mod root;
