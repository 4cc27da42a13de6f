//! The program's memory. A call asks for some 500 pieces, 150 KiB together, and ends.
//!
//! To keep accounts of them took a quarter of a call's own instructions. So pieces are laid one behind the other in a
//! block that goes with the process. The last one can grow, and its place is used again when it is given back; the places
//! of the others are not. What does not fit any more comes from the C library, as in the commands that live longer.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// In bytes, of either half: several times what an ADD of the full chain takes.
const LEN: usize = 512 * 1024;
/// In bytes. Pieces from here on, buffers of which most is never touched, have a half of their own.
const LARGE: usize = 4 * 1024;
/// In bytes: what an ADD of a chain takes of small pieces, asked of the kernel at once instead of page by page.
const POPULATED: usize = 72 * 1024;
/// In bytes: the largest alignment that is answered for.
const ALIGN: usize = 64;

/// The block, aligned to the largest page of the architecture. What is written first lies in the pages that are asked for.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Heap {
    small: Row,
    large: Row,
    memory: Memory,
}

#[repr(C, align(64))]
struct Memory(UnsafeCell<MaybeUninit<[u8; 2 * LEN]>>);

// SAFETY: a byte is handed out again only after it was given back: the end of a row moves in one atomic step, backwards
// only over the last piece, which its owner gives up.
unsafe impl Sync for Memory {}

impl Heap {
    /// An empty one, which takes no room in the program's file.
    #[expect(clippy::new_without_default, reason = "a static needs a constant function, and nothing else makes one")]
    pub const fn new() -> Self {
        let memory = Memory(UnsafeCell::new(MaybeUninit::zeroed()));
        Self { small: Row::new(), large: Row::new(), memory }
    }

    /// Asks for the first pages (Linux 5.14; without it they come one by one).
    pub fn populate(&self) {
        let start = (&raw const *self).cast_mut().cast();
        // SAFETY: the range is the block's own and page-aligned, and its content is left as it is.
        let _ = unsafe { libc::madvise(start, POPULATED, libc::MADV_POPULATE_WRITE) };
    }

    const fn row(&self, is_small: bool) -> &Row {
        if is_small { &self.small } else { &self.large }
    }

    /// Where the half of a row begins.
    fn start(&self, row: &Row) -> *mut u8 {
        let offset = if ptr::eq(row, &raw const self.small) { 0 } else { LEN };
        // SAFETY: both halves are within the memory.
        unsafe { self.memory.0.get().cast::<u8>().add(offset) }
    }

    fn take(&self, layout: Layout) -> Option<(*mut u8, &Row)> {
        let row = self.row(layout.size() < LARGE);
        let offset = row.take(layout)?;
        // SAFETY: the offset is within the half.
        Some((unsafe { self.start(row).add(offset) }, row))
    }

    fn take_zeroed(&self, layout: Layout) -> Option<*mut u8> {
        let (piece, row) = self.take(layout)?;
        let used = row.untouched.load(Relaxed).saturating_sub(self.place(piece)?.1).min(layout.size());
        // SAFETY: the piece is nobody else's yet, and `used` is not more than its length.
        unsafe { piece.write_bytes(0, used) };
        Some(piece)
    }

    /// The row that a piece is of, and the offset of its start there.
    fn place(&self, piece: *const u8) -> Option<(&Row, usize)> {
        let offset = piece.addr().checked_sub(self.start(&self.small).addr()).filter(|offset| *offset < 2 * LEN)?;
        Some((self.row(offset < LEN), offset % LEN))
    }
}

/// Pieces one behind the other, in one half of the memory. All zero at first, so that the file has no bytes of it.
struct Row {
    /// Offset behind the last piece.
    taken: AtomicUsize,
    /// Offset from which on nothing was ever given back, so that what is not taken is zero.
    untouched: AtomicUsize,
}

impl Row {
    const fn new() -> Self {
        Self { taken: AtomicUsize::new(0), untouched: AtomicUsize::new(0) }
    }

    fn take(&self, layout: Layout) -> Option<usize> {
        if layout.align() > ALIGN {
            return None;
        }
        let mut taken = self.taken.load(Relaxed);
        loop {
            let start = taken.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size()).filter(|end| *end <= LEN)?;
            match self.taken.compare_exchange_weak(taken, end, Acquire, Relaxed) {
                Ok(_) => return Some(start),
                Err(now) => taken = now,
            }
        }
    }

    /// Makes the piece from `start` to `end` one of `size` bytes where it is, if it is the last.
    fn resize(&self, start: usize, end: usize, size: usize) -> bool {
        let Some(new) = start.checked_add(size).filter(|new| *new <= LEN) else { return false };
        self.untouched.fetch_max(end, Relaxed);
        self.taken.compare_exchange(end, new, AcqRel, Relaxed).is_ok()
    }
}

