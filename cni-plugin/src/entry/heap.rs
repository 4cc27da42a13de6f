//! The program's memory. A call asks for some 500 pieces, 150 KiB together, and ends.
//!
//! To keep a general allocator's accounts took a quarter of a call's own instructions. So pieces are laid one behind the
//! other in a block that goes with the process, and one that is given back is handed out to the next who asks for as much:
//! the kernel takes longer to give a page than ten pieces take. The block belongs to the thread that asks first. What
//! others ask for and what does not fit any more comes from the C library.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// In bytes, of either half: several times what an ADD of the full chain takes.
const LEN: usize = 512 * 1024;
/// In bytes. Pieces from here on, buffers of which most is never touched, have a half of their own.
const LARGE: usize = 4 * 1024;
/// In bytes: what an ADD takes of small pieces, asked of the kernel at once instead of page by page.
const POPULATED: usize = 40 * 1024;
/// In bytes: the largest alignment that is answered for.
const ALIGN: usize = 64;
/// In bytes: each piece takes a multiple of it, and is aligned to it.
const UNIT: usize = 16;
/// Pieces of so many units at most are handed out again.
const CLASSES: usize = 64;

/// What a piece that was given back begins with: where the one before is.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Link(*mut Link);

/// The block, aligned to the largest page of the architecture. What is written first lies in the pages that are asked for.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub struct Heap {
    /// The thread whose the block is, by the address of its [`HERE`]; 0 before anybody asked.
    owner: AtomicUsize,
    small: Row,
    large: Row,
    /// Small pieces given back, by their length in units: the last one, which begins with the address of the one before.
    back: [Cell<*mut Link>; CLASSES + 1],
    memory: Memory,
}

#[repr(C, align(64))]
struct Memory(UnsafeCell<MaybeUninit<[u8; 2 * LEN]>>);

// SAFETY: all but `owner` is used by one thread alone, for as long as it lives.
unsafe impl Sync for Heap {}

thread_local! {
    /// Something that each thread has at another address.
    static HERE: Cell<u8> = const { Cell::new(0) };
}

impl Heap {
    /// An empty one, which takes no room in the program's file.
    #[expect(clippy::new_without_default, reason = "a static needs a constant function, and nothing else makes one")]
    pub const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            small: Row::new(),
            large: Row::new(),
            back: [const { Cell::new(ptr::null_mut()) }; CLASSES + 1],
            memory: Memory(UnsafeCell::new(MaybeUninit::zeroed())),
        }
    }

    /// Asks for the first pages (Linux 5.14; without it they come one by one).
    pub fn populate(&self) {
        let start = (&raw const *self).cast_mut().cast();
        // SAFETY: the range is the block's own and page-aligned, and its content is left as it is.
        let _ = unsafe { libc::madvise(start, POPULATED, libc::MADV_POPULATE_WRITE) };
    }

    /// Whether the block is the calling thread's.
    fn is_mine(&self) -> bool {
        let here = HERE.with(|here| (&raw const *here).addr());
        let owner = self.owner.load(Relaxed);
        owner == here || owner == 0 && self.owner.compare_exchange(0, here, Relaxed, Relaxed).is_ok()
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

    /// A piece behind all others, and whether something was there before.
    fn take(&self, layout: Layout) -> Option<(*mut u8, usize)> {
        let row = self.row(layout.size() < LARGE);
        let offset = row.take(layout)?;
        let used = row.untouched.get().saturating_sub(offset).min(layout.size());
        // SAFETY: the offset is within the half.
        Some((unsafe { self.start(row).add(offset) }, used))
    }

    /// A piece that somebody gave back.
    fn take_again(&self, layout: Layout) -> Option<*mut u8> {
        let class = self.back.get(length(layout.size()) / UNIT).filter(|_| layout.align() <= UNIT)?;
        let piece = class.get();
        if piece.is_null() {
            return None;
        }
        // SAFETY: `give_back` wrote it, and nobody has had the piece since.
        class.set(unsafe { piece.read() }.0);
        Some(piece.cast())
    }

    /// Keeps a piece of the small row for the next who asks for as much; one that is too long is lost.
    fn give_back(&self, piece: *mut u8, size: usize) {
        let Some(class) = self.back.get(length(size) / UNIT) else { return };
        #[expect(clippy::cast_ptr_alignment, reason = "each piece is aligned to a unit")]
        let link = piece.cast::<Link>();
        // SAFETY: it is nobody's any more, and has a unit's length at least.
        unsafe { link.write(Link(class.get())) };
        class.set(link);
    }

    /// The row that a piece is of, and the offset of its start there.
    fn place(&self, piece: *const u8) -> Option<(&Row, usize)> {
        let offset = piece.addr().checked_sub(self.start(&self.small).addr()).filter(|offset| *offset < 2 * LEN)?;
        Some((self.row(offset < LEN), offset % LEN))
    }
}

/// What a piece of so many bytes takes.
const fn length(size: usize) -> usize {
    size.next_multiple_of(UNIT)
}

/// Pieces one behind the other, in one half of the memory. All zero at first, so that the file has no bytes of it.
struct Row {
    /// Offset behind the last piece.
    taken: Cell<usize>,
    /// Offset from which on nothing was ever given back, so that what is not taken is zero.
    untouched: Cell<usize>,
}

impl Row {
    const fn new() -> Self {
        Self { taken: Cell::new(0), untouched: Cell::new(0) }
    }

    fn take(&self, layout: Layout) -> Option<usize> {
        if layout.align() > ALIGN {
            return None;
        }
        let start = self.taken.get().next_multiple_of(layout.align());
        // No layout is longer than half of what can be addressed.
        let end = Some(start + length(layout.size())).filter(|end| *end <= LEN)?;
        self.taken.set(end);
        Some(start)
    }

    /// Makes the piece at `start` one of another size where it is, if it is the last.
    fn resize(&self, start: usize, old: usize, new: usize) -> bool {
        let (end, new_end) = (start + length(old), start + length(new));
        let can = self.taken.get() == end && new_end <= LEN;
        if can {
            self.untouched.set(self.untouched.get().max(end));
            self.taken.set(new_end);
        }
        can
    }
}

// SAFETY: pieces are disjoint, aligned as asked and live until they are given back; those that are not of the block are the
// C library's, to which they go back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let piece = self.is_mine().then(|| self.take_again(layout).or_else(|| Some(self.take(layout)?.0))).flatten();
        // SAFETY: the caller's promise about `layout` is handed on.
        piece.unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let again = || Some((self.take_again(layout)?, layout.size()));
        let Some((piece, used)) = self.is_mine().then(|| again().or_else(|| self.take(layout))).flatten() else {
            // SAFETY: as above.
            return unsafe { System.alloc_zeroed(layout) };
        };
        // SAFETY: the piece is nobody else's yet, and `used` is not more than its length.
        unsafe { piece.write_bytes(0, used) };
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match self.place(piece) {
            // What another thread gives back is lost.
            Some((row, start)) if self.is_mine() => {
                if !row.resize(start, layout.size(), 0) && ptr::eq(row, &raw const self.small) {
                    self.give_back(piece, layout.size());
                }
            }
            Some(_) => {}
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
        if stays && self.is_mine() && row.resize(start, layout.size(), size) || is_shorter {
            return piece;
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
mod tests;
