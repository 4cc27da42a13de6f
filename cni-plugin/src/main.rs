//! The one binary: which face it shows.

fn main() {}
