//! What was read from the host before deciding.

/// What a plan depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {}