// SAFETY: pieces of a row are disjoint, aligned as asked and live until they are given back; all others are the C
// library's, to which they go back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some((piece, _)) => piece,
            // SAFETY: the caller's promise about `layout` is handed on.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.take_zeroed(layout).unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match self.place(piece) {
            Some((row, start)) => {
                row.resize(start, start + layout.size(), 0);
            }
            // SAFETY: a piece from outside is the C library's.
            None => unsafe { System.dealloc(piece, layout) },
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some((row, start)) = self.place(piece) else {
            // SAFETY: a piece from outside is the C library's.
            return unsafe { System.realloc(piece, layout, size) };
        };
        let is_shorter = size <= layout.size();
        let stays = is_shorter || ptr::eq(row, self.row(size < LARGE));
        if stays && row.resize(start, start + layout.size(), size) || is_shorter {
            // SAFETY: the offset is within the half. What the caller knows of the piece may end where the piece did.
            return unsafe { self.start(row).add(start) };
        }
        // SAFETY: the caller promises that `size` with this alignment makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller promises that `size` is not 0.
        let longer = unsafe { self.alloc(new) };
        if !longer.is_null() {
            // SAFETY: both are at least as long as the old piece, and a new piece overlaps no other.
            unsafe { longer.copy_from_nonoverlapping(piece, layout.size()) };
            // SAFETY: the piece was the caller's, who has another one now.
            unsafe { self.dealloc(piece, layout) };
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

    /// Where in its half a piece starts.
    fn offset(heap: &Heap, piece: *const u8) -> Option<usize> {
        heap.place(piece).map(|(_, offset)| offset)
    }

    #[test]
    fn pieces_lie_one_behind_the_other_aligned_as_asked() {
        static HEAP: Heap = Heap::new();
        // SAFETY: no piece is used.
        let pieces = [(3, 1), (8, 8), (1, 1), (64, 64)].map(|(size, align)| unsafe { HEAP.alloc(layout(size, align)) });
        assert_eq!(pieces.map(|piece| offset(&HEAP, piece).unwrap()), [0, 8, 16, 64]);
    }

    #[test]
    fn the_last_piece_grows_and_shrinks_where_it_is_and_another_takes_its_content_along() {
        static HEAP: Heap = Heap::new();
        // SAFETY: each piece is used with the layout it has, and within its length.
        unsafe {
            let first = HEAP.alloc(layout(4, 1));
            first.write_bytes(7, 4);
            let longer = HEAP.realloc(first, layout(4, 1), 9);
            assert_eq!(longer, first);
            longer.add(4).write_bytes(8, 5);
            assert_eq!(HEAP.realloc(first, layout(9, 1), 8), first);
            let second = HEAP.alloc(layout(1, 1));
            assert_eq!(offset(&HEAP, second), Some(8));
            assert_eq!(HEAP.realloc(first, layout(8, 1), 5), first, "to shrink in place is always possible");
            let moved = HEAP.realloc(first, layout(5, 1), 16);
            assert_eq!(offset(&HEAP, moved), Some(9));
            assert_eq!(std::slice::from_raw_parts(moved, 4), [7; 4]);
        }
    }

    #[test]
    fn the_place_of_the_last_piece_is_used_again_and_zero_where_that_is_asked() {
        static HEAP: Heap = Heap::new();
        // SAFETY: as above.
        unsafe {
            let first = HEAP.alloc(layout(16, 8));
            let last = HEAP.alloc(layout(16, 8));
            last.write_bytes(0xff, 16);
            HEAP.dealloc(first, layout(16, 8));
            HEAP.dealloc(last, layout(16, 8));
            let again = HEAP.alloc_zeroed(layout(100, 8));
            assert_eq!(again, last, "the place of one that was not the last stays empty");
            assert_eq!(std::slice::from_raw_parts(again, 100), [0; 100]);
        }
    }

    #[test]
    fn a_piece_that_becomes_large_moves_to_the_other_row() {
        static HEAP: Heap = Heap::new();
        // SAFETY: as above.
        unsafe {
            let small = HEAP.alloc(layout(LARGE - 1, 1));
            small.write_bytes(3, LARGE - 1);
            let large = HEAP.realloc(small, layout(LARGE - 1, 1), LARGE);
            assert_eq!(offset(&HEAP, large), Some(0));
            assert_eq!(std::slice::from_raw_parts(large, LARGE - 1), [3; LARGE - 1]);
            assert_eq!(HEAP.alloc(layout(1, 1)), small, "what the small one was is free");
            assert_eq!(HEAP.realloc(large, layout(LARGE, 1), 1), large);
            HEAP.dealloc(large, layout(1, 1));
            assert_eq!(HEAP.alloc(layout(LARGE, 1)), large, "also of one that became small");
        }
    }

    #[test]
    fn beyond_the_block_the_c_library_answers() {
        static HEAP: Heap = Heap::new();
        // SAFETY: as above.
        unsafe {
            let all_but_one = HEAP.alloc(layout(LEN - 1, 1));
            assert_eq!(offset(&HEAP, all_but_one), Some(0));
            let outside = HEAP.alloc(layout(LARGE, 1));
            assert_eq!(offset(&HEAP, outside), None);
            outside.write_bytes(9, 2);
            let longer = HEAP.realloc(outside, layout(LARGE, 1), LEN);
            assert_eq!(std::slice::from_raw_parts(longer, 2), [9; 2]);
            HEAP.dealloc(longer, layout(LEN, 1));
            let aligned = HEAP.alloc(layout(1, 2 * ALIGN));
            assert_eq!(offset(&HEAP, aligned), None, "the block begins at a multiple of less");
            HEAP.dealloc(aligned, layout(1, 2 * ALIGN));
        }
    }

    #[test]
    fn threads_never_share_a_piece() {
        static HEAP: Heap = Heap::new();
        HEAP.populate();
        let work = |mark: u8| {
            for round in 0..2000 {
                let size = 1 + round % 40;
                // SAFETY: as above.
                unsafe {
                    let piece = HEAP.alloc_zeroed(layout(size, 8));
                    assert!(std::slice::from_raw_parts(piece, size).iter().all(|byte| *byte == 0));
                    piece.write_bytes(mark, size);
                    let piece = HEAP.realloc(piece, layout(size, 8), size + 9);
                    assert!(std::slice::from_raw_parts(piece, size).iter().all(|byte| *byte == mark));
                    HEAP.dealloc(piece, layout(size + 9, 8));
                }
            }
        };
        std::thread::scope(|scope| {
            for mark in 1..=4 {
                scope.spawn(move || work(mark));
            }
        });
    }
}
