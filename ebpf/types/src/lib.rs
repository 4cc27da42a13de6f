//! What braid and its eBPF programs tell each other through maps: plain values whose size is part
//! of the contract.

#![no_std]

pub mod hostport;
pub mod loopback;
pub mod shape;
pub mod xsk;
