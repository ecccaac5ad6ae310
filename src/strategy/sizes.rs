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
/// A block is little larger than a request if it is by at most the request / this.
const NEAR_PART: u32 = 4;

/// The size of a block of `bytes`, which are not 0.
#[inline]
pub(super) fn size_of(bytes: u64) -> i32 {
    let units = u32::try_from(bytes.div_ceil(ALIGNMENT_BYTES)).unwrap_or(u32::MAX);
    units.wrapping_add(NO_SIZE as u32) as i32
}

/// The most that is little larger than `size`.
#[inline]
pub(super) fn near_of(size: i32) -> i32 {
    let units = (size as u32).wrapping_sub(NO_SIZE as u32);
    units.saturating_add(units / NEAR_PART).wrapping_add(NO_SIZE as u32) as i32
}

/// What a group of sizes has for a request: the index of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The first that is little larger.
    Near(usize),
    /// There is none such; the first that is large enough.
    Larger(usize),
    None,
}

/// Returns true if one of `sizes` is larger than `bound`.
#[inline]
pub(super) fn any_above(sizes: &[i32; GROUP], bound: i32) -> bool {
    sizes.iter().fold(false, |any, &size| any | (size > bound))
}

/// The first of `sizes` that is larger than `bound` and at most `near`, or else larger than `bound`.
#[inline]
pub(super) fn fit(sizes: &[i32; GROUP], bound: i32, near: i32) -> Fit {
    if !any_above(sizes, bound) {
        return Fit::None;
    }
    let mut marks = [0; GROUP];
    mark(sizes, bound, near, &mut marks);
    let marks = u128::from_le_bytes(marks);
    let first = |marks: u128| (marks.trailing_zeros() / u8::BITS) as usize;
    match marks & NEAR_MARKS {
        0 => Fit::Larger(first(marks)),
        near => Fit::Near(first(near)),
    }
}

const FIT_MARK: u8 = 1;
const NEAR_MARK: u8 = 2;
const NEAR_MARKS: u128 = u128::from_le_bytes([NEAR_MARK; GROUP]);

/// Marks each size that fits and each that is near. Not inlined: together with what follows, the
/// compiler would take it apart into single bytes.
#[inline(never)]
fn mark(sizes: &[i32; GROUP], bound: i32, near: i32, marks: &mut [u8; GROUP]) {
    for (mark, &size) in marks.iter_mut().zip(sizes) {
        let fits = if size > bound { FIT_MARK } else { 0 };
        *mark = fits | if (size > bound) & (size <= near) { NEAR_MARK } else { 0 };
    }
}

/// The first of `sizes` from index `start` on that is at least `least`, which is a block's.
#[inline]
pub(super) fn first_at_least(sizes: &[i32], start: usize, least: i32) -> Option<usize> {
    let sizes = sizes.get(start..)?;
    let (groups, rest) = sizes.as_chunks::<GROUP>();
    for (index, group) in groups.iter().enumerate() {
        if any_above(group, least - 1) {
            let first = group.iter().position(|&size| size >= least)?;
            return Some(start + index * GROUP + first);
        }
    }
    let found = rest.iter().position(|&size| size >= least)?;
    Some(start + groups.len() * GROUP + found)
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
        assert_eq!(near_of(size_of(4 << 20)), size_of(5 << 20));
        assert_eq!(near_of(size_of((1 << 41) - 1023)), MOST_SIZE);
    }

    #[test]
    fn the_first_that_fits_is_found() {
        let mut sizes = [NO_SIZE; GROUP];
        for (index, size) in [(0, 5), (3, 9), (8, -7), (15, MOST_SIZE)] {
            sizes[index] = size;
        }
        assert_eq!(fit(&sizes, 4, 5), Fit::Near(0));
        assert_eq!(fit(&sizes, 5, 8), Fit::Larger(3));
        assert_eq!(fit(&sizes, 5, 9), Fit::Near(3));
        assert_eq!(fit(&sizes, -8, -7), Fit::Near(8));
        assert_eq!(fit(&sizes, 9, MOST_SIZE), Fit::Near(15));
        assert_eq!(fit(&sizes, MOST_SIZE, MOST_SIZE), Fit::None);
        let many = [&sizes[..], &[4, 11], &sizes[..]].concat();
        assert_eq!(first_at_least(&many, 0, 6), Some(3));
        assert_eq!(first_at_least(&many, 16, 10), Some(17));
        assert_eq!(first_at_least(&many, 34, 9), None);
    }
}
