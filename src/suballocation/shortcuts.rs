//! Which of a manager's pools is meant, by a table: for most requests, and most of the pools' blocks.
//!
//! ```text
//! by_unit[(bytes - 1) / 16]              the pool that serves every request of so many bytes
//! by_part[(address >> shift) % PARTS]    the pool that has most of that part of the addresses
//! ```
//!
//! The parts are as small as the pools' addresses, from the first pool's beginning to the last one's
//! end, allow without two parts in one place. Several pools may lie in one part, and the table has one
//! of them: it refuses the blocks of the others, which the caller then searches for. Likewise it
//! refuses addresses that are no pool's.
//!
//! Each table is kept twice: with the pools' numbers, and with their fronts, so that a call finds what
//! it needs in one step. Pools for any thread have no front.

use std::cmp::Reverse;
use std::rc::Rc;

use super::slabs::Front;

/// How many bytes of a request make a difference.
const UNIT_BYTES: u64 = 16;
/// How many units there are.
const UNITS: usize = 64;
/// How many parts of the addresses there are.
const PARTS: usize = 256;

#[derive(Debug)]
pub(super) struct Shortcuts {
    shift: u32,
    fronts: Tables<Rc<Front>>,
    numbers: Tables<u32>,
}

#[derive(Debug)]
struct Tables<T> {
    by_unit: [Option<T>; UNITS],
    by_part: [Option<T>; PARTS],
}

impl Shortcuts {
    /// Tables for pools whose blocks have these sizes, rising, and alignments, and whose memory has
    /// these first bytes and lengths; without ranges, which debugging takes away, empty ones.
    /// `front` has the front of the pool of a number.
    pub(super) fn new<'a>(
        sizes: &[(u64, u64)],
        ranges: &[(u64, u64)],
        front: impl Fn(u32) -> Option<&'a Rc<Front>>,
    ) -> Self {
        let start = ranges.iter().map(|range| range.0).min().unwrap_or(0);
        let last = ranges.iter().map(|range| range.0 + range.1 - 1).max().unwrap_or(0);
        let is_fine = |&shift: &u32| (last >> shift) - (start >> shift) < PARTS as u64;
        let shift = (0..u64::BITS).find(is_fine).unwrap_or(0);
        let sizes = if ranges.is_empty() { &[] } else { sizes };
        // The part at that place of the table which is the first at the pools' beginning or behind it.
        let first = |place: usize| {
            let begun = start >> shift;
            (begun + (place as u64).wrapping_sub(begun) % PARTS as u64) << shift
        };
        let numbers = Tables {
            by_unit: std::array::from_fn(|unit| serving(sizes, unit as u64)),
            by_part: std::array::from_fn(|place| most_of(ranges, first(place), 1 << shift)),
        };
        let front = |number: Option<u32>| number.and_then(&front).map(Rc::clone);
        let fronts =
            Tables { by_unit: numbers.by_unit.map(front), by_part: numbers.by_part.map(front) };
        Self { shift, fronts, numbers }
    }

    /// The front of the pool that serves the request.
    #[inline(always)]
    pub(super) fn front_for(&self, bytes: u64, alignment_bytes: u64) -> Option<&Front> {
        if alignment_bytes > UNIT_BYTES {
            return None;
        }
        self.fronts.by_unit.get(unit_of(bytes))?.as_deref()
    }

    /// The pool that serves the request.
    #[inline(always)]
    pub(super) fn number_for(&self, bytes: u64, alignment_bytes: u64) -> Option<u32> {
        if alignment_bytes > UNIT_BYTES {
            return None;
        }
        *self.numbers.by_unit.get(unit_of(bytes))?
    }

    /// The front of the pool that has the block at `address`, if one has; else of some pool, or none.
    #[inline(always)]
    pub(super) fn front_of(&self, address: u64) -> Option<&Front> {
        self.fronts.by_part[self.place_of(address)].as_deref()
    }

    /// The pool that has the block at `address`, if one has; else some pool, or none.
    #[inline(always)]
    pub(super) fn number_of(&self, address: u64) -> Option<u32> {
        self.numbers.by_part[self.place_of(address)]
    }

    #[inline(always)]
    fn place_of(&self, address: u64) -> usize {
        (address >> (self.shift % u64::BITS)) as usize % PARTS
    }
}

