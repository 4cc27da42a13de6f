#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "the calls of an allocator, one after the other"
)]

use super::*;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn small_pieces_are_consecutive_and_large_ones_separate() {
    static HEAP: Heap = Heap::new();
    // SAFETY: no piece is used.
    let pieces = [(3, 1), (LARGE, 8), (17, 1), (8, 16), (LARGE, 1)]
        .map(|(size, align)| unsafe { HEAP.alloc(layout(size, align)) });
    assert_eq!(
        pieces.map(|piece| HEAP.place(piece).unwrap()),
        [0, HALF, 16, 48, HALF + LARGE]
    );
}

#[test]
fn last_piece_grows_in_place_and_others_are_copied() {
    static HEAP: Heap = Heap::new();
    // SAFETY: each piece is used with the layout it has, and within its length.
    unsafe {
        let first = HEAP.alloc(layout(4, 1));
        first.write_bytes(7, 4);
        assert_eq!(HEAP.realloc(first, layout(4, 1), 90), first);
        first.add(4).write_bytes(8, 86);
        let second = HEAP.alloc(layout(1, 1));
        assert_eq!(HEAP.place(second), Some(96));
        assert_eq!(
            HEAP.realloc(first, layout(90, 1), 5),
            first,
            "to shrink in place is always possible"
        );
        let moved = HEAP.realloc(first, layout(5, 1), 17);
        assert_eq!(HEAP.place(moved), Some(112));
        assert_eq!(std::slice::from_raw_parts(moved, 5), [7, 7, 7, 7, 8]);
    }
}

#[test]
fn piece_is_zero_after_others_were_freed() {
    static HEAP: Heap = Heap::new();
    // SAFETY: as above.
    unsafe {
        let first = HEAP.alloc(layout(40, 8));
        first.write_bytes(0xff, 40);
        HEAP.dealloc(first, layout(40, 8));
        let second = HEAP.alloc_zeroed(layout(100, 8));
        assert_eq!(std::slice::from_raw_parts(second, 100), [0; 100]);
    }
}

#[test]
fn pieces_beyond_the_block_come_from_the_c_library() {
    static HEAP: Heap = Heap::new();
    // SAFETY: as above.
    unsafe {
        let all_but_one = HEAP.alloc(layout(HALF - UNIT, 1));
        assert_eq!(HEAP.place(all_but_one), Some(HALF));
        for (size, align) in [(LARGE, 1), (HALF + 1, 1), (1, 2 * UNIT)] {
            let outside = HEAP.alloc(layout(size, align));
            assert_eq!((HEAP.place(outside), outside.addr() % align), (None, 0));
            outside.write_bytes(9, 1);
            let longer = HEAP.realloc(outside, layout(size, align), 2 * HALF);
            assert_eq!(*longer, 9);
            HEAP.dealloc(longer, layout(2 * HALF, align));
        }
        assert!(
            HEAP.alloc_zeroed(layout(LARGE, 1)).read() == 0,
            "also when the half is full"
        );
        assert_eq!(
            HEAP.place(HEAP.alloc(layout(1, 1))),
            Some(0),
            "the other half is not"
        );
    }
}

#[test]
fn no_piece_is_shared_by_two_threads() {
    static HEAP: Heap = Heap::new();
    HEAP.populate();
    let take = |mark: u8| {
        for size in (1..300).cycle().take(1000) {
            // SAFETY: as above.
            unsafe {
                let piece = HEAP.alloc_zeroed(layout(size, 8));
                assert!(
                    std::slice::from_raw_parts(piece, size)
                        .iter()
                        .all(|byte| *byte == 0)
                );
                piece.write_bytes(mark, size);
                let longer = HEAP.realloc(piece, layout(size, 8), size + 20);
                assert!(
                    std::slice::from_raw_parts(longer, size)
                        .iter()
                        .all(|byte| *byte == mark)
                );
                longer.write_bytes(mark, size + 20);
            }
        }
    };
    std::thread::scope(|scope| (1..=3).for_each(|mark| drop(scope.spawn(move || take(mark)))));
}
