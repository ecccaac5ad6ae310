//! Sizes of blocks in four bytes, many of which are compared in one instruction.
//!
//! ```text
//! size = min(⌈bytes / 512⌉, 2^32 − 1) − 2^31
//! ```
//!
//! The instructions that every x86-64 processor has compare signed numbers only, hence the shift.

use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::Slot;

/// So many sizes are compared at once.
pub(super) const GROUP: usize = 16;
/// Less than every block's size.
pub(super) const NO_SIZE: i32 = i32::MIN;
/// The size of every block that is larger than four bytes can tell.
pub(super) const MOST_SIZE: i32 = i32::MAX;

/// The size of a block of `bytes`, which are not 0.
#[inline]
pub(super) fn size_of(bytes: u64) -> i32 {
    let units = u32::try_from(bytes.div_ceil(ALIGNMENT_BYTES)).unwrap_or(u32::MAX);
    units.wrapping_add(NO_SIZE as u32) as i32
}

/// Comparisons that give a bit for each of 16 values, the first one lowest.
#[cfg(target_arch = "x86_64")]
mod compare {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi32, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_packs_epi32, _mm_set1_epi32, _mm_setr_epi32,
    };

    use super::GROUP;

    #[inline]
    #[expect(
        unsafe_code,
        reason = "four comparisons and a mask; the compiler makes fifty instructions"
    )]
    pub(super) fn above(values: &[i32; GROUP], bound: i32) -> u32 {
        // SAFETY: SSE2 is a part of x86-64.
        unsafe { bits(|index| values[index], |four| _mm_cmpgt_epi32(four, _mm_set1_epi32(bound))) }
    }

    #[inline]
    #[expect(unsafe_code, reason = "as above")]
    pub(super) fn equal(values: &[u32; GROUP], value: u32) -> u32 {
        let wanted = value as i32;
        let value = |index: usize| values[index] as i32;
        // SAFETY: SSE2 is a part of x86-64.
        unsafe { bits(value, |four| _mm_cmpeq_epi32(four, _mm_set1_epi32(wanted))) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn bits(value: impl Fn(usize) -> i32, compare: impl Fn(__m128i) -> __m128i) -> u32 {
        let four = |start: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|index| value(start + index));
            compare(_mm_setr_epi32(a, b, c, d))
        };
        let first = _mm_packs_epi32(four(0), four(4));
        let second = _mm_packs_epi32(four(8), four(12));
        _mm_movemask_epi8(_mm_packs_epi16(first, second)) as u32
    }
}

/// Comparisons that give a bit for each of 16 values, the first one lowest.
#[cfg(not(target_arch = "x86_64"))]
mod compare {
    use super::GROUP;

    #[inline]
    pub(super) fn above(values: &[i32; GROUP], bound: i32) -> u32 {
        bits(|index| values[index] > bound)
    }

    #[inline]
    pub(super) fn equal(values: &[u32; GROUP], value: u32) -> u32 {
        bits(|index| values[index] == value)
    }

    #[inline]
    fn bits(is_one: impl Fn(usize) -> bool) -> u32 {
        (0..GROUP).fold(0, |bits, index| bits | u32::from(is_one(index)) << index)
    }
}

/// A bit for each of `sizes` that is at least `least`, which is a block's, the first one lowest.
#[inline]
pub(super) fn at_least(sizes: &[i32; GROUP], least: i32) -> u32 {
    compare::above(sizes, least - 1)
}

/// The index of the first of `slots` that is `slot`.
#[inline]
pub(super) fn index_of(slots: &[Slot; GROUP], slot: Slot) -> Option<usize> {
    let found = compare::equal(slots, slot);
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// The first of `sizes` from index `start` on that is at least `least`, which is a block's. Their
/// number is a multiple of [`GROUP`].
#[inline]
pub(super) fn first_at_least(sizes: &[i32], start: usize, least: i32) -> Option<usize> {
    let (groups, _) = sizes.as_chunks::<GROUP>();
    let mut skipped = u32::MAX << (start % GROUP);
    for (index, group) in groups.iter().enumerate().skip(start / GROUP) {
        let found = at_least(group, least) & skipped;
        if found != 0 {
            return Some(index * GROUP + found.trailing_zeros() as usize);
        }
        skipped = u32::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_order_of_bytes() {
        let bytes = [1, 513, 1 << 20, 1 << 39, 1 << 40, (1 << 41) - 1023, 1 << 47];
        let sizes = bytes.map(size_of);
        assert!(sizes.is_sorted());
        assert_eq!((sizes[0], sizes[6]), (NO_SIZE + 1, MOST_SIZE));
    }

    #[test]
    fn sizes_that_fit_are_found() {
        let mut sizes = [NO_SIZE; GROUP];
        for (index, size) in [(0, 5), (3, 9), (8, -7), (15, MOST_SIZE)] {
            sizes[index] = size;
        }
        assert_eq!(at_least(&sizes, 5), 1 << 0 | 1 << 3 | 1 << 15);
        assert_eq!(at_least(&sizes, -7), 1 << 0 | 1 << 3 | 1 << 8 | 1 << 15);
        let mut others = [NO_SIZE; GROUP];
        (others[0], others[1]) = (4, 11);
        let many = [sizes, others].concat();
        assert_eq!(first_at_least(&many, 0, 6), Some(3));
        assert_eq!(first_at_least(&many, 4, 6), Some(15));
        assert_eq!(first_at_least(&many, 16, 10), Some(17));
        assert_eq!(first_at_least(&many, 18, 4), None);
        assert_eq!(first_at_least(&many, 32, 4), None);
    }

    #[test]
    fn slots_are_found() {
        let slots: [Slot; GROUP] = std::array::from_fn(|index| u32::MAX - index as u32 / 2);
        for index in (0..GROUP).step_by(2) {
            assert_eq!(index_of(&slots, slots[index]), Some(index), "the first of two");
        }
        assert_eq!(index_of(&slots, 7), None);
    }
}
