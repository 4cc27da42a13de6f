//! Numbers in a map that several processors change at once.
//!
//! `core`'s atomics offer no read-modify-write on this target, though the kernel has the
//! instructions (Linux 5.12).

use core::cell::UnsafeCell;
use core::intrinsics::{
    AtomicOrdering::{AcqRel, Relaxed},
    atomic_cxchg, atomic_xadd,
};
use core::ptr;

/// One such number, in its place in the map.
#[repr(transparent)]
pub struct Number(UnsafeCell<u64>);

impl Number {
    /// The number at a place in a map.
    ///
    /// # Safety
    ///
    /// `place` points into a map's value, is aligned, and nobody uses it but through a `Number`.
    #[inline(always)]
    pub unsafe fn at<'a>(place: *mut u64) -> &'a Self {
        // SAFETY: the layout is the same, and the kernel keeps the value while the program runs.
        unsafe { &*place.cast() }
    }

    /// What it is now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        // SAFETY: an aligned load of eight bytes, which is one instruction.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    /// Writes it, whatever it was.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        // SAFETY: an aligned store of eight bytes, which is one instruction.
        unsafe { ptr::write_volatile(self.0.get(), value) }
    }

    /// Adds to it.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_xadd::<u64, u64, { Relaxed }>(self.0.get(), more) };
    }

    /// Adds to it; returns what it was.
    ///
    /// With relaxed ordering LLVM 22 makes an instruction of it that returns nothing, and takes the
    /// summand for the answer.
    #[inline(always)]
    pub fn fetch_add(&self, more: u64) -> u64 {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_xadd::<u64, u64, { AcqRel }>(self.0.get(), more) }
    }

    /// Writes `new` if it is still `old`; returns whether it was.
    #[inline(always)]
    pub fn replace(&self, old: u64, new: u64) -> bool {
        // SAFETY: the place is valid and aligned, see `at`.
        unsafe { atomic_cxchg::<u64, { Relaxed }, { Relaxed }>(self.0.get(), old, new).1 }
    }
}
