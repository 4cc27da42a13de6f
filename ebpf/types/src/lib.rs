//! Map values shared by braid and its eBPF programs: plain values whose sizes are part of the
//! contract.

#![no_std]

pub mod hostport;
pub mod loopback;
pub mod shape;
pub mod xsk;
