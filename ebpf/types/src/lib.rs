//! Keys and values of the maps that braid shares with its eBPF programs. Their sizes must be the
//! same on both sides.

#![no_std]

pub mod hostport;
pub mod loopback;
pub mod shape;
pub mod xsk;
