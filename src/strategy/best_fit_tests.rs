//! [`BestFit`] against a sorted set, through random insertions, searches and removals.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::best_fit::BestFit;
use super::joined::FreeList;
use crate::base::size::{ALIGNMENT_BYTES, MIB, SizeClass};
use crate::memory::{BlockTable, Directory, Segment, Slot};

/// A table of blocks, some of them in the structure and in the set.
struct Pair {
    blocks: BlockTable,
    tested: BestFit,
    /// Size and slot; a search must find the right size, in any slot.
    oracle: BTreeSet<(u64, Slot)>,
    outside: Vec<Slot>,
    random: u64,
}

impl Pair {
    /// Whole segments of the sizes given, none inserted yet.
    fn new(sizes: impl Iterator<Item = u64>) -> Self {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let place = |(n, bytes): (u64, u64)| {
            blocks.insert(Segment { address: (n + 1) << 32, bytes, class: SizeClass::Small })
        };
        let outside: Vec<Slot> = (0..).zip(sizes).map(place).collect();
        let (tested, oracle) = (BestFit::new(), BTreeSet::new());
        Self { blocks, tested, oracle, outside, random: 1 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % bound
    }

    fn insert_some(&mut self) {
        let index = self.below(self.outside.len());
        let slot = self.outside.swap_remove(index);
        self.tested.insert(&mut self.blocks, slot);
        assert!(self.oracle.insert((self.blocks.get(slot).bytes, slot)));
    }

    fn remove_some(&mut self) {
        let index = self.below(self.oracle.len());
        let entry = *self.oracle.iter().nth(index).unwrap();
        self.remove(entry.1);
    }

    fn remove(&mut self, slot: Slot) {
        self.tested.remove(&mut self.blocks, slot);
        assert!(self.oracle.remove(&(self.blocks.get(slot).bytes, slot)));
        self.outside.push(slot);
    }

    /// A search finds a block that is here, of the smallest size that fits.
    fn check_search(&mut self, bytes: u64) -> Option<Slot> {
        let found = self.tested.find(&self.blocks, bytes);
        let expected = self.oracle.range((bytes, 0)..).next().map(|&(bytes, _)| bytes);
        assert_eq!(found.map(|slot| self.blocks.get(slot).bytes), expected, "for {bytes}");
        if let Some(slot) = found {
            assert!(self.oracle.contains(&(self.blocks.get(slot).bytes, slot)));
        }
        found
    }

    fn check_all(&self) {
        assert_eq!(self.tested.validate(&self.blocks), Ok(self.oracle.len()));
        let largest_bytes = self.oracle.last().map_or(0, |&(bytes, _)| bytes);
        assert_eq!(self.tested.largest_bytes(&self.blocks), largest_bytes);
    }

    /// Random operations, among them "take the best fit" as an allocator does.
    fn run(&mut self, operations: usize, request: impl Fn(usize) -> u64) {
        for n in 0..operations {
            match self.below(3) {
                0 if !self.oracle.is_empty() => self.remove_some(),
                1 => {
                    let bytes = request(self.below(usize::MAX));
                    if let Some(slot) = self.check_search(bytes) {
                        self.remove(slot);
                    }
                }
                _ if !self.outside.is_empty() => self.insert_some(),
                _ => {}
            }
            if n % 64 == 0 {
                self.check_all();
            }
        }
        while !self.oracle.is_empty() {
            self.remove_some();
        }
        self.check_all();
        assert_eq!(self.tested.find(&self.blocks, ALIGNMENT_BYTES), None);
    }
}

#[test]
fn sizes_of_every_magnitude() {
    let size = |n: u64| ((n % 37 + 1) * ALIGNMENT_BYTES) << (n % 33);
    Pair::new((0..700).map(size)).run(40_000, |random| size(random as u64 % 5000));
}

#[test]
fn many_blocks_of_few_sizes() {
    let size = |n: u64| (n % 3 + 1) * ALIGNMENT_BYTES;
    Pair::new((0..900).map(size)).run(40_000, |random| (random as u64 % 5) * 300 + 1);
}

#[test]
fn one_bin_of_many_sizes() {
    // All between 32 and 33 MiB: one bin is 1 MiB wide there.
    let size = |n: u64| 32 * MIB + n * 7 % 2048 * ALIGNMENT_BYTES;
    let request = |random: usize| 31 * MIB + random as u64 % (3 * MIB);
    Pair::new((0..2000).map(size)).run(40_000, request);
}

/// Requests at and around the edges of bins, where rounding one way or the other would show.
#[test]
fn edges_of_bins() {
    let mut pair = Pair::new((9..47).flat_map(|exponent| {
        let power = 1u64 << exponent;
        [power, power + ALIGNMENT_BYTES, power + power / 32, 2 * power - ALIGNMENT_BYTES]
            .into_iter()
            .filter(|bytes| bytes % ALIGNMENT_BYTES == 0)
    }));
    while !pair.outside.is_empty() {
        pair.insert_some();
    }
    pair.check_all();
    for exponent in 9..48 {
        let power = 1u64 << exponent;
        for bytes in [power - 1, power, power + 1, power + power / 32, power + power / 32 + 1] {
            pair.check_search(bytes);
        }
    }
}
