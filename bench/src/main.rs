//! Attachment latency of CNI plugins, side by side.
fn main() {}
