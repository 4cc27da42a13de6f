//! The program's memory. A call asks for some 500 pieces, 150 KiB together, and ends.
//!
//! To keep a general allocator's accounts took a quarter of a call's own instructions. So pieces
//! are laid one behind the other in a block that goes with the process, and none is ever given
//! back. What does not fit any more comes from the C library.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// In bytes, of either half: several times what an ADD of the full chain takes.
const HALF: usize = 512 * 1024;
/// In bytes. Pieces from here on, buffers of which most is never touched, have a half of their own.
const LARGE: usize = 4 * 1024;
/// In bytes: what an ADD takes of small pieces, asked of the kernel at once instead of page by
/// page.
const POPULATED: usize = 64 * 1024;
/// In bytes: each piece takes a multiple of it, and is aligned to it.
const UNIT: usize = 16;

/// The block, aligned to the largest page of the architecture. What is written first lies in the
/// pages that are asked for.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Heap {
    /// Of each half, in bytes: the one of small pieces, and the one of large ones.
    taken: [AtomicUsize; 2],
    /// All zero at first, so that the program's file has no bytes of it.
    memory: UnsafeCell<MaybeUninit<[u8; 2 * HALF]>>,
}

const _: () =
    assert!(std::mem::offset_of!(Heap, memory).is_multiple_of(UNIT) && HALF.is_multiple_of(UNIT));

// SAFETY: who has raised `taken` has that part of the memory alone.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty one, which takes no room in the program's file.
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

    /// Asks for the first pages (Linux 5.14; without it they come one by one).
    pub fn populate(&self) {
        let start = (&raw const *self).cast_mut().cast();
        // SAFETY: the range is the block's own and page-aligned, and its content is left as it is.
        let _ = unsafe { libc::madvise(start, POPULATED, libc::MADV_POPULATE_WRITE) };
    }

    fn start(&self) -> *mut u8 {
        self.memory.get().cast()
    }

    /// A piece behind all others. It is zero, since nobody has had it before.
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

    /// Offset at which a piece starts, if it is of the block.
    fn place(&self, piece: *const u8) -> Option<usize> {
        piece
            .addr()
            .checked_sub(self.start().addr())
            .filter(|offset| *offset < 2 * HALF)
    }

    /// Makes the piece at `offset` longer where it is, if it is the last of its half.
    fn extend(&self, offset: usize, old: usize, new: usize) -> bool {
        let (half, start) = (offset / HALF, offset % HALF);
        let (end, new_end) = (start + length(old), start.saturating_add(length(new)));
        new_end <= HALF
            && self.taken[half]
                .compare_exchange(end, new_end, Relaxed, Relaxed)
                .is_ok()
    }
}

/// Bytes that a piece of this size takes. No layout is longer than half of what can be addressed.
const fn length(size: usize) -> usize {
    size.next_multiple_of(UNIT)
}

// SAFETY: pieces are disjoint, aligned as asked and live as long as the process; those that are not
// of the block are the C library's, to which they go back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is handed on.
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
            // SAFETY: a piece from outside is the C library's.
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
