//! Elastic's lists of large blocks in a lane that cuts and joins, against the free ranges in a sorted map.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::elastic::Elastic;
use crate::base::size::{ALIGNMENT_BYTES, GIB, KIB, MIB, SizeClass};
use crate::memory::{BlockTable, Directory, Segment, Slot, State};

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Large blocks of one lane, beside the free ranges that there should be.
struct Pair {
    blocks: BlockTable,
    tested: Elastic,
    free: BTreeMap<u64, u64>,
    live: Vec<Slot>,
    random: Random,
    is_first_fit: bool,
}

impl Pair {
    /// One free range of `bytes` in each of `areas`.
    fn new(areas: u64, bytes: u64) -> Self {
        let blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let (tested, free) = (Elastic::new(), BTreeMap::new());
        let mut pair =
            Self { blocks, tested, free, live: Vec::new(), random: Random(1), is_first_fit: false };
        for area in 1..=areas {
            let address = (areas + 1 - area) << 40;
            let slot = pair.blocks.insert(Segment { address, bytes, class: SizeClass::Large });
            pair.tested.give(&mut pair.blocks, slot);
            pair.free.insert(address, bytes);
        }
        pair
    }

    fn allocate(&mut self, bytes: u64) {
        let mut fitting =
            self.free.iter().map(|(&a, &b)| (a, b)).filter(|&(_, free)| free >= bytes);
        let wanted =
            if self.is_first_fit { fitting.next() } else { fitting.min_by_key(|&(_, free)| free) };
        let taken = self.tested.take(&mut self.blocks, bytes);
        let found = taken.map(|slot| self.blocks.get(slot).address);
        assert_eq!(found, wanted.map(|(address, _)| address));
        let (Some(slot), Some((address, free_bytes))) = (taken, wanted) else { return };
        self.blocks.list(slot);
        self.blocks.get_mut(slot).state = State::Live;
        assert_eq!(self.blocks.get(slot).bytes, bytes);
        self.free.remove(&address);
        if free_bytes > bytes {
            self.free.insert(address + bytes, free_bytes - bytes);
        }
        self.live.push(slot);
    }

    fn free_some(&mut self) {
        let index = self.random.below(self.live.len() as u64) as usize;
        let slot = self.live.swap_remove(index);
        let block = self.blocks.get(slot).clone();
        self.blocks.get_mut(slot).state = State::Free;
        self.tested.give(&mut self.blocks, slot);
        let (mut start, mut end) = (block.address, block.address + block.bytes);
        if let Some(bytes) = self.free.remove(&end) {
            end += bytes;
        }
        if let Some((&before, &bytes)) = self.free.range(..start).next_back()
            && before + bytes == start
        {
            start = before;
        }
        self.free.insert(start, end - start);
    }

    fn withdraw_some(&mut self) {
        let index = self.random.below(self.free.len() as u64) as usize;
        let Some((&address, _)) = self.free.iter().nth(index) else { return };
        let found = self.blocks.iter().find(|(_, block)| block.address == address);
        let Some((slot, _)) = found else { panic!("no block at {address:#x}") };
        self.tested.withdraw(&mut self.blocks, slot);
        self.tested.give(&mut self.blocks, slot);
    }

    fn use_first_fit(&mut self) {
        self.is_first_fit = true;
        self.tested.use_first_fit(&mut self.blocks);
    }

    fn check(&self) {
        self.blocks.validate().unwrap();
        assert_eq!(self.tested.validate(&self.blocks), Ok(self.free.len()));
        let largest_bytes = self.free.values().copied().max().unwrap_or(0);
        assert_eq!(self.tested.largest_bytes(&self.blocks), largest_bytes);
    }
}

#[test]
fn the_best_block_is_found_and_later_the_lowest() {
    for (areas, most_live) in [(1, 40), (3, 1000)] {
        let mut pair = Pair::new(areas, 64 * GIB);
        for step in 0..40_000 {
            if step == 20_000 {
                pair.use_first_fit();
            }
            let grows = pair.random.below(most_live) >= pair.live.len() as u64;
            if grows || pair.live.is_empty() {
                let magnitude = pair.random.below(16);
                let units = 1 + pair.random.below(1 << magnitude);
                pair.allocate(MIB + units * ALIGNMENT_BYTES);
            } else {
                pair.free_some();
            }
            if step % 7 == 0 && !pair.free.is_empty() {
                pair.withdraw_some();
            }
            if step % 97 == 0 {
                pair.check();
            }
        }
        while !pair.live.is_empty() {
            pair.free_some();
        }
        pair.check();
    }
}

#[test]
fn sizes_beyond_four_bytes_of_units_are_told_apart() {
    const TIB: u64 = 1 << 40;
    let mut pair = Pair::new(2, TIB);
    pair.use_first_fit();
    let class = SizeClass::Large;
    for (address, bytes) in [(1 << 45, 3 * TIB), (1 << 46, 5 * TIB)] {
        let slot = pair.blocks.insert(Segment { address, bytes, class });
        pair.tested.give(&mut pair.blocks, slot);
        pair.free.insert(address, bytes);
    }
    for bytes in [4 * TIB, 4 * TIB, 3 * TIB - 512 * KIB, 3 * TIB, TIB - 512, TIB] {
        pair.allocate(bytes);
        pair.check();
    }
}
