//! Records of completed and running calls, on a tmpfs:
//! `/run/braid/attachments/<container>/<ifname>:<network>:<type>.json`.
//!
//! A record is written before the first step is applied, and deleted after all steps are undone. So
//! a process killed at any moment leaves a record for DEL and GC. A reboot deletes the record
//! together with the kernel state that it describes.

mod content;
mod folder;
pub mod foreign;
mod list;

pub use content::{Attached, Key, Owed, Record};
pub use folder::Folder;
pub use list::{
    Damaged, ROOT, damaged_in, each, each_idle, each_in, is_known, list, list_dated, list_in,
    probe, sweep_empty, sweep_empty_in,
};
pub(crate) use list::{container_of, is_owned, of_container, of_owner};
