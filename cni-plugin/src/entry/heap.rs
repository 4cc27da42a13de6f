//! Memory allocator of the program. A call allocates some 500 pieces, 150 KiB together, and ends.
//!
//! The bookkeeping of a general allocator took a quarter of a call's own instructions. So pieces
//! are allocated one after the other in a static block and are never freed. Pieces that do not fit
//! come from the C library.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Size in bytes of each half of the block: several times the need of an ADD with a full plugin
/// chain.
const HALF: usize = 512 * 1024;
/// Minimum size of a large piece in bytes. Large pieces are buffers with mostly untouched bytes,
/// and have a separate half.
const LARGE: usize = 4 * 1024;
/// Bytes of small allocations that an ADD needs. Their pages are faulted in by one `madvise` call
/// instead of one by one.
const POPULATED: usize = 64 * 1024;
/// Allocation unit in bytes. Each piece takes a multiple of it, and is aligned to it.
const UNIT: usize = 16;

/// Allocator with a static block of memory, aligned to the largest page of the architecture. The
/// first pieces are in the populated pages.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Heap {
    /// Allocated bytes of each half: small pieces, and large pieces.
    taken: [AtomicUsize; 2],
    /// Initially zero, so that the program's file contains none of it.
    memory: UnsafeCell<MaybeUninit<[u8; 2 * HALF]>>,
}

const _: () =
    assert!(std::mem::offset_of!(Heap, memory).is_multiple_of(UNIT) && HALF.is_multiple_of(UNIT));

// SAFETY: the thread that has raised `taken` is the only user of that part of the memory.
unsafe impl Sync for Heap {}

impl Heap {
    /// Returns an empty heap, which takes no space in the program's file.
    #[expect(
        clippy::new_without_default,
        reason = "a static needs a constant function, and nothing else makes one"
    )]
    pub const fn new() -> Self {
        Self {
            taken: [const { AtomicUsize::new(0) }; 2],
            memory: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }

    /// Populates the first pages (Linux 5.14). Older kernels populate them one by one on access.
    pub fn populate(&self) {
        let start = (&raw const *self).cast_mut().cast();
        // SAFETY: the range is the block's own and page-aligned, and its content is left as it is.
        let _ = unsafe { libc::madvise(start, POPULATED, libc::MADV_POPULATE_WRITE) };
    }

    fn start(&self) -> *mut u8 {
        self.memory.get().cast()
    }

    /// Allocates a piece after all others of its half; `None` if the piece does not fit. The
    /// piece's bytes are zero, because they were never used before.
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let (half, len) = (usize::from(layout.size() >= LARGE), length(layout.size()));
        if layout.align() > UNIT || len > HALF {
            return None;
        }
        let with = |taken: usize| (taken + len <= HALF).then_some(taken + len);
        let offset = self.taken[half].fetch_update(Relaxed, Relaxed, with).ok()?;
        // SAFETY: the offset is within the half.
        Some(unsafe { self.start().add(half * HALF + offset) })
    }

    /// Returns the offset of a piece in the block; `None` if the C library allocated it.
    fn place(&self, piece: *const u8) -> Option<usize> {
        piece
            .addr()
            .checked_sub(self.start().addr())
            .filter(|offset| *offset < 2 * HALF)
    }

    /// Extends the piece at `offset` in place, if it is the last of its half.
    fn extend(&self, offset: usize, old: usize, new: usize) -> bool {
        let (half, start) = (offset / HALF, offset % HALF);
        let (end, new_end) = (start + length(old), start.saturating_add(length(new)));
        new_end <= HALF
            && self.taken[half]
                .compare_exchange(end, new_end, Relaxed, Relaxed)
                .is_ok()
    }
}

/// Returns the number of bytes that a piece of this size takes in the block. This can't overflow,
/// because no layout is longer than half of the address space.
const fn length(size: usize) -> usize {
    size.next_multiple_of(UNIT)
}

// SAFETY: pieces are disjoint, aligned as requested, and live as long as the process. Pieces
// outside the block belong to the C library, which frees them.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        self.take(layout)
            .unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.take(layout)
            .unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if self.place(piece).is_none() {
            // SAFETY: a piece outside the block belongs to the C library.
            unsafe { System.dealloc(piece, layout) }
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(offset) = self.place(piece) else {
            // SAFETY: as above.
            return unsafe { System.realloc(piece, layout, size) };
        };
        if size <= layout.size() || self.extend(offset, layout.size(), size) {
            return piece;
        }
        // SAFETY: the caller promises that `size` with this alignment makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises that `size` is not 0.
        let longer = unsafe { self.alloc(new) };
        if !longer.is_null() {
            // SAFETY: both are at least as long as the old piece, and a new piece overlaps no
            // other.
            unsafe { longer.copy_from_nonoverlapping(piece, layout.size()) };
        }
        longer
    }
}

#[cfg(test)]
mod tests;
