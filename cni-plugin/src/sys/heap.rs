//! The program's memory. A call asks for some 500 pieces, 150 KiB together, and ends.
//!
//! To keep accounts of them took a quarter of a call's own instructions. So pieces are laid one behind the other in a
//! block that goes with the process, and none is used twice. What does not fit any more comes from the C library, as in
//! the commands that live longer.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// In bytes: three times what an ADD of the full chain takes.
const LEN: usize = 1024 * 1024;
/// In bytes: what every call takes, asked of the kernel at once instead of page by page.
const POPULATED: usize = 96 * 1024;
const PAGE: usize = 4096;

/// A block of memory and how much of it is taken.
pub struct Heap {
    block: Block,
    /// Offset of the first byte that was never handed out, and so still is zero.
    taken: AtomicUsize,
}

/// A page is the largest alignment that the block itself can answer for.
#[repr(C, align(4096))]
struct Block(UnsafeCell<MaybeUninit<[u8; LEN]>>);

// SAFETY: no byte is handed out twice, because `taken` only grows, in one atomic step.
unsafe impl Sync for Block {}

impl Heap {
    /// An empty block, which takes no room in the program's file.
    #[expect(clippy::new_without_default, reason = "a static needs a constant function, and nothing else makes one")]
    pub const fn new() -> Self {
        Self { block: Block(UnsafeCell::new(MaybeUninit::zeroed())), taken: AtomicUsize::new(0) }
    }

    /// Asks for the first pages (Linux 5.14; without it they come one by one).
    pub fn populate(&self) {
        // SAFETY: the range is the block's own and page-aligned, and its content is left as it is.
        let _ = unsafe { libc::madvise(self.block.0.get().cast(), POPULATED, libc::MADV_POPULATE_WRITE) };
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        if layout.align() > PAGE {
            return None;
        }
        let mut taken = self.taken.load(Relaxed);
        loop {
            let start = taken.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size()).filter(|end| *end <= LEN)?;
            match self.taken.compare_exchange_weak(taken, end, Relaxed, Relaxed) {
                // SAFETY: `start` is within the block.
                Ok(_) => return Some(unsafe { self.block.0.get().cast::<u8>().add(start) }),
                Err(now) => taken = now,
            }
        }
    }

    /// Where in the block a piece starts.
    fn offset(&self, piece: *const u8) -> Option<usize> {
        piece.addr().checked_sub(self.block.0.get().addr()).filter(|offset| *offset < LEN)
    }

    /// Whether the piece from `start` to `end` could be given `size` bytes where it is, because it is the last.
    fn extends(&self, start: usize, end: usize, size: usize) -> bool {
        let longer = start.checked_add(size).filter(|longer| *longer <= LEN);
        longer.is_some_and(|longer| self.taken.compare_exchange(end, longer, Relaxed, Relaxed).is_ok())
    }
}

// SAFETY: pieces of the block are disjoint, aligned as asked and live as long as the program; all others are the C
// library's, to which they go back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is handed on.
        self.take(layout).unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above. What the block hands out was never written to.
        self.take(layout).unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if self.offset(piece).is_none() {
            // SAFETY: a piece from outside the block is the C library's.
            unsafe { System.dealloc(piece, layout) };
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = self.offset(piece) else {
            // SAFETY: a piece from outside the block is the C library's.
            return unsafe { System.realloc(piece, layout, size) };
        };
        if size <= layout.size() || self.extends(start, start + layout.size(), size) {
            return piece;
        }
        // SAFETY: the caller promises that `size` with this alignment makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises that `size` is not 0.
        let longer = unsafe { self.alloc(new) };
        if !longer.is_null() {
            // SAFETY: both are at least as long as the old piece, and a new piece overlaps no other.
            unsafe { longer.copy_from_nonoverlapping(piece, layout.size()) };
        }
        longer
    }
}

#[cfg(test)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "the calls of an allocator, one after the other")]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn pieces_lie_one_behind_the_other_aligned_as_asked() {
        static HEAP: Heap = Heap::new();
        let pieces = [(3, 1), (8, 8), (1, 1), (64, 64)].map(|(size, align)| HEAP.take(layout(size, align)).unwrap());
        let offsets = pieces.map(|piece| HEAP.offset(piece).unwrap());
        assert_eq!(offsets, [0, 8, 16, 64]);
    }

    #[test]
    fn the_last_piece_grows_where_it_is_and_another_takes_its_content_along() {
        static HEAP: Heap = Heap::new();
        // SAFETY: each piece is used with the layout it has, and within its length.
        unsafe {
            let first = HEAP.alloc(layout(4, 1));
            first.write_bytes(7, 4);
            assert_eq!(HEAP.realloc(first, layout(4, 1), 8), first);
            let second = HEAP.alloc(layout(1, 1));
            assert_eq!(HEAP.offset(second), Some(8));
            let moved = HEAP.realloc(first, layout(8, 1), 16);
            assert_eq!(HEAP.offset(moved), Some(9));
            assert_eq!(std::slice::from_raw_parts(moved, 4), [7; 4]);
            assert_eq!(HEAP.realloc(moved, layout(16, 1), 2), moved);
        }
    }

    #[test]
    fn what_was_given_back_is_not_handed_out_again_so_that_all_is_zero() {
        static HEAP: Heap = Heap::new();
        // SAFETY: as above.
        unsafe {
            let piece = HEAP.alloc(layout(16, 8));
            piece.write_bytes(0xff, 16);
            HEAP.dealloc(piece, layout(16, 8));
            assert_eq!(std::slice::from_raw_parts(HEAP.alloc_zeroed(layout(16, 8)), 16), [0; 16]);
        }
    }

    #[test]
    fn beyond_the_block_the_c_library_answers() {
        static HEAP: Heap = Heap::new();
        let all_but_one = HEAP.take(layout(LEN - 1, 1)).unwrap();
        assert_eq!(HEAP.offset(all_but_one), Some(0));
        assert_eq!(HEAP.take(layout(1, 2 * PAGE)), None, "no block can promise an alignment of two pages");
        // SAFETY: as above.
        unsafe {
            let outside = HEAP.alloc(layout(2, 1));
            assert_eq!(HEAP.offset(outside), None);
            outside.write_bytes(9, 2);
            let longer = HEAP.realloc(outside, layout(2, 1), 100_000);
            assert_eq!(std::slice::from_raw_parts(longer, 2), [9; 2]);
            HEAP.dealloc(longer, layout(100_000, 1));
        }
        assert!(HEAP.take(layout(1, 1)).is_some(), "the last byte is still there");
    }

    #[test]
    fn threads_never_share_a_piece() {
        static HEAP: Heap = Heap::new();
        let take = || (0..1000).map(|_| HEAP.take(layout(8, 8)).unwrap().addr()).collect::<Vec<_>>();
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(take));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4000);
        HEAP.populate();
    }
}
