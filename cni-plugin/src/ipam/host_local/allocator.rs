//! Which address of a range set comes next.
