//! Sizes of blocks in four bytes, many of which are compared in one instruction.
//!
//! ```text
//! size = min(⌈bytes / 512⌉, 2^32 − 1) − 2^31
//! ```
//!
//! The instructions that every x86-64 processor has compare signed numbers only, hence the shift.

use crate::base::size::ALIGNMENT_BYTES;

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

/// A bit for each of `values` that is larger than `bound`, the first one lowest.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(
    unsafe_code,
    reason = "four comparisons and a mask; the compiler makes fifty instructions"
)]
fn above(values: &[i32; GROUP], bound: i32) -> u32 {
    // SAFETY: SSE2 is a part of x86-64.
    unsafe { above_with_sse2(values, bound) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn above_with_sse2(values: &[i32; GROUP], bound: i32) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
        _mm_setr_epi32,
    };
    let bound = _mm_set1_epi32(bound);
    let larger = |start: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| values[start + index]);
        _mm_cmpgt_epi32(_mm_setr_epi32(a, b, c, d), bound)
    };
    let first = _mm_packs_epi32(larger(0), larger(4));
    let second = _mm_packs_epi32(larger(8), larger(12));
    _mm_movemask_epi8(_mm_packs_epi16(first, second)) as u32
}

/// A bit for each of `values` that is larger than `bound`, the first one lowest.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn above(values: &[i32; GROUP], bound: i32) -> u32 {
    let bits = values.iter().enumerate().map(|(index, &value)| u32::from(value > bound) << index);
    bits.fold(0, |all, bit| all | bit)
}

/// A bit for each of `sizes` that is at least `least`, which is a block's, the first one lowest.
#[inline]
pub(super) fn at_least(sizes: &[i32; GROUP], least: i32) -> u32 {
    above(sizes, least - 1)
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
}
