//! The eBPF programs of braid, one file each; `cargo xtask ebpf` makes one object of them.

#![no_std]
#![no_main]

mod count;

// The kernel reads the licence from this section and lends GPL-only helpers by it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

// The verifier refuses any path that ends here.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
