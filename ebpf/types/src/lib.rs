//! What braid and its eBPF programs tell each other through maps: plain values whose size is part of the contract.

#![no_std]

/// What the program `count` saw on its device; one value per CPU in the map `COUNTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets as the stack hands them over: a GSO packet counts once.
    pub packets: u64,
    /// Bytes of those packets from the link header on, as in the device's own statistics.
    pub bytes: u64,
}

// packets 8 + bytes 8
const _: () = assert!(size_of::<Count>() == 16 && align_of::<Count>() == 8);

impl From<[u64; 2]> for Count {
    fn from([packets, bytes]: [u64; 2]) -> Self {
        Self { packets, bytes }
    }
}
