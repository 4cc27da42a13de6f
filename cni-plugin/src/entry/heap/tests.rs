#![expect(clippy::multiple_unsafe_ops_per_block, reason = "the calls of an allocator, one after the other")]

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
    let pieces = [(3, 1), (8, 8), (17, 1), (64, 64)].map(|(size, align)| unsafe { HEAP.alloc(layout(size, align)) });
    assert_eq!(pieces.map(|piece| offset(&HEAP, piece).unwrap()), [0, 16, 32, 64]);
}

#[test]
fn the_last_piece_grows_and_shrinks_where_it_is_and_another_takes_its_content_along() {
    static HEAP: Heap = Heap::new();
    // SAFETY: each piece is used with the layout it has, and within its length.
    unsafe {
        let first = HEAP.alloc(layout(4, 1));
        first.write_bytes(7, 4);
        let longer = HEAP.realloc(first, layout(4, 1), 90);
        assert_eq!(longer, first);
        longer.add(4).write_bytes(8, 86);
        assert_eq!(HEAP.realloc(first, layout(90, 1), 8), first);
        let second = HEAP.alloc(layout(1, 1));
        assert_eq!(offset(&HEAP, second), Some(16));
        assert_eq!(HEAP.realloc(first, layout(8, 1), 5), first, "to shrink in place is always possible");
        let moved = HEAP.realloc(first, layout(5, 1), 17);
        assert_eq!(offset(&HEAP, moved), Some(32));
        assert_eq!(std::slice::from_raw_parts(moved, 4), [7; 4]);
    }
}

#[test]
fn what_was_given_back_is_used_again_and_zero_where_that_is_asked() {
    static HEAP: Heap = Heap::new();
    // SAFETY: as above.
    unsafe {
        let pieces = [40, 40, 16, 16].map(|size| HEAP.alloc(layout(size, 8)));
        let [first, second, _, last] = pieces;
        for (piece, size) in pieces.into_iter().zip([40, 40, 16, 16]) {
            piece.write_bytes(0xff, size);
        }
        HEAP.dealloc(first, layout(40, 8));
        HEAP.dealloc(second, layout(40, 8));
        HEAP.dealloc(last, layout(16, 8));
        let longer = HEAP.alloc_zeroed(layout(100, 8));
        assert_eq!(longer, last, "the end of all pieces moves back over the last one");
        assert_eq!(std::slice::from_raw_parts(longer, 100), [0; 100]);
        assert_eq!(HEAP.alloc(layout(33, 1)), second, "as many units, given back last");
        let again = HEAP.alloc_zeroed(layout(48, 16));
        assert_eq!(again, first);
        assert_eq!(std::slice::from_raw_parts(again, 48), [0; 48]);
        assert!(offset(&HEAP, HEAP.alloc(layout(48, 8))) > offset(&HEAP, longer), "none is left");
    }
}

#[test]
fn a_piece_that_was_given_back_is_not_more_aligned_than_any() {
    static HEAP: Heap = Heap::new();
    // SAFETY: no piece is used.
    unsafe {
        let pieces = [16, 64, 16].map(|size| HEAP.alloc(layout(size, 1)));
        HEAP.dealloc(pieces[1], layout(64, 1));
        assert_eq!(offset(&HEAP, HEAP.alloc(layout(64, 64))), Some(128));
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
        let all_but_one = HEAP.alloc(layout(LEN - UNIT, 1));
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
fn another_thread_has_the_c_library_s_and_may_have_a_piece_of_the_first() {
    static HEAP: Heap = Heap::new();
    // SAFETY: as above.
    let mine = unsafe { HEAP.alloc(layout(16, 1)) };
    // SAFETY: as above.
    unsafe { mine.write_bytes(5, 16) };
    let address = mine.expose_provenance();
    let theirs = std::thread::spawn(move || {
        // SAFETY: as above; the first thread leaves the piece alone.
        unsafe {
            let moved = HEAP.realloc(ptr::with_exposed_provenance_mut(address), layout(16, 1), 32);
            assert_eq!(std::slice::from_raw_parts(moved, 16), [5; 16]);
            moved.expose_provenance()
        }
    });
    let theirs: *mut u8 = ptr::with_exposed_provenance_mut(theirs.join().unwrap());
    assert_eq!(offset(&HEAP, theirs), None);
    // SAFETY: as above.
    unsafe {
        HEAP.dealloc(theirs, layout(32, 1));
        assert_ne!(HEAP.alloc(layout(16, 1)), mine, "what it gave back is lost");
    }
}

#[test]
fn no_piece_is_two_s() {
    static HEAP: Heap = Heap::new();
    HEAP.populate();
    let mut held: Vec<(*mut u8, usize, u8)> = Vec::new();
    let mut random = 1u32;
    for mark in (1..=250).cycle().take(20_000) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = 1 + (random >> 16) as usize % 300;
        // SAFETY: as above.
        unsafe {
            if held.len() < 40 {
                let piece = HEAP.alloc_zeroed(layout(size, 8));
                assert!(std::slice::from_raw_parts(piece, size).iter().all(|byte| *byte == 0));
                piece.write_bytes(mark, size);
                held.push((piece, size, mark));
                continue;
            }
            let (piece, old, mark) = held.swap_remove(random as usize % held.len());
            assert!(std::slice::from_raw_parts(piece, old).iter().all(|byte| *byte == mark));
            if size.is_multiple_of(2) {
                HEAP.dealloc(piece, layout(old, 8));
            } else {
                let piece = HEAP.realloc(piece, layout(old, 8), size);
                assert!(std::slice::from_raw_parts(piece, old.min(size)).iter().all(|byte| *byte == mark));
                piece.write_bytes(mark, size);
                held.push((piece, size, mark));
            }
        }
    }
}
