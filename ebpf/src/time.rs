//! Comparing times without branches.
//!
//! The kernel follows every path through a program each time it is loaded, which is part of an ADD,
//! so the fewer branches and instructions the faster. All times here are far from zero
//! (`CLOCK_BASE_NS`) and less than half of what 64 bits hold, so which of two is the earlier is the
//! sign of their difference.

use core::hint::black_box;

/// Spreads the sign of a difference over all bits.
#[derive(Clone, Copy)]
pub struct Order {
    /// Where the sign is: a number that the compiler does not know, or it would make branches of
    /// all this.
    sign: u32,
}

impl Order {
    /// Ready to compare.
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            sign: black_box(u64::BITS - 1),
        }
    }

    /// All bits where `one` is before `other`, none otherwise.
    #[inline(always)]
    pub fn before(self, one: u64, other: u64) -> u64 {
        (one.wrapping_sub(other) as i64).wrapping_shr(self.sign) as u64
    }

    /// The lesser of two.
    #[inline(always)]
    pub fn lesser(self, one: u64, other: u64) -> u64 {
        pick(self.before(one, other), one, other)
    }

    /// The later of two.
    #[inline(always)]
    pub fn later(self, one: u64, other: u64) -> u64 {
        pick(self.before(one, other), other, one)
    }
}

/// `yes` where `mask` has all bits, `no` where it has none.
#[inline(always)]
pub fn pick(mask: u64, yes: u64, no: u64) -> u64 {
    no ^ ((yes ^ no) & mask)
}
