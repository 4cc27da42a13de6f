//! The filter of a redirect: which of the packets that come in leave through another link.

/// One of a classic program (`struct sock_filter`).
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// What it does (`include/uapi/linux/bpf_common.h`).
    pub code: u16,
    /// By how many instructions to jump where the condition holds, and where it does not.
    pub jumps: [u8; 2],
    /// What it compares with or returns, or where it loads from.
    pub value: u32,
}

/// Instructions of [`ALL_BUT_ARP`].
pub const LEN: u16 = 4;

/// What an ifb is given of the packets that come in: the program loads the packet's protocol (`SKF_AD_PROTOCOL`), and
/// returns 0 for ARP, otherwise -1, which is "matches".
pub const ALL_BUT_ARP: [Instruction; LEN as usize] = [
    Instruction { code: 0x28, jumps: [0, 0], value: 0xffff_f000 },
    Instruction { code: 0x15, jumps: [0, 1], value: 0x0806 },
    Instruction { code: 0x06, jumps: [0, 0], value: 0 },
    Instruction { code: 0x06, jumps: [0, 0], value: u32::MAX },
];
