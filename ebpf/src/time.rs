//! Branch-free comparison of times.
//!
//! The kernel verifies every path of a program on each load, which is part of an ADD, so fewer
//! branches and instructions make ADD faster. All times here are far from zero (`CLOCK_BASE_NS`)
//! and less than half of the range of 64 bits, so the sign of a difference shows which time is
//! earlier.

use core::hint::black_box;

/// Comparison of times without branches. It makes a mask of all bits from the sign of a difference.
#[derive(Clone, Copy)]
pub struct Order {
    /// Position of the sign bit. The compiler must not know this number, or it would generate
    /// branches.
    sign: u32,
}

impl Order {
    /// Creates the comparison, with the position of the sign bit hidden from the compiler.
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            sign: black_box(u64::BITS - 1),
        }
    }

    /// Returns all bits set if `one` is before `other`, else 0.
    #[inline(always)]
    pub fn before(self, one: u64, other: u64) -> u64 {
        (one.wrapping_sub(other) as i64).wrapping_shr(self.sign) as u64
    }

    /// Returns the lesser of two numbers.
    #[inline(always)]
    pub fn lesser(self, one: u64, other: u64) -> u64 {
        pick(self.before(one, other), one, other)
    }

    /// Returns the later of two times.
    #[inline(always)]
    pub fn later(self, one: u64, other: u64) -> u64 {
        pick(self.before(one, other), other, one)
    }
}

/// Returns `yes` if `mask` has all bits set, `no` if it is 0.
#[inline(always)]
pub fn pick(mask: u64, yes: u64, no: u64) -> u64 {
    no ^ ((yes ^ no) & mask)
}
