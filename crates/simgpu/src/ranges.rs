//! Free ranges of an address space: best fit, with coalescing.
//!
//! Two indices over the same ranges, by start and by (size, start). Free ranges are disjoint, and
//! ranges that touch are joined, except at a *seam*: a multiple of `seam_bytes`, across which
//! ranges are never joined, so that a page can be removed whole.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    seam_bytes: Option<u64>,
    takes_from_end: bool,
}

impl Ranges {
    /// No free ranges; ranges are never joined across a multiple of `seam_bytes`.
    pub(crate) fn with_seams(seam_bytes: u64) -> Self {
        Self { seam_bytes: Some(seam_bytes), ..Self::default() }
    }

    /// No free ranges; each take comes from the end of a range.
    pub(crate) fn taken_from_end() -> Self {
        Self { takes_from_end: true, ..Self::default() }
    }

    /// Takes `bytes` at a multiple of `alignment_bytes` from the smallest free range that holds
    /// them.
    pub(crate) fn take(&mut self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        let (range_start, range_bytes, start) =
            self.by_size.range((bytes, 0)..).find_map(|&(range_bytes, range_start)| {
                let last = range_start + range_bytes - bytes;
                let start = if self.takes_from_end {
                    last - last % alignment_bytes
                } else {
                    range_start.checked_next_multiple_of(alignment_bytes)?
                };
                let is_inside = (range_start..=last).contains(&start);
                is_inside.then_some((range_start, range_bytes, start))
            })?;
        self.remove(range_start, range_bytes);
        self.insert(range_start, start - range_start);
        self.insert(start + bytes, range_start + range_bytes - (start + bytes));
        Some(start)
    }

    /// Makes `[start, start + bytes)` free and returns the free range it became part of, as
    /// start and bytes.
    pub(crate) fn give(&mut self, start: u64, bytes: u64) -> (u64, u64) {
        let (mut first, mut end) = (start, start + bytes);
        if let Some((&before, &before_bytes)) = self.by_start.range(..start).next_back()
            && before + before_bytes == start
            && !self.is_seam(start)
        {
            self.remove(before, before_bytes);
            first = before;
        }
        if let Some(&after_bytes) = self.by_start.get(&end)
            && !self.is_seam(end)
        {
            self.remove(end, after_bytes);
            end += after_bytes;
        }
        self.insert(first, end - first);
        (first, end - first)
    }

    /// Removes a whole free range, as [`Self::give`] returned it.
    pub(crate) fn remove(&mut self, start: u64, bytes: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(bytes, start));
    }

    /// Every free range, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_start.iter().map(|(&start, &bytes)| (start, bytes))
    }

    /// Returns true if both indices agree and the ranges are disjoint and joined.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut previous_end = None;
        self.by_start.len() == self.by_size.len()
            && self.iter().all(|(start, bytes)| {
                let apart = match previous_end {
                    None => true,
                    Some(end) => end < start || (end == start && self.is_seam(start)),
                };
                previous_end = Some(start + bytes);
                apart && bytes > 0 && self.by_size.contains(&(bytes, start))
            })
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        if bytes > 0 {
            self.by_start.insert(start, bytes);
            self.by_size.insert((bytes, start));
        }
    }

    fn is_seam(&self, address: u64) -> bool {
        self.seam_bytes.is_some_and(|seam_bytes| address.is_multiple_of(seam_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_fit_with_alignment_and_coalescing() {
        let mut ranges = Ranges::default();
        ranges.give(0x1000, 0x9000);
        assert_eq!(ranges.take(0x1000, 0x4000), Some(0x4000));
        assert_eq!(ranges.take(0x2000, 0x1000), Some(0x1000), "the smaller hole is preferred");
        assert_eq!(ranges.take(0x6000, 1), None);
        assert_eq!(ranges.give(0x4000, 0x1000), (0x3000, 0x7000));
        assert_eq!(ranges.give(0x1000, 0x2000), (0x1000, 0x9000));
        assert!(ranges.is_consistent());
    }

    #[test]
    fn the_end_of_a_range_goes_first_where_that_is_wanted() {
        let mut ranges = Ranges::taken_from_end();
        ranges.give(0x1000, 0x9000);
        assert_eq!(ranges.take(0x1000, 0x4000), Some(0x8000));
        assert_eq!(ranges.take(0x1000, 0x1000), Some(0x9000), "the smaller hole is preferred");
        assert_eq!(ranges.take(0x1000, 0x1000), Some(0x7000));
        assert_eq!(ranges.take(0x6000, 0x4000), None, "inside, but at no multiple");
        assert!(ranges.is_consistent());
    }

    #[test]
    fn seams_keep_pages_apart() {
        let mut ranges = Ranges::with_seams(0x1000);
        ranges.give(0x1000, 0x1000);
        assert_eq!(ranges.give(0x2000, 0x1000), (0x2000, 0x1000));
        assert_eq!(ranges.take(0x1800, 0x200), None);
        assert!(ranges.is_consistent());
    }
}
