//! Elastic's lists of large blocks where memory comes behind free blocks, against the free ranges in a
//! sorted map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::elastic::Elastic;
use super::first_fit_tests::Random;
use crate::base::size::{ALIGNMENT_BYTES, GIB, MIB, SizeClass};
use crate::memory::{BlockTable, Directory, NO_SLOT, Segment, Slot, State};

/// Large blocks of one lane: an area with memory in some places.
struct Pair {
    blocks: BlockTable,
    tested: Elastic,
    /// Where each bare range of the area starts.
    bare: BTreeMap<u64, Slot>,
    free: BTreeMap<u64, u64>,
    live: Vec<Slot>,
    random: Random,
}

const START: u64 = 1 << 40;

impl Pair {
    /// A bare area of `bytes`.
    fn new(bytes: u64) -> Self {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let area = Segment { address: START, bytes, class: SizeClass::Large };
        let bare = BTreeMap::from([(START, blocks.insert_area(area))]);
        let (tested, free) = (Elastic::new(), BTreeMap::new());
        Self { blocks, tested, bare, free, live: Vec::new(), random: Random(1) }
    }

    /// Memory comes to a part of a bare range, mostly to its start; returns false if none is left.
    fn grow(&mut self) -> bool {
        let Some((&start, &slot)) = self.bare.iter().nth(self.random.below(4) as usize) else {
            return !self.bare.is_empty();
        };
        let bare_bytes = self.blocks.get(slot).bytes;
        let bytes = (1 + self.random.below(40)) * 2 * MIB;
        let gap_bytes = if self.random.below(8) == 0 { 64 * MIB } else { 0 };
        let (bytes, gap_bytes) =
            if gap_bytes + bytes < bare_bytes { (bytes, gap_bytes) } else { (bare_bytes, 0) };
        let filled = if gap_bytes > 0 { self.blocks.split(slot, gap_bytes) } else { slot };
        if gap_bytes == 0 {
            self.bare.remove(&start);
        }
        if gap_bytes + bytes < bare_bytes {
            let rest = self.blocks.split(filled, bytes);
            self.bare.insert(self.blocks.get(rest).address, rest);
        }
        self.blocks.turn(filled, State::Free);
        self.tested.give(&mut self.blocks, filled);
        self.add_free(start + gap_bytes, bytes);
        true
    }

    fn add_free(&mut self, address: u64, bytes: u64) {
        let (mut start, mut end) = (address, address + bytes);
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

    fn allocate(&mut self, bytes: u64) {
        let is_wild = |&(address, free): &(u64, u64)| self.bare.contains_key(&(address + free));
        let fitting = self.free.iter().map(|(&a, &b)| (a, b)).filter(|&(_, free)| free >= bytes);
        let (wild, rest): (BTreeSet<_>, BTreeSet<_>) = fitting.partition(is_wild);
        let smallest = rest.into_iter().min_by_key(|&(address, free)| (free, address));
        let wanted = smallest.or(wild.first().copied());
        let taken = self.tested.take(&mut self.blocks, bytes);
        assert_eq!(taken.map(|slot| self.blocks.get(slot).address), wanted.map(|place| place.0));
        let (Some(slot), Some((address, free_bytes))) = (taken, wanted) else { return };
        self.blocks.list(slot);
        self.blocks.get_mut(slot).state = State::Live;
        self.free.remove(&address);
        if free_bytes > bytes {
            self.free.insert(address + bytes, free_bytes - bytes);
        }
        self.live.push(slot);
    }

    fn free(&mut self, slot: Slot) {
        let block = self.blocks.get_mut(slot);
        block.state = State::Free;
        let (address, bytes) = (block.address, block.bytes);
        self.tested.give(&mut self.blocks, slot);
        self.add_free(address, bytes);
    }

    fn free_some(&mut self) {
        let index = self.random.below(self.live.len() as u64) as usize;
        let slot = self.live.swap_remove(index);
        self.free(slot);
    }

    /// The end of a free block leaves it, as when an extent moves.
    fn shrink_some(&mut self) {
        let index = self.random.below(self.free.len() as u64) as usize;
        let Some((&address, &bytes)) = self.free.iter().nth(index) else { return };
        let found = self.blocks.iter().find(|(_, block)| block.address == address);
        let Some((slot, _)) = found else { panic!("no block at {address:#x}") };
        self.tested.withdraw(&mut self.blocks, slot);
        let left_bytes = bytes / 2 / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        if left_bytes == 0 {
            return self.tested.give(&mut self.blocks, slot);
        }
        let gone = self.blocks.split(slot, left_bytes);
        self.blocks.turn(gone, State::Unmapped);
        self.tested.give(&mut self.blocks, slot);
        self.free.insert(address, left_bytes);
        let after = self.blocks.get(gone).after;
        if after != NO_SLOT && self.blocks.get(after).state == State::Unmapped {
            self.bare.remove(&self.blocks.get(after).address);
            self.blocks.merge_with_after(gone);
        }
        self.bare.insert(address + left_bytes, gone);
    }

    fn check(&self) {
        self.blocks.validate().unwrap();
        assert_eq!(self.tested.validate(&self.blocks), Ok(self.free.len()));
        let largest_bytes = self.free.values().copied().max().unwrap_or(0);
        assert_eq!(self.tested.largest_bytes(&self.blocks), largest_bytes);
    }
}

#[test]
fn the_wilderness_is_taken_last_and_from_its_start() {
    for (most_live, grows_each) in [(40, 50), (400, 5)] {
        let mut pair = Pair::new(64 * GIB);
        for step in 0..20_000 {
            if step % grows_each == 0 && !pair.grow() {
                break;
            }
            let is_more = pair.random.below(most_live) >= pair.live.len() as u64;
            if is_more || pair.live.is_empty() {
                let magnitude = pair.random.below(16);
                let units = 1 + pair.random.below(1 << magnitude);
                pair.allocate(MIB + units * ALIGNMENT_BYTES);
            } else {
                pair.free_some();
            }
            if step % 31 == 0 && !pair.free.is_empty() {
                pair.shrink_some();
            }
            if step % 97 == 0 {
                pair.check();
            }
        }
        assert!(pair.free.len() > 1 && pair.bare.len() > 1, "something was tested");
        pair.tested.use_first_fit(&mut pair.blocks);
        pair.check();
    }
}

/// Also where the rest of the new memory would fit better: in the next cycle it would not.
#[test]
fn a_hole_is_filled_before_new_memory_is_used() {
    let mut pair = Pair::new(GIB);
    let slot = pair.bare[&START];
    let rest = pair.blocks.split(slot, 100 * MIB);
    pair.bare = BTreeMap::from([(START + 100 * MIB, rest)]);
    pair.blocks.turn(slot, State::Free);
    pair.tested.give(&mut pair.blocks, slot);
    pair.free.insert(START, 100 * MIB);
    for bytes in [50 * MIB, 30 * MIB] {
        pair.allocate(bytes);
    }
    let hole = pair.live.remove(0);
    pair.free(hole);
    // 20 MiB are left at the end, and would fit best.
    pair.allocate(16 * MIB);
    assert_eq!(pair.blocks.get(pair.live[1]).address, START);
}
