//! eBPF programs of braid, built into one object by `cargo xtask ebpf`.

#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "the only way to an atomic instruction on this target"
)]

mod hostport;
mod loopback;
mod number;
mod program;
mod shape;
mod subnets;
mod time;
mod xsk;

// The kernel reads the licence from this section and allows GPL-only helpers by it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

// The verifier rejects any path that ends here.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