/// The unit of a request; too large a number for 0 bytes.
#[inline(always)]
fn unit_of(bytes: u64) -> usize {
    (bytes.wrapping_sub(1) / UNIT_BYTES) as usize
}

/// The pool that serves all requests of that unit which are aligned to its size or less.
fn serving(sizes: &[(u64, u64)], unit: u64) -> Option<u32> {
    let first = sizes.partition_point(|size| size.0 <= unit * UNIT_BYTES);
    let &(block_bytes, alignment_bytes) = sizes.get(first)?;
    let serves_all = block_bytes >= (unit + 1) * UNIT_BYTES && alignment_bytes >= UNIT_BYTES;
    serves_all.then_some(first as u32)
}

/// The range that has most of `[first, first + bytes)`, if one has any of it.
fn most_of(ranges: &[(u64, u64)], first: u64, bytes: u64) -> Option<u32> {
    let common = |&(start, length): &(u64, u64)| {
        (start + length).min(first.saturating_add(bytes)).saturating_sub(start.max(first))
    };
    let candidates = ranges.iter().enumerate().filter(|(_, range)| common(range) > 0);
    candidates.min_by_key(|(_, range)| Reverse(common(range))).map(|(number, _)| number as u32)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::slabs::{OWN, Slabs};
    use super::*;

    #[test]
    fn a_table_never_names_a_pool_that_does_not_serve() {
        let sizes = [(16, 16), (40, 8), (64, 64), (72, 8), (512, 512), (5000, 8)];
        for unit in 0..UNITS as u64 {
            let requests = unit * UNIT_BYTES + 1..=(unit + 1) * UNIT_BYTES;
            let best = |bytes| sizes.iter().position(|size| size.0 >= bytes).map(|at| at as u32);
            if let Some(pool) = serving(&sizes, unit) {
                assert!(requests.clone().all(|bytes| best(bytes) == Some(pool)), "{unit}");
            }
        }
        assert_eq!(
            [0, 1, 3, 4, 31, 32].map(|unit| serving(&sizes, unit)),
            [Some(0), None, Some(2), None, Some(4), None,]
        );
    }

    #[test]
    fn blocks_are_found_where_one_pool_has_a_part_alone() {
        let starts = [1u64 << 40, (1 << 40) + (1 << 30), (1 << 40) + (1 << 30) + 4096];
        let mut pools: Vec<Slabs> = Vec::new();
        let mut ranges = Vec::new();
        for start in starts {
            let mut slabs = Slabs::new(NonZeroU64::new(64).unwrap());
            assert!(slabs.add(start, 1, 64));
            pools.push(slabs);
            ranges.push((start, 64 * 64));
        }
        let taken: Vec<u64> = pools.iter_mut().map(|slabs| slabs.take(OWN).unwrap()).collect();
        let front = |number: u32| pools.get(number as usize).map(Slabs::front);
        let tables = Shortcuts::new(&[(64, 64); 3], &ranges, front);
        let put = |address| tables.front_of(address).and_then(|front| front.put(address));
        assert_eq!(taken, starts);
        // The second and the third lie in the last part, which is the second one's.
        assert_eq!([taken[0], taken[1], taken[2]].map(put), [Some(()), Some(()), None]);
        assert_eq!(
            [taken[0], taken[1]].map(|address| tables.number_of(address)),
            [Some(0), Some(1)]
        );
        assert_eq!([0, starts[0] - 1, starts[2] + (1 << 31), u64::MAX].map(put), [None; 4]);
        let request = |bytes, alignment| tables.front_for(bytes, alignment).is_some();
        assert!(request(64, 0) && !request(64, 32) && !request(0, 0) && !request(65, 0));
        let any_thread = Shortcuts::new(&[(64, 64); 3], &ranges, |_| None);
        assert!(any_thread.front_of(starts[0]).is_none() && any_thread.front_for(64, 0).is_none());
        assert_eq!(
            (any_thread.number_of(starts[0]), any_thread.number_for(64, 0)),
            (Some(0), Some(0))
        );
        let debugging = Shortcuts::new(&[(64, 64); 3], &[], front);
        assert_eq!((debugging.number_of(starts[0]), debugging.number_for(64, 0)), (None, None));
    }
}
