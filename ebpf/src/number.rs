//! Numbers in a map that several processors change concurrently.
//!
//! On this target `core`'s atomics have no read-modify-write, though the kernel has the
//! instructions (Linux 5.12).

use core::cell::UnsafeCell;
use core::intrinsics::{
    AtomicOrdering::{AcqRel, Relaxed},
    atomic_cxchg, atomic_xadd,
};
use core::ptr;

/// A number inside a map's value.
#[repr(transparent)]
pub struct Number(UnsafeCell<u64>);

impl Number {
    /// Returns the number at `place`.
    ///
    /// # Safety
    ///
    /// `place` points into a map's value, is aligned, and is accessed only through a `Number`.
    #[inline(always)]
    pub unsafe fn at<'a>(place: *mut u64) -> &'a Self {
        // SAFETY: the layout is the same, and the kernel keeps the value while the program runs.
        unsafe { &*place.cast() }
    }

    /// Returns the current value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        // SAFETY: an aligned load of eight bytes, which is one instruction.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Overwrites the value.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        // SAFETY: an aligned store of eight bytes, which is one instruction.
        unsafe { ptr::write_volatile(self.0.get(), value) }
    }

    /// Adds `more` to the value.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_xadd::<u64, u64, { Relaxed }>(self.0.get(), more) };
    }

    /// Adds `more` and returns the previous value.
    ///
    /// With relaxed ordering, LLVM 22 emits an instruction that returns nothing, and uses the
    /// summand as the result.
    #[inline(always)]
    pub fn fetch_add(&self, more: u64) -> u64 {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_xadd::<u64, u64, { AcqRel }>(self.0.get(), more) }
    }

    /// Writes `new` if the value is still `old`; returns true if it was.
    #[inline(always)]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_cxchg::<u64, { Relaxed }, { Relaxed }>(self.0.get(), old, new).1 }
    }
}
