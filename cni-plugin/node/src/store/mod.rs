//! State on the node: records of attachments, the containers behind owners, and locks.

pub mod holder;
pub(crate) mod lock;
pub mod record;
pub mod root;
